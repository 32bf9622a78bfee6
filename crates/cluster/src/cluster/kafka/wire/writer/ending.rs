//! The steps of opening, committing and aborting.
//!
//! A commit sends the records that were handed over, and adds the offsets meanwhile; the end is requested only when all
//! records are in the log and the offsets are accepted. An abort drops what was not sent, waits for what was sent (a
//! broker without KIP-890 appends a batch that arrives after the end to a transaction that nobody ends), then requests
//! the end.
//!
//! **Failure**: before a commit has requested the end, every failure is [`WriteErrorKind::Abort`], or worse; after that
//! only the answer to that request decides. If that answer is lost: in version 1 the answers to two attempts cannot be
//! told apart once transactions go on, so the outcome is [`WriteErrorKind::Unknown`] at once; in version 2 the request
//! is repeated, and its answer says what became of the first (KIP-890, "retried EndTxn").

use std::time::Instant;

use kafka_protocol::messages::ApiKey;

use super::super::brokers::{Brokers, Use};
use super::super::code;
use super::super::connection::Versions;
use super::super::mistakes::{Mistake, is_on};
use super::calls::{Kind, Role, group_name};
use super::delivery::describe;
use super::partition::Sending;
use super::produce::not_delivered;
use super::{Group, Offset, State, Transactions, WriteError, WriteErrorKind, Writer};

/// A commit under way.
#[derive(Debug)]
pub(super) struct Commit {
    /// The offsets to commit.
    pub offsets: Vec<Offset>,
    /// The group they are committed for.
    pub group: Group,
    /// When it is given up.
    pub deadline: Instant,
    /// Whether the group's coordinator has accepted all offsets; true from the start if `offsets` is empty.
    pub has_accepted_offsets: bool,
    /// Whether a request to end the transaction may have been written.
    pub is_ending: bool,
    /// Whether such a request may have been executed without a successful answer.
    pub is_unsure: bool,
}

/// An abort under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aborting {
    /// When it is given up.
    pub deadline: Instant,
    /// Whether the transaction has ended, and only the epoch remains to be raised.
    pub is_ended: bool,
}

/// The feature with which brokers announce the cluster's version of transactions.
const FEATURE: &str = "transaction.version";
/// The version of EndTxn that ends a transaction of version 2.
pub(super) const END_V2: i16 = 5;

impl Writer {
    /// Waits for the deliveries, adds the group's offsets and commits. The outcome `Ok` means that all of it is
    /// visible; [`WriteErrorKind::Abort`] that none of it ever will be, once [`Writer::abort`] has succeeded or the
    /// writer is dropped; any other kind that the outcome is unknown, and the writer must be dropped.
    pub fn commit(&mut self, offsets: Vec<Offset>, group: Group, now: Instant) {
        self.outcome = None;
        if !matches!(self.state, State::Open) {
            let error = WriteError::new(WriteErrorKind::Abort, "no transaction is open");
            self.outcome = Some(Err(error));
            return;
        }
        // Brokers accept an unjoined member's commit without checking the generation.
        if !offsets.is_empty() && (group.generation < 0 || group.member.is_empty()) {
            let message = "committing the transaction: the member has not joined its group";
            self.outcome = Some(Err(WriteError::new(WriteErrorKind::Abort, message)));
            return;
        }
        if !offsets.is_empty() {
            let name = group_name(self.group_id.as_ref(), &group.id);
            if self.group_id.as_ref().is_some_and(|known| *known != name) {
                // What was requested for the other group does not count for this one.
                self.group.node = None;
                self.has_group = false;
            }
            self.group_id = Some(name);
        }
        let has_accepted_offsets = offsets.is_empty();
        let deadline = now + self.settings.transaction_timeout;
        self.is_flushing = true;
        let commit = Commit { offsets, group, deadline, has_accepted_offsets, is_ending: false, is_unsure: false };
        self.state = State::Committing(Box::new(commit));
    }

    /// Ends the transaction without effect. If the outcome is an error, the writer must be dropped.
    pub fn abort(&mut self, now: Instant) {
        self.outcome = None;
        match &self.state {
            State::Committing(commit) if commit.is_ending => {
                let message = "the transaction is being committed, and may already have been";
                self.finish(State::Lost, Err(WriteError::new(WriteErrorKind::Unknown, message)));
            }
            State::Open | State::Committing(_) => {
                let deadline = now + self.settings.transaction_timeout;
                self.state = State::Aborting(Aborting { deadline, is_ended: false });
            }
            State::Idle => self.outcome = Some(Ok(())),
            _ => {
                self.outcome = Some(Err(WriteError::new(WriteErrorKind::Fenced, "this producer can no longer be used")))
            }
        }
    }

    /// Takes the next step of whatever is under way.
    pub(super) fn step(&mut self, brokers: &mut Brokers, now: Instant) {
        match std::mem::replace(&mut self.state, State::Lost) {
            State::Opening(deadline) => {
                self.state = State::Opening(deadline);
                self.step_open(deadline, brokers, now);
            }
            State::Open => {
                self.state = State::Open;
                self.add_partitions(brokers, now);
            }
            State::Committing(commit) => self.step_commit(commit, brokers, now),
            State::Aborting(aborting) => {
                self.state = State::Aborting(aborting);
                self.step_abort(aborting, brokers, now);
            }
            state @ (State::New | State::Idle | State::Lost) => self.state = state,
        }
    }

    fn step_open(&mut self, deadline: Instant, brokers: &mut Brokers, now: Instant) {
        if now >= deadline {
            let what = format!("opening the transactional id {}", self.id);
            let error = match (brokers.trouble(), self.delayed_by) {
                (Some(trouble), _) => WriteError::new(WriteErrorKind::Retry, format!("{what}: {}", trouble.message)),
                (None, Some(code)) => WriteError::coded(WriteErrorKind::Retry, &what, code),
                (None, None) => WriteError::new(WriteErrorKind::Retry, format!("{what}: no answer")),
            };
            return self.finish(State::Lost, Err(error));
        }
        let Some(node) = self.reach(Role::Txn, brokers, now) else { return };
        if self.calls_any(|kind| *kind == Kind::Init) {
            return;
        }
        let Some(versions) = brokers.ready(node, Use::Control, now) else { return };
        self.session.is_v2 = speaks_v2(versions) && self.settings.transactions == Transactions::V2;
        self.call_init(false, brokers, now);
    }

    /// An identity was received.
    pub(super) fn opened(&mut self, producer_id: i64, epoch: i16) {
        if matches!(self.state, State::Opening(_)) {
            self.session.becomes(producer_id, epoch);
            self.finish(State::Idle, Ok(()));
        }
    }

    /// Has the partitions that have something to send added to the transaction.
    fn add_partitions(&mut self, brokers: &mut Brokers, now: Instant) {
        if self.trouble.is_none() {
            self.call_add_partitions(brokers, now);
        }
    }

    fn step_commit(&mut self, mut commit: Box<Commit>, brokers: &mut Brokers, now: Instant) {
        if commit.is_ending {
            if now >= commit.deadline {
                let error = WriteError::new(WriteErrorKind::Unknown, "committing the transaction: no answer");
                return self.finish(State::Lost, Err(error));
            }
            self.state = State::Committing(commit);
            return self.request_end(true, brokers, now);
        }
        let failed = self.trouble.clone().or_else(|| {
            let too_long = || format!("committing the transaction: it took too long: {}", self.missing());
            (now >= commit.deadline).then(|| WriteError::new(WriteErrorKind::Abort, too_long()))
        });
        if let Some(error) = failed {
            self.fail(error.clone());
            return self.finish(State::Open, Err(error));
        }
        self.add_partitions(brokers, now);
        if !commit.has_accepted_offsets {
            match self.has_group {
                true => self.call_offsets(&commit, brokers, now),
                false => self.call_add_offsets(brokers, now),
            }
        }
        // The calls may have failed.
        if let Some(error) = self.trouble.clone() {
            return self.finish(State::Open, Err(error));
        }
        let is_flushed = self.is_flushed() || is_on(Mistake::EndBeforeFlush);
        if !commit.has_accepted_offsets || !is_flushed || !self.calls.iter().all(|call| is_find(&call.kind)) {
            self.state = State::Committing(commit);
            return;
        }
        if let Some(error) = self.unexpected() {
            self.fail(error.clone());
            return self.finish(State::Open, Err(error));
        }
        if !self.is_started {
            self.clear();
            return self.finish(State::Idle, Ok(()));
        }
        commit.is_ending = true;
        self.state = State::Committing(commit);
        self.request_end(true, brokers, now);
    }

    /// What a commit waits for: a coordinator that has put off a call, partitions, or an answer.
    fn missing(&self) -> String {
        let partitions = self.active.iter().filter_map(|at| self.partitions.get(*at));
        let delayed = self.delayed_by.map(describe);
        let undelivered = || partitions.filter(|partition| !partition.is_flushed()).map(not_delivered).next();
        delayed.or_else(undelivered).unwrap_or_else(|| "a coordinator has not answered".to_owned())
    }

    /// Whether everything that was handed over is in the log.
    fn is_flushed(&self) -> bool {
        self.active.iter().filter_map(|at| self.partitions.get(*at)).all(super::Partition::is_flushed)
    }

    /// An error if a record was written below its expected offset, where others were before.
    fn unexpected(&self) -> Option<WriteError> {
        let is_below = |(number, offset): &&(u64, i64)| self.expected.get(number).is_some_and(|from| offset < from);
        let (number, offset) = self.delivered.iter().find(is_below)?;
        let message = match offset {
            0.. => {
                format!("a record with number {number} was written at offset {offset}, where other records were before")
            }
            _ => format!("the broker does not say at which offset a record with number {number} was written"),
        };
        Some(WriteError::new(WriteErrorKind::Abort, message))
    }

    fn request_end(&mut self, commit: bool, brokers: &mut Brokers, now: Instant) {
        if !self.calls_any(|kind| matches!(kind, Kind::End { .. })) {
            self.call_end(commit, brokers, now);
        }
    }

    /// A request to end the transaction has no answer, and may have been executed.
    pub(super) fn end_unanswered(&mut self, kind: &Kind, reason: &str) {
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
                commit.is_unsure = true;
            }
            return;
        }
        let what = if matches!(kind, Kind::End { commit: true }) { "committing" } else { "aborting" };
        let message = format!("{what} the transaction: the connection broke before the answer: {reason}");
        self.finish(State::Lost, Err(WriteError::new(WriteErrorKind::Unknown, message)));
    }

    /// The transaction has ended. With version 2 the answer holds the identity of the next one.
    pub(super) fn ended(&mut self, commit: bool, producer_id: i64, epoch: i16) {
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
        let is_dirty = !commit && self.is_dirty();
        if !commit && self.is_haunted() {
            self.session.broke();
        }
        if self.session.is_v2 && !is_on(Mistake::FormerEpoch) {
            self.session.becomes(producer_id, epoch);
        }
        self.clear();
        match &mut self.state {
            State::Aborting(aborting)
                if is_dirty
                    && !self.session.is_v2
                    && !self.session.is_doubtful()
                    && !is_on(Mistake::EpochNotRaised) =>
            {
                aborting.is_ended = true;
            }
            _ => self.finish(State::Idle, Ok(())),
        }
    }

    /// Whether a broker's idea of the sequences may differ from the writer's: a sealed batch is not in the log.
    fn is_dirty(&self) -> bool {
        let partitions = self.active.iter().filter_map(|at| self.partitions.get(*at));
        partitions.flat_map(|partition| &partition.window).any(|batch| batch.sending != Sending::Done)
    }

    /// Whether a late copy of a batch that is not in the log may arrive.
    fn is_haunted(&self) -> bool {
        let partitions = self.active.iter().filter_map(|at| self.partitions.get(*at));
        partitions.flat_map(|partition| &partition.window).any(|batch| batch.is_lost && batch.sending != Sending::Done)
    }

    fn step_abort(&mut self, aborting: Aborting, brokers: &mut Brokers, now: Instant) {
        if aborting.is_ended {
            if now >= aborting.deadline {
                self.session.is_doubted = true;
            }
            if self.session.is_doubtful() {
                return self.finish(State::Idle, Ok(()));
            }
            if !self.calls_any(|kind| *kind == Kind::Bump) {
                self.call_init(true, brokers, now);
            }
            return;
        }
        if let Some(error) = self.trouble.clone().filter(|trouble| trouble.kind == WriteErrorKind::Fenced) {
            return self.finish(State::Lost, Err(error));
        }
        if now >= aborting.deadline {
            let error = WriteError::new(WriteErrorKind::Unknown, "aborting the transaction: no answer");
            return self.finish(State::Lost, Err(error));
        }
        let is_pending = |kind: &Kind| !is_find(kind) && !matches!(kind, Kind::End { .. });
        if !self.produces.is_empty() || self.calls_any(is_pending) {
            return;
        }
        if !self.is_started {
            self.clear();
            return self.finish(State::Idle, Ok(()));
        }
        self.request_end(false, brokers, now);
    }

    /// The epoch was raised after an abort.
    pub(super) fn bumped(&mut self, producer_id: i64, epoch: i16) {
        self.session.becomes(producer_id, epoch);
        self.finish(State::Idle, Ok(()));
    }

    /// The coordinator says that it has not ended the transaction: it is asked again, perhaps at another broker. What
    /// it wrote before it failed may last all the same.
    pub(super) fn end_delayed(&mut self) {
        if let State::Committing(commit) = &mut self.state {
            commit.is_unsure = true;
        }
    }

    /// Applies an error to whatever is under way.
    pub(super) fn decide(&mut self, kind: &Kind, error: WriteError) {
        match (kind, &mut self.state) {
            (Kind::Find(Role::Txn) | Kind::Init, State::Opening(_)) => {
                // Another producer has taken the id meanwhile, or it is not available. Nothing was begun.
                let kind = if error.kind == WriteErrorKind::Abort { WriteErrorKind::Retry } else { error.kind };
                self.finish(State::Lost, Err(WriteError { kind, ..error }));
            }
            (Kind::Bump, _) => self.session.is_doubted = true,
            (Kind::End { commit: true }, State::Committing(commit)) => {
                // Whatever the answer to a repeated request, the first one may have been executed. And only one code
                // says that the transaction can be aborted.
                let is_abortable = error.code == Some(code::TRANSACTION_ABORTABLE) && !commit.is_unsure;
                match (error.kind, commit.is_unsure) {
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
            (Kind::End { .. }, State::Aborting(_)) => self.finish(State::Lost, Err(error)),
            // The coordinator is looked for again.
            (Kind::Find(_), State::Aborting(_)) => {}
            _ => self.fail(error),
        }
    }

    /// The writer is lost: a broker has refused its identity.
    pub(super) fn lose(&mut self, what: &str, code: i16) {
        let message = format!("{what}: {}", describe(code));
        self.fail(WriteError { kind: WriteErrorKind::Fenced, code: Some(code), message });
    }
}

fn is_find(kind: &Kind) -> bool {
    matches!(kind, Kind::Find(_))
}

/// Whether the coordinator supports version 2 of transactions. Some brokers announce it without the request that ends
/// such a transaction.
fn speaks_v2(versions: &Versions) -> bool {
    let ends = versions.pick(ApiKey::EndTxn as i16, END_V2..=END_V2).is_some();
    ends && versions.feature(FEATURE).is_some_and(|level| level >= 2)
}
