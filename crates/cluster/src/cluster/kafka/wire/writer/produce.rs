//! Which batches are sent where, and when.
//!
//! A Produce request holds at most one batch of each partition that its broker leads. A batch is sent when the
//! partition's batch before it was sent to the same broker on the same connection, or is answered; after a failure only
//! when all that were sent are answered, beginning with the first that is not in the log. So a broker sees sequences in
//! order, except for batches that it has refused itself.
//!
//! **Failure**: the batches of a request without an answer are sent again until the delivery timeout.

use std::sync::Arc;
use std::time::Instant;

use super::super::brokers::{Brokers, Leader, RequestId, Use};
use super::super::connection::Request;
use super::super::messages::produce::{API_KEY, Outgoing, Request as Head, VERSIONS, shared_request};
use super::super::mistakes::{Mistake, is_on};
use super::super::records::SealAs;
use super::delivery::{WriteError, WriteErrorKind, denies_topic};
use super::partition::{Filling, Membership, Sealed, Sending, WINDOW, sequence_after};
use super::{Partition, State, Writer};

/// A Produce request under way.
#[derive(Debug)]
pub(super) struct Produce {
    /// The broker it was sent to.
    pub node: i32,
    /// Its batches.
    pub parts: Vec<Part>,
}

/// A batch of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The index of its partition.
    pub at: usize,
    /// The batch's first sequence.
    pub sequence: i32,
    /// Who led the partition when it was sent.
    pub leader: Leader,
}

/// A batch to be sent, which the writer keeps too.
type Kept = Outgoing<Arc<Vec<u8>>>;

/// What may be sent to a broker.
struct Round {
    node: i32,
    is_due: bool,
    parts: Vec<(usize, Leader)>,
}

impl Writer {
    /// Whether batches may be sent at all.
    fn may_produce(&self) -> bool {
        let is_open = match &self.state {
            State::Open => true,
            State::Committing(commit) => !commit.is_ending,
            _ => false,
        };
        is_open && self.trouble.is_none()
    }

    /// Sends what can be sent.
    pub(super) fn dispatch(&mut self, brokers: &mut Brokers, now: Instant) {
        while self.may_produce() {
            let rounds = self.rounds(brokers, now);
            let sent = rounds.into_iter().filter(|round| self.send_round(round, brokers, now)).count();
            if sent == 0 {
                break;
            }
        }
    }

    /// What may be sent now, by broker.
    fn rounds(&mut self, brokers: &Brokers, now: Instant) -> Vec<Round> {
        let mut rounds: Vec<Round> = Vec::new();
        self.turn = self.turn.wrapping_add(1);
        let (all, from) = (self.active.len(), self.turn % self.active.len().max(1));
        for place in (from..all).chain(0..from) {
            let Some(at) = self.active.get(place).copied() else { continue };
            let Some((leader, is_due)) = self.sendable(at, brokers, now) else { continue };
            match rounds.iter_mut().find(|round| round.node == leader.node) {
                Some(round) => {
                    round.is_due |= is_due;
                    round.parts.push((at, leader));
                }
                None => rounds.push(Round { node: leader.node, is_due, parts: vec![(at, leader)] }),
            }
        }
        rounds.retain(|round| round.is_due);
        rounds
    }

    /// The leader to send the partition's next batch to, if it may be sent now, and whether it is due.
    fn sendable(&self, at: usize, brokers: &Brokers, now: Instant) -> Option<(Leader, bool)> {
        let partition = self.partitions.get(at)?;
        if partition.membership != Membership::In || !partition.pace.is_due(now) {
            return None;
        }
        let leader = brokers.leader(&partition.topic, partition.index)?;
        if !partition.may_send(leader.node, self.session.producer_id) {
            return None;
        }
        if let Some(place) = partition.waiting() {
            return (place < WINDOW).then_some((leader, true));
        }
        if partition.window.len() >= WINDOW {
            return None;
        }
        let is_due = !partition.full.is_empty() || partition.open.as_ref().is_some_and(|open| self.is_due(open, now));
        (is_due || partition.open.is_some()).then_some((leader, is_due))
    }

    /// Whether a batch is to be sent although it is not full.
    fn is_due(&self, open: &Filling, now: Instant) -> bool {
        self.is_flushing || self.is_pressed || now >= open.born + self.settings.linger
    }

    /// Sends one request to a broker. Returns whether it was sent.
    fn send_round(&mut self, round: &Round, brokers: &mut Brokers, now: Instant) -> bool {
        let under_way = self.produces.values().filter(|produce| produce.node == round.node).count();
        if under_way >= self.settings.in_flight_max.max(1) {
            return false;
        }
        let Some(versions) = brokers.ready(round.node, Use::Produce, now) else { return false };
        let Some(version) = versions.pick(API_KEY, VERSIONS) else {
            let message = format!("broker {} supports no version of Produce that this client supports", round.node);
            self.fail(WriteError::new(WriteErrorKind::Refused, message));
            return false;
        };
        let (outgoing, parts) = self.collect(round);
        if parts.is_empty() {
            return false;
        }
        let timeout = self.settings.request_timeout;
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let body = shared_request(version, Head { transactional_id: Some(&self.id), timeout_ms }, outgoing);
        let id = brokers.send(round.node, Use::Produce, Request { api_key: API_KEY, version, body }, timeout, now);
        for part in &parts {
            let Some(partition) = self.partitions.get_mut(part.at) else { continue };
            let batch = partition.window.iter_mut().find(|batch| batch.sequence == part.sequence);
            if let Some(batch) = batch {
                batch.sending = Sending::Sent(id);
            }
        }
        self.produces.insert(id, Produce { node: round.node, parts });
        true
    }

    /// Takes batches for a request: the first however large it is.
    fn collect(&mut self, round: &Round) -> (Vec<Kept>, Vec<Part>) {
        let (mut outgoing, mut parts, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (at, leader) in &round.parts {
            let Some(place) = self.next_batch(*at) else { continue };
            let Some(partition) = self.partitions.get_mut(*at) else { continue };
            let Some(batch) = partition.window.get(place) else { continue };
            if !parts.is_empty() && bytes + batch.bytes.len() > self.settings.request_bytes {
                // It keeps its sequence, and waits for the next request.
                continue;
            }
            bytes += batch.bytes.len();
            outgoing.push(Outgoing {
                topic: Arc::clone(&partition.topic),
                partition: partition.index,
                batch: Arc::clone(&batch.bytes),
            });
            parts.push(Part { at: *at, sequence: batch.sequence, leader: *leader });
            if partition.in_flight() == 0 {
                partition.is_draining = false;
            }
            partition.node = round.node;
        }
        (outgoing, parts)
    }

    /// The place of the partition's next batch to be sent. If none waits, one is sealed.
    fn next_batch(&mut self, at: usize) -> Option<usize> {
        let partition = self.partitions.get_mut(at)?;
        if let Some(place) = partition.waiting() {
            return Some(place);
        }
        let filling = partition.full.pop_front().or_else(|| partition.open.take())?;
        if partition.stamp != self.session.stamp {
            partition.stamp = self.session.stamp;
            partition.next_sequence = 0;
        }
        let (count, sequence, held) = (filling.builder.count(), partition.next_sequence, filling.builder.bytes());
        let seal = SealAs {
            producer_id: self.session.producer_id,
            producer_epoch: self.session.epoch,
            base_sequence: sequence,
            transactional: true,
        };
        let bytes = filling.builder.seal(seal, &mut self.packer);
        self.held = (self.held + bytes.len()).saturating_sub(held);
        if !(is_on(Mistake::SequenceNotRaised) && std::mem::take(&mut partition.was_again)) {
            partition.next_sequence = sequence_after(sequence, count);
        }
        partition.window.push_back(Sealed {
            bytes: Arc::new(bytes),
            sequence,
            count,
            runs: filling.runs,
            born: filling.born,
            sending: Sending::Waiting,
            is_lost: false,
            last: None,
        });
        Some(partition.window.len() - 1)
    }

    /// A request has no answer: its batches are sent again. If it was sent, they may be in the log.
    pub(super) fn produce_failed(
        &mut self,
        id: RequestId,
        produce: &Produce,
        sent: bool,
        reason: &str,
        brokers: &mut Brokers,
        now: Instant,
    ) {
        for part in &produce.parts {
            if sent {
                self.mark_lost(id, part);
            }
            self.send_again(id, part, reason.to_owned(), now);
            if let Some(partition) = self.partitions.get(part.at) {
                brokers.doubt(&partition.topic, partition.index, Some(part.leader), now);
            }
        }
    }

    /// Notes that a copy of the batch may arrive late.
    fn mark_lost(&mut self, id: RequestId, part: &Part) {
        if is_on(Mistake::TwoSequences) {
            self.resequence(id, part);
        }
        let Some(partition) = self.partitions.get_mut(part.at) else { return };
        let Some(place) = partition.sent_in(id, part.sequence) else { return };
        if let Some(batch) = partition.window.get_mut(place) {
            batch.is_lost = true;
        }
    }

    /// Has a batch sent again before those that follow it.
    pub(super) fn send_again(&mut self, id: RequestId, part: &Part, reason: String, now: Instant) {
        let (shortest, longest) = (self.settings.retry_backoff, self.settings.retry_backoff_max);
        let Some(partition) = self.partitions.get_mut(part.at) else { return };
        let Some(place) = partition.sent_in(id, part.sequence) else { return };
        if let Some(batch) = partition.window.get_mut(place) {
            batch.sending = Sending::Waiting;
            batch.last = Some(reason);
        }
        partition.was_again = true;
        if !partition.is_draining {
            partition.pace.back_off(shortest, longest, now);
        }
        partition.is_draining = true;
    }

    /// Gives up records that were not delivered in time, or never will be.
    pub(super) fn expire(&mut self, brokers: &Brokers, now: Instant) {
        if !self.may_produce() {
            return;
        }
        for at in self.active.clone() {
            let Some(partition) = self.partitions.get(at) else { continue };
            if partition.is_flushed() {
                continue;
            }
            let denied = brokers.topic_error(&partition.topic).filter(|code| denies_topic(*code));
            if let Some(code) = denied {
                let error =
                    WriteError::coded(WriteErrorKind::Refused, &format!("writing to {}", partition.topic), code);
                self.give_up(at, &error);
                self.fail(error);
            } else if partition.born().is_some_and(|born| now >= born + self.settings.delivery_timeout) {
                let error = WriteError::new(WriteErrorKind::Abort, not_delivered(partition));
                self.give_up(at, &error);
                self.fail(error);
            }
        }
    }

    /// Reports all records of a partition that are not in the log as failed.
    fn give_up(&mut self, at: usize, error: &WriteError) {
        let Some(partition) = self.partitions.get(at) else { return };
        let sealed = partition.window.iter().filter(|batch| batch.sending != Sending::Done);
        let filling = partition.full.iter().chain(&partition.open);
        let runs = sealed.flat_map(|batch| &batch.runs).chain(filling.flat_map(|filling| &filling.runs));
        let mut numbers: Vec<u64> = runs.map(|run| run.number).collect();
        numbers.dedup();
        for number in numbers {
            self.report_failure(number, false, error);
        }
    }

    /// When something is to be sent, sent again, or given up.
    pub(super) fn send_times(&self) -> impl Iterator<Item = Instant> {
        let active = self.active.iter().filter(|_| self.may_produce()).filter_map(|at| self.partitions.get(*at));
        active.flat_map(|partition| {
            let lingers = partition.open.as_ref().map(|open| open.born + self.settings.linger);
            let late = partition.born().map(|born| born + self.settings.delivery_timeout);
            [lingers, late, partition.pace.until()].into_iter().flatten()
        })
    }
}

/// A message that a partition's batches were not delivered in time, and why, as far as that is known.
pub(super) fn not_delivered(partition: &Partition) -> String {
    let last = partition.window.iter().find_map(|batch| batch.last.as_deref());
    let why = last.unwrap_or("no error was reported; its leader may be unknown or unreachable");
    format!("{}:{}: not delivered in time: {why}", partition.topic, partition.index)
}
