//! Writes a changelog partition, as the only member of the group.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{
    Cluster, CommittedOffset, ErrorKind, GroupEvent, Member, Message, OffsetCommit, Producer, RecordBatch, Settled,
    Ticket,
};
use crate::engine::crash;
use crate::format::{ChangelogOffset, OffsetMetadata, POSITION_KEY, PositionRecord, Token};
use crate::record::{Headers, TopicPartition};
use crate::state::StoreReader;
use crate::topology::Topology;

use super::choose::Candidate;
use super::{Deadline, Error, probe, refused};

/// How long it may take to become the group's only member.
const JOIN_WAIT: Duration = Duration::from_secs(60);
/// How long one poll waits.
const POLL_WAIT: Duration = Duration::from_millis(20);
/// The most entries in one transaction.
const ENTRIES_MAX: usize = 10_000;
/// A transaction receives no further entries once it has this many bytes.
const BYTES_MAX: usize = 8 << 20;

/// The group's only member, which writes the changelogs.
pub(super) struct Writer<C: Cluster> {
    member: C::Member,
    producer: C::Producer,
    batch: C::Batch,
    lane: u64,
    transactions: u64,
}

/// A key and its value to be written.
type Entry = (Vec<u8>, Vec<u8>);

impl<C: Cluster> Writer<C> {
    /// Joins the group, and waits until all of the topics' `partitions` are assigned to this member.
    pub fn open(cluster: &C, topology: &Topology, (topics, partitions): (&[String], usize)) -> Result<Self, Error> {
        let lane: u64 = rand::random();
        let producer = cluster.producer(&topology.transactional_id(lane, 0))?;
        let topics: Vec<Arc<str>> = topics.iter().map(|topic| Arc::from(topic.as_str())).collect();
        let mut member = cluster.member(&topology.group(), &topics)?;
        let (mut owned, mut batch) = (0, C::Batch::default());
        let deadline = Deadline::after(JOIN_WAIT);
        while owned < partitions {
            deadline.check("joining the group as its only member")?;
            match member.poll(&mut batch, 1, POLL_WAIT) {
                Ok(None) => {}
                Ok(Some(GroupEvent::Assigned(assigned))) => {
                    member.accept_assigned(&assigned)?;
                    owned += assigned.len();
                }
                Ok(Some(GroupEvent::Revoked(_) | GroupEvent::Lost(_))) => return another_member(),
                // The error is transient, or the deadline passes.
                Err(error) if error.kind == ErrorKind::Retry => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { member, producer, batch, lane, transactions: 0 })
    }

    /// Describes what prevents writing to a changelog: its first records were removed, or it holds a record that the
    /// store does not. Entries that an earlier attempt has written are equal to the store's.
    pub fn obstacle(
        &mut self,
        cluster: &C,
        settled: &Settled,
        changelog: &TopicPartition,
        store: &StoreReader,
    ) -> Result<Option<String>, Error> {
        if settled.changelog_start > ChangelogOffset(0) {
            return Ok(Some(format!("{changelog} begins at offset {}", settled.changelog_start)));
        }
        let mut obstacle = None;
        probe::read(cluster, changelog, (ChangelogOffset(0), settled.changelog_end), |batch| {
            self.keep_membership()?;
            for record in (0..batch.len()).map(|index| batch.record(index)) {
                let is_equal = match record.key {
                    Some(key) if key != POSITION_KEY => store.get(key)?.as_deref() == record.value,
                    _ => false,
                };
                if !is_equal && obstacle.is_none() {
                    obstacle = Some(format!("{changelog}:{} holds a record that the store does not", record.offset));
                }
            }
            Ok(())
        })?;
        Ok(obstacle)
    }

    /// Writes a partition: its entries, and in the last transaction its position record and the group's offset. Returns
    /// the number of entries.
    pub fn write(
        &mut self,
        settled: &Settled,
        (input, changelog): (&TopicPartition, &TopicPartition),
        (store, from): (&StoreReader, &Candidate),
        offset: i64,
    ) -> Result<u64, Error> {
        let (mut cursor, mut count) = (None, 0);
        loop {
            let mut entries: Vec<Entry> = Vec::new();
            let mut bytes = 0;
            while entries.len() < ENTRIES_MAX && bytes < BYTES_MAX {
                cursor = store.scan(cursor.as_deref(), ENTRIES_MAX / 10, |key, value| {
                    bytes += key.len() + value.len();
                    entries.push((key.to_vec(), value.to_vec()));
                })?;
                if cursor.is_none() {
                    break;
                }
            }
            count += entries.len() as u64;
            if !entries.is_empty() {
                self.commit(changelog, &entries, &[])?;
                crash::point(crash::Point::DuringRebuild);
            }
            if cursor.is_none() {
                break;
            }
        }
        self.finish(settled, (input, changelog), &from.position, offset)?;
        Ok(count)
    }

    /// Commits a partition's last transaction, which makes the written entries count.
    fn finish(
        &mut self,
        settled: &Settled,
        (input, changelog): (&TopicPartition, &TopicPartition),
        position: &PositionRecord,
        offset: i64,
    ) -> Result<(), Error> {
        let token = Token {
            lane: self.lane,
            transaction: self.transactions + 1,
            changelog_id: settled.changelog_id.0,
            partition: changelog.partition,
        };
        let digest = OffsetMetadata::short_digest(&position.rules_digest);
        let position = PositionRecord { token, owner: self.producer.id().to_owned(), ..position.clone() };
        // Once this is committed, this transactional id has no open transaction.
        let metadata = OffsetMetadata { token, digest, owner: None }.to_string();
        let offset = OffsetCommit { partition: input.clone(), committed: CommittedOffset { offset, metadata } };
        self.commit(changelog, &[(POSITION_KEY.to_vec(), position.encode())], &[offset])
    }

    /// Commits one transaction. After an error, it has taken effect either completely or not at all: a repeated command
    /// checks that first.
    fn commit(&mut self, changelog: &TopicPartition, records: &[Entry], offsets: &[OffsetCommit]) -> Result<(), Error> {
        self.keep_membership()?;
        self.producer.begin()?;
        self.transactions += 1;
        for (key, value) in records {
            let message = Message {
                topic: &changelog.topic,
                partition: changelog.partition,
                key: Some(key),
                value: Some(value),
                headers: Headers::default(),
                timestamp: None,
            };
            self.producer.send(Ticket { number: 0, report: false }, &message)?;
        }
        let committed = self.producer.commit(offsets, self.member.metadata()?);
        if let Some(failure) = self.producer.take_failures().into_iter().next() {
            return refused(format!("{changelog} does not accept the records: {}", failure.message));
        }
        Ok(committed?)
    }

    /// Polls the group to remain its member, and fails if another member joins.
    fn keep_membership(&mut self) -> Result<(), Error> {
        match self.member.poll(&mut self.batch, 1, Duration::ZERO) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => another_member(),
            Err(error) if error.kind == ErrorKind::Retry => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves the group.
    pub fn close(self) -> Result<(), crate::cluster::Error> {
        self.member.leave()
    }
}

fn another_member<T>() -> Result<T, Error> {
    refused("another member has joined the group: stop all instances, and try again".to_owned())
}
