//! Goal: a saga whose last step is refused is undone, in reverse and once; transactions happen exactly once, whatever dies.

use std::time::Duration;

use crate::database::{self, Database};
use crate::handlers::work::Work;
use crate::provider::Move;

const KEYED: &str = "honoured_for: 24h";
const COUNT: usize = 24;
const STOCK: i64 = 1_000;
/// Every third order cannot be shipped.
const REFUSED: usize = 3;

fn orders() -> impl Iterator<Item = (usize, String)> {
    (0..COUNT).map(|id| (id, format!("{{\"id\":\"o-{id}\",\"item\":\"chair\",\"quantity\":2}}")))
}

fn saga(database: &Database) -> Work {
    database.run("create table stock (item text primary key, quantity bigint not null)");
    database.run(&format!("insert into stock values ('chair', {STOCK})"));
    let work = Work::of("saga", &[KEYED], vec![("DATABASE_URL", database.url.clone())]);
    work.provider.always(Move::receipt().late(Duration::from_millis(20)));
    for id in (0..COUNT).step_by(REFUSED) {
        work.provider.script(&format!("/ship/o-{id}"), std::iter::repeat_n(Move::answer(422), 20));
    }
    work
}

/// Those that could be shipped were, and of the others nothing is left.
#[track_caller]
fn assert_done_or_undone(database: &Database, work: &Work, may_be_doubted: bool) {
    let (ends, acts) = (work.ends(), work.acts());
    let mut doubted = 0;
    for id in 0..COUNT {
        let (name, is_refused) = (format!("o-{id}"), id % REFUSED == 0);
        let end = &ends[&name];
        let acted = ["charge", "ship", "refund"].map(|step| acts.get(&format!("/{step}/{name}")).copied().unwrap_or(0));
        match (&end.letters[..], is_refused) {
            ([], false) => assert_eq!((end.results.len(), acted), (1, [1, 1, 0]), "{name}: {end:?}"),
            ([reason], true) if reason == "rejected" => assert_eq!(acted, [1, 0, 1], "{name}: {end:?}"),
            // It died while it was asked to ship: that it was refused afterwards says nothing about then.
            ([reason], true) if reason == "in_doubt" && may_be_doubted => {
                assert_eq!(acted, [1, 0, 0], "{name}: {end:?}");
                doubted += 1;
            }
            _ => panic!("{name}: {end:?}"),
        }
    }
    let left: i64 = database.value("select quantity from stock").parse().expect("a number");
    let shipped = COUNT - COUNT.div_ceil(REFUSED);
    assert_eq!(left, STOCK - 2 * (shipped + doubted) as i64, "{doubted} in doubt");
}

/// A row of the pattern: reserve, charge, ship; the last one refused.
#[test]
fn saga_whose_last_step_is_refused_is_undone_once() {
    let database = Database::new();
    let work = saga(&database);
    work.send(orders().chain(orders()));
    let mut operator = work.start("a", None);
    assert_done_or_undone(&database, &work, false);
    let steps = database.rows("select step, count(*) from ratchet.step group by step order by step");
    assert_eq!(steps, [format!("release|{}", COUNT.div_ceil(REFUSED)), format!("reserve|{COUNT}")]);
    operator.stop();
}

#[test]
fn saga_whose_program_dies_is_done_or_undone_once() {
    for point in ["after_step:12", "after_step:40", "after_commit:9", "after_answer:7", "after_sends:11"] {
        let database = Database::new();
        let work = saga(&database);
        work.send(orders());
        let mut first = work.start("a", Some(point));
        first.await_crash();
        first.kill_and_wipe();
        let mut heir = work.start("b", None);
        work.send(orders());
        assert_done_or_undone(&database, &work, true);
        heir.stop();
    }
}

/// What cannot be undone is for a person: to ask again would bring the same refusal, whatever is made of calls that may have
/// happened.
#[test]
fn refund_that_is_refused_is_in_doubt_and_not_asked_for_again() {
    for lines in [&[KEYED][..], &[KEYED, "on_in_doubt: retry"], &["on_in_doubt: retry"]] {
        let database = Database::new();
        database.run("create table stock (item text primary key, quantity bigint not null)");
        database.run(&format!("insert into stock values ('chair', {STOCK})"));
        let work = Work::of("saga", lines, vec![("DATABASE_URL", database.url.clone())]).answering_duplicates();
        work.provider.script("/ship/o-1", [Move::answer(422)]);
        work.provider.script("/refund/o-1", std::iter::repeat_n(Move::answer(422), 20));
        let order = || orders().skip(1).take(2);
        work.send(order());
        let mut operator = work.start("a", None);
        let ends = work.ends();
        assert_eq!(ends["o-1"].letters, ["in_doubt"], "{lines:?}: {ends:?}");
        assert_eq!(ends["o-2"].results.len(), 1, "{lines:?}: {ends:?}");
        let asked = || work.provider.seen().iter().filter(|seen| seen.target == "/refund/o-1").count();
        assert_eq!(asked(), 1, "{lines:?}");
        assert_eq!(operator.metric("ratchet_effects_in_doubt", &[]), 1.0, "{lines:?}");
        // What was undone before it stays undone, and what comes before in order is not undone.
        let left = database.value("select quantity from stock where item = 'chair'");
        assert_eq!(left, (STOCK - 2 * 2).to_string(), "{lines:?}");
        // A duplicate is one of what is in doubt.
        work.send(order());
        work.ends();
        assert_eq!((asked(), work.acts().get("/charge/o-1")), (1, Some(&1)), "{lines:?}");
        operator.stop();
    }
}

#[test]
fn transactions_with_an_outbox_happen_once_whatever_dies() {
    for (point, kills_database) in [("after_commit:3", false), ("after_step:1", true), ("after_sends:6", false)] {
        let mut server = database::Server::start("outbox", &[]);
        let database = Database::on(&server);
        database.run("create table account (id text primary key, balance bigint not null)");
        database.run(
            "create table outbox (id uuid primary key, aggregatetype text, aggregateid text, type text, payload text)",
        );
        database.run("insert into account values ('a', 0), ('b', 0)");
        let work = Work::of("outbox", &["on_in_doubt: dead_letter"], vec![("DATABASE_URL", database.url.clone())]);
        let transfers = || {
            (0..60).map(|id| {
                let account = if id % 10 == 9 { "nobody" } else { ["a", "b"][id % 2] };
                (id, format!("{{\"id\":\"o-{id}\",\"account\":\"{account}\",\"amount\":{}}}", id + 1))
            })
        };
        work.send(transfers());
        // A single step is left to the settlement, so no step is committed by itself.
        let point = if point.starts_with("after_step") { "after_answer:11" } else { point };
        let mut first = work.start("a", Some(point));
        first.await_crash();
        first.kill_and_wipe();
        if kills_database {
            server.kill_and_restart();
        }
        let mut heir = work.start("b", None);
        work.send(transfers());
        let ends = work.ends();
        let expected: i64 = (0..60_i64).filter(|id| id % 10 != 9).map(|id| id + 1).sum();
        // The one before may have ended with the server.
        let rows = database.session().rows("select (select sum(balance) from account), (select count(*) from outbox)");
        assert_eq!(rows, [format!("{expected}|54")], "{point}");
        for (id, end) in &ends {
            let is_refused = id.ends_with('9');
            assert_eq!(
                (end.letters.len(), end.results.len()),
                if is_refused { (1, 0) } else { (0, 1) },
                "{id}: {end:?}"
            );
        }
        heir.stop();
    }
}
