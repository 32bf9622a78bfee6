//! A transaction is visible whole or not at all, and only a current member with a current producer can
//! commit one.

use std::sync::Arc;

use ratchet::cluster::kafka::{Batch, Kafka};
use ratchet::cluster::{Cluster, CommittedOffset, ErrorKind, Expected, GroupEvent, Member as _, Producer as _, Ticket};
use ratchet::record::TopicPartition;

use crate::cluster_kafka::common::*;

/// The committed offset, once the transaction's marker is written, which is a moment after the commit returns.
fn offset_of(cluster: &Kafka, group: &str, partition: &TopicPartition) -> CommittedOffset {
    eventually("the offset to be committed", || {
        cluster.committed(group, std::slice::from_ref(partition), PATIENCE).unwrap().remove(0)
    })
}

#[test]
fn committed_transaction_is_visible_with_its_offsets() {
    let (cluster, input, output) = (cluster(), topic("in", 1), topic("out", 1));
    let (group, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let (from, to) = (at(&input, 0), at(&output, 0));
    commit(&mut producer, &member, &[message(&to, "a", "1"), message(&to, "b", "2")], &[commit_of(&from, 7, "a text")]);
    assert_eq!(values(&to, "read_committed"), ["1", "2"]);
    let committed = offset_of(&cluster, &group, &from);
    assert_eq!((committed.offset, committed.metadata.as_str()), (7, "a text"));
}

#[test]
fn aborted_transaction_stays_invisible_and_the_producer_usable() {
    let (cluster, input, output) = (cluster(), topic("in", 1), topic("out", 1));
    let (group, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let to = at(&output, 0);
    producer.begin().unwrap();
    producer.send(SILENT, &message(&to, "a", "lost")).unwrap();
    producer.abort().unwrap();
    commit(&mut producer, &member, &[message(&to, "a", "kept")], &[commit_of(&at(&input, 0), 1, "")]);
    assert_eq!(values(&to, "read_committed"), ["kept"]);
    assert_eq!(offset_of(&cluster, &group, &at(&input, 0)).offset, 1);
}

#[test]
fn transaction_may_hold_only_offsets() {
    let (cluster, input) = (cluster(), topic("in", 2));
    let (group, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    commit(&mut producer, &member, &[], &[commit_of(&at(&input, 1), 3, "only this")]);
    assert_eq!(offset_of(&cluster, &group, &at(&input, 1)).metadata, "only this");
    assert_eq!(cluster.committed(&group, &[at(&input, 0)], PATIENCE).unwrap(), [None]);
}

#[test]
fn wanted_deliveries_are_reported_with_their_offsets() {
    let (cluster, input, output) = (cluster(), topic("in", 1), topic("out", 1));
    let (_, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let to = at(&output, 0);
    producer.begin().unwrap();
    for number in 0..10 {
        producer.send(Ticket { number, report: number % 4 == 3 }, &message(&to, "a", "x")).unwrap();
    }
    producer.commit(&[commit_of(&at(&input, 0), 1, "")], member.metadata().unwrap()).unwrap();
    assert_eq!(producer.in_flight(), 0);
    assert_eq!(producer.take_delivered(), [(3, 3), (7, 7)]);
    assert_eq!(producer.take_delivered(), []);
    assert!(producer.take_failures().is_empty());
}

#[test]
fn records_written_over_lost_ones_are_not_committed() {
    let (cluster, input, output) = (cluster(), topic("in", 1), topic("out", 1));
    let (group, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let (from, to) = (at(&input, 0), at(&output, 0));
    commit(&mut producer, &member, &[message(&to, "a", "first")], &[commit_of(&from, 1, "first")]);
    producer.begin().unwrap();
    // As if more had been there than the first record and its marker.
    producer.expect(7, Expected { from: 3, count: 2 });
    for value in ["lost", "and more"] {
        producer.send(Ticket { number: 7, report: true }, &message(&to, "a", value)).unwrap();
    }
    let error = producer.commit(&[commit_of(&from, 2, "lost")], member.metadata().unwrap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Abort, "{error}");
    assert_eq!(producer.take_delivered(), [(7, 2), (7, 3)]);
    producer.abort().unwrap();
    // The expectation ends with its transaction; and a record at the expected offset is committed.
    producer.begin().unwrap();
    producer.expect(7, Expected { from: 4, count: 1 });
    producer.send(Ticket { number: 7, report: true }, &message(&to, "a", "second")).unwrap();
    producer.commit(&[commit_of(&from, 2, "second")], member.metadata().unwrap()).unwrap();
    assert_eq!(values(&to, "read_committed"), ["first", "second"]);
    assert_eq!(offset_of(&cluster, &group, &from).metadata, "second");
}

#[test]
fn member_that_has_not_joined_has_no_metadata() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let member = cluster.member(&unique("group"), &[Arc::clone(&input)]).unwrap();
    assert_eq!(member.metadata().err().unwrap().kind, ErrorKind::Abort);
}

#[test]
fn former_generation_cannot_commit() {
    let (cluster, input, output) = (cluster(), topic("in", 2), topic("out", 1));
    let (group, mut first) = lone_member(&cluster, &input);
    let stale = first.metadata().unwrap();
    let mut second = cluster.member(&group, &[Arc::clone(&input)]).unwrap();
    share(&mut first, &mut second);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let to = at(&output, 0);
    producer.begin().unwrap();
    producer.send(SILENT, &message(&to, "a", "stale")).unwrap();
    let error = producer.commit(&[commit_of(&at(&input, 0), 5, "stale")], stale).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Abort, "{error}");
    producer.abort().unwrap();
    commit(&mut producer, &first, &[message(&to, "a", "current")], &[commit_of(&at(&input, 0), 1, "current")]);
    assert_eq!(values(&to, "read_committed"), ["current"]);
}

/// Polls two members, accepting at once, until each holds a partition.
fn share(first: &mut ratchet::cluster::kafka::Member, second: &mut ratchet::cluster::kafka::Member) {
    let mut batch = Batch::default();
    let mut held = [2_i64, 0];
    eventually("a share each", || {
        for (member, held) in [&mut *first, &mut *second].into_iter().zip(&mut held) {
            match member.poll(&mut batch, 10, STEP).unwrap() {
                Some(GroupEvent::Assigned(partitions)) => {
                    *held += partitions.len() as i64;
                    member.accept_assigned(&partitions).unwrap();
                }
                Some(GroupEvent::Revoked(partitions) | GroupEvent::Lost(partitions)) => {
                    *held -= partitions.len() as i64;
                    member.accept_revoked(&partitions).unwrap();
                }
                None => {}
            }
        }
        (held == [1, 1]).then_some(())
    });
}

#[test]
fn second_producer_of_an_id_fences_the_first() {
    let (cluster, input, output) = (cluster(), topic("in", 1), topic("out", 1));
    let (_, member) = lone_member(&cluster, &input);
    let (id, to) = (unique("tx"), at(&output, 0));
    let mut first = cluster.producer(&id).unwrap();
    first.begin().unwrap();
    first.send(SILENT, &message(&to, "a", "fenced")).unwrap();
    eventually("the delivery", || (first.in_flight() == 0).then_some(()));
    let mut second = cluster.producer(&id).unwrap();
    let error = first.commit(&[commit_of(&at(&input, 0), 5, "")], member.metadata().unwrap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    assert_eq!(second.id(), id);
    commit(&mut second, &member, &[message(&to, "a", "mine")], &[commit_of(&at(&input, 0), 1, "")]);
    assert_eq!(values(&to, "read_committed"), ["mine"]);
}
