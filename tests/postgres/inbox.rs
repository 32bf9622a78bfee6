//! The inbox: who comes second has no effect.

use std::thread::spawn;

use ratchet::effect::{Answer, CommitError, Effects};
use ratchet::postgres::{Inbox, Settings};

use crate::database::Database;
use crate::postgres::task::{Redos, Task, add, session, settings, with_inbox};

const TABLE: &str = "create table t (id bigserial, v text)";

fn shared_inbox(database: &Database) -> Settings {
    with_inbox(settings(database, &[("insert into t (v) values ($1)", 1)]), "orders")
}

/// Records with these identities and versions (`-` for none), whose effect writes both.
fn records(all: &[(&str, &str)]) -> Effects {
    let mut effects = Effects::default();
    for (number, (identity, version)) in all.iter().enumerate() {
        let version = (*version != "-").then_some(version.as_bytes());
        effects.begin(number as i64, identity.as_bytes(), version);
        add(&mut effects, &[(0, &[&format!("{identity}{}", all[number].1)])]);
    }
    effects
}

/// Which of the answers are `Done`, as letters: `d` and `i`.
#[track_caller]
fn outline(answers: Result<Vec<Answer>, CommitError>) -> String {
    let answers = answers.expect("it commits");
    answers.iter().map(|answer| if *answer == Answer::InInbox { 'i' } else { 'd' }).collect()
}

/// Without versions, the first one counts, within a transaction and beyond it.
#[test]
fn identity_without_version_counts_once() {
    let database = Database::with(TABLE);
    let mut session = session(&shared_inbox(&database));
    let mut task = Task::claim(&mut *session, 0);
    assert_eq!(outline(task.commit(&mut *session, &records(&[("b", "-"), ("a", "-"), ("b", "-")]))), "ddi");
    assert_eq!(outline(task.commit(&mut *session, &records(&[("a", "-"), ("c", "-"), ("b", "-")]))), "idi");
    assert_eq!(database.rows("select v from t order by id"), ["b-", "a-", "c-"]);
    let redo = database.value("select convert_from(redo, 'UTF8') from ratchet.position");
    assert_eq!(redo, "redo 0: [InInbox, Done([]), InInbox]");
}

/// With versions, what is newer counts, and its effects are carried out in the order of the input.
#[test]
fn newer_version_counts() {
    let database = Database::with(TABLE);
    let mut session = session(&shared_inbox(&database));
    let mut task = Task::claim(&mut *session, 0);
    let batch = [("a", "2"), ("b", "1"), ("a", "1"), ("a", "3"), ("b", "1"), ("a", "3"), ("b", "-")];
    assert_eq!(outline(task.commit(&mut *session, &records(&batch))), "ddidiii");
    assert_eq!(database.rows("select v from t order by id"), ["a2", "b1", "a3"]);
    assert_eq!(
        outline(task.commit(&mut *session, &records(&[("a", "3"), ("b", "0"), ("a", "4"), ("c", "-"), ("c", "1")]))),
        "iiddd"
    );
    let expected = ["a|4", "b|1", "c|1"];
    assert_eq!(
        database
            .rows("select convert_from(identity, 'UTF8'), convert_from(version, 'UTF8') from ratchet.inbox order by 1"),
        expected
    );
}

/// Inboxes of other names are others; the same name is shared by tasks and topologies.
#[test]
fn name_says_who_shares_it() {
    let database = Database::with(TABLE);
    let settings = shared_inbox(&database);
    let elsewhere = Settings { topology: "other".to_owned(), ..settings.clone() };
    let apart = with_inbox(settings.clone(), "payments");
    let mut lanes = [session(&settings), session(&elsewhere), session(&apart)];
    let mut outlines = Vec::new();
    for (number, lane) in lanes.iter_mut().enumerate() {
        let mut task = Task::claim(&mut **lane, number as i32);
        outlines.push(outline(task.commit(&mut **lane, &records(&[("a", "-")]))));
    }
    assert_eq!(outlines, ["d", "i", "d"]);
}

/// Steps of one transaction share it too, in the order of the steps.
#[test]
fn steps_of_a_transaction_share_it() {
    let database = Database::with(TABLE);
    let mut session = session(&shared_inbox(&database));
    let (one, other) = (Task::claim(&mut *session, 1), Task::claim(&mut *session, 0));
    let (first, second) = (records(&[("a", "1"), ("b", "5")]), records(&[("b", "4"), ("a", "2")]));
    let mut redos = Redos::default();
    session.commit(&[one.step(&first), other.step(&second)], &mut redos).expect("it commits");
    let done = || Answer::Done(vec![]);
    assert_eq!(redos.asked, [(0, vec![done(), done()]), (1, vec![Answer::InInbox, done()])]);
    assert_eq!(database.rows("select v from t order by id"), ["a1", "b5", "a2"]);
}

/// Two sessions with the same identities in different orders, at the same moment: each counts once, and neither waits
/// for the other for ever.
#[test]
fn two_sessions_at_once_agree() {
    let database = Database::with(TABLE);
    let settings = shared_inbox(&database);
    let lanes: Vec<_> = (0..2)
        .map(|lane| {
            let settings = settings.clone();
            spawn(move || {
                let mut session = session(&settings);
                let mut task = Task::claim(&mut *session, lane);
                let mut done = 0;
                for round in 0..20 {
                    let mut names: Vec<_> = (0..50).map(|number| format!("{round}.{number}")).collect();
                    if lane == 1 {
                        names.reverse();
                    }
                    let all: Vec<_> = names.iter().map(|name| (name.as_str(), "-")).collect();
                    let outline = outline(task.commit(&mut *session, &records(&all)));
                    done += outline.matches('d').count();
                }
                done
            })
        })
        .collect();
    let done: usize = lanes.into_iter().map(|lane| lane.join().expect("no deadlock")).sum();
    assert_eq!(done, 1_000);
    assert_eq!(database.value("select count(*), count(distinct v) from t"), "1000|1000");
}

/// Rows that are past their retention are removed, a slice at a time, and others stay.
#[test]
fn old_rows_are_removed_in_slices() {
    let database = Database::with(TABLE);
    let mut settings = shared_inbox(&database);
    settings.inbox = Some(Inbox { name: "orders".to_owned(), retention_ms: Some(60_000) });
    let mut session = session(&settings);
    assert_eq!(session.tidy(), Ok(false));
    database.run(
        "insert into ratchet.inbox select name, n::text::bytea, null, now() - age, 't' from generate_series(1, 1500) n, \
         (values ('orders', interval '61 s'), ('other', interval '61 s')) as of (name, age);
         insert into ratchet.inbox values ('orders', 'young', null, now() - interval '59 s', 't')",
    );
    assert_eq!(session.tidy(), Ok(true));
    assert_eq!(database.value("select count(*) from ratchet.inbox where name = 'orders'"), "501");
    let holder = database.session();
    holder.run("begin; select pg_advisory_xact_lock(hashtextextended('ratchet inbox orders', 0))");
    assert_eq!(session.tidy(), Ok(false), "another instance is at it");
    holder.run("commit");
    assert_eq!(session.tidy(), Ok(false));
    assert_eq!(
        database.rows("select name, count(*) from ratchet.inbox group by name order by 1"),
        ["orders|1", "other|1500"]
    );
}
