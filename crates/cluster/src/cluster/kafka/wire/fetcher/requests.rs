//! What to request from which broker (*node*).
//!
//! A *slot* is what the fetcher knows of one partition. Responses to requests of an earlier *turn* of the slot do not
//! count (see `slot`).
//!
//! `mistakes::is_on(...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::brokers::{Brokers, Purpose};
use super::super::code::{TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION};
use super::super::connection::Request;
use super::super::messages::fetch::{self, FetchPartition, Limits, Session};
use super::super::mistakes::{self, Mistake};
use super::node::{Node, PendingRequest, Target, Targets};
use super::slot::Slot;
use super::{Fetcher, Phase, Trouble};

/// How long metadata may say that access to a topic is denied before its partitions fail: the metadata may be older
/// than the permission, and is requested again with back-off.
const DENIED_WAIT: Duration = Duration::from_secs(2);

/// What a partition needs next from its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// To know whether the leader holds what was read.
    Check,
    /// Records.
    Fetch,
    /// Records, in a request for this partition alone: if its response is empty, the leader has no records to return.
    Alone,
}

impl Fetcher {
    /// Sends all requests that are due.
    pub(super) fn send_requests(&mut self, brokers: &mut Brokers, now: Instant) {
        (self.is_waiting, self.wakes_at) = (false, None);
        let mut wishes: BTreeMap<i32, Vec<(u32, Wish)>> = BTreeMap::new();
        let reading = self.slots.values().filter(|slot| slot.phase == Phase::Reading).count();
        let bytes_share = self.settings.buffered_bytes_max / reading.max(1);
        let order = std::mem::take(&mut self.order);
        for id in &order {
            if let Some((node, wish)) = self.wish(*id, bytes_share, brokers, now) {
                wishes.entry(node).or_default().push((*id, wish));
            }
        }
        self.order = order;
        for (node, wishes) in wishes {
            self.nodes.entry(node).or_insert_with(Node::new);
            let slots_with = |wish| wishes.iter().filter(move |(_, other)| *other == wish).map(|(id, _)| *id);
            let unchecked: Vec<u32> = slots_with(Wish::Check).collect();
            if !unchecked.is_empty() {
                self.request_epochs(node, &unchecked, brokers, now);
            }
            // Includes partitions that are to be requested alone.
            let wanted: Vec<u32> = wishes.iter().filter(|(_, wish)| *wish != Wish::Check).map(|(id, _)| *id).collect();
            if !wanted.is_empty() {
                let alone = slots_with(Wish::Alone).next();
                self.fetch(node, wanted, alone, brokers, now);
            }
        }
    }

    /// Notes that a request may be due at this time.
    pub(super) fn wake_at(&mut self, at: Instant) {
        self.wakes_at = Some(self.wakes_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// What a partition needs next, and from which broker; `None` if nothing can be requested now. While `bytes_share`
    /// of its bytes are buffered, no records are requested.
    fn wish(&mut self, id: u32, bytes_share: usize, brokers: &mut Brokers, now: Instant) -> Option<(i32, Wish)> {
        let is_full = self.buffered_bytes.bytes() >= self.settings.buffered_bytes_max;
        let turn = self.new_turn_number();
        let slot = self.slots.get_mut(&id)?;
        if !slot.is_due(now) {
            let retry_at = slot.retry_at.filter(|_| slot.phase == Phase::Reading);
            retry_at.into_iter().for_each(|at| self.wake_at(at));
            return None;
        }
        let Some(leader) = brokers.leader(&slot.name.topic, slot.name.partition) else {
            self.is_waiting = true;
            self.note_leaderless(id, brokers, now);
            return None;
        };
        if slot.leader != Some(leader) {
            slot.begin(turn, Some(leader));
        }
        if !slot.is_checked {
            return Some((leader.node, Wish::Check));
        }
        if is_full || (slot.buffered > 0 && slot.buffered >= bytes_share) {
            return None;
        }
        match slot.alone_at {
            Some(at) if at <= now => return Some((leader.node, Wish::Alone)),
            Some(at) => self.wake_at(at),
            None => {}
        }
        Some((leader.node, Wish::Fetch))
    }

    /// A partition has no known leader: the topic may not exist, or access to it may be denied.
    fn note_leaderless(&mut self, id: u32, brokers: &mut Brokers, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let topic = &slot.name.topic;
        let is_beyond_last = |count| slot.name.partition < 0 || count as u64 <= slot.name.partition as u64;
        let is_missing = || brokers.partition_count(topic).is_some_and(is_beyond_last);
        let code = match brokers.topic_error(topic) {
            Some(TOPIC_AUTHORIZATION_FAILED) => TOPIC_AUTHORIZATION_FAILED,
            Some(UNKNOWN_TOPIC_OR_PARTITION) => UNKNOWN_TOPIC_OR_PARTITION,
            _ if is_missing() => UNKNOWN_TOPIC_OR_PARTITION,
            _ => return,
        };
        slot.back_off(code, &self.settings, now);
        let lasted = slot.refusal.map_or(Duration::ZERO, |(since, _)| now.duration_since(since));
        match code {
            TOPIC_AUTHORIZATION_FAILED if lasted >= DENIED_WAIT => slot.fail(Trouble::Denied),
            UNKNOWN_TOPIC_OR_PARTITION if lasted >= self.settings.missing_wait => slot.fail(Trouble::Missing),
            _ => {}
        }
        brokers.doubt_leader(&slot.name.topic, slot.name.partition, None, now);
        let retry_at = slot.retry_at;
        retry_at.into_iter().for_each(|at| self.wake_at(at));
    }

    /// Fetches the slots `wanted` from a broker, unless a fetch from it is pending. `alone`: a slot that is requested
    /// first, by a request of its own; the others then wait for the response.
    fn fetch(&mut self, node_id: i32, wanted: Vec<u32>, alone: Option<u32>, brokers: &mut Brokers, now: Instant) {
        let Some(node) = self.nodes.get_mut(&node_id).filter(|node| node.fetching_since.is_none()) else { return };
        if let Some(at) = node.retry_at.filter(|at| *at > now) {
            self.wake_at(at);
            return;
        }
        let Some(versions) = brokers.ensure_ready(node_id, Purpose::Fetch, now) else {
            self.note_unready(node_id, brokers, now);
            return;
        };
        if versions.pick(fetch::API_KEY, fetch::VERSION..=fetch::VERSION).is_none() {
            self.fail_all(&wanted, Trouble::Unsupported { request: "Fetch" });
            return;
        }
        node.unready_since = None;
        node.fetching_since = Some(now);
        node.requests = node.requests.wrapping_add(1);
        let buffer = brokers.buffer();
        let (pending, body, wait) = match alone {
            Some(slot_id) => self.fetch_alone(node_id, slot_id, buffer, now),
            None => self.fetch_in_session(node_id, wanted, buffer, now),
        };
        let request = Request { api_key: fetch::API_KEY, version: fetch::VERSION, body: body.into() };
        let timeout = wait + self.settings.request_timeout;
        let request_id = brokers.send(node_id, Purpose::Fetch, request, timeout, now);
        self.pending_requests.insert(request_id, pending);
    }

    /// Writes a request for one partition, outside the session: its response shows whether there are records. If the
    /// slot has an offset to probe (see `slot`), the request is for that offset. Also returns how long the broker may
    /// wait for records.
    fn fetch_alone(
        &mut self,
        node_id: i32,
        slot_id: u32,
        buffer: Vec<u8>,
        asked_at: Instant,
    ) -> (PendingRequest, Vec<u8>, Duration) {
        let mut targets = Targets::new();
        let mut limits = self.limits();
        limits.max_wait_ms = 0;
        let slot = self.slots.get_mut(&slot_id);
        let target = slot.and_then(|slot| {
            slot.alone_at = None;
            target_of(slot)
        });
        limits.bytes_max = limits.bytes_max.max(target.as_ref().map_or(0, |target| target.bytes_max));
        let probed = self.slots.get(&slot_id).and_then(Slot::probe);
        let mut request = fetch::Request::new(buffer, limits, Session::NONE);
        if let Some(target) = target {
            let offset = probed.unwrap_or(target.offset);
            request.want(&target.name.topic, FetchPartition { offset, ..partition_fields(&target) });
            targets.insert(slot_id, target);
        }
        (PendingRequest::Alone { node: node_id, targets, probed, asked_at }, request.finish(), Duration::ZERO)
    }

    /// Writes the next request of a session: what has changed since the last one, or everything if it is the first.
    /// Also returns how long the broker may wait for records.
    fn fetch_in_session(
        &mut self,
        node_id: i32,
        mut slot_ids: Vec<u32>,
        buffer: Vec<u8>,
        asked_at: Instant,
    ) -> (PendingRequest, Vec<u8>, Duration) {
        let mut limits = self.limits();
        let Self { nodes, slots, settings, .. } = self;
        let node = nodes.entry(node_id).or_insert_with(Node::new);
        let is_first = node.session.epoch <= 0;
        if is_first {
            node.targets.clear();
            // Without a session the broker always begins with the partition named first, so each request begins with
            // another one.
            let rotation = node.requests.checked_rem(slot_ids.len()).unwrap_or(0);
            slot_ids.rotate_left(rotation);
        }
        let targets: BTreeMap<u32, Target> =
            slot_ids.iter().filter_map(|id| Some((*id, target_of(slots.get(id)?)?))).collect();
        limits.bytes_max = targets.values().map(|target| target.bytes_max).max().unwrap_or(0).max(limits.bytes_max);
        let mut request = fetch::Request::new(buffer, limits, node.session);
        for id in &slot_ids {
            let Some(target) = targets.get(id) else { continue };
            // Turns are internal to the fetcher: if only the turn is new, the broker's session need not change.
            if node.targets.get(id).is_none_or(|before| !before.is_same_to_broker(target)) {
                request.want(&target.name.topic, partition_fields(target));
            }
        }
        for target in node.targets.iter().filter(|(id, _)| !targets.contains_key(id)).map(|(_, target)| target) {
            // A partition that was removed and added again has another slot, but is the same to the broker.
            if !targets.values().any(|other| other.name == target.name) {
                request.forget(&target.name.topic, target.name.partition);
            }
        }
        node.targets = targets;
        (PendingRequest::Fetch { node: node_id, session: node.session, asked_at }, request.finish(), settings.max_wait)
    }

    fn limits(&self) -> Limits {
        let max_wait_ms = i32::try_from(self.settings.max_wait.as_millis()).unwrap_or(i32::MAX);
        Limits { max_wait_ms, bytes_min: self.settings.min_bytes, bytes_max: self.settings.max_bytes }
    }

    /// A broker is not ready for requests. If that lasts, other brokers may lead its partitions by now.
    pub(super) fn note_unready(&mut self, node_id: i32, brokers: &mut Brokers, now: Instant) {
        self.is_waiting = true;
        let Some(node) = self.nodes.get_mut(&node_id) else { return };
        let since = *node.unready_since.get_or_insert(now);
        if now.duration_since(since) >= self.settings.backoff_max {
            node.unready_since = Some(now);
            self.doubt_all(node_id, brokers, now);
        }
    }

    /// Doubts this broker as the leader of its partitions: metadata is requested again, as others may lead them by now.
    pub(super) fn doubt_all(&mut self, node_id: i32, brokers: &mut Brokers, now: Instant) {
        for slot in self.slots.values().filter(|slot| slot.phase == Phase::Reading) {
            if slot.leader.is_some_and(|leader| leader.node == node_id) {
                brokers.doubt_leader(&slot.name.topic, slot.name.partition, slot.leader, now);
            }
        }
    }

    /// Stops reading these partitions, because of `trouble`.
    pub(super) fn fail_all(&mut self, ids: &[u32], trouble: Trouble) {
        for id in ids {
            if let Some(slot) = self.slots.get_mut(id) {
                slot.fail(trouble);
            }
        }
    }
}

/// What to request of a partition now; `None` if its leader is not known.
fn target_of(slot: &Slot) -> Option<Target> {
    let leader_epoch = if mistakes::is_on(Mistake::LeaderEpochIgnored) { -1 } else { slot.leader?.epoch };
    let name = slot.name.clone();
    Some(Target { name, turn: slot.turn, offset: slot.next_offset, leader_epoch, bytes_max: slot.bytes_max })
}

/// The partition's fields in a request.
fn partition_fields(target: &Target) -> FetchPartition {
    FetchPartition {
        partition: target.name.partition,
        leader_epoch: target.leader_epoch,
        offset: target.offset,
        bytes_max: target.bytes_max,
    }
}
