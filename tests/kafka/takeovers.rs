//! Goal: a partition whose owner has died is taken over in time, however far the owner's transaction had got, and
//! nothing of that transaction ever becomes visible.

use std::time::{Duration, Instant};

use crate::checker::{Fate, bytes, check};
use crate::cluster::Fresh;
use crate::job::{ABORT_SCAN, Job, SESSION_TIMEOUT, TRANSACTION_TIMEOUT};
use crate::load::{Feed, Load, Random, thing, things};
use crate::operator::{Operator, Options};
use crate::until::{DEADLINE, within};

/// How long a takeover may take.
const TAKEOVER_MAX: Duration = Duration::from_millis(
    (SESSION_TIMEOUT.as_millis() + TRANSACTION_TIMEOUT.as_millis() + ABORT_SCAN.as_millis()) as u64 + 1000,
);

/// What the dead owner's transaction had written.
struct Left {
    output: bool,
    changelog: bool,
    offsets: bool,
}

/// An owner dies; a transaction of its kind is open; another instance has to continue in time.
fn taken_over(theme: &str, left: &Left) {
    let job = Job::new(theme, 1);
    job.send(things(0, 0..300, 1));
    let mut owner = Operator::start(&job, "owner");
    job.await_drained(DEADLINE);
    let (committed, metadata) = job.kafka.committed(&job.group(), &job.input, 0).expect("it has committed");
    // On standby, as a member of the group, so that the clock starts with the owner's death.
    let mut successor = Operator::start(&job, "successor");
    within(DEADLINE, "the successor to join", || {
        (successor.metric("ratchet_rebalances_total", &[]) > 0.0).then_some(())
    });
    job.await_drained(DEADLINE);
    let survivor = job.owners();

    // If nothing is left on the output, all are duplicates, which leave offsets only.
    let next: Vec<Fresh> = if left.output { things(0, 300..310, 1).collect() } else { things(0, 0..10, 1).collect() };
    owner.freeze();
    job.send(next);
    // A writer plays the frozen owner and does what it would have done, under an id of the same form.
    let dead = job.kafka.transaction(&format!("ratchet.{}.00000000deadbeef.0", job.name), TRANSACTION_TIMEOUT);
    if left.output {
        dead.send(&job.output, things(0, 300..310, 1));
    }
    if left.changelog {
        let entry = Fresh { key: Some(b"\x10\x04\x05never".to_vec()), value: Some(vec![1; 14]), ..Fresh::default() };
        dead.send(&job.changelog(), [entry]);
    }
    if left.offsets {
        dead.offset(&job.group(), &job.input, 0, committed + 10, &metadata);
    }
    dead.die();
    owner.kill();
    let died = Instant::now();
    job.send([thing(0, "after", 1)]);
    let end = job.kafka.bounds(&job.input, 0).end;
    let group = job.kafka.group(&job.group());
    // It is committed with its record; a read_committed reader sees it once the dead owner's transaction has ended.
    within(TAKEOVER_MAX.saturating_sub(died.elapsed()), "the record after the takeover to be forwarded", || {
        let committed = group.committed(&job.input, 0).is_some_and(|(offset, _)| offset >= end);
        (committed && !job.kafka.has_open_transaction(&job.output)).then_some(())
    });
    println!("{theme}: forwards again {:?} after the owner's death, at most {TAKEOVER_MAX:?}", died.elapsed());
    job.await_drained(DEADLINE);
    assert_eq!(survivor.len(), 1);
    successor.stop();
    let found = check(&job, &[successor.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), if left.output { 311 } else { 301 }, "{found:?}");
    assert_eq!(found.stores_current, 1, "{found:?}");
}

#[test]
fn dead_owners_transaction_on_output_and_changelog_is_waited_for() {
    taken_over("left-all", &Left { output: true, changelog: true, offsets: true });
}

#[test]
fn dead_owners_transaction_on_the_output_holds_nobody_up() {
    taken_over("left-output", &Left { output: true, changelog: false, offsets: false });
}

#[test]
fn dead_owners_transaction_with_offsets_only_is_waited_for() {
    taken_over("left-offsets", &Left { output: false, changelog: false, offsets: true });
}

#[test]
fn commit_in_flight_at_the_owners_death_is_seen_by_its_successor() {
    let job = Job::new("in-flight", 1);
    job.send(things(0, 0..300, 1));
    let mut owner = Operator::start(&job, "owner");
    job.await_drained(DEADLINE);
    owner.kill();
    let sent: Vec<Fresh> = things(0, 300..310, 1).collect();
    job.send(sent.clone());
    // What the owner would have done next: its last transaction is written, and its end is under way.
    let changelog = job.kafka.read(&job.changelog());
    let last = changelog[&0].last().and_then(|record| record.value.as_deref()).expect("a position record");
    let mut position = bytes::position(last);
    let (committed, metadata) = job.kafka.committed(&job.group(), &job.input, 0).expect("it has committed");
    let before = position.token.text();
    position.token.transaction += 1;
    position.processed[0].1 += 10;
    let mut entries = Vec::new();
    for (id, record) in (300..310).zip(&sent) {
        position.stream_time = position.stream_time.max(record.timestamp.expect("it has one"));
        let key = bytes::identity_key(&[format!("thing-{id}").into()]);
        let version = bytes::version(1);
        let value = record.value.as_deref().expect("it has one");
        let contents = [bytes::digest("[value]", false, bytes::Said::Bytes(value))];
        let entry = bytes::Remembered {
            record_key: record.key.as_deref(),
            last_seen: position.stream_time,
            version: Some(&version),
            contents: &contents,
            ..bytes::Remembered::default()
        };
        entries.push(Fresh { key: Some(key), value: Some(entry.encode()), ..Fresh::default() });
    }
    let value = Some(bytes::encode_position(&position));
    entries.push(Fresh { key: Some(bytes::POSITION_KEY.to_vec()), value, ..Fresh::default() });
    // An id that nobody names and so nobody fences: a correct takeover does not depend on fencing.
    let in_flight = job.kafka.transaction(&format!("{}-unnamed", position.owner), DEADLINE);
    in_flight.send(&job.output, sent);
    in_flight.send(&job.changelog(), entries);
    let metadata = metadata.replace(&before, &position.token.text());
    in_flight.offset(&job.group(), &job.input, 0, committed + 10, &metadata);

    let mut successor = Operator::start(&job, "successor");
    within(DEADLINE, "the successor to be settling", || {
        (successor.metric("ratchet_tasks", &["state=\"settling\""]) > 0.0).then_some(())
    });
    // Without waiting, it would continue within this time.
    std::thread::sleep(Duration::from_millis(500));
    in_flight.commit();
    job.send(things(0, 295..320, 1));
    job.await_drained(DEADLINE);
    successor.stop();
    let found = check(&job, &[owner.state_dir(), successor.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (320, 15), "{found:?}");
}

#[test]
fn owners_that_die_in_a_row_lose_and_repeat_nothing() {
    let job = Job::new("chain", 1);
    let feed = Feed::start(&job, Load::new(Random::seeded("chain"), 1, 300), 500);
    let dies = Options { crash_at: Some("after_sends:5"), ..Options::default() };
    let mut a = Operator::start_with(&job, "a", &dies);
    a.await_crash();
    // B dies in its first transaction, on an empty disk.
    let dies = Options { crash_at: Some("after_sends:1"), ..Options::default() };
    let mut b = Operator::start_with(&job, "b", &dies);
    b.await_crash();
    let died = Instant::now();
    let before = job.committed();
    let mut c = Operator::start(&job, "c");
    job.await_progress(&before, TAKEOVER_MAX);
    println!("C forwards {:?} after B's death, at most {TAKEOVER_MAX:?}", died.elapsed());
    feed.stop();
    job.await_drained(DEADLINE);
    c.stop();
    let found = check(&job, &[a.state_dir(), b.state_dir(), c.state_dir()]);
    found.assert_each_fate();
    let owners = &found.owners[&0];
    assert_eq!(owners.len(), 2, "A and C should have committed, and B never: {owners:?}");
}
