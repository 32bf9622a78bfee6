//! Goal: whenever and however often instances are killed, with or without their disks, the output is what
//! one undisturbed pass over the input gives.

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
fn random_kills_of_two_instances_change_nothing() {
    let mut random = Random::seeded("random kills");
    let job = Job::new("kills", 4);
    let feed = Feed::start(&job, Load::new(random.clone(), 4, 3000), 3000);
    let labels = ["a", "b"];
    let mut operators = labels.map(|label| Operator::start(&job, label));
    job.await_progress(&[0; 4], DEADLINE);
    let (mut killed_in_transaction, mut wiped, mut kills) = (0, 0, [0; 2]);
    for round in 0..7 {
        sleep(random.duration(Duration::ZERO, Duration::from_millis(1200)));
        // In the end the one that was spared so far.
        let first = if round < 5 { random.below(2) as usize } else { usize::from(kills[1] < kills[0]) };
        // The other one follows it now and then, before it could take over.
        let victims = if random.once_in(3) { vec![first, 1 - first] } else { vec![first] };
        for &victim in &victims {
            // Every other round is aimed, so that the run reaches what it is about.
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
    assert!(kills.iter().all(|kills| *kills >= 2), "{kills:?}: each is to be killed more than once");
    assert!(killed_in_transaction > 0, "no kill met an open transaction");
    assert!(wiped > 0, "no state folder was removed");
    job.await_drained(RECOVERY);
    let stopped = operators.map(|mut operator| {
        operator.stop();
        operator
    });
    let found = check(&job, &[stopped[0].state_dir(), stopped[1].state_dir()]);
    assert!(found.assert_lively().dead_lettered() > 0, "no record was dead-lettered: {found:?}");
    assert!(found.stores_current >= 4, "each partition has a store at its end: {found:?}");
}

/// Lets an operator die at a kill point, under load, and another one finish on the same disk.
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
    let mut heir = Operator::start(&job, "a");
    job.await_progress(&before, RECOVERY);
    feed.stop();
    job.await_drained(RECOVERY);
    heir.stop();
    let found = check(&job, &[heir.state_dir()]);
    found.assert_lively();
    assert_eq!(found.stores_current, 2, "{found:?}");
}

#[test]
fn a_death_after_the_sends_and_before_the_commit_loses_nothing() {
    dies_and_recovers("after_sends:3", |_| {});
}

#[test]
fn a_death_after_the_commit_and_before_the_stores_write_repeats_nothing() {
    dies_and_recovers("after_commit:3", |_| {});
}

#[test]
fn a_death_during_the_stores_write_leaves_a_store_that_is_brought_up_to_date() {
    dies_and_recovers("during_store_write:3", |_| {});
}

#[test]
fn a_death_during_the_restore_leaves_a_store_that_nobody_trusts() {
    dies_and_recovers("during_restore:1", |job| {
        job.send(things(0, 0..1000, 1).chain(things(1, 0..1000, 1)));
        let mut first = Operator::start(job, "a");
        job.await_drained(DEADLINE);
        first.kill_and_wipe();
    });
}

#[test]
fn a_death_between_two_loads_of_a_restore_leaves_a_store_that_nobody_trusts() {
    // More than two of the smallest loads.
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
    let mut heir = Operator::start(&job, "a");
    job.send(things(0, 0..1000, 1));
    job.await_drained(RECOVERY);
    heir.stop();
    let found = check(&job, &[heir.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (THINGS, 1000), "{found:?}");
    assert_eq!(found.stores_current, 1, "{found:?}");
}
