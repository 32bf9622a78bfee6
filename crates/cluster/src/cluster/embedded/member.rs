//! A group's member: see [`super::group`] for the protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::batch::Batch;
use super::broker::Broker;
use super::clock::now;
use super::disk::Scan;
use super::error::refused;
use super::group::Served;
use super::membership::Membership;
use super::reader::Cursor;
use super::state::State;
use super::topics::check_group;
use crate::cluster::{self, Error, ErrorKind, GroupEvent, RecordBatch, Waker};
use crate::record::TopicPartition;

/// See [`cluster::Member`]. Dropping it leaves the group.
pub struct Member {
    broker: Arc<Broker>,
    group: String,
    topics: Vec<Arc<str>>,
    /// The id by which the group knows this member; a new one after an expulsion.
    id: u64,
    /// Whether an event was delivered and awaits acknowledgement, and whether that is [`GroupEvent::Lost`].
    delivered: bool,
    lost: bool,
    partitions: Vec<Assigned>,
    /// The partition that the next poll begins with, so that each gets its turn.
    turn: usize,
    /// Whether its next wait is to end at once.
    woken: Arc<AtomicBool>,
}

/// A partition that was taken over.
struct Assigned {
    partition: TopicPartition,
    /// Where it is read; `None` while paused.
    cursor: Option<Cursor>,
    /// The position and the end, which remain known while it is paused.
    position: Option<i64>,
    end: Option<i64>,
}

impl Member {
    pub(super) fn join(broker: &Arc<Broker>, group: &str, topics: &[Arc<str>]) -> Result<Self, Error> {
        check_group(group)?;
        let mut member = Self {
            broker: Arc::clone(broker),
            group: group.to_owned(),
            topics: topics.to_vec(),
            id: 0,
            delivered: false,
            lost: false,
            partitions: Vec::new(),
            turn: 0,
            woken: Arc::default(),
        };
        member.enter(&mut *broker.state()?);
        broker.notify();
        Ok(member)
    }

    fn enter(&mut self, state: &mut State) {
        self.id = state.next_number();
        state.groups.entry(self.group.clone()).or_default().join(self.id, &self.topics);
    }

    fn exit(&self) -> Result<(), Error> {
        let mut state = self.broker.state()?;
        if state.groups.get_mut(&self.group).is_some_and(|group| group.leave(self.id)) {
            self.broker.notify();
        }
        Ok(())
    }

    /// The group's event for this member, which rejoins if the group has expelled it.
    fn serve(&mut self, state: &mut State) -> Served {
        if self.delivered {
            return Served::Pending;
        }
        let State { topics, groups, .. } = &mut *state;
        let count = |topic: &str| topics.get(topic).map(super::topics::Topic::partition_count);
        let before = groups.get(&self.group).map(super::group::Group::generation);
        let served = groups.get_mut(&self.group).map_or(Served::Unknown, |group| group.serve(self.id, count));
        if before != groups.get(&self.group).map(super::group::Group::generation) {
            // A round is complete: the others have events.
            self.broker.notify();
        }
        if served != Served::Unknown {
            return served;
        }
        if self.partitions.is_empty() {
            self.enter(state);
            self.broker.notify();
            return Served::Idle;
        }
        self.lost = true;
        Served::Event(GroupEvent::Lost(self.partitions.iter().map(|known| known.partition.clone()).collect()))
    }

    /// Updates the partitions' ends and picks those to fill a batch from, each with a scan of what
    /// there is to read as of now. An error is reported once: its partition is paused.
    fn ready<'a>(
        &mut self,
        broker: &'a Broker,
        state: &State,
        records_max: usize,
    ) -> Result<Vec<(usize, Scan<'a>)>, Error> {
        let mut picked = Vec::new();
        let mut available = 0;
        for step in 0..self.partitions.len() {
            let index = (self.turn + step) % self.partitions.len();
            let known = &mut self.partitions[index];
            let Some(cursor) = &mut known.cursor else { continue };
            let readable = cursor.refresh(state).inspect_err(|_| known.cursor = None)?;
            known.end = Some(cursor_end(known));
            let Some(cursor) = &known.cursor else { continue };
            // Compacted gaps may make this less; then the next poll continues.
            if readable && available < records_max {
                available = available.saturating_add(usize::try_from(cursor.end - cursor.position).unwrap_or(0));
                picked.push((index, cursor.scan(broker)));
            }
        }
        Ok(picked)
    }

    fn read(&mut self, picked: Vec<(usize, Scan<'_>)>, batch: &mut Batch, records_max: usize) -> Result<(), Error> {
        for (index, mut scan) in picked {
            let known = &mut self.partitions[index];
            if let Some(cursor) = &mut known.cursor {
                cursor.read(&mut scan, batch, records_max)?;
                known.position = Some(cursor.position);
            }
            self.turn = index + 1;
        }
        Ok(())
    }

    fn assigned_mut(&mut self, partition: &TopicPartition) -> Result<&mut Assigned, Error> {
        let group = &self.group;
        let found = self.partitions.iter_mut().find(|known| known.partition == *partition);
        found.ok_or_else(|| refused(format!("{partition} is not assigned to this member of group {group}")))
    }

    fn assigned(&self, partition: &TopicPartition) -> Option<&Assigned> {
        self.partitions.iter().find(|known| known.partition == *partition)
    }

    /// Acknowledges the delivered event; if the member was expelled meanwhile, the group need not know.
    fn acknowledge(&mut self, assigned: bool) -> Result<(), Error> {
        let mut state = self.broker.state()?;
        let delivered = self.delivered;
        let takes = |group: &mut super::group::Group| !group.is_member(self.id) || group.acknowledge(self.id, assigned);
        if !delivered || !state.groups.get_mut(&self.group).is_none_or(takes) {
            return Err(refused(format!(
                "the member of group {} has no event that this would acknowledge",
                self.group
            )));
        }
        self.delivered = false;
        self.broker.notify();
        Ok(())
    }
}

fn cursor_end(known: &Assigned) -> i64 {
    known.cursor.as_ref().map_or_else(|| known.end.unwrap_or(0), |cursor| cursor.end)
}

impl cluster::Member for Member {
    type Batch = Batch;
    type Metadata = Membership;

    fn poll(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<Option<GroupEvent>, Error> {
        batch.clear();
        let deadline = now() + wait;
        let broker = Arc::clone(&self.broker);
        let mut state = broker.state()?;
        loop {
            match self.serve(&mut state) {
                Served::Event(event) => {
                    self.delivered = true;
                    return Ok(Some(event));
                }
                Served::Idle if records_max > 0 => {
                    let picked = self.ready(&broker, &state, records_max)?;
                    if !picked.is_empty() {
                        drop(state);
                        self.read(picked, batch, records_max)?;
                        if !batch.is_empty() {
                            return Ok(None);
                        }
                        // Only compacted gaps.
                        state = broker.state()?;
                        continue;
                    }
                }
                Served::Idle | Served::Pending | Served::Unknown => {}
            }
            if self.woken.swap(false, Ordering::Relaxed) {
                return Ok(None);
            }
            let in_time;
            (state, in_time) = broker.wait(state, deadline)?;
            if !in_time {
                return Ok(None);
            }
        }
    }

    fn waker(&self) -> Waker {
        let (broker, woken) = (Arc::downgrade(&self.broker), Arc::clone(&self.woken));
        Arc::new(move || {
            let Some(broker) = broker.upgrade() else { return };
            // The lock is held, so that no member begins to wait between the flag and the notification.
            let _state = broker.state();
            woken.store(true, Ordering::Relaxed);
            broker.notify();
        })
    }

    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error> {
        self.topics = topics.to_vec();
        let mut state = self.broker.state()?;
        if let Some(group) = state.groups.get_mut(&self.group) {
            group.subscribe(self.id, topics);
        }
        self.broker.notify();
        Ok(())
    }

    fn accept_assigned(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.acknowledge(true)?;
        for partition in partitions {
            if self.assigned(partition).is_none() {
                self.partitions.push(Assigned {
                    partition: partition.clone(),
                    cursor: None,
                    position: None,
                    end: None,
                });
            }
        }
        Ok(())
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        if !self.lost {
            self.acknowledge(false)?;
        }
        self.partitions.retain(|known| !partitions.contains(&known.partition));
        if !self.lost {
            return Ok(());
        }
        self.lost = false;
        self.delivered = false;
        self.enter(&mut *Arc::clone(&self.broker).state()?);
        self.broker.notify();
        Ok(())
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        let broker = Arc::clone(&self.broker);
        let known = self.assigned_mut(partition)?;
        let cursor = Cursor::new(&*broker.state()?, partition, offset)?;
        known.end = Some(cursor.end);
        known.position = None;
        known.cursor = Some(cursor);
        Ok(())
    }

    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.assigned_mut(partition)?.cursor = None;
        Ok(())
    }

    fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.assigned(partition)?.position
    }

    fn end(&self, partition: &TopicPartition) -> Option<i64> {
        self.assigned(partition)?.end
    }

    fn metadata(&self) -> Result<Membership, Error> {
        let state = self.broker.state()?;
        let joined = state.groups.get(&self.group).and_then(|group| group.joined_generation(self.id));
        let generation = joined.filter(|_| !self.lost).ok_or_else(|| {
            Error::new(ErrorKind::Abort, format!("the member of group {} has not joined (any more)", self.group))
        })?;
        Ok(Membership { group: self.group.clone(), member: self.id, generation })
    }

    fn leave(self) -> Result<(), Error> {
        self.exit()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Nothing can be done about a broken cluster here, and nobody is left to report it to.
        let _ = self.exit();
    }
}
