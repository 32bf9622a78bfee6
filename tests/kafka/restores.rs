//! Goal: a restore finds the changelog's end whatever is there: markers, aborted records, a foreign transaction, gaps
//! that the cleaner left; and an input that ends in markers is told apart from one with missing records.

use std::time::Duration;

use crate::checker::{Fate, check};
use crate::cluster::Fresh;
use crate::job::Job;
use crate::load::{thing, things};
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

/// A foreign record for the changelog.
fn foreign(id: &str) -> Fresh {
    let key = [b"\x10\x04", &[id.len() as u8][..], id.as_bytes()].concat();
    Fresh { key: Some(key), value: Some([&[1, 1, 0, 0, 0, 0][..], &[0; 8], &[0x81, 9]].concat()), ..Fresh::default() }
}

/// Stops the first operator, and lets another with an empty disk continue after `meanwhile`.
fn restored(job: &Job, meanwhile: impl FnOnce(&Job, &mut Operator)) -> Operator {
    let mut first = Operator::start(job, "first");
    job.await_drained(DEADLINE);
    first.stop();
    drop(first);
    let mut second = Operator::start(job, "second");
    meanwhile(job, &mut second);
    second
}

#[test]
fn changelog_that_ends_in_markers_is_restored_to_its_end() {
    let job = Job::new("markers", 2);
    job.send(things(0, 0..500, 3).chain(things(1, 500..1000, 3)));
    let mut operator = restored(&job, |job, _| job.send(things(0, 0..500, 3).chain(things(1, 500..1000, 2))));
    job.await_drained(DEADLINE);
    operator.stop();
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 1000, "{found:?}");
    assert_eq!((found.count(Fate::Duplicate), found.count(Fate::Stale)), (500, 500), "{found:?}");
    assert_eq!(found.stores_current, 2, "{found:?}");
}

#[test]
fn aborted_tail_of_a_changelog_is_skipped() {
    let job = Job::new("aborted-tail", 1);
    job.send(things(0, 0..100, 1));
    let mut first = Operator::start(&job, "first");
    job.await_drained(DEADLINE);
    first.stop();
    for round in 0..3 {
        let aborted = job.kafka.transaction(&format!("{}-{round}", job.name), DEADLINE);
        aborted.send(&job.changelog(), (0..50).map(|id| foreign(&format!("thing-{id}"))));
        aborted.abort();
    }
    let mut second = Operator::start(&job, "second");
    job.send(things(0, 0..100, 2));
    job.await_drained(DEADLINE);
    second.stop();
    let found = check(&job, &[first.state_dir(), second.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 200, "{found:?}");
    assert_eq!(found.stores, 2, "{found:?}");
}

#[test]
fn restore_waits_for_a_foreign_transaction_on_the_changelog() {
    let job = Job::new("foreign", 1);
    job.send(things(0, 0..100, 1));
    let mut first = Operator::start(&job, "first");
    job.await_drained(DEADLINE);
    first.kill_and_wipe();
    let foreign_writer = job.kafka.transaction(&format!("{}-foreign", job.name), Duration::from_secs(60));
    foreign_writer.send(&job.changelog(), [foreign("thing-1")]);
    let forwarded = job.output().len();

    let mut second = Operator::start(&job, "second");
    job.send(things(0, 0..100, 2));
    within(DEADLINE, "the task to be settling", || {
        (second.metric("ratchet_tasks", &["state=\"settling\""]) > 0.0).then_some(())
    });
    // While it is open, what the changelog holds is unknown.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(job.output().len(), forwarded, "it continued before the changelog's end could be known");
    foreign_writer.abort();
    job.await_drained(DEADLINE);
    second.stop();
    let found = check(&job, &[second.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 200, "{found:?}");
}

#[test]
fn compacted_changelog_is_restored_across_its_gaps() {
    let mut job = Job::on(crate::cluster::Kafka::shared(), "compacted");
    job.compacted = true;
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[]);
    let tiny = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "100"),
    ];
    job.kafka.create(&job.changelog(), 1, &tiny);
    let mut first = Operator::start(&job, "first");
    for version in 1..=5 {
        job.send(things(0, 0..200, version));
        job.await_drained(DEADLINE);
    }
    first.stop();
    within(DEADLINE, "the cleaner to have run", || {
        // A new segment, so that the ones before it can be cleaned; its records never become visible.
        let roll = job.kafka.transaction(&format!("{}-roll", job.name), DEADLINE);
        roll.send(&job.changelog(), [foreign("roll")]);
        roll.abort();
        (job.kafka.read(&job.changelog())[&0].len() < 300).then_some(())
    });
    let mut second = Operator::start(&job, "second");
    job.send(things(0, 0..200, 5).chain(things(0, 0..200, 6)));
    job.await_drained(DEADLINE);
    second.stop();
    let found = check(&job, &[second.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (1200, 200), "{found:?}");
    assert_eq!(found.stores_current, 1, "{found:?}");
}

/// Sends each record in its own transaction, which leaves a marker behind it.
fn send_in_transactions(job: &Job, ids: std::ops::Range<usize>) {
    for id in ids {
        let writer = job.kafka.transaction(&format!("{}-writer", job.name), DEADLINE);
        writer.send(&job.input, [thing(0, &format!("thing-{id}"), 1)]);
        writer.commit();
    }
}

#[test]
fn removal_of_an_inputs_trailing_markers_is_no_loss() {
    let job = Job::new("marker-tail", 1);
    send_in_transactions(&job, 0..3);
    let mut first = Operator::start(&job, "first");
    within(DEADLINE, "three records", || (job.output().len() == 3).then_some(()));
    first.stop();
    let last = job.kafka.read(&job.input)[&0].last().expect("a record").offset;
    let bounds = job.kafka.bounds(&job.input, 0);
    assert!(bounds.end > last + 1, "the input should end in a marker");
    // An aborted transaction's records and marker also form a tail that nobody can read.
    let aborted = job.kafka.transaction(&format!("{}-writer", job.name), DEADLINE);
    aborted.send(&job.input, [thing(0, "never", 1)]);
    aborted.abort();
    let kept = job.kafka.read(&job.input);
    let end = job.kafka.bounds(&job.input, 0).end;
    let mut second = Operator::start(&job, "first");
    within(DEADLINE, "the tail to be passed", || {
        job.kafka.committed(&job.group(), &job.input, 0).filter(|(offset, _)| *offset >= end)
    });
    second.stop();
    job.kafka.delete_records(&job.input, 0, end);
    let mut third = Operator::start(&job, "first");
    send_in_transactions(&job, 3..6);
    within(DEADLINE, "three more records", || (job.output().len() == 6).then_some(()));
    third.stop();
    // The checker cannot see the removed records; the forwarded ones can still be compared.
    let forwarded: Vec<_> = job.output().into_iter().map(|r| r.value).collect();
    let now = job.kafka.read(&job.input);
    let sent: Vec<_> = kept[&0].iter().chain(&now[&0]).map(|r| r.value.clone()).collect();
    assert_eq!(forwarded, sent);
}

#[test]
fn records_removed_unread_stop_the_task() {
    let job = Job::new("truncated", 1);
    job.send(things(0, 0..10, 1));
    let mut first = Operator::start(&job, "first");
    job.await_drained(DEADLINE);
    first.stop();
    job.send(things(0, 10..30, 1));
    job.kafka.delete_records(&job.input, 0, 20);
    let second = Operator::start(&job, "first");
    second.await_error(&[&job.input, "no longer retained", "reset the group"]);
    assert_eq!(job.output().len(), 10, "nothing may be forwarded across the gap");
    assert_eq!(job.committed(), [10], "the committed offset has moved");
}

#[test]
fn reset_to_before_the_inputs_start_resumes_at_its_start() {
    const COUNT: i64 = 30;
    let job = Job::new("reset-truncated", 1);
    job.send(things(0, 0..COUNT as usize, 1));
    let mut first = Operator::start(&job, "first");
    job.await_drained(DEADLINE);
    first.stop();
    // First some of the processed records are gone, then all.
    for gone in [20, COUNT] {
        job.kafka.delete_records(&job.input, 0, gone);
        job.kafka.group(&job.group()).set(&job.input, 0, 5, "");
        let mut next = Operator::start(&job, "first");
        next.await_line(&["reset to an offset before the input's first record"], DEADLINE);
        // Even if nothing follows, the group ends up at an offset that exists.
        within(DEADLINE, "the group to reach the end", || (job.committed() == [COUNT]).then_some(()));
        assert_eq!(job.output().len(), COUNT as usize, "with {gone} removed");
        next.stop();
    }
    job.send(things(0, 30..31, 1));
    let mut last = Operator::start(&job, "first");
    within(DEADLINE, "one more", || (job.output().len() == COUNT as usize + 1).then_some(()));
    last.stop();
}
