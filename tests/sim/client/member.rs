//! A group member from the lane's side: see `src/cluster/kafka/member.rs`, which has the same rules.

use std::sync::Arc;
use std::time::Duration;

use ratchet::cluster::{self, Error, ErrorKind, GroupEvent, OffsetCommit, RecordBatch};
use ratchet::record::TopicPartition;

use crate::kafka::{Code, Committed, Isolation, MS, Partition, SECOND, Time};
use crate::world::Process;

use super::group::{Event, Membership};
use super::{Batch, errors, ours, theirs};

/// How long leaving the group may take.
const LEAVE_DEADLINE: Time = 5 * SECOND;

/// An assigned partition.
struct Slot {
    partition: TopicPartition,
    started: bool,
    /// The next offset to fetch, after any markers and gaps that were skipped.
    next: i64,
    /// Whether anything was read since the start.
    passed: bool,
    end: Option<i64>,
    /// Its fetcher met an offset that does not exist, and has stopped for good.
    stopped: bool,
}

/// A group's member.
pub struct Member {
    process: Process,
    membership: Membership,
    slots: Vec<Slot>,
    left: bool,
}

/// Proof of a membership: member id and generation.
pub struct Metadata {
    pub group: Arc<str>,
    pub member: Arc<str>,
    pub generation: i32,
}

impl Member {
    pub fn join(process: Process, group: &str, topics: &[Arc<str>]) -> Self {
        let membership = Membership::begin(process.clone(), group.into(), topics.to_vec());
        Self { process, membership, slots: Vec::new(), left: false }
    }

    fn slot(&mut self, partition: &TopicPartition) -> Result<&mut Slot, Error> {
        let missing = || Error::new(ErrorKind::Abort, format!("{partition} is not assigned to this member"));
        self.slots.iter_mut().find(|slot| slot.partition == *partition).ok_or_else(missing)
    }

    fn event(&mut self) -> Option<GroupEvent> {
        let event = self.membership.lock().event.clone()?;
        let all = |partitions: &[Partition]| partitions.iter().map(ours).collect::<Vec<_>>();
        Some(match &event {
            Event::Assigned(partitions) => GroupEvent::Assigned(all(partitions)),
            Event::Revoked(partitions) | Event::Lost(partitions) => {
                let partitions = all(partitions);
                for slot in self.slots.iter_mut().filter(|slot| partitions.contains(&slot.partition)) {
                    slot.started = false;
                }
                if matches!(event, Event::Lost(_)) {
                    GroupEvent::Lost(partitions)
                } else {
                    self.process.lock().revoked(self.process.number);
                    GroupEvent::Revoked(partitions)
                }
            }
        })
    }

    /// Fetches from the started partitions, starting with a random one.
    fn fetch(&mut self, batch: &mut Batch, records_max: usize) -> Result<(), Error> {
        let count = self.slots.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let mut state = self.process.lock();
        let first = state.random.below(count) as usize;
        // Fetches return any number of records.
        let bound = if state.backlogged {
            state.random.between(1, 2) as usize
        } else if state.random.permille(300) {
            state.random.between(1, 8) as usize
        } else {
            64
        };
        let mut left = records_max.min(bound);
        for step in 0..self.slots.len() {
            let at = (first + step) % self.slots.len();
            let slot = &mut self.slots[at];
            if !slot.started || left == 0 {
                continue;
            }
            batch.open(&slot.partition);
            let before = batch.len();
            let partition = theirs(&slot.partition);
            let fetched = state
                .broker
                .fetch(&partition, slot.next, Isolation::Committed, left, |offset, record| batch.push(offset, record));
            left -= batch.len() - before;
            match fetched {
                Ok((next, end)) => {
                    slot.passed |= next > slot.next;
                    (slot.next, slot.end) = (next, Some(end));
                }
                Err(Code::NotLeaderOrFollower) => {}
                Err(code) => {
                    slot.stopped |= code == Code::OffsetOutOfRange;
                    slot.started = code != Code::OffsetOutOfRange;
                    let message = format!("{} cannot be read at offset {}: {code:?}", slot.partition, slot.next);
                    return Err(errors::plain(code, message).of(&slot.partition));
                }
            }
        }
        if !batch.is_empty() {
            let len = batch.len();
            state.note("poll", format_args!("{len} records"));
        }
        Ok(())
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
        self.fetch(batch, records_max)?;
        let wait = wait.as_micros() as Time;
        if batch.is_empty() && wait > 0 {
            let length = self.process.lock().random.between(wait / 4, wait);
            self.process.sleep(length);
            if let Some(event) = self.event() {
                return Ok(Some(event));
            }
            self.fetch(batch, records_max)?;
        }
        Ok(None)
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
                self.slots.push(Slot { partition, started: false, next: 0, passed: false, end: None, stopped: false });
            }
        }
        self.membership.lock().event = None;
        self.membership.wake();
        Ok(())
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.slots.retain(|slot| !partitions.contains(&slot.partition));
        self.membership.lock().event = None;
        self.membership.wake();
        Ok(())
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        self.process.pause();
        let slot = self.slot(partition)?;
        if slot.stopped {
            return Err(Error::new(ErrorKind::Fenced, format!("{partition} can only be read again by a new member")));
        }
        (slot.next, slot.started, slot.passed) = (offset, true, false);
        Ok(())
    }

    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.slot(partition)?.started = false;
        Ok(())
    }

    fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.slots.iter().find(|slot| slot.partition == *partition && slot.passed).map(|slot| slot.next)
    }

    fn end(&self, partition: &TopicPartition) -> Option<i64> {
        self.slots.iter().find(|slot| slot.partition == *partition)?.end
    }

    /// As far as it knows. While a transaction is open on the input, it is wrong.
    fn has_more(&self) -> bool {
        self.slots.iter().any(|slot| slot.started && slot.end.is_some_and(|end| end > slot.next))
    }

    fn metadata(&self) -> Result<Metadata, Error> {
        let shared = self.membership.lock();
        let (group, member, generation) = (self.membership.group.clone(), shared.member.clone(), shared.generation);
        if generation < 0 || member.is_empty() {
            return Err(Error::new(ErrorKind::Abort, "the member has not joined its group yet"));
        }
        Ok(Metadata { group, member, generation })
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
