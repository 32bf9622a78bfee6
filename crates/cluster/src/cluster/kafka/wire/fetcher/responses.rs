//! Handles brokers' responses.
//!
//! A *slot* is what the fetcher knows of one partition. A partition is requested *alone* by a request for nothing else,
//! whose response shows whether the leader has records to return. To *probe* an offset is to request it alone, to learn
//! whether there is a record with this offset (see `fetcher`, "A gap at the end").
//!
//! `mistakes::is_on(...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::brokers::{Brokers, Event};
use super::super::code::{
    CORRUPT_MESSAGE, FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, OFFSET_OUT_OF_RANGE,
    REPLICA_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
};
use super::super::connection::Body;
use super::super::messages::fetch::{Partition, Response, Session};
use super::super::mistakes::{self, Mistake};
use super::super::records::{self, AbortedFilter, AbortedTransaction};
use super::chunk::{Chunk, Heads};
use super::node::{PendingRequest, Targets};
use super::slot::{NO_ERROR_CODE, Reported};
use super::{ALONE_AFTER, Fetcher, Phase, Trouble};

/// How long leaders must keep responding that an offset is out of range before they are believed.
const RANGE_WAIT: Duration = Duration::from_millis(500);

/// The fetch that a response is for.
struct SentFetch {
    node: i32,
    /// `None` if the request was outside the session.
    session: Option<Session>,
    /// The offset that was probed, if the request was for that offset instead of the wanted one.
    probed: Option<i64>,
    asked_at: Instant,
}

/// The base offset of the first batch, which may be cut off.
fn base_offset(records: &[u8]) -> Option<i64> {
    records.first_chunk().map(|bytes| i64::from_be_bytes(*bytes))
}

/// A partition's part of a response, to be buffered.
struct Part {
    slot_id: u32,
    /// Where in the response's body the batches are.
    range: Range<usize>,
    aborted: Vec<AbortedTransaction>,
    heads: Heads,
}

impl Fetcher {
    /// Handles an event.
    pub(super) fn handle(&mut self, event: Event, brokers: &mut Brokers, now: Instant) {
        let (id, body) = match event {
            Event::Responded { id, version, body } => (id, Some((version, body))),
            Event::Failed { id, .. } => (id, None),
        };
        let Some(pending) = self.pending_requests.remove(&id) else { return };
        match (pending, body) {
            (PendingRequest::Epochs { node, asked }, body) => {
                self.with_node(node, |node| node.has_epoch_request = false);
                let read = body.and_then(|(version, body)| self.handle_epochs(&asked, version, &body, brokers, now));
                if read.is_none() {
                    self.retry_epochs(&asked, now);
                    self.doubt_all(node, brokers, now);
                }
            }
            (PendingRequest::Fetch { node, session, asked_at }, body) => {
                self.with_node(node, |node| node.fetching_since = None);
                let targets =
                    self.nodes.get_mut(&node).map(|node| std::mem::take(&mut node.targets)).unwrap_or_default();
                let sent = SentFetch { node, session: Some(session), probed: None, asked_at };
                let read = body.map(|(_, body)| self.handle_fetch(sent, &targets, body, brokers, now));
                // A session that continues still holds the former targets.
                match read {
                    Some(true) => self.with_node(node, |node| node.targets = targets),
                    Some(false) => {}
                    None => self.fail_node(node, brokers, now),
                }
            }
            (PendingRequest::Alone { node, targets, probed, asked_at }, body) => {
                self.with_node(node, |node| node.fetching_since = None);
                match body {
                    Some((_, body)) => {
                        let sent = SentFetch { node, session: None, probed, asked_at };
                        self.handle_fetch(sent, &targets, body, brokers, now);
                    }
                    None => self.fail_node(node, brokers, now),
                }
            }
        }
    }

    fn with_node(&mut self, node: i32, change: impl FnOnce(&mut super::Node)) {
        if let Some(node) = self.nodes.get_mut(&node) {
            change(node);
        }
    }

    /// A fetch has failed: it is unknown how far the broker's session got, and whether the broker is still there.
    fn fail_node(&mut self, node_id: i32, brokers: &mut Brokers, now: Instant) {
        let settings = Arc::clone(&self.settings);
        self.with_node(node_id, |node| node.fail(&settings, now));
        self.doubt_all(node_id, brokers, now);
    }

    /// Handles a response to a fetch of `targets`. Returns whether the session continues; for a request outside the
    /// session, whether the response was usable.
    fn handle_fetch(
        &mut self,
        sent: SentFetch,
        targets: &Targets,
        body: Body,
        brokers: &mut Brokers,
        now: Instant,
    ) -> bool {
        let SentFetch { node, session, probed, asked_at } = sent;
        let Ok(response) = Response::read(body.as_slice()) else {
            self.fail_node(node, brokers, now);
            return false;
        };
        if !self.handle_session(node, session, &response, brokers, now) {
            return false;
        }
        self.with_node(node, |node| node.last_response_at = Some(now));
        // Only a response without any records shows that a partition has none to return: in any other, the records of
        // other partitions may have used up the request's bytes.
        let is_empty = response.partitions().all(|partition| partition.records.is_empty());
        let empty_asked_at = is_empty.then_some(asked_at);
        let mut parts = Vec::new();
        let mut named = BTreeSet::new();
        for partition in response.partitions() {
            let Some(id) = self.slot_id_by_name(partition.topic, partition.partition) else { continue };
            if self.is_current(id, targets) && named.insert(id) {
                parts.extend(self.handle_partition(id, &partition, (probed, empty_asked_at), brokers, now));
            }
        }
        // A partition that a session's empty response does not name is requested alone at once. If it was already
        // requested alone it waits, so that requests are never repeated without a pause.
        let alone_at = if is_empty && session.is_some() { now } else { now + ALONE_AFTER };
        self.note_unnamed(targets, &named, alone_at);
        self.buffer(parts, body, brokers);
        true
    }

    /// Whether `targets` requests of a partition what would be requested of it now, so that the response counts.
    fn is_current(&self, id: u32, targets: &Targets) -> bool {
        let Some(slot) = self.slots.get(&id).filter(|slot| slot.phase == Phase::Reading) else { return false };
        slot.is_wanted_by(targets.get(&id)) || mistakes::is_on(Mistake::ResponseMatchedWrongly)
    }

    /// Handles the response's error and session id. Returns whether the session continues; for a request outside the
    /// session (`session` is `None`), whether the response has no error.
    fn handle_session(
        &mut self,
        node_id: i32,
        session: Option<Session>,
        response: &Response<'_>,
        brokers: &mut Brokers,
        now: Instant,
    ) -> bool {
        let settings = Arc::clone(&self.settings);
        let Some(node) = self.nodes.get_mut(&node_id) else { return false };
        match response.error {
            0 => {}
            FETCH_SESSION_ID_NOT_FOUND | INVALID_FETCH_SESSION_EPOCH => {
                node.lose_session(&settings, now);
                return false;
            }
            _ => {
                self.fail_node(node_id, brokers, now);
                return false;
            }
        }
        let Some(session) = session else {
            node.succeed();
            return true;
        };
        let is_other_session = session.epoch > 0 && response.session_id != 0 && response.session_id != session.id;
        if is_other_session {
            node.lose_session(&settings, now);
            return false;
        }
        node.succeed();
        node.session = session.next(response.session_id);
        true
    }

    /// Handles a partition's part of a response, and returns the part if its batches have to be buffered. `probed`: the
    /// offset that was probed. `empty_asked_at`: when the request was sent, if the response has no records of any
    /// partition.
    fn handle_partition(
        &mut self,
        id: u32,
        partition: &Partition<'_>,
        (probed, empty_asked_at): (Option<i64>, Option<Instant>),
        brokers: &mut Brokers,
        now: Instant,
    ) -> Option<Part> {
        if partition.error != 0 {
            self.handle_refusal(id, partition.error, brokers, now);
            return None;
        }
        if partition.preferred_replica >= 0 && partition.records.is_empty() {
            // The leader wants another replica to be read (KIP-392) although no rack was named, as a custom
            // `replica.selector.class` may request: that the response is empty does not mean that there are no records.
            self.handle_refusal(id, REPLICA_NOT_AVAILABLE, brokers, now);
            return None;
        }
        let slot = self.slots.get_mut(&id)?;
        slot.succeed();
        let (high, stable) = (partition.high_watermark, partition.last_stable_offset);
        slot.reported = Some(Reported { high, stable, start: partition.log_start_offset });
        // If the probed offset is the wanted one, returned records are the wanted ones, and handled as without a probe.
        let probed = probed.filter(|offset| partition.records.is_empty() || *offset > slot.next_offset);
        let begins_after = |offset| base_offset(partition.records).is_some_and(|base| base > offset);
        if partition.records.is_empty() || probed.is_some_and(begins_after) {
            // Such a response to a probe shows that there is no record at the probed offset.
            let is_believed = probed.is_some() || mistakes::is_on(Mistake::EmptinessBelieved);
            match empty_asked_at.or(is_believed.then_some(now)) {
                Some(asked_at) => slot.note_gap(probed, asked_at, now),
                None => slot.note_left_out(now + ALONE_AFTER),
            }
            if slot.can_hand_on() && !std::mem::replace(&mut slot.is_ready, true) {
                self.ready.push_back(id);
            }
            return None;
        }
        if probed.is_some() {
            slot.note_record_in_gap(&self.settings, now);
            return None;
        }
        let heads = Heads::read(partition.records, slot.next_offset);
        if heads.next.is_none() {
            self.handle_unusable(id, &heads, now);
            return None;
        }
        if let Some(error) = heads.error {
            // The batches before the unreadable one are buffered; then that one is fetched again.
            let offset = heads.next.map_or(slot.next_offset, |(next, _)| next);
            slot.note_unreadable(offset, error, &self.settings, now);
        }
        let bytes = if mistakes::is_on(Mistake::StartedBatchTaken) { partition.records.len() } else { heads.bytes };
        let range = partition.records_at..partition.records_at + bytes;
        Some(Part { slot_id: id, range, aborted: partition.aborted.iter().collect(), heads })
    }

    /// A response has no usable batch: its first one is cut off, cannot be read, or ends before the wanted offset.
    fn handle_unusable(&mut self, id: u32, heads: &Heads, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let offset = slot.next_offset;
        match (heads.error, heads.cut_off_bytes) {
            (Some(error), _) => slot.note_unreadable(offset, error, &self.settings, now),
            // Brokers from before KIP-74, and some proxies, do not return a large batch whole: more bytes are
            // requested.
            (None, Some(bytes)) => {
                let doubled = slot.bytes_max.saturating_mul(2);
                let wanted = i32::try_from(bytes).unwrap_or(i32::MAX).max(doubled);
                slot.bytes_max = wanted.min(self.settings.batch_max_bytes);
                if bytes > self.settings.batch_max_bytes as u64 {
                    slot.fail(Trouble::TooLarge { offset, bytes });
                } else {
                    slot.back_off(NO_ERROR_CODE, &self.settings, now);
                }
            }
            (None, None) => slot.back_off(NO_ERROR_CODE, &self.settings, now),
        }
    }

    /// A request for a partition was refused with this error code.
    pub(super) fn handle_refusal(&mut self, id: u32, code: i16, brokers: &mut Brokers, now: Instant) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let offset = slot.next_offset;
        match code {
            CORRUPT_MESSAGE => {
                let error = records::Error::Damaged("the broker cannot read the batch");
                slot.note_unreadable(offset, error, &self.settings, now);
            }
            TOPIC_AUTHORIZATION_FAILED => {
                slot.fail(Trouble::Denied);
                brokers.doubt_leader(&slot.name.topic, slot.name.partition, slot.leader, now);
            }
            // Probably temporary. The broker was replaced as the leader, has not noticed, and lacks the offset; or it
            // knows that another broker leads the partition; or it does not know yet that it leads the partition
            // itself; or it has another problem.
            code => {
                slot.back_off(code, &self.settings, now);
                let since = slot.refusal.map_or(now, |(since, _)| since);
                let lasted = now.duration_since(since);
                match code {
                    UNKNOWN_TOPIC_OR_PARTITION if lasted >= self.settings.missing_wait => slot.fail(Trouble::Missing),
                    OFFSET_OUT_OF_RANGE if lasted >= RANGE_WAIT => slot.fail(Trouble::OffsetOutOfRange { offset }),
                    _ => {}
                }
                brokers.doubt_leader(&slot.name.topic, slot.name.partition, slot.leader, now);
            }
        }
    }

    /// Sets the time at which to request a partition alone, for each of `targets` that may have records but that the
    /// response does not name. A session's response names only partitions that have changed.
    fn note_unnamed(&mut self, targets: &Targets, named: &BTreeSet<u32>, alone_at: Instant) {
        for id in targets.keys().filter(|id| !named.contains(id)) {
            if self.is_current(*id, targets)
                && let Some(slot) = self.slots.get_mut(id)
            {
                slot.note_left_out(alone_at);
            }
        }
    }

    /// Buffers these parts of a response. If `parts` is empty, the response's memory can be reused.
    fn buffer(&mut self, parts: Vec<Part>, body: Body, brokers: &mut Brokers) {
        if parts.is_empty() {
            brokers.recycle(body.into_buffer());
            return;
        }
        let body = Arc::new(body);
        let response_number = self.buffered_bytes.hold(body.as_slice().len(), parts.len());
        for part in parts {
            let mut aborted = AbortedFilter::default();
            if !part.aborted.is_empty() {
                aborted.begin(part.aborted);
            }
            let (Some(slot), Some((end, epoch))) = (self.slots.get_mut(&part.slot_id), part.heads.next) else {
                self.buffered_bytes.release(response_number);
                continue;
            };
            let end_epoch = Some(epoch).filter(|epoch| *epoch >= 0);
            slot.bytes_max = self.settings.partition_max_bytes;
            slot.add(Chunk {
                response_number,
                body: Arc::clone(&body),
                range: part.range,
                aborted,
                end,
                end_epoch,
                open_batch: None,
            });
            if !slot.is_ready {
                slot.is_ready = true;
                self.ready.push_back(part.slot_id);
            }
        }
    }
}
