//! Goal: work that was begun continues, or its task stops; nobody guesses.

use std::time::Duration;

use crate::handlers::work::{RECOVERY, Work};
use crate::provider::{Move, Plan};
use crate::until::{DEADLINE, within};

const KEYED: &str = "honoured_for: 24h";

fn payment(id: usize, amount: u32) -> [(usize, String); 1] {
    [(id, format!("{{\"id\":\"o-{id}\",\"amount\":{amount}}}"))]
}

#[test]
fn work_that_was_tried_in_vain_is_gone_on_with_by_a_duplicate() {
    let lines = [KEYED, "on_unavailable: dead_letter", "retry: {first: 20ms, max: 50ms, attempts: 3}"];
    let lines: Vec<&str> = lines.into_iter().collect();
    let work = Work::of("payment", &lines[..2], Vec::new());
    let mut work = work;
    work.job.topology[0] = work.job.topology[0].replace("retry: {first: 50ms, max: 500ms}", lines[2]);
    work.provider.script("/capture/o-1", [Move::answer(503), Move::answer(503), Move::answer(503)]);
    work.send(payment(1, 5));
    let mut operator = work.start("a", None);
    let ends = work.ends();
    assert_eq!(ends["o-1"].letters, ["unavailable"]);
    work.send(payment(1, 5));
    let ends = work.ends();
    assert_eq!((ends["o-1"].results.len(), ends["o-1"].letters.len()), (1, 1), "{ends:?}");
    // The first step is not called again, although its work was given up in between.
    let seen = work.provider.seen();
    let asked = ["authorise", "capture", "receipt"]
        .map(|step| seen.iter().filter(|seen| seen.target == format!("/{step}/o-1")).count());
    assert_eq!(asked, [1, 4, 1]);
    operator.stop();
}

/// What was half done stays with nobody to go on with it: somebody has to look, so it counts.
#[test]
fn work_that_is_overtaken_half_done_counts_as_in_doubt() {
    let mut work = Work::of("payment", &[KEYED, "on_unavailable: dead_letter"], Vec::new());
    let usual = "retry: {first: 50ms, max: 500ms}";
    work.job.topology[0] = work.job.topology[0].replace(usual, "retry: {first: 20ms, max: 50ms, attempts: 2}");
    work.job.rules.version = Some("version");
    work.provider.script("/capture/o-1", [Move::answer(503), Move::answer(503)]);
    work.provider.script("/authorise/o-2", [Move::answer(503), Move::answer(503)]);
    let version =
        |id: usize, version: u32| [(id, format!("{{\"id\":\"o-{id}\",\"amount\":{version},\"version\":{version}}}"))];
    // One with a step that is done, one without.
    work.send(version(1, 1).into_iter().chain(version(2, 1)));
    let mut operator = work.start("a", None);
    let ends = work.ends();
    assert_eq!([&ends["o-1"].letters, &ends["o-2"].letters], [&["unavailable".to_owned()]; 2]);
    assert_eq!(operator.metric("ratchet_effects_in_doubt", &[]), 0.0);
    work.send(version(1, 2).into_iter().chain(version(2, 2)));
    let ends = work.ends();
    assert_eq!(["o-1", "o-2"].map(|id| ends[id].results.len()), [1, 1], "{ends:?}");
    within(RECOVERY, "it to be counted", || {
        (operator.metric("ratchet_effects_total", &["outcome=\"done\""]) == 2.0).then_some(())
    });
    assert_eq!(operator.metric("ratchet_effects_in_doubt", &[]), 1.0);
    assert_eq!(operator.metric("ratchet_effects_total", &["outcome=\"in_doubt\""]), 1.0);
    operator.await_line(&["a newer record arrived when only some of its steps were done"], DEADLINE);
    operator.stop();
}

#[test]
fn other_work_under_the_same_identity_is_a_conflict() {
    let work = Work::of("payment", &[KEYED], Vec::new());
    let mut operator = work.start("a", None);
    work.send(payment(1, 5));
    work.ends();
    work.send(payment(1, 6));
    let ends = work.ends();
    assert_eq!((ends["o-1"].results.len(), &ends["o-1"].letters[..]), (1, &["conflict".to_owned()][..]));
    operator.stop();
}

#[test]
fn work_of_another_program_stops_its_task() {
    let database = crate::database::Database::new();
    database.run("create table stock (item text primary key, quantity bigint not null)");
    let work = Work::of("payment", &[KEYED], Vec::new());
    work.provider.script("/capture/o-2", [Move::receipt().late(Duration::from_secs(4))]);
    // What both programs read.
    work.send([(2, "{\"id\":\"o-2\",\"amount\":5,\"item\":\"chair\",\"quantity\":1}".to_owned())]);
    let mut first = work.start("a", None);
    within(RECOVERY, "its second step", || work.acts().contains_key("/capture/o-2").then_some(()));
    first.kill();
    // The saga's program begins with another step.
    let env = vec![("DATABASE_URL", database.url.clone())];
    let Work { job, provider, .. } = work;
    let other = Work::with(job, provider, "saga", env);
    let mut second = other.start("b", None);
    second.await_error(&[&format!("{}:0:0", other.job.input), "remembered are `authorise`; now there are `reserve`"]);
    second.kill();
    // The one that has begun it goes on.
    let Work { job, provider, .. } = other;
    let work = Work::with(job, provider, "payment", Vec::new());
    let mut third = work.start("c", None);
    let ends = work.ends();
    assert_eq!(ends["o-2"].results.len(), 1, "{ends:?}");
    assert!(work.acts().values().all(|acts| *acts == 1), "{:?}", work.acts());
    third.stop();
}

/// Nothing else can be written of it: its task stops, and goes on once the changelog takes it.
#[test]
fn work_whose_steps_the_changelog_refuses_stops_its_task() {
    let work = Work::of("payment", &[KEYED], Vec::new());
    let mut first = work.start("a", None);
    work.send(payment(0, 5));
    work.ends();
    let take = |bytes| {
        let settings = [("cleanup.policy", "compact"), ("max.message.bytes", bytes)];
        work.job.kafka.set_settings(&work.job.changelog(), &settings);
    };
    take("6000");
    let mut random = crate::random::Random::seeded("noise");
    let noise: Vec<u8> = (0..15_000).map(|_| b'a' + random.below(26) as u8).collect();
    work.provider.script("/capture/o-2", [Move::act().body(Plan::Bytes(noise.clone()))]);
    work.send(payment(2, 5).into_iter().chain(payment(4, 5)).chain(payment(1, 5)));
    first.await_error(&[
        &format!("{}:0:1", work.job.input),
        "the changelog refuses the outcomes of its steps (`max.message.bytes`)",
        "too large",
    ]);
    // Its partition stands; the other one goes on, and what came before is settled.
    within(DEADLINE, "the other partition to go on", || work.acts().contains_key("/receipt/o-1").then_some(()));
    assert!(!work.acts().contains_key("/receipt/o-2"), "the step after it has begun");
    first.terminate();
    first.await_exit(DEADLINE);
    take("1000000");
    let mut second = work.start("b", None);
    let ends = work.ends();
    assert!([0, 1, 2, 4].iter().all(|id| ends[&format!("o-{id}")].results.len() == 1), "{ends:?}");
    assert!(ends["o-2"].results[0].1.contains(std::str::from_utf8(&noise).expect("letters")));
    let acts = work.acts();
    assert!(acts.len() == 12 && acts.values().all(|acts| *acts == 1), "{acts:?}");
    let seen = work.provider.seen();
    let asked = ["authorise", "capture", "receipt"]
        .map(|step| seen.iter().filter(|seen| seen.target == format!("/{step}/o-2")).count());
    // The step before it was committed.
    assert_eq!(asked, [1, 2, 1]);
    second.stop();
}

#[test]
fn topology_with_a_handler_needs_a_program() {
    let mut work = Work::of("payment", &[KEYED], Vec::new());
    work.send(payment(1, 5));
    let operator = crate::operator::Operator::start(&work.job, "a");
    operator.await_error(&["it ends in a handler", "`ratchet::Worker`"]);
    drop(operator);
    work.job.topology.clear();
    let mut other = work.start("b", None);
    let status = other.await_exit(DEADLINE);
    assert!(!status.success() && other.tail().contains("does not end in a handler"), "{}", other.tail());
}
