//! A member reads the partitions that were started, from the given offsets, and nothing else; rebalances wait until
//! they are accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratchet::cluster::kafka::{Batch, DataPath, Kafka, Member};
use ratchet::cluster::{Cluster, Error, ErrorKind, GroupEvent, Member as _, Reader as _, RecordBatch};
use ratchet::record::TopicPartition;

use crate::cluster_kafka::common::*;
use crate::random::Random;

fn numbered(count: i64) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("v{number}"))
}

#[test]
fn nothing_is_read_until_a_partition_is_started() {
    let (cluster, input) = (cluster(), topic("in", 2));
    write(&at(&input, 0), numbered(10));
    write(&at(&input, 1), numbered(10));
    let (_, mut member) = lone_member(&cluster, &input);
    poll_nothing(&mut member, Duration::from_millis(500));
    member.start(&at(&input, 1), 4).unwrap();
    let read = poll_records(&mut member, 6);
    let expected: Vec<Seen> = (4..10).map(|offset| (1, offset, format!("v{offset}"))).collect();
    assert_eq!(read, expected);
    assert_eq!(member.position(&at(&input, 1)), Some(10));
    assert_eq!(member.end(&at(&input, 1)), Some(10));
    assert_eq!(member.position(&at(&input, 0)), None);
}

#[test]
fn pause_stops_reading_and_start_drops_what_was_fetched() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let from = at(&input, 0);
    write(&from, numbered(5000));
    let (_, mut member) = lone_member(&cluster, &input);
    let mut batch = Batch::default();
    for round in 0..30 {
        // Two starts in a row, the second before the first's offset.
        member.start(&from, 2000).unwrap();
        eventually("a record", || {
            member.poll(&mut batch, 7, STEP).unwrap();
            (!batch.is_empty()).then_some(())
        });
        assert_eq!(batch.record(0).offset, 2000);
        if round % 2 == 0 {
            member.pause(&from).unwrap();
            poll_nothing(&mut member, Duration::from_millis(20));
        }
        let target = 100 + round;
        member.start(&from, target).unwrap();
        let offsets: Vec<i64> = poll_records(&mut member, 50).iter().map(|seen| seen.1).collect();
        assert_eq!(offsets[..50], (target..target + 50).collect::<Vec<i64>>(), "round {round}");
    }
}

#[test]
fn position_passes_markers_and_aborted_records() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let from = at(&input, 0);
    let foreign = foreign_transaction(10_000);
    write_in(&foreign, &from, "kept");
    rdkafka::producer::Producer::commit_transaction(&foreign, PATIENCE).unwrap();
    rdkafka::producer::Producer::begin_transaction(&foreign).unwrap();
    write_in(&foreign, &from, "lost");
    rdkafka::producer::Producer::abort_transaction(&foreign, PATIENCE).unwrap();
    let (_, mut member) = lone_member(&cluster, &input);
    member.start(&from, 0).unwrap();
    assert_eq!(poll_records(&mut member, 1), [(0, 0, "kept".to_owned())]);
    let mut batch = Batch::default();
    // kept, its marker, lost, its marker
    eventually("the position behind the last marker", || {
        assert_eq!(member.poll(&mut batch, 10, STEP).unwrap(), None);
        assert!(batch.is_empty());
        (member.position(&from) == Some(4)).then_some(())
    });
    // Starting further back resets the position too.
    member.start(&from, 0).unwrap();
    assert_eq!(member.position(&from), None);
}

#[test]
fn missing_offset_is_refused_by_name() {
    let (cluster, input) = (cluster(), topic("in", 2));
    let from = at(&input, 1);
    write(&from, numbered(3));
    let (_, mut member) = lone_member(&cluster, &input);
    member.start(&from, 77).unwrap();
    let mut batch = Batch::default();
    let error = eventually("a refusal", || member.poll(&mut batch, 10, STEP).err());
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.message.contains(&format!("{from} no longer has offset 77")), "{error}");
    assert_eq!(error.partition.as_ref(), Some(&from));
    if data_path() == DataPath::Librdkafka {
        // Its fetcher has stopped for good; a new member can read from elsewhere.
        assert_eq!(member.start(&from, 1).unwrap_err().kind, ErrorKind::Fenced);
        member.leave().unwrap();
        member = lone_member(&cluster, &input).1;
    }
    member.start(&from, 1).unwrap();
    assert_eq!(poll_records(&mut member, 2).len(), 2);
}

#[test]
fn last_records_epoch_is_committed_with_the_offset() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let from = at(&input, 0);
    write(&from, numbered(3));
    let (group, mut member) = lone_member(&cluster, &input);
    member.start(&from, 0).unwrap();
    assert_eq!(poll_records(&mut member, 3).len(), 3);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    commit(&mut producer, &member, &[], &[commit_of(&from, 2, "in between")]);
    assert_eq!(committed_epoch(&group, &from, 2), Some(0));
    commit(&mut producer, &member, &[], &[commit_of(&from, 3, "all")]);
    assert_eq!(committed_epoch(&group, &from, 3), Some(0));
    // Like a claim by a process that has read nothing.
    member.leave().unwrap();
    let other = crate::cluster_kafka::common::cluster();
    let mut member = other.member(&group, &[Arc::clone(&input)]).unwrap();
    assert_eq!(joined(&mut member), std::slice::from_ref(&from));
    eventually("the offset to be committed", || {
        other.committed(&group, std::slice::from_ref(&from), PATIENCE).unwrap().remove(0)
    });
    let mut producer = other.producer(&unique("tx")).unwrap();
    commit(&mut producer, &member, &[], &[commit_of(&from, 3, "claimed")]);
    eventually("the claim to be committed", || {
        let committed = other.committed(&group, std::slice::from_ref(&from), PATIENCE).unwrap().remove(0);
        committed.filter(|committed| committed.metadata == "claimed")
    });
    assert_eq!(committed_epoch(&group, &from, 3), Some(0));
    commit(&mut producer, &member, &[], &[commit_of(&from, 5, "never read")]);
    assert_eq!(committed_epoch(&group, &from, 5), None, "an unknown epoch was made up");
}

#[test]
fn offset_before_a_pause_is_committed_with_its_epoch() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let from = at(&input, 0);
    write(&from, numbered(3));
    let (group, mut member) = lone_member(&cluster, &input);
    member.start(&from, 0).unwrap();
    assert_eq!(poll_records(&mut member, 3).len(), 3);
    member.pause(&from).unwrap();
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    commit(&mut producer, &member, &[], &[commit_of(&from, 2, "before the third")]);
    assert_eq!(committed_epoch(&group, &from, 2), Some(0));
}

#[test]
fn offset_read_by_a_reader_for_the_group_is_committed_with_its_epoch() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let from = at(&input, 0);
    write(&from, numbered(3));
    let (group, member) = lone_member(&cluster, &input);
    let mut reader = cluster.reader_for(&group, &from, 0).unwrap();
    let mut batch = Batch::default();
    eventually("a record", || {
        reader.read(&mut batch, 1, STEP).unwrap();
        (batch.len() == 1).then_some(())
    });
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    commit(&mut producer, &member, &[], &[commit_of(&from, 1, "alone")]);
    assert_eq!(committed_epoch(&group, &from, 1), Some(0));
    // The comparison succeeds, and reading continues.
    let mut reader = cluster.reader_for(&group, &from, 1).unwrap();
    let mut read = Vec::new();
    eventually("the others", || {
        reader.read(&mut batch, 10, STEP).unwrap();
        read.extend(seen(&batch));
        (read.len() == 2).then_some(())
    });
    assert_eq!(read, [(0, 1, "v1".to_owned()), (0, 2, "v2".to_owned())]);
}

#[test]
fn reader_for_a_group_is_checked_against_the_groups_epoch() {
    let (cluster, input, group) = (cluster(), topic("in", 1), unique("group"));
    let from = at(&input, 0);
    write(&from, numbered(5));
    commit_in_epoch(&group, &from, 3, 7);
    cluster.committed(&group, std::slice::from_ref(&from), PATIENCE).unwrap();
    let mut batch = Batch::default();
    let error = eventually("a refusal", || {
        let mut reader = cluster.reader_for(&group, &from, 3).unwrap();
        let error = eventually("a response", || reader.read(&mut batch, 10, STEP).err());
        assert_eq!(batch.len(), 0, "something was read");
        (error.kind != ErrorKind::Abort).then_some(error)
    });
    assert_eq!((error.kind, error.partition.as_ref()), (ErrorKind::Refused, Some(&from)), "{error}");
    assert!(error.message.contains("does not hold any more what was read of it up to offset 3"), "{error}");
}

#[test]
fn groups_of_one_process_are_checked_against_their_own_epochs() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let from = at(&input, 0);
    write(&from, numbered(5));
    let [lost, whole] = ["lost", "whole"].map(unique);
    // One has read under a leader epoch that no broker knows, the other under the current one.
    for (group, epoch) in [(&lost, 7), (&whole, 0)] {
        commit_in_epoch(group, &from, 3, epoch);
        cluster.committed(group, std::slice::from_ref(&from), PATIENCE).unwrap();
    }
    let (error, _) = refusal_of_members(&cluster, &lost, &from, 3);
    assert_eq!((error.kind, error.partition.as_ref()), (ErrorKind::Refused, Some(&from)), "{error}");
    let mut member = reading(&cluster, &whole, &from, 3);
    assert_eq!(poll_records(&mut member, 2).len(), 2);
}

#[test]
fn offset_of_an_unknown_leader_epoch_is_refused_for_good() {
    let (cluster, input, group) = (cluster(), topic("in", 1), unique("group"));
    let from = at(&input, 0);
    write(&from, numbered(5));
    // As if the first three had been read from another leader, and lost with it.
    commit_in_epoch(&group, &from, 3, 7);
    assert_eq!(
        cluster.committed(&group, std::slice::from_ref(&from), PATIENCE).unwrap()[0].as_ref().unwrap().offset,
        3
    );
    let (error, mut member) = refusal_of_members(&cluster, &group, &from, 3);
    assert_eq!((error.kind, error.partition.as_ref()), (ErrorKind::Refused, Some(&from)), "{error}");
    let error = member.start(&from, 3).unwrap_err();
    assert_eq!((error.kind, error.partition.as_ref()), (ErrorKind::Refused, Some(&from)), "{error}");
    assert!(error.message.contains("does not hold any more what was read of it up to offset 3"), "{error}");
    member.leave().unwrap();
    // A reset by hand commits no epoch: the loss is accepted.
    commit_in_epoch(&group, &from, 3, -1);
    cluster.committed(&group, std::slice::from_ref(&from), PATIENCE).unwrap();
    let mut member = reading(&cluster, &group, &from, 3);
    assert_eq!(poll_records(&mut member, 2).len(), 2);
}

/// A member of a group that owns the partition and reads it from an offset on.
fn reading(cluster: &Kafka, group: &str, from: &TopicPartition, offset: i64) -> Member {
    let mut member = cluster.member(group, &[Arc::clone(&from.topic)]).unwrap();
    joined(&mut member);
    member.start(from, offset).unwrap();
    member
}

/// The error that members of a group end up with that read on from an offset, one after the other, and the last member.
fn refusal_of_members(cluster: &Kafka, group: &str, from: &TopicPartition, offset: i64) -> (Error, Member) {
    let mut batch = Batch::default();
    eventually("a refusal", || {
        let mut member = reading(cluster, group, from, offset);
        let error = eventually("a response", || member.poll(&mut batch, 10, STEP).err());
        assert_eq!(batch.len(), 0, "something was read");
        if error.kind != ErrorKind::Fenced {
            return Some((error, member));
        }
        // Only another one asks again.
        assert_eq!(member.start(from, offset).unwrap_err().kind, ErrorKind::Fenced);
        let words = format!("does not know the leader that wrote the record before offset {offset}");
        assert!(error.message.contains(&words), "{error}");
        member.leave().unwrap();
        None
    })
}

/// A broker that was replaced as the leader, and does not know it yet, does not know later leaders' epochs either. What was
/// read from those leaders counted as lost at once, and the task stopped for good.
#[test]
fn broker_that_does_not_know_a_later_leader_is_asked_again() {
    let (cluster, input, group) = (cluster(), topic("in", 1), unique("group"));
    let from = at(&input, 0);
    write(&from, numbered(5));
    let commit = |epoch| {
        commit_in_epoch(&group, &from, 3, epoch);
        cluster.committed(&group, std::slice::from_ref(&from), PATIENCE).unwrap();
    };
    // The broker has led under no other epoch than 0.
    commit(7);
    let mut member = reading(&cluster, &group, &from, 3);
    let mut batch = Batch::default();
    match data_path() {
        // Only another member asks again.
        DataPath::Librdkafka => {
            let error = eventually("a response", || member.poll(&mut batch, 10, STEP).err());
            assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
        }
        _ => {
            for _ in 0..50 {
                assert_eq!(member.poll(&mut batch, 10, STEP).unwrap(), None);
                assert_eq!(batch.len(), 0, "something was read");
            }
        }
    }
    member.leave().unwrap();
    // It knows by now.
    commit(0);
    let mut member = reading(&cluster, &group, &from, 3);
    assert_eq!(poll_records(&mut member, 2).len(), 2);
}

#[test]
fn partition_that_ends_before_what_was_read_is_refused_at_once() {
    let (cluster, input, group) = (cluster(), topic("in", 1), unique("group"));
    let from = at(&input, 0);
    write(&from, numbered(5));
    commit_in_epoch(&group, &from, 9, 0);
    cluster.committed(&group, std::slice::from_ref(&from), PATIENCE).unwrap();
    let mut member = reading(&cluster, &group, &from, 9);
    let mut batch = Batch::default();
    let error = eventually("a refusal", || member.poll(&mut batch, 10, STEP).err());
    assert_eq!((error.kind, error.partition.as_ref()), (ErrorKind::Refused, Some(&from)), "{error}");
    let error = member.start(&from, 9).unwrap_err();
    assert!(error.message.contains("does not hold any more what was read of it up to offset 9"), "{error}");
}

#[test]
fn missing_topic_is_refused() {
    let cluster = cluster();
    let mut member = cluster.member(&unique("group"), &[unique("missing").into()]).unwrap();
    let mut batch = Batch::default();
    let error = eventually("a refusal", || member.poll(&mut batch, 10, STEP).err());
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
}

/// Polls without accepting anything.
fn next_event(member: &mut Member) -> Option<GroupEvent> {
    let mut batch = Batch::default();
    let event = member.poll(&mut batch, 10, STEP).unwrap();
    if event.is_some() {
        assert!(batch.is_empty(), "records came while an event was pending");
    }
    event
}

/// Polls a member that has nothing to get yet: at most an empty assignment arrives, and is accepted.
fn take_nothing(member: &mut Member) {
    match next_event(member) {
        Some(GroupEvent::Assigned(none)) => {
            assert_eq!(none, [], "a partition was assigned before it was released");
            member.accept_assigned(&none).unwrap();
        }
        other => assert_eq!(other, None),
    }
}

#[test]
fn rebalance_waits_for_acceptance() {
    let (cluster, input) = (cluster(), topic("in", 4));
    let (group, mut first) = lone_member(&cluster, &input);
    let mut second = cluster.member(&group, &[Arc::clone(&input)]).unwrap();
    // The first is to release some of its partitions, and takes its time.
    let revoked = eventually("a revocation", || {
        take_nothing(&mut second);
        match next_event(&mut first) {
            Some(GroupEvent::Revoked(partitions)) => Some(partitions),
            other => {
                assert_eq!(other, None);
                None
            }
        }
    });
    assert_eq!(revoked.len(), 2);
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        assert_eq!(
            next_event(&mut first),
            Some(GroupEvent::Revoked(revoked.clone())),
            "the event should repeat until it is accepted"
        );
        take_nothing(&mut second);
    }
    first.accept_revoked(&revoked).unwrap();
    let mut taken = eventually("the second's partitions", || {
        if let Some(GroupEvent::Assigned(partitions)) = next_event(&mut first) {
            assert_eq!(partitions, []);
            first.accept_assigned(&partitions).unwrap();
        }
        match next_event(&mut second) {
            Some(GroupEvent::Assigned(partitions)) => {
                second.accept_assigned(&partitions).unwrap();
                (!partitions.is_empty()).then_some(partitions)
            }
            _ => None,
        }
    });
    let mut released = revoked.clone();
    taken.sort();
    released.sort();
    assert_eq!(taken, released);
    // The second can read what was handed over.
    write(&taken[0], numbered(3));
    second.start(&taken[0], 0).unwrap();
    assert_eq!(poll_records(&mut second, 3).len(), 3);
}

#[test]
fn returned_partition_is_read_again() {
    let (cluster, input) = (cluster(), topic("in", 2));
    write(&at(&input, 0), numbered(3));
    write(&at(&input, 1), numbered(3));
    let (group, mut first) = lone_member(&cluster, &input);
    let mut second = cluster.member(&group, &[Arc::clone(&input)]).unwrap();
    let mut gone = Vec::new();
    eventually("a share for the second", || {
        for (member, is_first) in [(&mut first, true), (&mut second, false)] {
            match next_event(member) {
                Some(GroupEvent::Assigned(partitions)) => {
                    member.accept_assigned(&partitions).unwrap();
                    if !is_first && !partitions.is_empty() {
                        return Some(());
                    }
                }
                Some(GroupEvent::Revoked(partitions)) => {
                    member.accept_revoked(&partitions).unwrap();
                    gone = partitions;
                }
                other => assert_eq!(other, None),
            }
        }
        None
    });
    second.leave().unwrap();
    let mut back = Vec::new();
    eventually("the partition to come back", || {
        if let Some(GroupEvent::Assigned(partitions)) = next_event(&mut first) {
            first.accept_assigned(&partitions).unwrap();
            back.extend(partitions);
        }
        (back == gone).then_some(())
    });
    first.start(&back[0], 0).unwrap();
    assert_eq!(poll_records(&mut first, 3).len(), 3);
}

#[test]
fn member_leaves_promptly_with_an_event_pending() {
    let (cluster, input) = (cluster(), topic("in", 2));
    let (group, member) = lone_member(&cluster, &input);
    let started = Instant::now();
    member.leave().unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());

    let mut member = cluster.member(&group, &[Arc::clone(&input)]).unwrap();
    eventually("an assignment", || next_event(&mut member));
    let started = Instant::now();
    member.leave().unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());

    // Nobody waits for a session to time out.
    let started = Instant::now();
    let mut member = cluster.member(&group, &[Arc::clone(&input)]).unwrap();
    assert_eq!(joined(&mut member).len(), 2);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

/// A member on its own thread, which accepts every event and leaves when `stop` is set; returns how long leaving took.
fn member_at_work(
    group: &str,
    input: &Arc<str>,
    stop: &Arc<AtomicBool>,
    linger: Duration,
) -> std::thread::JoinHandle<Duration> {
    let mut member = cluster().member(group, &[Arc::clone(input)]).unwrap();
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        while !stop.load(Ordering::Acquire) {
            match next_event(&mut member) {
                Some(GroupEvent::Assigned(partitions)) => member.accept_assigned(&partitions).unwrap(),
                Some(GroupEvent::Revoked(partitions) | GroupEvent::Lost(partitions)) => {
                    member.accept_revoked(&partitions).unwrap();
                }
                None => {}
            }
        }
        std::thread::sleep(linger);
        let started = Instant::now();
        member.leave().unwrap();
        started.elapsed()
    })
}

#[test]
fn members_that_stop_during_a_rebalance_leave_an_empty_group() {
    let mut random = Random::seeded("leaving");
    let mut longest = [Duration::ZERO; 2];
    for round in 0..30 {
        let (group, input) = (unique("group"), topic("in", 2));
        let stop = Arc::new(AtomicBool::new(false));
        let mut soon = || random.duration(Duration::ZERO, Duration::from_millis(300));
        // One more than there are partitions, so that one has none.
        let mut members = Vec::new();
        for _ in 0..3 {
            members.push(member_at_work(&group, &input, &stop, soon() / 10));
            std::thread::sleep(soon());
        }
        if round % 2 == 0 {
            // In the middle of what follows the first join.
            eventually("members", || (member_count(&group) >= 1).then_some(()));
        }
        std::thread::sleep(soon());
        stop.store(true, Ordering::Release);
        let took = members.into_iter().map(|member| member.join().unwrap()).max().unwrap_or_default();
        let left = Instant::now();
        eventually("an empty group", || (member_count(&group) == 0).then_some(()));
        longest = [longest[0].max(took), longest[1].max(left.elapsed())];
        assert!(left.elapsed() < Duration::from_secs(3), "round {round}: somebody stayed for {:?}", left.elapsed());
    }
    println!("leaving took up to {:?}, the group was empty {:?} later", longest[0], longest[1]);
}

#[test]
fn batch_outlives_its_member() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let from = at(&input, 0);
    write(&from, numbered(10));
    let (_, mut member) = lone_member(&cluster, &input);
    member.start(&from, 0).unwrap();
    let mut batch = Batch::default();
    eventually("records", || {
        member.poll(&mut batch, 100, STEP).unwrap();
        (!batch.is_empty()).then_some(())
    });
    member.leave().unwrap();
    assert_eq!(batch.record(0).value, Some(&b"v0"[..]));
}

#[test]
fn members_leave_promptly_at_any_moment_of_a_rebalance() {
    let (cluster, input) = (cluster(), topic("in", 4));
    for stage in 0..6 {
        let (group, mut first) = lone_member(&cluster, &input);
        let mut second = cluster.member(&group, &[Arc::clone(&input)]).unwrap();
        // Neither accepts anything; each stage gets one event further.
        let until = Instant::now() + Duration::from_millis(400 * (stage / 2 + 1));
        while Instant::now() < until {
            let _ = (next_event(&mut first), next_event(&mut second));
        }
        let (earlier, later) = if stage % 2 == 0 { (first, second) } else { (second, first) };
        let started = Instant::now();
        earlier.leave().unwrap();
        later.leave().unwrap();
        assert!(started.elapsed() < Duration::from_secs(4), "stage {stage}: {:?}", started.elapsed());
    }
}

#[test]
fn pending_empty_assignment_does_not_delay_leaving() {
    let (cluster, input) = (cluster(), topic("in", 4));
    let (group, mut first) = lone_member(&cluster, &input);
    let mut second = cluster.member(&group, &[Arc::clone(&input)]).unwrap();
    let event = eventually("an assignment", || {
        let _ = next_event(&mut first);
        next_event(&mut second)
    });
    assert_eq!(event, GroupEvent::Assigned(Vec::new()));
    let started = Instant::now();
    drop((second, first));
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn member_that_subscribes_to_more_keeps_what_it_has() {
    let (cluster, input, more) = (cluster(), topic("in", 1), topic("more", 1));
    let (first, second) = (at(&input, 0), at(&more, 0));
    // Without a subscription it is no member yet.
    let mut member = cluster.member(&unique("group"), &[]).unwrap();
    assert_eq!(next_event(&mut member), None);
    member.subscribe(&[Arc::clone(&input)]).unwrap();
    assert_eq!(joined(&mut member), std::slice::from_ref(&first));
    member.start(&first, 0).unwrap();
    write(&first, numbered(3));
    assert_eq!(poll_records(&mut member, 3).len(), 3);
    member.subscribe(&[input, more]).unwrap();
    let event = eventually("the other topic's partition", || next_event(&mut member));
    assert_eq!(event, GroupEvent::Assigned(vec![second.clone()]), "something was taken away");
    member.accept_assigned(std::slice::from_ref(&second)).unwrap();
    write(&first, numbered(2));
    assert_eq!(poll_records(&mut member, 2).len(), 2, "what it had was started again");
    member.subscribe(&[]).unwrap();
    let event = eventually("all to be taken away", || next_event(&mut member));
    assert!(matches!(event, GroupEvent::Revoked(_) | GroupEvent::Lost(_)), "{event:?}");
}
