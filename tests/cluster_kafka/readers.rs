//! A reader's position ends behind everything that a partition holds, and never passes an unread record.

use std::time::Duration;

use ratchet::cluster::kafka::{Batch, Reader};
use ratchet::cluster::{Cluster, ErrorKind, Reader as _};
use ratchet::record::TopicPartition;
use rdkafka::producer::Producer as _;

use crate::cluster_kafka::common::*;

/// Reads until the position has reached `end`.
fn read_to(reader: &mut Reader, end: i64) -> Vec<Seen> {
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    eventually("the end", || {
        reader.read(&mut batch, 1000, STEP).unwrap();
        all.extend(seen(&batch));
        (reader.position() >= end).then_some(())
    });
    assert_eq!(reader.position(), end);
    all
}

fn numbered(partition: &TopicPartition, count: i64) {
    write(partition, (0..count).map(|number| format!("v{number}")));
}

#[test]
fn everything_from_the_offset_on_is_read_in_order() {
    let changelog = at(&topic("log", 2), 1);
    numbered(&changelog, 3000);
    let mut reader = cluster().reader(&changelog, 1000).unwrap();
    assert_eq!(reader.position(), 1000);
    let expected: Vec<Seen> = (1000..3000).map(|offset| (1, offset, format!("v{offset}"))).collect();
    assert_eq!(read_to(&mut reader, 3000), expected);
}

#[test]
fn position_ends_behind_markers_and_aborted_records() {
    let changelog = at(&topic("log", 1), 0);
    let foreign = foreign_transaction(10_000);
    write_in(&foreign, &changelog, "kept");
    foreign.commit_transaction(PATIENCE).unwrap();
    for _ in 0..3 {
        foreign.begin_transaction().unwrap();
        write_in(&foreign, &changelog, "lost");
        foreign.abort_transaction(PATIENCE).unwrap();
    }
    let mut reader = cluster().reader(&changelog, 0).unwrap();
    assert_eq!(read_to(&mut reader, 8), [(0, 0, "kept".to_owned())]);
    // From behind the last record, with only a marker to pass.
    let mut reader = cluster().reader(&changelog, 7).unwrap();
    assert_eq!(read_to(&mut reader, 8), []);
}

#[test]
fn open_transaction_holds_the_position_back() {
    let changelog = at(&topic("log", 1), 0);
    numbered(&changelog, 2);
    let foreign = foreign_transaction(60_000);
    write_in(&foreign, &changelog, "open");
    numbered(&changelog, 1);
    let mut reader = cluster().reader(&changelog, 0).unwrap();
    assert_eq!(read_to(&mut reader, 2).len(), 2);
    let mut batch = Batch::default();
    for _ in 0..20 {
        reader.read(&mut batch, 10, STEP).unwrap();
        assert_eq!(reader.position(), 2);
    }
    foreign.abort_transaction(PATIENCE).unwrap();
    assert_eq!(read_to(&mut reader, 5), [(0, 3, "v0".to_owned())]);
}

#[test]
fn position_ends_behind_a_compacted_tail() {
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "50"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "0"),
    ];
    let changelog = at(&topic_with("log", 1, &settings), 0);
    let same_key = |value: &str| {
        let foreign = foreign_transaction(10_000);
        write_in(&foreign, &changelog, value);
        foreign
    };
    // All records below the last two markers have one key, so compaction leaves gaps.
    for round in 0..20 {
        same_key(&format!("old{round}")).commit_transaction(PATIENCE).unwrap();
        std::thread::sleep(Duration::from_millis(60));
    }
    same_key("last").commit_transaction(PATIENCE).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    same_key("aborted").abort_transaction(PATIENCE).unwrap();
    let left = eventually("compaction", || {
        let left = values(&changelog, "read_committed");
        (left.len() <= 3).then_some(left)
    });
    assert_eq!(left.last().unwrap(), "last");
    let mut reader = cluster().reader(&changelog, 0).unwrap();
    let read: Vec<String> = read_to(&mut reader, 44).into_iter().map(|seen| seen.2).collect();
    assert!(read.len() <= left.len() && read.last().unwrap() == "last", "{read:?}");
}

#[test]
fn missing_offset_is_refused_by_name() {
    let changelog = at(&topic("log", 1), 0);
    numbered(&changelog, 2);
    let mut reader = cluster().reader(&changelog, 99).unwrap();
    let mut batch = Batch::default();
    let error = eventually("a refusal", || reader.read(&mut batch, 10, STEP).err());
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains(&format!("{changelog} no longer has offset 99")), "{error}");
}
