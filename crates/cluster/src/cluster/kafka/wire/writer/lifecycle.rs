//! The steps of opening, committing and aborting.
//!
//! **Terms.** The writer's identity is its producer id with an epoch. With version 1 of transactions (KIP-98) a
//! writer's transactions share the epoch; with version 2 (KIP-890) each has its own. A record is in the log once the
//! leader of its partition has acknowledged it.
//!
//! A commit sends the records that were handed over, and meanwhile adds the consumer group's offsets to the
//! transaction. It requests the end of the transaction only when all records are in the log and the offsets are
//! accepted. An abort drops the batches that were not sent, waits for the responses to those that were sent, then
//! requests the end. It has to wait because a batch that arrives after the end would begin another transaction, which
//! nobody ends, on a broker without KIP-890.
//!
//! **Failure**: before a commit has requested the end, every failure is [`WriteErrorKind::Abort`], or worse; after that
//! only the response to that request decides. If the response is lost: in version 1 a coordinator cannot tell a
//! repeated request from the end of a later transaction, so the outcome is [`WriteErrorKind::Unknown`] at once; in
//! version 2 the request is repeated, and its response reveals the result of the first one (KIP-890, "retried EndTxn").
//!
//! `is_on(Mistake::...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::time::Instant;

use kafka_protocol::messages::ApiKey;

use super::super::brokers::{Brokers, Purpose};
use super::super::code;
use super::super::connection::Versions;
use super::super::mistakes::{Mistake, is_on};
use super::coordinator_requests::{CoordinatorType, RequestKind, shared_group_id};
use super::delivery::describe;
use super::partition::SendState;
use super::produce::undelivered_message;
use super::{GroupMembership, Offset, State, Transactions, WriteError, WriteErrorKind, Writer};
use crate::cluster::expected::Expected;

/// A commit in progress.
#[derive(Debug)]
pub(super) struct Commit {
    /// The offsets to commit.
    pub offsets: Vec<Offset>,
    /// The group whose offsets they are.
    pub group: GroupMembership,
    /// When the commit is given up.
    pub deadline: Instant,
    /// Whether the group's coordinator has accepted all offsets; true from the start if `offsets` is empty.
    pub has_accepted_offsets: bool,
    /// Whether the writer has begun to request the end of the transaction.
    pub is_end_requested: bool,
    /// Whether such a request may have been executed without a successful response.
    pub may_have_ended: bool,
}

/// An abort in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abort {
    /// When the abort is given up.
    pub deadline: Instant,
    /// Whether the transaction has ended, and only the epoch remains to be raised.
    pub is_raising_epoch: bool,
}

/// The cluster's feature whose level is its version of transactions.
const FEATURE: &str = "transaction.version";
/// The version of the request EndTxn that ends a transaction of version 2.
pub(super) const END_V2: i16 = 5;

impl Writer {
    /// Waits for the deliveries, adds the group's offsets and commits. The outcome `Ok` means that the whole
    /// transaction is visible; [`WriteErrorKind::Abort`] that no part of it will ever be visible, once
    /// [`Writer::abort`] has succeeded or the writer is dropped; any other kind that the outcome is unknown, and the
    /// writer must be dropped.
    pub fn commit(&mut self, offsets: Vec<Offset>, group: GroupMembership, now: Instant) {
        self.outcome = None;
        if !matches!(self.state, State::Open) {
            let error = WriteError::new(WriteErrorKind::Abort, "no transaction is open");
            self.outcome = Some(Err(error));
            return;
        }
        // Brokers do not check the generation of a member that has not joined.
        if !offsets.is_empty() && (group.generation < 0 || group.member.is_empty()) {
            let message = "committing the transaction: the member has not joined its group";
            self.outcome = Some(Err(WriteError::new(WriteErrorKind::Abort, message)));
            return;
        }
        if !offsets.is_empty() {
            let name = shared_group_id(self.group_id.as_ref(), &group.id);
            if self.group_id.as_ref().is_some_and(|known| *known != name) {
                // This group may have another coordinator, and is not part of the transaction yet.
                self.group_coordinator.node = None;
                self.has_added_group = false;
            }
            self.group_id = Some(name);
        }
        let has_accepted_offsets = offsets.is_empty();
        let deadline = now + self.settings.transaction_timeout;
        self.is_flushing = true;
        let commit =
            Commit { offsets, group, deadline, has_accepted_offsets, is_end_requested: false, may_have_ended: false };
        self.state = State::Committing(Box::new(commit));
    }

    /// Ends the transaction without effect. If the outcome is an error, the writer must be dropped.
    pub fn abort(&mut self, now: Instant) {
        self.outcome = None;
        match &self.state {
            State::Committing(commit) if commit.is_end_requested => {
                let message = "the transaction is being committed, and may already have been";
                self.finish(State::Lost, Err(WriteError::new(WriteErrorKind::Unknown, message)));
            }
            State::Open | State::Committing(_) => {
                let deadline = now + self.settings.transaction_timeout;
                self.state = State::Aborting(Abort { deadline, is_raising_epoch: false });
            }
            State::Idle => self.outcome = Some(Ok(())),
            _ => {
                self.outcome = Some(Err(WriteError::new(WriteErrorKind::Fenced, "this producer can no longer be used")))
            }
        }
    }

    /// Takes the next step of the operation in progress.
    pub(super) fn advance(&mut self, brokers: &mut Brokers, now: Instant) {
        match std::mem::replace(&mut self.state, State::Lost) {
            State::Opening(deadline) => {
                self.state = State::Opening(deadline);
                self.advance_open(deadline, brokers, now);
            }
            State::Open => {
                self.state = State::Open;
                self.add_partitions(brokers, now);
            }
            State::Committing(commit) => self.advance_commit(commit, brokers, now),
            State::Aborting(aborting) => {
                self.state = State::Aborting(aborting);
                self.advance_abort(aborting, brokers, now);
            }
            state @ (State::New | State::Idle | State::Lost) => self.state = state,
        }
    }

    fn advance_open(&mut self, deadline: Instant, brokers: &mut Brokers, now: Instant) {
        if now >= deadline {
            let what = format!("opening the transactional id {}", self.id);
            let error = match (brokers.trouble(), self.last_delay_code) {
                (Some(trouble), _) => WriteError::new(WriteErrorKind::Retry, format!("{what}: {}", trouble.message)),
                (None, Some(code)) => WriteError::coded(WriteErrorKind::Retry, &what, code),
                (None, None) => WriteError::new(WriteErrorKind::Retry, format!("{what}: no response")),
            };
            return self.finish(State::Lost, Err(error));
        }
        let Some(node) = self.connected_coordinator(CoordinatorType::Transaction, brokers, now) else { return };
        if self.has_pending_request(|kind| *kind == RequestKind::InitProducerId) {
            return;
        }
        let Some(versions) = brokers.ensure_ready(node, Purpose::Control, now) else { return };
        self.session.is_v2 = supports_v2(versions) && self.settings.transactions == Transactions::V2;
        self.send_init_producer_id(false, brokers, now);
    }

    /// Handles the identity that the coordinator has assigned: [`Writer::open`] has succeeded.
    pub(super) fn complete_open(&mut self, producer_id: i64, epoch: i16) {
        if matches!(self.state, State::Opening(_)) {
            self.session.set_identity(producer_id, epoch);
            self.finish(State::Idle, Ok(()));
        }
    }

    /// Adds the partitions that have records to send to the transaction.
    fn add_partitions(&mut self, brokers: &mut Brokers, now: Instant) {
        if self.trouble.is_none() {
            self.send_add_partitions(brokers, now);
        }
    }

    fn advance_commit(&mut self, mut commit: Box<Commit>, brokers: &mut Brokers, now: Instant) {
        if commit.is_end_requested {
            if now >= commit.deadline {
                let error = WriteError::new(WriteErrorKind::Unknown, "committing the transaction: no response");
                return self.finish(State::Lost, Err(error));
            }
            self.state = State::Committing(commit);
            return self.request_end(true, brokers, now);
        }
        let error = self.trouble.clone().or_else(|| {
            let too_long = || format!("committing the transaction: it took too long: {}", self.pending_work());
            (now >= commit.deadline).then(|| WriteError::new(WriteErrorKind::Abort, too_long()))
        });
        if let Some(error) = error {
            self.fail(error.clone());
            return self.finish(State::Open, Err(error));
        }
        self.add_partitions(brokers, now);
        if !commit.has_accepted_offsets {
            match self.has_added_group {
                true => self.send_commit_offsets(&commit, brokers, now),
                false => self.send_add_offsets(brokers, now),
            }
        }
        // A request that cannot be sent at all, for example because the broker is too old, has failed the transaction.
        if let Some(error) = self.trouble.clone() {
            return self.finish(State::Open, Err(error));
        }
        let is_flushed = self.is_flushed() || is_on(Mistake::EndBeforeFlush);
        if !commit.has_accepted_offsets
            || !is_flushed
            || !self.coordinator_requests.iter().all(|request| is_find_coordinator(&request.kind))
        {
            self.state = State::Committing(commit);
            return;
        }
        if let Some(error) = self.expectation_error() {
            self.fail(error.clone());
            return self.finish(State::Open, Err(error));
        }
        if !self.may_be_open {
            self.clear_transaction();
            return self.finish(State::Idle, Ok(()));
        }
        commit.is_end_requested = true;
        self.state = State::Committing(commit);
        self.request_end(true, brokers, now);
    }

    /// Describes what a commit waits for: a coordinator that delays a request, undelivered batches, or a response.
    fn pending_work(&self) -> String {
        let partitions = self.active_slots.iter().filter_map(|slot| self.partitions.get(*slot));
        let delayed = self.last_delay_code.map(describe);
        let undelivered = || partitions.filter(|partition| !partition.is_flushed()).map(undelivered_message).next();
        delayed.or_else(undelivered).unwrap_or_else(|| "a coordinator has not responded".to_owned())
    }

    /// Whether all records that were handed over are in the log.
    fn is_flushed(&self) -> bool {
        self.active_slots.iter().filter_map(|slot| self.partitions.get(*slot)).all(super::Partition::is_flushed)
    }

    /// The error if a reported record is not where [`Writer::expect`] says that it must be (its partition has lost
    /// records), or at an offset that the broker did not return.
    fn expectation_error(&self) -> Option<WriteError> {
        let (number, offset) = Expected::find_loss(|number| self.expected.get(&number).copied(), &self.delivered)?;
        let message = match offset {
            0.. => {
                format!("a record with number {number} was written at offset {offset}: its partition has lost records")
            }
            _ => format!("the broker does not say at which offset a record with number {number} was written"),
        };
        Some(WriteError::new(WriteErrorKind::Abort, message))
    }

    fn request_end(&mut self, commit: bool, brokers: &mut Brokers, now: Instant) {
        if !self.has_pending_request(|kind| matches!(kind, RequestKind::EndTransaction { .. })) {
            self.send_end_transaction(commit, brokers, now);
        }
    }

    /// Handles a request to end the transaction that got no response and may have been executed.
    pub(super) fn handle_lost_end_request(&mut self, kind: &RequestKind, reason: &str) {
        if !matches!(self.state, State::Committing(_) | State::Aborting(_)) {
            return;
        }
        if is_on(Mistake::UnknownIsSuccess) {
            return self.finish(State::Idle, Ok(()));
        }
        if is_on(Mistake::UnknownIsAbort) {
            return self.finish(State::Idle, Err(WriteError::new(WriteErrorKind::Abort, reason)));
        }
        if self.session.is_v2 {
            if let State::Committing(commit) = &mut self.state {
                commit.may_have_ended = true;
            }
            return;
        }
        let what = if matches!(kind, RequestKind::EndTransaction { commit: true }) { "committing" } else { "aborting" };
        let message = format!("{what} the transaction: no valid response: {reason}");
        self.finish(State::Lost, Err(WriteError::new(WriteErrorKind::Unknown, message)));
    }

    /// Handles the end of the transaction. With version 2 the response holds the identity for the next transaction.
    pub(super) fn complete_end(&mut self, commit: bool, producer_id: i64, epoch: i16) {
        if !matches!(self.state, State::Committing(_) | State::Aborting(_)) {
            return;
        }
        if self.session.is_v2 {
            let is_new = producer_id != self.session.producer_id || epoch > self.session.epoch;
            if producer_id < 0 || !is_new {
                let message = "the broker ended the transaction without raising the producer's epoch";
                let error = WriteError::new(WriteErrorKind::Unknown, message);
                return self.finish(State::Lost, Err(error));
            }
        }
        let has_unlogged_batches = !commit && self.has_unlogged_batches();
        if !commit && self.may_have_late_copies() {
            self.session.note_lost_request();
        }
        if self.session.is_v2 && !is_on(Mistake::FormerEpoch) {
            self.session.set_identity(producer_id, epoch);
        }
        self.clear_transaction();
        match &mut self.state {
            State::Aborting(aborting)
                if has_unlogged_batches
                    && !self.session.is_v2
                    && !self.session.is_in_doubt()
                    && !is_on(Mistake::EpochNotRaised) =>
            {
                aborting.is_raising_epoch = true;
            }
            _ => self.finish(State::Idle, Ok(())),
        }
    }

    /// Whether a sealed batch is not in the log. The sequence that a broker expects may then differ from the writer's.
    fn has_unlogged_batches(&self) -> bool {
        let partitions = self.active_slots.iter().filter_map(|slot| self.partitions.get(*slot));
        partitions.flat_map(|partition| &partition.sealed_batches).any(|batch| batch.send_state != SendState::Logged)
    }

    /// Whether a late copy of a batch that is not in the log may arrive.
    fn may_have_late_copies(&self) -> bool {
        let partitions = self.active_slots.iter().filter_map(|slot| self.partitions.get(*slot));
        partitions
            .flat_map(|partition| &partition.sealed_batches)
            .any(|batch| batch.may_have_late_copy && batch.send_state != SendState::Logged)
    }

    fn advance_abort(&mut self, aborting: Abort, brokers: &mut Brokers, now: Instant) {
        if aborting.is_raising_epoch {
            if now >= aborting.deadline {
                self.session.note_failed_bump();
            }
            if self.session.is_in_doubt() {
                return self.finish(State::Idle, Ok(()));
            }
            if !self.has_pending_request(|kind| *kind == RequestKind::BumpEpoch) {
                self.send_init_producer_id(true, brokers, now);
            }
            return;
        }
        if let Some(error) = self.trouble.clone().filter(|trouble| trouble.kind == WriteErrorKind::Fenced) {
            return self.finish(State::Lost, Err(error));
        }
        if now >= aborting.deadline {
            let error = WriteError::new(WriteErrorKind::Unknown, "aborting the transaction: no response");
            return self.finish(State::Lost, Err(error));
        }
        let is_pending =
            |kind: &RequestKind| !is_find_coordinator(kind) && !matches!(kind, RequestKind::EndTransaction { .. });
        if !self.produce_requests.is_empty() || self.has_pending_request(is_pending) {
            return;
        }
        if !self.may_be_open {
            self.clear_transaction();
            return self.finish(State::Idle, Ok(()));
        }
        self.request_end(false, brokers, now);
    }

    /// Handles the response with the epoch that was raised after an abort: the abort is complete.
    pub(super) fn complete_epoch_bump(&mut self, producer_id: i64, epoch: i16) {
        self.session.set_identity(producer_id, epoch);
        self.finish(State::Idle, Ok(()));
    }

    /// Handles a coordinator's response that it has not ended the transaction. The request will be repeated, perhaps to
    /// another broker; but what this coordinator wrote before it failed may still end the transaction.
    pub(super) fn note_failed_end_request(&mut self) {
        if let State::Committing(commit) = &mut self.state {
            commit.may_have_ended = true;
        }
    }

    /// Applies the error of a request to the operation in progress.
    pub(super) fn apply_error(&mut self, kind: &RequestKind, error: WriteError) {
        match (kind, &mut self.state) {
            (
                RequestKind::FindCoordinator(CoordinatorType::Transaction) | RequestKind::InitProducerId,
                State::Opening(_),
            ) => {
                // Another producer has taken the id meanwhile, or the id is not available. No transaction was begun.
                let kind = if error.kind == WriteErrorKind::Abort { WriteErrorKind::Retry } else { error.kind };
                self.finish(State::Lost, Err(WriteError { kind, ..error }));
            }
            (RequestKind::BumpEpoch, _) => self.session.note_failed_bump(),
            (RequestKind::EndTransaction { commit: true }, State::Committing(commit)) => {
                // Whatever the response to a repeated request, the first request may have been executed. And only one
                // code says that the transaction can be aborted.
                let is_abortable = error.code == Some(code::TRANSACTION_ABORTABLE) && !commit.may_have_ended;
                match (error.kind, commit.may_have_ended) {
                    (WriteErrorKind::Abort, _) if is_abortable => {
                        self.fail(error.clone());
                        self.finish(State::Open, Err(error));
                    }
                    (WriteErrorKind::Abort, _) | (_, true) => {
                        self.finish(State::Lost, Err(WriteError { kind: WriteErrorKind::Unknown, ..error }));
                    }
                    _ => self.finish(State::Lost, Err(error)),
                }
            }
            (RequestKind::EndTransaction { .. }, State::Aborting(_)) => self.finish(State::Lost, Err(error)),
            // The coordinator is looked up again.
            (RequestKind::FindCoordinator(_), State::Aborting(_)) => {}
            _ => self.fail(error),
        }
    }

    /// Fails the transaction because a broker has refused the writer's identity.
    pub(super) fn fail_fenced(&mut self, what: &str, code: i16) {
        let message = format!("{what}: {}", describe(code));
        self.fail(WriteError { kind: WriteErrorKind::Fenced, code: Some(code), message });
    }
}

fn is_find_coordinator(kind: &RequestKind) -> bool {
    matches!(kind, RequestKind::FindCoordinator(_))
}

/// Whether the coordinator supports version 2 of transactions. Some brokers announce this version without supporting
/// the request that ends such a transaction.
fn supports_v2(versions: &Versions) -> bool {
    let has_request = versions.pick(ApiKey::EndTxn as i16, END_V2..=END_V2).is_some();
    has_request && versions.feature(FEATURE).is_some_and(|level| level >= 2)
}
