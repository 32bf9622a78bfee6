//! Reads any number of partitions, read_committed, through [`Brokers`]; no I/O, no clock.
//!
//! [`Fetcher::poll`] handles brokers' responses and sends requests: to each broker that leads a partition being read,
//! one Fetch at a time, in a session (KIP-227); the next one is sent as soon as the response has arrived.
//! [`Fetcher::take`] hands on what was fetched, that is, returns it to the caller: the responses' own buffers, and
//! where in them the records are. A partition's *position* is the offset up to which it was handed on.
//!
//! - `slot`: a *slot*, that is, a partition as the fetcher sees it: its offsets, what is buffered, its trouble
//! - `node`: a broker: its session, and its pending requests
//! - `requests`: which requests to send; `responses`: handles responses; `epochs`: whether a partition still holds the
//!   records that were read from it (KIP-320)
//! - `chunk`: a partition's part of a response, and how it is handed on; `fetched`: what is handed on
//! - `settings`: how partitions are read; `trouble`: why a partition is not read any further
//!
//! Invariants:
//! - A partition's committed records are handed on in order, each once, from the offset at which it was started. Its
//!   position never passes a committed record that was not handed on.
//! - A response counts for a partition only if it is for the offset wanted now, from the leader known now, and was
//!   requested since the last start. A partition's *turn* is a number that changes with each start, pause and change
//!   of leader, and when buffered records are dropped to be fetched again. Responses to requests of an earlier turn are
//!   dropped.
//! - If the epoch of the last batch is known, nothing is fetched from a leader before it has confirmed that it holds
//!   what was read so far, unless it does not offer the request for that (see `epochs`). Every request names the
//!   leader's epoch, so that no other leader responds.
//! - At most [`FetchSettings::buffered_bytes_max`] bytes and one response from each broker are buffered.
//!
//! **A gap at the end.** If compaction has removed the records just before the last stable offset, no later batch
//! reveals the gap. Since a broker returns the first batch however large it is (KIP-74), a response without any records
//! says that there is nothing between the requested offset and the last stable offset it names; a response with records
//! of other partitions does not, as these may have used up its bytes. But a leader whose high watermark is not in its
//! local log also returns nothing, until a follower has fetched from it (`LocalLog.read`), and so does one whose offset
//! index is damaged. So before the position moves over the gap, the leader is asked again, for this partition alone and
//! at least [`CONFIRMED_AFTER`] later. Then the last offset of the gap is *probed*: it is requested, also alone, and
//! the leader must return no record with this offset.
//!
//! **Failure**: after a temporary failure (a leader moves, a broker is gone, a session is lost) the request is
//! repeated. A permanent one becomes the partition's [`Trouble`], which is returned after everything before it was
//! handed on; the partition is then not read until it is started again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::brokers::{Brokers, Leader, RequestId};
use super::records::Unpack;
use crate::record::TopicPartition;

mod chunk;
mod epochs;
mod fetched;
mod node;
mod requests;
mod responses;
mod settings;
mod slot;
#[cfg(test)]
mod tests;
mod trouble;

use chunk::BufferedBytes;
pub use fetched::{Fetched, Passed};
use node::{Node, PendingRequest};
pub use settings::{CONFIRMED_AFTER, FetchSettings};
use slot::{Phase, Slot};
pub use trouble::Trouble;

/// A partition is requested alone this long after a response with records of other partitions only: such a response
/// does not show whether the partition has records.
const ALONE_AFTER: Duration = Duration::from_millis(100);
/// A broker that has records is expected to return them within this time of the request.
const MORE_WITHIN: Duration = Duration::from_millis(50);
/// The most buffers kept for later responses.
const SPARE_MAX: usize = 8;

/// Reads partitions.
#[derive(Debug)]
pub struct Fetcher {
    settings: Arc<FetchSettings>,
    slots: BTreeMap<u32, Slot>,
    /// The slots' ids by topic and partition.
    slot_ids: HashMap<Arc<str>, BTreeMap<i32, u32>>,
    /// The slots' ids in the order of topic and partition, in which requests name them.
    order: Vec<u32>,
    next_slot_id: u32,
    /// The highest turn number so far, of all partitions; not every number is used.
    last_turn: u64,
    /// By the brokers' numbers.
    nodes: BTreeMap<i32, Node>,
    pending_requests: HashMap<RequestId, PendingRequest>,
    buffered_bytes: BufferedBytes,
    /// Slots with something to hand on, the next first.
    ready: VecDeque<u32>,
    /// Topics that [`Brokers`] has not been asked to watch yet.
    unwatched: Vec<Arc<str>>,
    /// Topics whose last partition was removed, and that [`Brokers`] has not been asked to forget yet. A partition of
    /// the topic may have been added again since.
    unwanted: Vec<Arc<str>>,
    /// Buffers that were handed on and came back: the next poll returns them to [`Brokers`].
    spare: Vec<Vec<u8>>,
    /// Whether something has changed since [`Fetcher::send_requests`] last ran.
    has_changed: bool,
    /// When a request may be due even if nothing happens before; `None` if there is no such time.
    wakes_at: Option<Instant>,
    /// Whether a leader is unknown or a broker is not ready: then each poll attempts to send requests.
    is_waiting: bool,
}

impl Fetcher {
    /// A fetcher that reads nothing yet.
    pub fn new(settings: Arc<FetchSettings>) -> Self {
        Self {
            settings,
            slots: BTreeMap::new(),
            slot_ids: HashMap::new(),
            order: Vec::new(),
            next_slot_id: 0,
            last_turn: 0,
            nodes: BTreeMap::new(),
            pending_requests: HashMap::new(),
            buffered_bytes: BufferedBytes::default(),
            ready: VecDeque::new(),
            unwatched: Vec::new(),
            unwanted: Vec::new(),
            spare: Vec::new(),
            has_changed: false,
            wakes_at: None,
            is_waiting: false,
        }
    }

    /// Reads `partition` from `offset` on, and drops what was fetched from it before. `epoch_before`: the epoch of the
    /// record before `offset`; if given, the leader is first asked whether it still holds what was read up to there.
    pub fn start(&mut self, partition: &TopicPartition, offset: i64, epoch_before: Option<i32>) {
        let turn = self.new_turn_number();
        let id = self.slot_id(partition).unwrap_or_else(|| self.add(partition));
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.start(turn, offset, epoch_before, &mut self.buffered_bytes);
        }
        self.has_changed = true;
    }

    /// Stops reading `partition` until it is started again. Drops what was fetched from it and not handed on.
    pub fn pause(&mut self, partition: &TopicPartition) {
        let turn = self.new_turn_number();
        if let Some(slot) = self.slot_id(partition).and_then(|id| self.slots.get_mut(&id)) {
            slot.pause(turn, &mut self.buffered_bytes);
        }
        self.has_changed = true;
    }

    /// Forgets `partition`.
    pub fn remove(&mut self, partition: &TopicPartition) {
        let Some(id) = self.slot_id(partition) else { return };
        if let Some(mut slot) = self.slots.remove(&id) {
            slot.drop_chunks(&mut self.buffered_bytes);
        }
        if let Some(ids) = self.slot_ids.get_mut(&partition.topic) {
            ids.remove(&partition.partition);
            if ids.is_empty() {
                self.slot_ids.remove(&partition.topic);
                self.unwanted.push(Arc::clone(&partition.topic));
            }
        }
        self.order.retain(|other| *other != id);
        self.ready.retain(|other| *other != id);
        self.has_changed = true;
    }

    fn add(&mut self, partition: &TopicPartition) -> u32 {
        let id = self.next_slot_id;
        self.next_slot_id += 1;
        if !self.slot_ids.contains_key(&partition.topic) {
            self.unwatched.push(Arc::clone(&partition.topic));
        }
        self.slot_ids.entry(Arc::clone(&partition.topic)).or_default().insert(partition.partition, id);
        self.slots.insert(id, Slot::new(partition.clone(), self.settings.partition_max_bytes));
        let slots = &self.slots;
        let place = self.order.partition_point(|other| slots.get(other).is_some_and(|slot| slot.name < *partition));
        self.order.insert(place, id);
        id
    }

    fn slot_id(&self, partition: &TopicPartition) -> Option<u32> {
        self.slot_id_by_name(&partition.topic, partition.partition)
    }

    fn slot_id_by_name(&self, topic: &str, partition: i32) -> Option<u32> {
        self.slot_ids.get(topic)?.get(&partition).copied()
    }

    fn slot(&self, partition: &TopicPartition) -> Option<&Slot> {
        self.slots.get(&self.slot_id(partition)?)
    }

    fn new_turn_number(&mut self) -> u64 {
        self.last_turn += 1;
        self.last_turn
    }

    /// Handles brokers' responses and sends the requests that are due. Call it after anything has happened, and at
    /// [`Fetcher::next_tick`].
    pub fn poll(&mut self, brokers: &mut Brokers, now: Instant) {
        for topic in self.unwanted.drain(..).filter(|topic| !self.slot_ids.contains_key(topic)) {
            brokers.unwatch(&topic);
        }
        if !self.unwatched.is_empty() {
            brokers.watch(&std::mem::take(&mut self.unwatched));
        }
        while let Some(event) = brokers.next_event() {
            self.handle(event, brokers, now);
            self.has_changed = true;
        }
        self.spare.drain(..).for_each(|buffer| brokers.recycle(buffer));
        let is_due = self.wakes_at.is_some_and(|at| at <= now);
        if self.has_changed || self.is_waiting || is_due {
            self.has_changed = false;
            self.send_requests(brokers, now);
        }
    }

    /// When [`Fetcher::poll`] has something to do even if nothing happens.
    pub fn next_tick(&self) -> Option<Instant> {
        self.wakes_at
    }

    /// Hands on at most `records_max` records, and replaces what `into` held. Partitions with records are served round
    /// robin, across calls too. Compressed batches are unpacked one by one; a batch for which there is no memory waits.
    pub fn take(&mut self, records_max: usize, unpack: &mut dyn Unpack, into: &mut Fetched, now: Instant) {
        into.release(&mut self.spare);
        self.spare.truncate(SPARE_MAX);
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { break };
            let turn = self.new_turn_number();
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            slot.hand_on(records_max, unpack, into, &mut self.buffered_bytes, &self.settings, turn, now);
            slot.is_ready = slot.can_hand_on();
            if slot.is_ready {
                self.ready.push_back(id);
            }
            // Buffer space may be free again for what could not be fetched.
            self.has_changed = true;
            if into.len() >= records_max {
                break;
            }
        }
    }

    /// Takes the trouble of a partition that cannot be read any further, once everything before the trouble was handed
    /// on. The partition is not read until it is started again.
    pub fn next_trouble(&mut self) -> Option<(TopicPartition, Trouble)> {
        self.slots.values_mut().find_map(Slot::take_trouble)
    }

    /// A partition's position: the offset after its records that were handed on, and after the markers, aborted records
    /// and gaps of compaction that were passed over.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.slot(partition).map(|slot| slot.position)
    }

    /// The epoch to compare when the partition is read from its position (KIP-320): that of the batch before it; or,
    /// after a gap, that of the leader that reported the gap.
    pub fn position_epoch(&self, partition: &TopicPartition) -> Option<i32> {
        self.slot(partition)?.epoch_before_position
    }

    /// Whether a partition is being read: it was started, and has neither been paused nor had trouble since.
    pub fn is_reading(&self, partition: &TopicPartition) -> bool {
        self.slot(partition).is_some_and(|slot| slot.phase == Phase::Reading)
    }

    /// Whether records are expected soon: a leader has reported that there are more, and they were requested less than
    /// `MORE_WITHIN` ago.
    pub fn has_more(&self, now: Instant) -> bool {
        let is_requested = |id: &u32, slot: &Slot, leader: Leader| {
            self.nodes.get(&leader.node).is_some_and(|node| {
                let is_recent = |since| now.saturating_duration_since(since) < MORE_WITHIN;
                node.fetching_since.is_some_and(is_recent) && slot.is_wanted_by(node.targets.get(id))
            })
        };
        let is_coming = |(id, slot): (&u32, &Slot)| {
            slot.has_more() && slot.leader.is_some_and(|leader| is_requested(id, slot, leader))
        };
        self.slots.iter().any(is_coming)
    }

    /// A partition's high watermark, as last reported.
    pub fn high_watermark(&self, partition: &TopicPartition) -> Option<i64> {
        self.slot(partition)?.reported.map(|reported| reported.high)
    }

    /// When a response to a Fetch last came from the broker whose session contains the partition; `None` if no session
    /// contains it, or that broker has not responded yet.
    pub fn last_response_at(&self, partition: &TopicPartition) -> Option<Instant> {
        let id = self.slot_ids.get(&partition.topic)?.get(&partition.partition)?;
        self.nodes.values().find(|node| node.targets.contains_key(id)).and_then(|node| node.last_response_at)
    }

    /// The offset up to which a partition can be read at read_committed, as last reported.
    pub fn last_stable_offset(&self, partition: &TopicPartition) -> Option<i64> {
        self.slot(partition)?.reported.map(|reported| reported.stable)
    }

    /// The first offset that a partition keeps, as last reported.
    pub fn log_start_offset(&self, partition: &TopicPartition) -> Option<i64> {
        self.slot(partition)?.reported.map(|reported| reported.start)
    }

    /// The error code with which a partition's requests are refused, and since when; `None` once a request has
    /// succeeded.
    pub fn refusal(&self, partition: &TopicPartition) -> Option<(Instant, i16)> {
        self.slot(partition)?.refusal
    }

    /// The bytes of the responses that were not completely handed on.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes.bytes()
    }
}
