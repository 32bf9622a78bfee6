//! Clients' requests, checked in the broker's order: is this the right broker, does the topic exist, does the
//! transaction coordinator agree, does the log accept it.

use std::sync::Arc;

use super::transactions::Target;
use super::{Broker, Code, Committed, Isolation, Log, Partition, Record, Role, Time, Writer};

/// A transactional producer, as requests name it.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: Arc<str>,
    pub producer: i64,
    pub epoch: i16,
}

impl Broker {
    fn at(&self, role: Role) -> Result<(), Code> {
        let code = if matches!(role, Role::Leader(_)) { Code::NotLeaderOrFollower } else { Code::NotCoordinator };
        if self.is_away(&role) { Err(code) } else { Ok(()) }
    }

    /// Whether a partition's leader can be reached.
    pub fn leader(&self, partition: &Partition) -> Result<(), Code> {
        if self.away.is_empty() { Ok(()) } else { self.at(Role::Leader(partition.clone())) }
    }

    /// `InitProducerId`.
    pub fn init_producer(&mut self, id: &Arc<str>, timeout: Time) -> Result<(i64, i16), Code> {
        self.at(Role::TransactionCoordinator)?;
        self.coordinator.init(id, timeout)
    }

    /// `InitProducerId` of a client that has the id already.
    pub fn raise_producer(&mut self, who: &Identity, timeout: Time) -> Result<(i64, i16), Code> {
        self.at(Role::TransactionCoordinator)?;
        self.coordinator.raise(&who.id, (who.producer, who.epoch), timeout)
    }

    /// `AddPartitionsToTxn`.
    pub fn add_partitions(&mut self, who: &Identity, partitions: &[Partition]) -> Result<(), Code> {
        self.at(Role::TransactionCoordinator)?;
        // All or nothing (`KafkaApis.handleAddPartitionsToTxnRequest`: OPERATION_NOT_ATTEMPTED for the others).
        if partitions.iter().any(|partition| self.topics.log(partition).is_none()) {
            return Err(Code::UnknownTopicOrPartition);
        }
        let targets = partitions.iter().cloned().map(Target::Log);
        self.coordinator.add(self.now, (&who.id, who.producer, who.epoch), targets)
    }

    /// `AddOffsetsToTxn`.
    pub fn add_offsets(&mut self, who: &Identity, group: &Arc<str>) -> Result<(), Code> {
        self.at(Role::TransactionCoordinator)?;
        let target = Target::Offsets(group.clone());
        self.coordinator.add(self.now, (&who.id, who.producer, who.epoch), [target])
    }

    /// `Produce` of one batch by a transactional producer; returns the first record's offset.
    pub fn produce(
        &mut self,
        who: &Identity,
        partition: &Partition,
        sequence: i32,
        records: &[Record],
    ) -> Result<i64, Code> {
        let topic = self.topics.get(&partition.topic).ok_or(Code::UnknownTopicOrPartition)?;
        let settings = topic.settings;
        self.leader(partition)?;
        if records.iter().map(size).sum::<usize>() > settings.message_bytes_max {
            return Err(Code::RecordTooLarge);
        }
        // A compacted topic accepts no record without a key (`LogValidator`).
        if settings.compacted && records.iter().any(|record| record.key.is_none()) {
            return Err(Code::InvalidRecord);
        }
        let (wall_ms, mut stamped) = (self.wall_ms(), Vec::new());
        let records = match settings.stamps {
            false => records,
            true => {
                stamped.extend(records.iter().map(|record| Record { timestamp: Some(wall_ms), ..record.clone() }));
                &stamped
            }
        };
        let log = self.topics.log_mut(partition).ok_or(Code::UnknownTopicOrPartition)?;
        if !log.has_open(who.producer, who.epoch) {
            let target = Target::Log(partition.clone());
            self.coordinator.verify((&who.id, who.producer, who.epoch), &target).map_err(as_produced)?;
        }
        log.append_transactional(Writer { producer: who.producer, epoch: who.epoch, sequence }, records)
    }

    /// `TxnOffsetCommit`.
    pub fn commit_offsets_transactional(
        &mut self,
        who: &Identity,
        group: &Arc<str>,
        membership: (&str, i32),
        offsets: &[(Partition, Committed)],
    ) -> Result<(), Code> {
        self.at(Role::GroupCoordinator)?;
        let target = Target::Offsets(group.clone());
        self.coordinator.verify((&who.id, who.producer, who.epoch), &target).map_err(|code| match code {
            Code::ProducerFenced => Code::InvalidProducerEpoch,
            // What the group's coordinator makes of it (`GroupCoordinatorService`), where the transaction still ends.
            Code::ConcurrentTransactions => Code::CoordinatorLoadInProgress,
            code => code,
        })?;
        self.groups.commit_transactional(group, membership, (who.producer, who.epoch), (offsets, self.late))
    }

    /// `EndTxn`; returns the producer's id and epoch to continue with.
    pub fn end_transaction(&mut self, who: &Identity, commit: bool) -> Result<(i64, i16), Code> {
        self.at(Role::TransactionCoordinator)?;
        self.coordinator.end((&who.id, who.producer, who.epoch), commit)
    }

    /// `OffsetCommit`.
    pub fn commit_offsets(
        &mut self,
        group: &Arc<str>,
        membership: (&str, i32),
        offsets: &[(Partition, Committed)],
    ) -> Result<(), Code> {
        self.at(Role::GroupCoordinator)?;
        self.groups.commit(self.now, group, membership, offsets)
    }

    /// `OffsetFetch` of one partition.
    pub fn fetch_offset(&self, group: &str, partition: &Partition, stable: bool) -> Result<Option<Committed>, Code> {
        self.at(Role::GroupCoordinator)?;
        self.groups.committed(group, partition, stable)
    }

    /// Whether the group's coordinator is reachable.
    pub fn group_coordinator(&self) -> Result<(), Code> {
        self.at(Role::GroupCoordinator)
    }

    /// `Fetch` of one partition; returns where to continue, and the high watermark.
    pub fn fetch(
        &self,
        partition: &Partition,
        from: i64,
        isolation: Isolation,
        max: usize,
        take: impl FnMut(i64, &Record),
    ) -> Result<(i64, i64), Code> {
        self.leader(partition)?;
        let log = self.topics.log(partition).ok_or(Code::UnknownTopicOrPartition)?;
        Ok((log.read(from, isolation, max, take)?, log.high()))
    }

    /// `ListOffsets`: the first offset, and the end for a reader with this isolation.
    pub fn ends(&self, partition: &Partition, isolation: Isolation) -> Result<(i64, i64), Code> {
        self.leader(partition)?;
        let log = self.topics.log(partition).ok_or(Code::UnknownTopicOrPartition)?;
        Ok((log.start(), log.bound(isolation)))
    }

    /// `ListOffsets` with MAX_TIMESTAMP: the latest timestamp in the log.
    pub fn latest_time(&self, partition: &Partition) -> Result<Option<i64>, Code> {
        self.leader(partition)?;
        self.topics.log(partition).map(Log::latest_time).ok_or(Code::UnknownTopicOrPartition)
    }

    /// Deletes a topic, and its committed offsets in all groups.
    pub fn delete_topic(&mut self, name: &str) -> Result<(), Code> {
        self.topics.delete(name)?;
        self.groups.forget_topic(name);
        Ok(())
    }
}

/// The error of a verification as a producer gets it (`AddPartitionsToTxnManager`, `ReplicaManager`: a temporary one
/// becomes NOT_ENOUGH_REPLICAS, which every client retries).
fn as_produced(code: Code) -> Code {
    match code {
        Code::ProducerFenced => Code::InvalidProducerEpoch,
        Code::ConcurrentTransactions => Code::NotEnoughReplicas,
        code => code,
    }
}

/// Approximate size of a record in a batch.
fn size(record: &Record) -> usize {
    let of = |bytes: &Option<super::Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len());
    70 + of(&record.key) + of(&record.value) + record.headers.len()
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
