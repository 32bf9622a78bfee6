//! Reads any number of partitions, read_committed, through [`Brokers`]; no I/O, no clock.
//!
//! [`Fetcher::poll`] takes what brokers have answered and asks for more: one Fetch is under way to each broker that
//! leads something that is read, in a session (KIP-227), and the next one leaves as soon as its response is here.
//! [`Fetcher::take`] hands on what was fetched: the responses' own buffers, and where in them the records are.
//!
//! - `slot`: a partition: where it is, what is buffered of it, what is wrong with it
//! - `node`: a broker: its session, and what is under way
//! - `requests`, `answers`: requests, responses; `epochs`: whether a partition still holds what was read of it (KIP-320)
//! - `chunk`: a partition's part of a response, and how it is handed on; `fetched`: what is handed on
//! - `settings`, `trouble`
//!
//! Invariants:
//! - What is handed on of a partition are its committed records in order, each once, from where it was started. Its
//!   position never passes one that was not handed on.
//! - A response counts for a partition only if it answers for the offset that is wanted now, of the leader that is
//!   known now, since the last start: each of these has a `turn`, and what was asked in a former turn is dropped.
//! - Nothing is asked of a leader unless it has said that it holds what was read up to there, if the epoch of the last
//!   batch is known. Every request names the leader's epoch, so that no other leader answers.
//! - Buffered are at most [`FetchSettings::buffered_bytes_max`] and one response of each broker.
//!
//! **A gap at the end.** Where compaction has removed what was before the last stable offset, and nothing follows, no
//! batch says so. A response without any records, from a broker that returns the first batch however large it is
//! (KIP-74), says that there is nothing between the offset that was asked for and the last stable offset that it names;
//! one with records of other partitions does not, as these may have used up its bytes. A leader whose high watermark is
//! not in its local log answers with nothing as well, until a follower has fetched from it (`LocalLog.read`), and so
//! does one whose index of offsets is damaged. So the leader is asked twice, [`CONFIRMED_AFTER`] apart and alone, and the
//! last offset of the gap is probed, before the position moves.
//!
//! **Failure**: what passes by itself (leaders that move, brokers that are gone, sessions that are lost) is asked for
//! again. What does not is a [`Trouble`] of its partition, which is handed out after everything before it; the
//! partition is then not read until it is started again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::brokers::{Brokers, Leader, RequestId};
use super::records::Unpack;
use crate::record::TopicPartition;

mod answers;
mod chunk;
mod epochs;
mod fetched;
mod node;
mod requests;
mod settings;
mod slot;
#[cfg(test)]
mod tests;
mod trouble;

use chunk::Buffers;
pub use fetched::{Fetched, Passed};
use node::{Node, Underway};
pub use settings::{CONFIRMED_AFTER, FetchSettings};
use slot::{Phase, Slot};
pub use trouble::Trouble;

/// How long a partition may be left out of responses that are full of others before it is asked for alone.
const ALONE_AFTER: Duration = Duration::from_millis(100);
/// How long after it was asked for a response is soon to be expected, if there is something to return.
const MORE_WITHIN: Duration = Duration::from_millis(50);
/// How many buffers are kept for the next responses.
const SPARE_MAX: usize = 8;

/// Reads partitions.
#[derive(Debug)]
pub struct Fetcher {
    settings: Arc<FetchSettings>,
    slots: BTreeMap<u32, Slot>,
    names: HashMap<Arc<str>, BTreeMap<i32, u32>>,
    /// Slots by topic and partition: the order in which requests name them.
    order: Vec<u32>,
    next_slot: u32,
    /// The number of the last turn.
    turns: u64,
    nodes: BTreeMap<i32, Node>,
    underway: HashMap<RequestId, Underway>,
    buffers: Buffers,
    /// Slots with something to hand on, the next first.
    ready: VecDeque<u32>,
    /// Topics that brokers have not been asked to watch yet.
    unwatched: Vec<Arc<str>>,
    /// Topics that may not be read any more, and that brokers have not been asked to forget yet.
    unwanted: Vec<Arc<str>>,
    spare: Vec<Vec<u8>>,
    /// Whether something has changed since the last look for what to ask.
    is_stirred: bool,
    /// When there may be something to ask, if nothing happens before.
    wakes_at: Option<Instant>,
    /// Whether brokers have not yet said who leads something, or are not ready.
    is_waiting: bool,
}

impl Fetcher {
    /// Reads nothing yet.
    pub fn new(settings: Arc<FetchSettings>) -> Self {
        Self {
            settings,
            slots: BTreeMap::new(),
            names: HashMap::new(),
            order: Vec::new(),
            next_slot: 0,
            turns: 0,
            nodes: BTreeMap::new(),
            underway: HashMap::new(),
            buffers: Buffers::default(),
            ready: VecDeque::new(),
            unwatched: Vec::new(),
            unwanted: Vec::new(),
            spare: Vec::new(),
            is_stirred: false,
            wakes_at: None,
            is_waiting: false,
        }
    }

    /// Reads `partition` from `offset` on. What was fetched of it before is dropped. If the epoch of the record before
    /// is given, the leader is asked first whether it still holds what was read up to there.
    pub fn start(&mut self, partition: &TopicPartition, offset: i64, epoch_before: Option<i32>, _now: Instant) {
        let turn = self.next_turn();
        let id = self.slot_id(partition).unwrap_or_else(|| self.add(partition));
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.start(turn, offset, epoch_before, &mut self.buffers);
        }
        self.is_stirred = true;
    }

    /// Stops reading `partition` until it is started again. What was fetched of it and not handed on is dropped.
    pub fn pause(&mut self, partition: &TopicPartition) {
        let turn = self.next_turn();
        if let Some(slot) = self.slot_id(partition).and_then(|id| self.slots.get_mut(&id)) {
            slot.pause(turn, &mut self.buffers);
        }
        self.is_stirred = true;
    }

    /// Forgets `partition`.
    pub fn remove(&mut self, partition: &TopicPartition) {
        let Some(id) = self.slot_id(partition) else { return };
        if let Some(mut slot) = self.slots.remove(&id) {
            slot.drop_pieces(&mut self.buffers);
        }
        if let Some(numbers) = self.names.get_mut(&partition.topic) {
            numbers.remove(&partition.partition);
            if numbers.is_empty() {
                self.names.remove(&partition.topic);
                self.unwanted.push(Arc::clone(&partition.topic));
            }
        }
        self.order.retain(|of| *of != id);
        self.ready.retain(|of| *of != id);
        self.is_stirred = true;
    }

    fn add(&mut self, partition: &TopicPartition) -> u32 {
        let id = self.next_slot;
        self.next_slot += 1;
        if !self.names.contains_key(&partition.topic) {
            self.unwatched.push(Arc::clone(&partition.topic));
        }
        self.names.entry(Arc::clone(&partition.topic)).or_default().insert(partition.partition, id);
        self.slots.insert(id, Slot::new(partition.clone(), self.settings.partition_max_bytes));
        let slots = &self.slots;
        let place = self.order.partition_point(|of| slots.get(of).is_some_and(|slot| slot.name < *partition));
        self.order.insert(place, id);
        id
    }

    fn slot_id(&self, partition: &TopicPartition) -> Option<u32> {
        self.slot_of(&partition.topic, partition.partition)
    }

    fn slot_of(&self, topic: &str, partition: i32) -> Option<u32> {
        self.names.get(topic)?.get(&partition).copied()
    }

    fn slot(&self, partition: &TopicPartition) -> Option<&Slot> {
        self.slots.get(&self.slot_id(partition)?)
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Takes what brokers have answered, and sends what is due. To be called after anything has happened, and at
    /// [`Fetcher::next_tick`].
    pub fn poll(&mut self, brokers: &mut Brokers, now: Instant) {
        for topic in self.unwanted.drain(..).filter(|topic| !self.names.contains_key(topic)) {
            brokers.unwatch(&topic);
        }
        if !self.unwatched.is_empty() {
            brokers.watch(&std::mem::take(&mut self.unwatched));
        }
        while let Some(event) = brokers.next_event() {
            self.heed(event, brokers, now);
            self.is_stirred = true;
        }
        self.spare.drain(..).for_each(|buffer| brokers.recycle(buffer));
        let is_due = self.wakes_at.is_some_and(|at| at <= now);
        if self.is_stirred || self.is_waiting || is_due {
            self.is_stirred = false;
            self.ask(brokers, now);
        }
    }

    /// When [`Fetcher::poll`] has something to do even if nothing happens.
    pub fn next_tick(&self) -> Option<Instant> {
        self.wakes_at
    }

    /// Hands on at most `records_max` records, of each partition in turn, in place of what `into` held. Compressed
    /// batches are unpacked one by one; one for which there is no room waits.
    pub fn take(&mut self, records_max: usize, unpack: &mut dyn Unpack, into: &mut Fetched, now: Instant) {
        into.release(&mut self.spare);
        self.spare.truncate(SPARE_MAX);
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { break };
            let turn = self.next_turn();
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            slot.hand_on(records_max, unpack, into, &mut self.buffers, &self.settings, turn, now);
            slot.is_ready = slot.has_some();
            if slot.is_ready {
                self.ready.push_back(id);
            }
            // What was buffered beyond the bound can be fetched again.
            self.is_stirred = true;
            if into.len() >= records_max {
                break;
            }
        }
    }

    /// The next partition that cannot be read any further, once everything before the trouble was handed on. It is read
    /// again when it is started again.
    pub fn next_trouble(&mut self) -> Option<(TopicPartition, Trouble)> {
        self.slots.values_mut().find_map(Slot::take_trouble)
    }

    /// The offset after everything handed on of a partition, including markers, aborted records and compacted gaps.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.slot(partition).map(|slot| slot.position)
    }

    /// The epoch to compare with where the partition is read from its position (KIP-320): that of the batch before it;
    /// or of the leader, if it was that which said that there is nothing up to there.
    pub fn position_epoch(&self, partition: &TopicPartition) -> Option<i32> {
        self.slot(partition)?.position_epoch
    }

    /// Whether a partition is read at present: it was started, and has had no trouble since.
    pub fn is_reading(&self, partition: &TopicPartition) -> bool {
        self.slot(partition).is_some_and(|slot| slot.phase == Phase::Reading)
    }

    /// Whether records are on their way that are known to be there: a leader has said that some follow, and was asked for
    /// them not longer ago than it takes a broker to return what it has.
    pub fn has_more(&self, now: Instant) -> bool {
        let is_asked = |id: &u32, slot: &Slot, leader: Leader| {
            self.nodes.get(&leader.node).is_some_and(|node| {
                let is_recent = |since| now.saturating_duration_since(since) < MORE_WITHIN;
                node.fetching_since.is_some_and(is_recent) && slot.is_wanted_by(node.grips.get(id))
            })
        };
        let comes =
            |(id, slot): (&u32, &Slot)| slot.has_more() && slot.leader.is_some_and(|leader| is_asked(id, slot, leader));
        self.slots.iter().any(comes)
    }

    /// A partition's high watermark as last said.
    pub fn high_watermark(&self, partition: &TopicPartition) -> Option<i64> {
        self.slot(partition)?.said.map(|said| said.high)
    }

    /// When the broker last answered in whose session the partition is; `None` while it is in none.
    pub fn heard(&self, partition: &TopicPartition) -> Option<Instant> {
        let id = self.names.get(&partition.topic)?.get(&partition.partition)?;
        self.nodes.values().find(|node| node.grips.contains_key(id)).and_then(|node| node.heard)
    }

    /// Up to where a partition can be read at read_committed, as last said.
    pub fn last_stable_offset(&self, partition: &TopicPartition) -> Option<i64> {
        self.slot(partition)?.said.map(|said| said.stable)
    }

    /// The first offset that a partition keeps, as last said.
    pub fn log_start_offset(&self, partition: &TopicPartition) -> Option<i64> {
        self.slot(partition)?.said.map(|said| said.start)
    }

    /// Since when a partition's requests have been refused, and by which error code last, if none has succeeded since.
    pub fn refused(&self, partition: &TopicPartition) -> Option<(Instant, i16)> {
        self.slot(partition)?.refused
    }

    /// What the responses take that were not handed on completely, in bytes.
    pub fn buffered_bytes(&self) -> usize {
        self.buffers.bytes()
    }
}
