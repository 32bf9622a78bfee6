//! Goal: the committed offset always names the last owner that could have written, so that a successor ends the
//! transaction that a dead owner left open instead of waiting for it; and nothing goes wrong where it names nobody,
//! somebody else or a living owner.
//!
//! Transactions here time out after ten minutes: waiting for that fails the test.

use std::time::{Duration, Instant};

use crate::checker::{Fate, check};
use crate::job::{Job, SESSION_TIMEOUT};
use crate::load::{Feed, Load, Random, things};
use crate::operator::{Operator, Options};
use crate::until::{DEADLINE, within};

/// What a takeover may take beyond the session timeout on a busy machine; a small part of a transaction's timeout.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// What a hand-over may take on a busy machine: less than a session timeout.
const HAND_OVER_MAX: Duration = Duration::from_millis(1900);
/// Logged by an operator that fences somebody.
const FENCES: &str = "fencing the former owner";

/// A job whose transactions live for ten minutes.
fn patient(theme: &str, partitions: i32) -> Job {
    let mut job = Job::new(theme, partitions);
    job.properties.insert("producer.transaction.timeout.ms".to_owned(), "600000".to_owned());
    // A broker accepts no longer timeout than it allows.
    job.properties.insert("producer.message.timeout.ms".to_owned(), "5000".to_owned());
    job
}

/// Waits until the partition is released: the process may be gone before its last transaction is visible.
#[track_caller]
fn await_released(job: &Job, partition: i32) {
    let mut seen = String::new();
    within(DEADLINE, "the partition to be released", || {
        seen = metadata(job, partition);
        seen.ends_with(" released").then_some(())
    });
}

/// The metadata of a partition's committed offset.
fn metadata(job: &Job, partition: i32) -> String {
    job.kafka.committed(&job.group(), &job.input, partition).expect("it has committed").1
}

fn fences(operator: &Operator) -> bool {
    operator.log().iter().any(|line| line.to_string().contains(FENCES))
}

#[test]
fn owners_that_die_in_transactions_keep_nobody_waiting() {
    let job = patient("dying", 1);
    let feed = Feed::start(&job, Load::new(Random::seeded("dying"), 1, 300), 500);
    let mut dead = Vec::new();
    for (label, point) in
        [("a", "after_sends:5"), ("b", "after_sends:1"), ("c", "after_sends:1"), ("d", "after_sends:9")]
    {
        let dies = Options { crash_at: Some(point), ..Options::default() };
        let mut owner = Operator::start_with(&job, label, &dies);
        let started = Instant::now();
        owner.await_crash();
        // Had it waited for the transaction before, it would not have died yet.
        println!("{label} took over and died after {:?}", started.elapsed());
        assert!(started.elapsed() < SESSION_TIMEOUT + PAUSE_MAX + PAUSE_MAX, "{label}: {:?}", started.elapsed());
        dead.push(owner);
    }
    let before = job.committed();
    let died = Instant::now();
    let mut successor = Operator::start(&job, "successor");
    job.await_progress(&before, SESSION_TIMEOUT + PAUSE_MAX);
    println!("the successor continues {:?} after the last death (session timeout {SESSION_TIMEOUT:?})", died.elapsed());
    assert!(fences(&successor), "nobody was fenced");
    feed.stop();
    job.await_drained(DEADLINE);
    successor.stop();
    let dirs: Vec<_> = dead.iter().chain([&successor]).map(Operator::state_dir).collect();
    check(&job, &dirs).assert_each_fate();
    await_released(&job, 0);
}

#[test]
fn four_lanes_of_a_killed_instance_are_taken_over() {
    let mut job = patient("lanes", 4);
    job.worker.push("lanes: 4".to_owned());
    let feed = Feed::start(&job, Load::new(Random::seeded("lanes"), 4, 2000), 1500);
    let mut owner = Operator::start(&job, "a");
    job.await_progress(&[0, 0, 0, 0], DEADLINE);
    within(DEADLINE, "four owners", || {
        let owners: std::collections::BTreeSet<_> = job.owners().into_iter().collect::<Option<_>>()?;
        (owners.len() == 4).then_some(())
    });
    owner.freeze_in_transaction(&job);
    owner.kill();
    let (died, before) = (Instant::now(), job.committed());
    let mut successor = Operator::start(&job, "a");
    job.await_progress(&before, SESSION_TIMEOUT + PAUSE_MAX);
    println!("all four continue {:?} after the kill (session timeout {SESSION_TIMEOUT:?})", died.elapsed());
    feed.stop();
    job.await_drained(DEADLINE);
    successor.stop();
    check(&job, &[successor.state_dir()]).assert_each_fate();
}

#[test]
fn standby_instance_takes_over_soon_after_a_kill() {
    let job = patient("stands-by", 2);
    let feed = Feed::start(&job, Load::new(Random::seeded("stands-by"), 2, 1000), 1000);
    let (mut owner, mut successor) = (Operator::start(&job, "owner"), Operator::start(&job, "successor"));
    within(DEADLINE, "two owners", || {
        let owners = job.owners();
        (owners[0].is_some() && owners[1].is_some() && owners[0] != owners[1]).then_some(())
    });
    owner.freeze_in_transaction(&job);
    owner.kill();
    let (died, before) = (Instant::now(), job.committed());
    job.await_progress(&before, SESSION_TIMEOUT + PAUSE_MAX);
    println!("continues {:?} after the kill (session timeout {SESSION_TIMEOUT:?})", died.elapsed());
    feed.stop();
    job.await_drained(DEADLINE);
    successor.stop();
    check(&job, &[owner.state_dir(), successor.state_dir()]).assert_each_fate();
}

#[test]
fn released_partition_is_taken_over_without_fencing() {
    let job = patient("handed", 1);
    let feed = Feed::start(&job, Load::new(Random::seeded("handed"), 1, 300), 500);
    let mut owner = Operator::start(&job, "owner");
    job.await_progress(&[0], DEADLINE);
    let successor = Operator::start(&job, "successor");
    within(DEADLINE, "the successor to join", || {
        (successor.metric("ratchet_rebalances_total", &[]) > 0.0).then_some(())
    });
    // Commits around the rebalance may be aborted; only an owner at work can release.
    job.await_progress(&job.committed(), DEADLINE);
    owner.stop();
    let (stopped, before) = (Instant::now(), job.committed());
    job.await_progress(&before, DEADLINE);
    println!("continues {:?} after the owner has stopped", stopped.elapsed());
    assert!(stopped.elapsed() < HAND_OVER_MAX, "{:?}", stopped.elapsed());
    let line = successor.await_line(&["task taken over"], DEADLINE);
    assert_eq!(line["owner"], "released", "{line}");
    assert!(!fences(&successor), "somebody was fenced");
    feed.stop();
    job.await_drained(DEADLINE);
    let mut successor = successor;
    successor.stop();
    await_released(&job, 0);
    check(&job, &[owner.state_dir(), successor.state_dir()]).assert_each_fate();
}

#[test]
fn fenced_living_owner_continues_under_another_id() {
    let mut job = patient("wrongly", 1);
    // Nobody dies, and a busy machine must not look as if somebody had.
    job.properties.insert("consumer.session.timeout.ms".to_owned(), "120000".to_owned());
    let feed = Feed::start(&job, Load::new(Random::seeded("wrongly"), 1, 300), 500);
    let mut owner = Operator::start(&job, "owner");
    job.await_progress(&[0], DEADLINE);
    let rebalances = owner.metric("ratchet_rebalances_total", &[]);
    for round in 0..3 {
        let named = job.owners()[0].clone().expect("an owner at work is named");
        let fenced = Instant::now();
        job.kafka.transaction(&named, DEADLINE).abort();
        within(DEADLINE, "the owner to continue under another id", || {
            job.owners()[0].as_ref().is_some_and(|owner| *owner != named).then_some(())
        });
        job.await_progress(&job.committed(), DEADLINE);
        println!("round {round}: continues under another id {:?} after it was fenced", fenced.elapsed());
    }
    owner.assert_running();
    assert_eq!(owner.metric("ratchet_rebalances_total", &[]), rebalances, "it left its group");
    let isolated = owner.log().iter().any(|line| line.to_string().contains("this task's output fails"));
    assert!(!isolated, "a fenced producer was taken for a failure of the output");
    feed.stop();
    job.await_drained(DEADLINE);
    owner.stop();
    check(&job, &[owner.state_dir()]).assert_each_fate();
}

#[test]
fn transactional_id_of_another_program_is_left_alone() {
    let job = patient("foreign", 1);
    job.send(things(0, 0..100, 1));
    let mut owner = Operator::start(&job, "owner");
    job.await_drained(DEADLINE);
    owner.stop();
    await_released(&job, 0);
    // The metadata names an id that is not ratchet's, with a transaction open on the output.
    let (offset, text) = job.kafka.committed(&job.group(), &job.input, 0).expect("it has committed");
    let id = format!("bank-{}", job.name);
    let text = text.replace(" released", &format!(" {id}"));
    job.kafka.group(&job.group()).set(&job.input, 0, offset, &text);
    let foreign = job.kafka.transaction(&id, DEADLINE);
    foreign.offset(&format!("of-{}", job.name), &job.input, 0, 1, "");
    job.send(things(0, 50..150, 1));
    let mut successor = Operator::start(&job, "successor");
    within(DEADLINE, "the successor to have committed", || {
        job.kafka.committed(&job.group(), &job.input, 0).is_some_and(|(offset, _)| offset >= 200).then_some(())
    });
    assert!(!fences(&successor), "somebody was fenced");
    foreign.commit();
    successor.stop();
    let found = check(&job, &[owner.state_dir(), successor.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (150, 50), "{found:?}");
}

#[test]
fn reset_group_stays_reset_and_can_be_taken_over() {
    let job = patient("reset", 1);
    job.send(things(0, 0..100, 1));
    let mut owner = Operator::start(&job, "owner");
    job.await_drained(DEADLINE);
    owner.stop();
    await_released(&job, 0);
    job.kafka.group(&job.group()).set(&job.input, 0, 0, "");
    let mut second = Operator::start(&job, "second");
    second.await_line(&["the group was reset"], DEADLINE);
    job.await_drained(DEADLINE);
    let named = job.owners()[0].clone().expect("an owner at work is named");
    assert!(!fences(&second), "nobody was named, and somebody was fenced");
    second.kill();
    job.send(things(0, 90..110, 1));
    let mut successor = Operator::start(&job, "successor");
    job.await_drained(DEADLINE);
    assert_ne!(job.owners()[0].as_ref(), Some(&named));
    successor.stop();
    // Records read again are recognised by their offsets, and nothing of them is forwarded.
    let output = job.output();
    assert_eq!(output.len(), 110);
    await_released(&job, 0);
}
