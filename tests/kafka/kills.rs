//! Goal: whenever and however often instances are killed, with or without their disks, the output is that of one
//! undisturbed pass over the input.

use std::thread::sleep;
use std::time::Duration;

use crate::checker::{Fate, check};
use crate::job::Job;
use crate::load::{Feed, Load, Random, things};
use crate::operator::{Operator, Options};
use crate::until::DEADLINE;

/// A kill is followed by the session timeout, the transaction timeout and a restore.
const RECOVERY: Duration = Duration::from_secs(60);

#[test]
fn random_kills_of_two_instances_change_no_output() {
    let mut random = Random::seeded("random kills");
    let job = Job::new("kills", 4);
    let feed = Feed::start(&job, Load::new(random.clone(), 4, 3000), 3000);
    let labels = ["a", "b"];
    let mut operators = labels.map(|label| Operator::start(&job, label));
    job.await_progress(&[0; 4], DEADLINE);
    let (mut killed_in_transaction, mut wiped, mut kills) = (0, 0, [0; 2]);
    for round in 0..7 {
        sleep(random.duration(Duration::ZERO, Duration::from_millis(1200)));
        // At the end, the one killed less often.
        let first = if round < 5 { random.below(2) as usize } else { usize::from(kills[1] < kills[0]) };
        // Now and then the other one is killed too, before it can take over.
        let victims = if random.once_in(3) { vec![first, 1 - first] } else { vec![first] };
        for &victim in &victims {
            // Every other round aims at an open transaction, so that the run is sure to reach it.
            if round % 2 == 0 && victims.len() == 1 {
                operators[victim].freeze_in_transaction(&job);
            }
            operators[victim].kill();
            kills[victim] += 1;
        }
        killed_in_transaction += usize::from(job.has_stuck_transaction());
        let before = job.committed();
        for &victim in &victims {
            if random.once_in(3) || (round == 6 && wiped == 0) {
                operators[victim].kill_and_wipe();
                wiped += 1;
            }
            operators[victim] = Operator::start(&job, labels[victim]);
        }
        job.await_progress(&before, RECOVERY);
    }
    println!(
        "killed {kills:?} times, {killed_in_transaction} in a transaction, {wiped} wiped, {} records",
        feed.stop()
    );
    assert!(kills.iter().all(|kills| *kills >= 2), "{kills:?}: each should be killed more than once");
    assert!(killed_in_transaction > 0, "no kill met an open transaction");
    assert!(wiped > 0, "no state folder was removed");
    job.await_drained(RECOVERY);
    let stopped = operators.map(|mut operator| {
        operator.stop();
        operator
    });
    let found = check(&job, &[stopped[0].state_dir(), stopped[1].state_dir()]);
    assert!(found.assert_each_fate().dead_lettered() > 0, "no record was dead-lettered: {found:?}");
    assert!(found.stores_current >= 4, "each partition should have a store at its end: {found:?}");
}

/// An operator dies at a kill point, under load, and its successor finishes on the same disk.
fn dies_and_recovers(point: &str, prepare: impl FnOnce(&Job)) {
    let random = Random::seeded(point);
    let theme = format!("at-{}", point.split(':').next().unwrap_or_default().replace('_', "-"));
    let job = Job::new(&theme, 2);
    let mut load = Load::new(random, 2, 500);
    job.send(load.records(2000));
    prepare(&job);
    let feed = Feed::start(&job, load, 500);
    let mut dying = Operator::start_with(&job, "a", &Options { crash_at: Some(point), ..Options::default() });
    dying.await_crash();
    let before = job.committed();
    let mut successor = Operator::start(&job, "a");
    job.await_progress(&before, RECOVERY);
    feed.stop();
    job.await_drained(RECOVERY);
    successor.stop();
    let found = check(&job, &[successor.state_dir()]);
    found.assert_each_fate();
    assert_eq!(found.stores_current, 2, "{found:?}");
}

#[test]
fn death_between_sends_and_commit_loses_nothing() {
    dies_and_recovers("after_sends:3", |_| {});
}

#[test]
fn death_between_commit_and_store_write_repeats_nothing() {
    dies_and_recovers("after_commit:3", |_| {});
}

#[test]
fn store_is_brought_up_to_date_after_death_during_its_write() {
    dies_and_recovers("during_store_write:3", |_| {});
}

#[test]
fn store_is_not_trusted_after_death_during_its_restore() {
    dies_and_recovers("during_restore:1", |job| {
        job.send(things(0, 0..1000, 1).chain(things(1, 0..1000, 1)));
        let mut first = Operator::start(job, "a");
        job.await_drained(DEADLINE);
        first.kill_and_wipe();
    });
}

#[test]
fn store_is_not_trusted_after_death_between_two_loads() {
    // More than two loads of the smallest size.
    const THINGS: usize = 200_000;
    let mut job = Job::new("at-load", 1);
    job.worker.push("memory: 64MiB".to_owned());
    job.send(things(0, 0..THINGS, 1));
    let mut first = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    first.kill_and_wipe();
    let mut dying = Operator::start_with(&job, "a", &Options { crash_at: Some("during_load:1"), ..Options::default() });
    dying.await_crash();
    let left = check(&job, &[dying.state_dir()]);
    assert_eq!((left.stores_unfinished, left.stores), (1, 0), "{left:?}");
    let mut successor = Operator::start(&job, "a");
    job.send(things(0, 0..1000, 1));
    job.await_drained(RECOVERY);
    successor.stop();
    let found = check(&job, &[successor.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (THINGS, 1000), "{found:?}");
    assert_eq!(found.stores_current, 1, "{found:?}");
}
