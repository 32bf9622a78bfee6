//! A group member from the lane's side: see `crates/cluster/src/cluster/kafka/member.rs`, which has the same rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet::cluster::kafka::client::{FetchClient, Membership as Proof};
use ratchet::cluster::kafka::epochs::Epochs;
use ratchet::cluster::kafka::wire::writer::GroupMembership;
use ratchet::cluster::{self, Error, ErrorKind, GroupEvent, OffsetCommit, RecordBatch, Waker};
use ratchet::record::TopicPartition;

use crate::kafka::{Committed, MS, Partition, SECOND, Time};
use crate::world::Process;

use super::group::{Event, Membership};
use super::{Batch, ours, theirs};

/// How late the bell may ring that ends a wait.
const BELL_LATE: Time = 20 * MS;
/// How long leaving the group may take.
const LEAVE_DEADLINE: Time = 5 * SECOND;

/// An assigned partition.
struct Slot {
    partition: TopicPartition,
    /// Where it was started.
    begin: i64,
}

/// A group's member.
pub struct Member {
    process: Process,
    membership: Membership,
    reading: FetchClient,
    epochs: Arc<Epochs>,
    slots: Vec<Slot>,
    left: bool,
    /// Whether somebody has ended its next wait.
    woken: Arc<AtomicBool>,
}

/// Proof of a membership: member id and generation.
pub struct Metadata {
    pub group: Arc<str>,
    pub member: Arc<str>,
    pub generation: i32,
    pub epochs: Arc<Epochs>,
}

impl Proof for Metadata {
    fn group(&self) -> GroupMembership {
        let (id, member) = (self.group.to_string(), self.member.to_string());
        GroupMembership { id, generation: self.generation, member, instance: None }
    }

    fn epochs(&self) -> &Epochs {
        &self.epochs
    }
}

impl Member {
    pub fn join(process: Process, group: &str, topics: &[Arc<str>], reading: FetchClient) -> Self {
        let membership = Membership::begin(process.clone(), group.into(), topics.to_vec());
        Self {
            process,
            membership,
            reading,
            epochs: Arc::default(),
            slots: Vec::new(),
            left: false,
            woken: Arc::default(),
        }
    }

    fn slot(&mut self, partition: &TopicPartition) -> Result<&mut Slot, Error> {
        let missing = || Error::new(ErrorKind::Abort, format!("{partition} is not assigned to this member"));
        self.slots.iter_mut().find(|slot| slot.partition == *partition).ok_or_else(missing)
    }

    fn positions(&self) -> Vec<Option<i64>> {
        self.slots.iter().map(|slot| self.reading.position(&slot.partition)).collect()
    }

    fn event(&mut self) -> Option<GroupEvent> {
        let event = self.membership.lock().event.clone()?;
        let all = |partitions: &[Partition]| partitions.iter().map(ours).collect::<Vec<_>>();
        Some(match &event {
            Event::Assigned(partitions) => GroupEvent::Assigned(all(partitions)),
            Event::Revoked(partitions) | Event::Lost(partitions) => {
                let partitions = all(partitions);
                partitions.iter().for_each(|partition| self.reading.pause(partition));
                if matches!(event, Event::Lost(_)) {
                    GroupEvent::Lost(partitions)
                } else {
                    self.process.lock().revoked(self.process.number);
                    GroupEvent::Revoked(partitions)
                }
            }
        })
    }

    fn close(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.left, true) || self.process.is_dead() {
            return Ok(());
        }
        self.membership.lock().closing = true;
        self.membership.wake();
        let deadline = self.process.now() + LEAVE_DEADLINE;
        while !self.membership.lock().closed {
            if self.process.is_dead() {
                return Ok(());
            }
            if self.process.now() >= deadline {
                return Err(Error::new(ErrorKind::Retry, "the group was not left in time"));
            }
            self.process.sleep(5 * MS);
        }
        Ok(())
    }
}

impl cluster::Member for Member {
    type Batch = Batch;
    type Metadata = Metadata;

    fn poll(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<Option<GroupEvent>, Error> {
        batch.clear();
        self.process.pause();
        if self.process.lock().backlogged {
            let length = self.process.lock().random.between(MS, 20 * MS);
            self.process.sleep(length);
        }
        let now = self.process.now();
        self.membership.lock().polled = now;
        if let Some(event) = self.event() {
            return Ok(Some(event));
        }
        let until = now + wait.as_micros() as Time;
        let positions = self.positions();
        loop {
            let looks_at = until.min(self.process.now() + BELL_LATE);
            let wait = Duration::from_micros(looks_at.saturating_sub(self.process.now()));
            self.reading.poll(&mut batch.records, records_max, wait, Some(&self.epochs))?;
            let len = batch.len();
            if len > 0 {
                self.process.lock().note("poll", format_args!("{len} records"));
                return Ok(None);
            }
            let now = self.process.now();
            let event = self.event();
            let is_over = now >= until || records_max == 0 || self.process.is_dead() || self.positions() != positions;
            if event.is_some() || self.woken.swap(false, Ordering::Relaxed) || is_over {
                return Ok(event);
            }
        }
    }

    fn waker(&self) -> Waker {
        let woken = Arc::clone(&self.woken);
        Arc::new(move || woken.store(true, Ordering::Relaxed))
    }

    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error> {
        {
            let mut shared = self.membership.lock();
            shared.topics = topics.to_vec();
            shared.resubscribed = true;
        }
        self.membership.wake();
        Ok(())
    }

    fn accept_assigned(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        for partition in partitions {
            if !self.slots.iter().any(|slot| slot.partition == *partition) {
                let partition = partition.clone();
                self.slots.push(Slot { partition, begin: 0 });
            }
        }
        self.membership.lock().event = None;
        self.membership.wake();
        Ok(())
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.slots.retain(|slot| !partitions.contains(&slot.partition));
        partitions.iter().for_each(|partition| self.reading.remove(partition));
        self.membership.lock().event = None;
        self.membership.wake();
        Ok(())
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        self.process.pause();
        self.slot(partition)?.begin = offset;
        self.reading.start(partition, offset, self.epochs.begin(partition, offset))
    }

    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.slot(partition)?;
        self.reading.pause(partition);
        Ok(())
    }

    fn position(&self, partition: &TopicPartition) -> Option<i64> {
        let slot = self.slots.iter().find(|slot| slot.partition == *partition)?;
        self.reading.position(partition).filter(|position| *position > slot.begin)
    }

    fn end(&self, partition: &TopicPartition) -> Option<i64> {
        self.reading.high_watermark(partition)
    }

    fn has_more(&self) -> bool {
        self.reading.has_more()
    }

    fn metadata(&self) -> Result<Metadata, Error> {
        let shared = self.membership.lock();
        let (group, member, generation) = (self.membership.group.clone(), shared.member.clone(), shared.generation);
        if generation < 0 || member.is_empty() {
            return Err(Error::new(ErrorKind::Abort, "the member has not joined its group yet"));
        }
        Ok(Metadata { group, member, generation, epochs: Arc::clone(&self.epochs) })
    }

    fn leave(mut self) -> Result<(), Error> {
        self.close()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// Offsets in the cluster's type.
pub fn committed(offsets: &[OffsetCommit]) -> Vec<(Partition, Committed)> {
    let of = |commit: &OffsetCommit| {
        let committed = Committed { offset: commit.committed.offset, metadata: commit.committed.metadata.clone() };
        (theirs(&commit.partition), committed)
    };
    offsets.iter().map(of).collect()
}
