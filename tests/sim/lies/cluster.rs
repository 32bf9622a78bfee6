//! A simulated cluster that lies.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratchet::cluster::{
    self, Cluster, CommittedOffset, DeliveryFailure, Error, ErrorKind, Expected, GroupEvent, Inquiry, Message,
    NewTopic, OffsetCommit, Producer as _, RecordBatch, Rights, Settled, Ticket, TopicDescription, Waker,
};
use ratchet::format::{ChangelogOffset, POSITION_KEY, PositionRecord};
use ratchet::record::{Headers, TopicPartition};

use crate::client::{self, Batch, Metadata, Sim, Waits};
use crate::judge::called::reserved_in;
use crate::kafka::Isolation;
use crate::speech::ANYBODY;

use super::{Lie, is_told};

/// The cluster that the engine runs on.
#[derive(Clone)]
pub struct Liar(pub Sim);

/// Whether a transaction is committed for the client that began it.
fn settles_for_anybody() -> bool {
    is_told(Lie::SettledUnconditionally) || is_told(Lie::SettledByZombie)
}

/// Whether nobody is fenced who has lost a task.
fn fences_nobody() -> bool {
    settles_for_anybody() || is_told(Lie::JournaledByZombie)
}

/// Whether a changelog's record has outcomes of a handler's steps.
fn is_journal(message: &Message<'_>) -> bool {
    message.value.and_then(reserved_in).is_some_and(|reserved| !reserved.journal.is_empty())
}

fn is_changelog(topic: &str) -> bool {
    topic.ends_with(".changelog")
}

impl Cluster for Liar {
    type Batch = Batch;
    type Metadata = Metadata;
    type Member = Member;
    type Producer = Producer;
    type Reader = Reader;
    type Settling = Settling;

    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, Error> {
        self.0.describe_topic(topic)
    }

    fn list_topics(&self) -> Result<Vec<String>, Error> {
        self.0.list_topics()
    }

    fn bounds(&self, partition: &TopicPartition) -> Result<(i64, i64), Error> {
        self.0.bounds(partition)
    }

    fn group_rights(&self, group: &str) -> Result<Option<Rights>, Error> {
        self.0.group_rights(group)
    }

    fn members_of(&self, group: &str) -> Result<usize, Error> {
        self.0.members_of(group)
    }

    fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), Error> {
        self.0.create_topic(topic)
    }

    fn append_one(&self, message: &Message<'_>) -> Result<i64, Error> {
        self.0.append_one(message)
    }

    fn member(&self, group: &str, topics: &[Arc<str>]) -> Result<Member, Error> {
        Ok(Member { inner: self.0.member(group, topics)?, group: group.into(), first: OnceLock::new() })
    }

    fn producer(&self, transactional_id: &str) -> Result<Producer, Error> {
        let inner = self.0.producer(transactional_id)?;
        Ok(Producer { inner, held_back: Vec::new(), read_up_to: BTreeMap::new(), writes: false, journals: false })
    }

    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Reader, Error> {
        let mut of = partition.clone();
        if is_told(Lie::RestoreFromOtherPartition) && is_changelog(&of.topic) {
            of.partition = 0;
        }
        let from = if is_told(Lie::TruncatedRebuilt) { self.0.bounds(&of)?.0.max(offset) } else { offset };
        Ok(Reader { inner: self.0.reader(&of, from)?, last_end: from, is_at_end: false })
    }

    fn settle(&self, inquiry: Inquiry) -> Settling {
        let Waits { mut offsets, mut transaction, mut end, fences } = Waits::RIGHT;
        let fences = fences && !fences_nobody();
        offsets &= !is_told(Lie::ClaimUnsettled);
        transaction &= !is_told(Lie::OpenTransactionPassed);
        if is_told(Lie::RowBeforeSettled) {
            (offsets, transaction, end) = (false, false, Isolation::Committed);
        }
        if is_told(Lie::RestoreToStableOffset) {
            end = Isolation::Committed;
        }
        Settling(self.0.settle_by(inquiry, Waits { offsets, transaction, end, fences }))
    }

    fn fence(&self, transactional_id: &str) {
        if !fences_nobody() {
            self.0.fence(transactional_id);
        }
    }

    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, Error> {
        self.0.committed(group, partitions, wait)
    }
}

/// A group's member.
pub struct Member {
    inner: client::Member,
    group: Arc<str>,
    /// The membership when it was first requested.
    first: OnceLock<(Arc<str>, i32)>,
}

impl cluster::Member for Member {
    type Batch = Batch;
    type Metadata = Metadata;

    fn poll(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<Option<GroupEvent>, Error> {
        match self.inner.poll(batch, records_max, wait)? {
            Some(GroupEvent::Lost(partitions))
                if is_told(Lie::LostKept) || is_told(Lie::SettledByZombie) || is_told(Lie::JournaledByZombie) =>
            {
                self.inner.accept_revoked(&partitions)?;
                Ok(None)
            }
            event => Ok(event),
        }
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error> {
        self.inner.subscribe(topics)
    }

    fn accept_assigned(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.inner.accept_assigned(partitions)
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.inner.accept_revoked(partitions)
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        let kept = self.inner.position(partition).filter(|_| is_told(Lie::ReadPositionKept));
        self.inner.start(partition, kept.unwrap_or(offset))
    }

    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.inner.pause(partition)
    }

    fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.inner.position(partition)
    }

    fn end(&self, partition: &TopicPartition) -> Option<i64> {
        self.inner.end(partition)
    }

    fn has_more(&self) -> bool {
        self.inner.has_more()
    }

    fn metadata(&self) -> Result<Metadata, Error> {
        if is_told(Lie::UnjoinedMembership) || settles_for_anybody() {
            let (group, epochs) = (self.group.clone(), Arc::default());
            return Ok(Metadata { group, member: ANYBODY.into(), generation: 0, epochs });
        }
        let Metadata { group, member, generation, epochs } = self.inner.metadata()?;
        let (member, generation) = match is_told(Lie::StaleGeneration) {
            true => self.first.get_or_init(|| (member, generation)).clone(),
            false => (member, generation),
        };
        Ok(Metadata { group, member, generation, epochs })
    }

    fn leave(self) -> Result<(), Error> {
        self.inner.leave()
    }
}

/// A transactional producer.
pub struct Producer {
    inner: client::Producer,
    /// Entries to send after their position record.
    held_back: Vec<HeldBack>,
    /// The offsets committed last.
    read_up_to: BTreeMap<TopicPartition, i64>,
    /// Whether it has any records.
    writes: bool,
    /// Whether one of them has outcomes of a handler's steps.
    journals: bool,
}

struct HeldBack {
    ticket: Ticket,
    to: TopicPartition,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Producer {
    /// Sends a position record, then the entries that were held back for it.
    fn send_position(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        let record = message.value.and_then(|value| PositionRecord::decode(value).ok());
        let altered = record.and_then(|mut record| {
            if is_told(Lie::EpochsNotWritten) {
                record.scopes.clear();
            } else if is_told(Lie::PositionNotRecorded) {
                record.processed.retain(|(from, to)| from < to);
            } else {
                return None;
            }
            Some(record.encode())
        });
        self.inner.send(ticket, &Message { value: altered.as_deref().or(message.value), ..*message })?;
        for HeldBack { ticket, to, key, value } in std::mem::take(&mut self.held_back) {
            let (topic, partition) = (&to.topic, to.partition);
            let (key, value, headers) = (Some(key.as_slice()), value.as_deref(), Headers::default());
            self.inner.send(ticket, &Message { topic, partition, key, value, headers, timestamp: None })?;
        }
        Ok(())
    }
}

impl cluster::Producer for Producer {
    type Metadata = Metadata;

    fn id(&self) -> &str {
        self.inner.id()
    }

    fn begin(&mut self) -> Result<(), Error> {
        (self.writes, self.journals) = (false, false);
        self.held_back.clear();
        self.inner.begin()
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        self.writes = true;
        if !is_changelog(message.topic) {
            let timestamp = message.timestamp.filter(|_| !is_told(Lie::TimestampReplaced));
            return self.inner.send(ticket, &Message { timestamp, ..*message });
        }
        let Some(key) = message.key.filter(|key| *key != POSITION_KEY) else {
            return self.send_position(ticket, message);
        };
        self.journals |= is_journal(message);
        let mut to = TopicPartition::new(message.topic, message.partition);
        if is_told(Lie::ChangelogPartitionWrong) {
            to.partition = i32::from(to.partition == 0);
        }
        if is_told(Lie::PositionNotLast) {
            let (key, value) = (key.to_vec(), message.value.map(<[u8]>::to_vec));
            self.held_back.push(HeldBack { ticket, to, key, value });
            return Ok(());
        }
        self.inner.send(ticket, &Message { partition: to.partition, ..*message })
    }

    fn expect(&mut self, number: u64, expected: Expected) {
        if !is_told(Lie::DeliveryNotCompared) {
            self.inner.expect(number, expected);
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn has_failed(&self) -> bool {
        self.inner.has_failed()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        self.inner.take_failures()
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        self.inner.take_delivered()
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Metadata) -> Result<(), Error> {
        self.commit_while(offsets, group, &mut |_| {})
    }

    fn commit_while(
        &mut self,
        offsets: &[OffsetCommit],
        group: Metadata,
        meanwhile: &mut dyn FnMut(Duration),
    ) -> Result<(), Error> {
        let mut offsets = offsets.to_vec();
        // A claim carries offsets only.
        if is_told(Lie::OffsetWithoutPlusOne) && self.writes {
            offsets.iter_mut().for_each(|of| of.committed.offset = (of.committed.offset - 1).max(0));
        }
        if is_told(Lie::OffsetsOfOneTask) && self.writes {
            offsets.truncate(1);
        }
        let has_read = |of: &OffsetCommit| self.read_up_to.get(&of.partition) != Some(&of.committed.offset);
        if is_told(Lie::SweepWithoutOffsets) && self.writes && !offsets.iter().any(has_read) {
            offsets.clear();
        }
        self.read_up_to.extend(offsets.iter().map(|of| (of.partition.clone(), of.committed.offset)));
        let group = match self.journals && is_told(Lie::JournaledByZombie) {
            true => Metadata { member: ANYBODY.into(), generation: 0, ..group },
            false => group,
        };
        match self.inner.commit_while(&offsets, group, meanwhile) {
            Err(error)
                if !matches!(error.kind, ErrorKind::Abort | ErrorKind::Fenced)
                    && is_told(Lie::UnknownTakenForCommit) =>
            {
                Ok(())
            }
            committed => committed,
        }
    }

    fn abort(&mut self) -> Result<(), Error> {
        self.inner.abort()
    }

    fn is_usable(&self) -> bool {
        self.inner.is_usable()
    }
}

/// A partition's reader.
pub struct Reader {
    inner: client::Reader,
    /// The offset after the last record.
    last_end: i64,
    /// Whether the last read returned nothing more.
    is_at_end: bool,
}

impl cluster::Reader for Reader {
    type Batch = Batch;

    fn read(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<(), Error> {
        self.inner.read(batch, records_max, wait)?;
        self.is_at_end = batch.is_empty();
        if let Some(last) = batch.len().checked_sub(1) {
            self.last_end = batch.record(last).offset + 1;
        }
        if is_told(Lie::TombstoneDropped) {
            batch.drop_tombstones();
        }
        Ok(())
    }

    fn position(&self) -> i64 {
        match () {
            () if is_told(Lie::RestoreToLastRecord) => self.last_end,
            () if is_told(Lie::OpenTransactionPassed) && self.is_at_end => i64::MAX,
            () => self.inner.position(),
        }
    }
}

/// A takeover's queries.
pub struct Settling(client::Settling);

impl cluster::Settling for Settling {
    fn poll(&mut self) -> Option<Result<Settled, Error>> {
        let mut settled = self.0.poll()?;
        if let Ok(settled) = &mut settled {
            if is_told(Lie::TruncatedRebuilt) {
                settled.changelog_start = ChangelogOffset(0);
            }
            if is_told(Lie::KafkaTimeNotAsked) {
                settled.changelog_time = settled.changelog_time.map(|_| i64::MIN);
            }
        }
        Some(settled)
    }
}
