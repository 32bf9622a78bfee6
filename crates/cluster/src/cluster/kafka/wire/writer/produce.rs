//! Which batches are sent to which broker, and when.
//!
//! A **slot** is the index of a partition in `Writer::partitions`. A batch is open while records are added to it, and
//! full once the next record has no room in it. Before it is sent, full or not, it is **sealed**: it gets its sequence
//! and its final bytes. A sealed batch waits to be sent, was sent, or is in the partition's log.
//!
//! A Produce request holds at most one batch of each partition that its broker leads. A batch is sent once the
//! partition's previous batch was sent to the same broker on the same connection, or has a response; after a failure
//! only once all sent batches have a response, beginning with the first batch that is not in the log. So a broker sees
//! sequences in order, except for batches that it has refused itself.
//!
//! **Failure**: the batches of a request without a response are sent again until the delivery timeout.
//!
//! `is_on(Mistake::...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::sync::Arc;
use std::time::Instant;

use super::super::brokers::{Brokers, Leader, Purpose, RequestId};
use super::super::connection::Request;
use super::super::messages::produce::{API_KEY, OutgoingBatch, Request as Head, VERSIONS, shared_request};
use super::super::mistakes::{Mistake, is_on};
use super::super::records::BatchProducer;
use super::delivery::{WriteError, WriteErrorKind, denies_topic};
use super::partition::{
    REMEMBERED_BATCHES, SealedBatch, SendState, TransactionMembership, UnsealedBatch, sequence_after,
};
use super::{Partition, State, Writer};

/// A pending Produce request.
#[derive(Debug)]
pub(super) struct ProduceRequest {
    /// The broker it was sent to.
    pub node: i32,
    /// Its batches.
    pub batches: Vec<RequestBatch>,
}

/// A batch in a Produce request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestBatch {
    /// The slot of its partition.
    pub slot: usize,
    /// The batch's first sequence.
    pub sequence: i32,
    /// The partition's leader when the batch was sent.
    pub leader: Leader,
}

/// A batch to be sent, whose bytes the writer keeps too.
type SharedBatch = OutgoingBatch<Arc<Vec<u8>>>;

/// The partitions whose next batches may be sent to a broker.
struct BrokerPlan {
    node: i32,
    /// Whether at least one of these batches should be sent now. If so, the others go along, even if they are not full.
    is_due: bool,
    partitions: Vec<(usize, Leader)>,
}

impl Writer {
    /// Whether the state allows batches to be sent.
    fn can_produce(&self) -> bool {
        let is_open = match &self.state {
            State::Open => true,
            State::Committing(commit) => !commit.is_end_requested,
            _ => false,
        };
        is_open && self.trouble.is_none()
    }

    /// Sends the batches that can be sent.
    pub(super) fn send_batches(&mut self, brokers: &mut Brokers, now: Instant) {
        while self.can_produce() {
            let plans = self.broker_plans(brokers, now);
            let sent = plans.into_iter().filter(|plan| self.send_produce_request(plan, brokers, now)).count();
            if sent == 0 {
                break;
            }
        }
    }

    /// The plans for the brokers to which a batch should be sent now.
    fn broker_plans(&mut self, brokers: &Brokers, now: Instant) -> Vec<BrokerPlan> {
        let mut plans: Vec<BrokerPlan> = Vec::new();
        self.search_start = self.search_start.wrapping_add(1);
        let (count, start) = (self.active_slots.len(), self.search_start % self.active_slots.len().max(1));
        for index in (start..count).chain(0..start) {
            let Some(slot) = self.active_slots.get(index).copied() else { continue };
            let Some((leader, is_due)) = self.leader_to_send_to(slot, brokers, now) else { continue };
            match plans.iter_mut().find(|plan| plan.node == leader.node) {
                Some(plan) => {
                    plan.is_due |= is_due;
                    plan.partitions.push((slot, leader));
                }
                None => plans.push(BrokerPlan { node: leader.node, is_due, partitions: vec![(slot, leader)] }),
            }
        }
        plans.retain(|plan| plan.is_due);
        plans
    }

    /// The leader that the partition's next batch may be sent to now, and whether the batch should be sent now. `None`
    /// if the partition has no known leader, or no batch that may be sent now.
    fn leader_to_send_to(&self, slot: usize, brokers: &Brokers, now: Instant) -> Option<(Leader, bool)> {
        let partition = self.partitions.get(slot)?;
        if partition.membership != TransactionMembership::In || !partition.backoff.is_over(now) {
            return None;
        }
        let leader = brokers.leader(&partition.topic, partition.index)?;
        if !partition.can_send_to(leader.node, self.session.producer_id) {
            return None;
        }
        if let Some(position) = partition.next_to_send() {
            return (position < REMEMBERED_BATCHES).then_some((leader, true));
        }
        if partition.sealed_batches.len() >= REMEMBERED_BATCHES {
            return None;
        }
        let is_due = !partition.full_batches.is_empty()
            || partition.open_batch.as_ref().is_some_and(|open| self.is_due(open, now));
        (is_due || partition.open_batch.is_some()).then_some((leader, is_due))
    }

    /// Whether a batch that is not full should be sent now.
    fn is_due(&self, open: &UnsealedBatch, now: Instant) -> bool {
        self.is_flushing || self.lacks_room || now >= open.first_record_at + self.settings.linger
    }

    /// Sends one Produce request to a broker. Returns whether it was sent.
    fn send_produce_request(&mut self, plan: &BrokerPlan, brokers: &mut Brokers, now: Instant) -> bool {
        let pending = self.produce_requests.values().filter(|request| request.node == plan.node).count();
        if pending >= self.settings.in_flight_max.max(1) {
            return false;
        }
        let Some(versions) = brokers.ensure_ready(plan.node, Purpose::Produce, now) else { return false };
        let Some(version) = versions.pick(API_KEY, VERSIONS) else {
            let message = format!("broker {} supports no version of Produce that this client supports", plan.node);
            self.fail(WriteError::new(WriteErrorKind::Refused, message));
            return false;
        };
        let (outgoing, batches) = self.collect_batches(plan);
        if batches.is_empty() {
            return false;
        }
        let timeout = self.settings.request_timeout;
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let body = shared_request(version, Head { transactional_id: Some(&self.id), timeout_ms }, outgoing);
        let id = brokers.send(plan.node, Purpose::Produce, Request { api_key: API_KEY, version, body }, timeout, now);
        for sent in &batches {
            let Some(partition) = self.partitions.get_mut(sent.slot) else { continue };
            let batch = partition.sealed_batches.iter_mut().find(|batch| batch.sequence == sent.sequence);
            if let Some(batch) = batch {
                batch.send_state = SendState::Sent(id);
            }
        }
        self.produce_requests.insert(id, ProduceRequest { node: plan.node, batches });
        true
    }

    /// Collects the batches for a request, within `request_bytes`; the first batch may be larger.
    fn collect_batches(&mut self, plan: &BrokerPlan) -> (Vec<SharedBatch>, Vec<RequestBatch>) {
        let (mut outgoing, mut batches, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (slot, leader) in &plan.partitions {
            let Some(position) = self.next_batch(*slot) else { continue };
            let Some(partition) = self.partitions.get_mut(*slot) else { continue };
            let Some(batch) = partition.sealed_batches.get(position) else { continue };
            if !batches.is_empty() && bytes + batch.bytes.len() > self.settings.request_bytes {
                // The batch keeps its sequence, and waits for the next request.
                continue;
            }
            bytes += batch.bytes.len();
            outgoing.push(OutgoingBatch {
                topic: Arc::clone(&partition.topic),
                partition: partition.index,
                batch: Arc::clone(&batch.bytes),
            });
            batches.push(RequestBatch { slot: *slot, sequence: batch.sequence, leader: *leader });
            if partition.in_flight() == 0 {
                partition.is_draining = false;
            }
            partition.node = plan.node;
        }
        (outgoing, batches)
    }

    /// The position of the partition's next batch to be sent. If no sealed batch waits, the next one is sealed.
    fn next_batch(&mut self, slot: usize) -> Option<usize> {
        let partition = self.partitions.get_mut(slot)?;
        if let Some(position) = partition.next_to_send() {
            return Some(position);
        }
        let unsealed = partition.full_batches.pop_front().or_else(|| partition.open_batch.take())?;
        if partition.identity_number != self.session.identity_number {
            partition.identity_number = self.session.identity_number;
            partition.next_sequence = 0;
        }
        let (count, sequence, unsealed_bytes) =
            (unsealed.builder.count(), partition.next_sequence, unsealed.builder.bytes());
        let producer = BatchProducer {
            producer_id: self.session.producer_id,
            producer_epoch: self.session.epoch,
            base_sequence: sequence,
            transactional: true,
        };
        let bytes = unsealed.builder.seal(producer, &mut self.packer);
        self.held_bytes = (self.held_bytes + bytes.len()).saturating_sub(unsealed_bytes);
        if !(is_on(Mistake::SequenceNotRaised) && std::mem::take(&mut partition.was_resent)) {
            partition.next_sequence = sequence_after(sequence, count);
        }
        partition.sealed_batches.push_back(SealedBatch {
            bytes: Arc::new(bytes),
            sequence,
            count,
            runs: unsealed.runs,
            first_record_at: unsealed.first_record_at,
            send_state: SendState::Waiting,
            may_have_late_copy: false,
            last_failure: None,
        });
        Some(partition.sealed_batches.len() - 1)
    }

    /// Handles a request without a readable response: its batches are sent again. If the request was sent (`was_sent`),
    /// they may be in the log.
    pub(super) fn handle_produce_failure(
        &mut self,
        id: RequestId,
        request: &ProduceRequest,
        was_sent: bool,
        reason: &str,
        brokers: &mut Brokers,
        now: Instant,
    ) {
        for batch in &request.batches {
            if was_sent {
                self.note_late_copy(id, batch);
            }
            self.resend(id, batch, reason.to_owned(), now);
            if let Some(partition) = self.partitions.get(batch.slot) {
                brokers.doubt_leader(&partition.topic, partition.index, Some(batch.leader), now);
            }
        }
    }

    /// Notes that a copy of the batch may arrive late.
    fn note_late_copy(&mut self, id: RequestId, sent: &RequestBatch) {
        if is_on(Mistake::TwoSequences) {
            self.resequence(id, sent);
        }
        let Some(partition) = self.partitions.get_mut(sent.slot) else { return };
        let Some(position) = partition.position_sent_in(id, sent.sequence) else { return };
        if let Some(batch) = partition.sealed_batches.get_mut(position) {
            batch.may_have_late_copy = true;
        }
    }

    /// Marks a batch to be sent again before the batches that follow it.
    pub(super) fn resend(&mut self, id: RequestId, sent: &RequestBatch, reason: String, now: Instant) {
        let (shortest, longest) = (self.settings.retry_backoff, self.settings.retry_backoff_max);
        let Some(partition) = self.partitions.get_mut(sent.slot) else { return };
        let Some(position) = partition.position_sent_in(id, sent.sequence) else { return };
        if let Some(batch) = partition.sealed_batches.get_mut(position) {
            batch.send_state = SendState::Waiting;
            batch.last_failure = Some(reason);
        }
        partition.was_resent = true;
        if !partition.is_draining {
            partition.backoff.extend(shortest, longest, now);
        }
        partition.is_draining = true;
    }

    /// Fails the transaction if records were not delivered in time, or if access to their topic is denied.
    pub(super) fn fail_expired(&mut self, brokers: &Brokers, now: Instant) {
        if !self.can_produce() {
            return;
        }
        for slot in self.active_slots.clone() {
            let Some(partition) = self.partitions.get(slot) else { continue };
            if partition.is_flushed() {
                continue;
            }
            let denied = brokers.topic_error(&partition.topic).filter(|code| denies_topic(*code));
            if let Some(code) = denied {
                let error =
                    WriteError::coded(WriteErrorKind::Refused, &format!("writing to {}", partition.topic), code);
                self.report_unlogged(slot, &error);
                self.fail(error);
            } else if partition.oldest_record_at().is_some_and(|since| now >= since + self.settings.delivery_timeout) {
                let error = WriteError::new(WriteErrorKind::Abort, undelivered_message(partition));
                self.report_unlogged(slot, &error);
                self.fail(error);
            }
        }
    }

    /// Reports all records of a partition that are not in the log as failed.
    fn report_unlogged(&mut self, slot: usize, error: &WriteError) {
        let Some(partition) = self.partitions.get(slot) else { return };
        let sealed = partition.sealed_batches.iter().filter(|batch| batch.send_state != SendState::Logged);
        let unsealed = partition.full_batches.iter().chain(&partition.open_batch);
        let runs = sealed.flat_map(|batch| &batch.runs).chain(unsealed.flat_map(|batch| &batch.runs));
        let mut numbers: Vec<u64> = runs.map(|run| run.number).collect();
        numbers.dedup();
        for number in numbers {
            self.report_failure(number, false, error);
        }
    }

    /// When batches become due, may be sent again, or exceed the delivery timeout.
    pub(super) fn send_deadlines(&self) -> impl Iterator<Item = Instant> {
        let active =
            self.active_slots.iter().filter(|_| self.can_produce()).filter_map(|slot| self.partitions.get(*slot));
        active.flat_map(|partition| {
            let due_at = partition.open_batch.as_ref().map(|open| open.first_record_at + self.settings.linger);
            let expires_at = partition.oldest_record_at().map(|since| since + self.settings.delivery_timeout);
            [due_at, expires_at, partition.backoff.until()].into_iter().flatten()
        })
    }
}

/// The message that a partition's batches were not delivered in time, with the reason if it is known.
pub(super) fn undelivered_message(partition: &Partition) -> String {
    let last = partition.sealed_batches.iter().find_map(|batch| batch.last_failure.as_deref());
    let why = last.unwrap_or("no error was reported; its leader may be unknown or unreachable");
    format!("{}:{}: not delivered in time: {why}", partition.topic, partition.index)
}
