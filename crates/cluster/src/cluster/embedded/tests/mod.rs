//! The embedded cluster: basics, groups, a model, compaction, crashes, each in its own file.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::*;
use crate::cluster::{
    ErrorKind, GroupEvent, Member as _, Message, OffsetCommit, Producer as _, Reader as _, RecordBatch, Settling as _,
    Ticket,
};
use crate::record::{HeaderBuf, Headers};

mod basics;
mod compaction;
mod crash;
mod flips;
mod groups;
mod lanes;
mod model;

/// No test waits this long unless it fails.
const LONG: Duration = Duration::from_secs(20);
const NOT_AT_ALL: Duration = Duration::ZERO;

/// A clock that tests set.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicI64>);

impl Clock {
    fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    fn options(&self) -> Options {
        let clock = self.clone();
        Options {
            partition_count: 2,
            seed: Some(7),
            now_ms: Arc::new(move || clock.0.load(Ordering::SeqCst)),
            compact_records_min: u64::MAX,
        }
    }
}

fn cluster() -> (tempfile::TempDir, Embedded) {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Embedded::open_with(dir.path(), Clock::default().options()).unwrap();
    (dir, cluster)
}

fn create(cluster: &Embedded, name: &str, partition_count: i32, settings: &[(&str, String)]) {
    cluster.create_topic(&NewTopic { name, partition_count, replication_factor: 1, settings }).unwrap();
}

fn message<'a>(topic: &'a str, partition: i32, key: &'a str, value: Option<&'a str>) -> Message<'a> {
    Message {
        topic,
        partition,
        key: Some(key.as_bytes()),
        value: value.map(str::as_bytes),
        headers: Headers::default(),
        timestamp: Some(1_000),
    }
}

fn ticket(number: u64) -> Ticket {
    Ticket { number, report: true }
}

fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// Polls without waiting until the member has no more events, accepting all, starting at 0.
fn settle_in(member: &mut Member) -> Vec<GroupEvent> {
    let (mut batch, mut events) = (Batch::default(), Vec::new());
    while let Some(event) = member.poll(&mut batch, 0, NOT_AT_ALL).unwrap() {
        accept(member, &event);
        events.push(event);
    }
    events
}

fn accept(member: &mut Member, event: &GroupEvent) {
    match event {
        GroupEvent::Assigned(partitions) => {
            member.accept_assigned(partitions).unwrap();
            partitions.iter().for_each(|partition| member.start(partition, 0).unwrap());
        }
        GroupEvent::Revoked(partitions) | GroupEvent::Lost(partitions) => member.accept_revoked(partitions).unwrap(),
    }
}

/// A member of a group of its own that has joined.
fn joined(cluster: &Embedded, group: &str, topic: &str) -> Member {
    let mut member = cluster.member(group, &[Arc::from(topic)]).unwrap();
    settle_in(&mut member);
    member
}

fn commit_at(partition: &TopicPartition, offset: i64, metadata: &str) -> OffsetCommit {
    let committed = CommittedOffset { offset, metadata: metadata.to_owned() };
    OffsetCommit { partition: partition.clone(), committed }
}

/// The keys and values of a partition.
fn pairs(cluster: &Embedded, topic: &str, partition: i32) -> Vec<(String, Option<String>)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let records = cluster.read_all(topic, partition).unwrap();
    records.into_iter().map(|record| (text(record.key.unwrap()), record.value.map(text))).collect()
}
