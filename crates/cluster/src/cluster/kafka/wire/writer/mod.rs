//! Writes in transactions, without I/O: records become batches, batches become Produce requests, and the transaction is
//! ended at its coordinator (KIP-98, KIP-447, KIP-890).
//!
//! The caller drives it: it hands over records ([`Writer::send`]), starts an operation ([`Writer::open`],
//! [`Writer::commit`], [`Writer::abort`]), has its [`Brokers`] read and write, calls [`Writer::drive`], and takes the
//! operation's outcome ([`Writer::take_outcome`]).
//!
//! **Terms.** A slot is a partition's index in `Writer::partitions` ([`Writer::slot`]). A ticket names the sender of a
//! record by a number. The producer's identity is its id with an epoch: the next producer that opens the same
//! transactional id gets a higher epoch, and brokers refuse the former holder, which is then *fenced*. A batch is
//! sealed once it has its sequence (the number of its first record, by which brokers recognise a repeated batch) and
//! its final bytes. It is in the log once the partition's leader has acknowledged it.
//!
//! - `types`: its inputs and outputs; `send`: handing records over
//! - `partition`: batches on their way to one partition, and their sequences
//! - `produce`: which batches are sent where, and when; `produce_responses`: what the responses mean for each batch
//! - `coordinator_requests`: requests to coordinators; `coordinator_responses`: their responses
//! - `lifecycle`: the steps of opening, committing and aborting; `session`: the producer's identity
//! - `delivery`: what Kafka's error codes mean
//!
//! Invariants: a batch keeps its sequence until it is in the log or dropped with its transaction; the batches of a
//! partition are sent, and sent again, in order; a batch is sent only in the epoch in which it was sealed; a commit is
//! requested only when all records of the transaction are in the log and its offsets are accepted. At most
//! [`WriteSettings::buffered_bytes_max`] bytes of records are held, or a single record.
//!
//! **Failure**: after a broker's refusal, the transaction can only be aborted. If it is unknown whether the end of a
//! transaction took effect, the outcome is [`WriteErrorKind::Unknown`], and the writer does nothing more.
//!
//! `is_on(Mistake::...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use self::coordinator_requests::{Coordinator, CoordinatorRequest};
pub use self::delivery::{WriteError, WriteErrorKind};
use self::lifecycle::{Abort, Commit};
use self::partition::{Partition, TransactionMembership};
use self::produce::ProduceRequest;
use self::session::Session;
pub use self::types::{Failure, GroupMembership, NewRecord, Offset, Slot, Ticket, Transactions, WriteSettings};
use super::brokers::{Brokers, Event, RequestId};
use super::mistakes::{Mistake, is_on};
use super::records::{Packer, Unsupported};
use crate::cluster::expected::Expected;

mod coordinator_requests;
mod coordinator_responses;
mod delivery;
mod lifecycle;
mod partition;
mod produce;
mod produce_responses;
mod send;
mod session;
#[cfg(test)]
mod tests;
mod types;

/// What the writer is doing.
#[derive(Debug)]
enum State {
    /// It has no identity yet.
    New,
    /// It is getting one, until this deadline.
    Opening(Instant),
    /// No transaction is open.
    Idle,
    /// A transaction is open.
    Open,
    /// The transaction is being committed.
    Committing(Box<Commit>),
    /// The transaction is being aborted.
    Aborting(Abort),
    /// The writer can no longer be used.
    Lost,
}

/// A transactional producer. See the module.
#[derive(Debug)]
pub struct Writer {
    id: String,
    settings: Arc<WriteSettings>,
    session: Session,
    state: State,
    /// The outcome of the last operation; `None` while it is in progress, and after the caller has taken it.
    outcome: Option<Result<(), WriteError>>,
    partitions: Vec<Partition>,
    /// The slot of each partition, by its topic and number.
    slots: HashMap<Arc<str>, HashMap<i32, usize, ahash::RandomState>, ahash::RandomState>,
    /// Topics that [`Brokers`] has not been asked to watch yet.
    unwatched: Vec<Arc<str>>,
    /// Slots of the partitions that are part of the transaction, or have batches.
    active_slots: Vec<usize>,
    /// Bytes of the records that are held in memory.
    held_bytes: usize,
    /// Whether there was no room for a record: batches are then sent before they are full.
    lacks_room: bool,
    /// Whether batches are sent before they are full, until the transaction ends.
    is_flushing: bool,
    /// Compresses batches, and keeps the buffers of delivered ones for reuse.
    packer: Packer,
    /// Pending requests to coordinators.
    coordinator_requests: Vec<CoordinatorRequest>,
    /// Pending Produce requests.
    produce_requests: HashMap<RequestId, ProduceRequest, ahash::RandomState>,
    /// The coordinator of the transactional id.
    transaction_coordinator: Coordinator,
    /// The coordinator of the group.
    group_coordinator: Coordinator,
    /// The group whose offsets were committed last, and will probably be committed next.
    group_id: Option<Arc<str>>,
    /// Whether the coordinator may have opened the transaction.
    may_be_open: bool,
    /// Whether the group is part of the transaction.
    has_added_group: bool,
    /// The code with which a coordinator last delayed a request; `None` once a request has succeeded.
    last_delay_code: Option<i16>,
    /// Why the transaction can only be aborted.
    trouble: Option<WriteError>,
    /// The failures that the caller has not taken yet.
    failures: Vec<Failure>,
    /// See [`Writer::take_delivered`].
    delivered: Vec<(u64, i64)>,
    /// Where the reported records of each [`Ticket::number`] must be.
    expected: HashMap<u64, Expected, ahash::RandomState>,
    /// Where in `active_slots` the search for batches to send begins; it rotates, so that no partition starves.
    search_start: usize,
    /// When [`Writer::drive`] was last called.
    last_driven_at: Option<Instant>,
}

impl Writer {
    /// A writer under the transactional id `id`. It sends nothing before [`Writer::open`].
    pub fn new(id: &str, settings: Arc<WriteSettings>) -> Result<Self, Unsupported> {
        let packer = Packer::new(settings.codec, settings.level)?;
        Ok(Self {
            id: id.to_owned(),
            settings,
            packer,
            session: Session::new(),
            state: State::New,
            outcome: None,
            partitions: Vec::new(),
            slots: HashMap::default(),
            unwatched: Vec::new(),
            active_slots: Vec::new(),
            held_bytes: 0,
            lacks_room: false,
            is_flushing: false,
            coordinator_requests: Vec::new(),
            produce_requests: HashMap::default(),
            transaction_coordinator: Coordinator::default(),
            group_coordinator: Coordinator::default(),
            group_id: None,
            may_be_open: false,
            has_added_group: false,
            last_delay_code: None,
            trouble: None,
            failures: Vec::new(),
            delivered: Vec::new(),
            expected: HashMap::default(),
            search_start: 0,
            last_driven_at: None,
        })
    }

    /// The transactional id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Requests an identity under the transactional id. The coordinator aborts a transaction that is open under this
    /// id, and fences the id's former holder. The outcome is [`WriteErrorKind::Retry`] if this takes longer than
    /// `patience`.
    pub fn open(&mut self, patience: Duration, now: Instant) {
        debug_assert!(matches!(self.state, State::New), "opened twice");
        self.outcome = None;
        self.state = State::Opening(now + patience);
    }

    /// Whether [`Writer::open`] has succeeded and nothing since has made the writer unusable. If so, it can be used
    /// again after a failed commit and a successful abort.
    pub fn is_usable(&self) -> bool {
        let is_fenced = self.trouble.as_ref().is_some_and(|trouble| trouble.kind == WriteErrorKind::Fenced);
        !is_fenced && !self.session.is_in_doubt() && !matches!(self.state, State::New | State::Opening(_) | State::Lost)
    }

    /// Whether each transaction has its own epoch (KIP-890).
    pub fn is_v2(&self) -> bool {
        self.session.is_v2
    }

    /// Begins a transaction. [`WriteErrorKind::Fenced`] if the writer must no longer be used.
    pub fn begin(&mut self) -> Result<(), WriteError> {
        if self.session.is_in_doubt() {
            let message = "a request of an earlier transaction may still take effect, or the producer's epoch could \
                           not be raised: a new producer is needed";
            return Err(WriteError::new(WriteErrorKind::Fenced, message));
        }
        if !matches!(self.state, State::Idle) {
            return Err(WriteError::new(WriteErrorKind::Fenced, "this producer cannot begin a transaction"));
        }
        self.outcome = None;
        self.trouble = None;
        self.may_be_open = false;
        self.has_added_group = false;
        self.is_flushing = false;
        self.expected.clear();
        self.state = State::Open;
        Ok(())
    }

    /// Has batches sent as soon as possible, even before they are full. [`Writer::in_flight`] is 0 when all records are
    /// in the log or have failed.
    pub fn flush(&mut self) {
        self.is_flushing = true;
    }

    /// Says where the records whose offsets are reported under `number` (a [`Ticket::number`]) must be in the open
    /// transaction: if they are elsewhere, its commit fails with [`WriteErrorKind::Abort`].
    pub fn expect(&mut self, number: u64, expected: Expected) {
        self.expected.insert(number, expected);
    }

    /// How many records were handed over and are neither in the log nor failed. 0 if the transaction can only be
    /// aborted: all of its records then count as failed, even those that were never sent, and the caller need not wait
    /// for them.
    pub fn in_flight(&self) -> usize {
        if self.trouble.is_some() {
            return 0;
        }
        self.active_slots.iter().filter_map(|slot| self.partitions.get(*slot)).map(Partition::unlogged_records).sum()
    }

    /// Bytes of the records that are held in memory.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether [`Writer::take_failures`] has anything to return: the transaction can no longer be committed.
    pub fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The failures since the last call.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.failures)
    }

    /// The reported records that have reached the log since the last call, each as its [`Ticket::number`] and its
    /// offset. A record whose offset the broker did not return is left out, or, if it is expected somewhere
    /// ([`Writer::expect`]), has the offset -1.
    pub fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        std::mem::take(&mut self.delivered)
    }

    /// Why the open transaction can only be aborted; `None` if it may still be committed.
    pub fn trouble(&self) -> Option<&WriteError> {
        self.trouble.as_ref()
    }

    /// Takes the outcome of the last [`Writer::open`], [`Writer::commit`] or [`Writer::abort`]; `None` while it is
    /// in progress.
    pub fn take_outcome(&mut self) -> Option<Result<(), WriteError>> {
        self.outcome.take()
    }

    /// Handles the brokers' responses, and sends the requests that can be sent. Call it after the brokers' input was
    /// read, after records were handed over, and at [`Writer::next_tick`].
    pub fn drive(&mut self, brokers: &mut Brokers, now: Instant) {
        if !self.unwatched.is_empty() {
            brokers.watch(&self.unwatched);
            self.unwatched.clear();
        }
        self.last_driven_at = Some(now);
        while let Some(event) = brokers.next_event() {
            self.handle_event(event, brokers, now);
        }
        self.fail_expired(brokers, now);
        self.advance(brokers, now);
        self.send_batches(brokers, now);
    }

    fn handle_event(&mut self, event: Event, brokers: &mut Brokers, now: Instant) {
        match event {
            Event::Responded { id, version, body } => {
                let id = self.matched_request(id);
                if let Some(produce) = self.produce_requests.remove(&id) {
                    self.handle_produce_response(id, &produce, version, body.as_slice(), brokers, now);
                } else if let Some(request) = self.take_coordinator_request(id) {
                    self.handle_coordinator_response(request, version, body.as_slice(), now);
                }
                brokers.recycle(body.into_buffer());
            }
            Event::Failed { id, sent, reason } => {
                if let Some(produce) = self.produce_requests.remove(&id) {
                    self.handle_produce_failure(id, &produce, sent, &reason, brokers, now);
                } else if let Some(request) = self.take_coordinator_request(id) {
                    self.handle_failed_coordinator_request(request, sent, &reason, now);
                }
            }
        }
    }

    /// The request that a response is matched to: the right one, unless a deliberate mistake is switched on.
    fn matched_request(&self, id: RequestId) -> RequestId {
        let other = || self.produce_requests.keys().filter(|other| **other != id).min().copied();
        let is_mistaken = is_on(Mistake::WrongAnswer) && self.produce_requests.contains_key(&id);
        if is_mistaken { other().unwrap_or(id) } else { id }
    }

    /// When to call [`Writer::drive`] at the latest, even if the brokers send nothing.
    pub fn next_tick(&self) -> Option<Instant> {
        let send_deadlines = self.send_deadlines();
        let coordinators = [self.transaction_coordinator.backoff.until(), self.group_coordinator.backoff.until()];
        let deadline = match &self.state {
            State::Opening(deadline) => Some(*deadline),
            State::Committing(commit) => Some(commit.deadline),
            State::Aborting(aborting) => Some(aborting.deadline),
            _ => None,
        };
        // A deadline that had passed at the last call of `drive` is not reported again: the writer waits for the
        // brokers.
        let is_ahead = |at: &Instant| self.last_driven_at.is_none_or(|seen| *at > seen);
        coordinators.into_iter().flatten().chain(send_deadlines).chain(deadline).filter(is_ahead).min()
    }

    /// Notes an error after which the transaction can only be aborted. The gravest error is kept.
    fn fail(&mut self, error: WriteError) {
        let gravity = |kind| match kind {
            WriteErrorKind::Fenced => 2,
            WriteErrorKind::Refused => 1,
            _ => 0,
        };
        if self.trouble.as_ref().is_none_or(|known| gravity(known.kind) < gravity(error.kind)) {
            self.trouble = Some(error);
        }
    }

    /// Sets the state and the outcome.
    fn finish(&mut self, state: State, outcome: Result<(), WriteError>) {
        self.state = state;
        self.outcome = Some(outcome);
    }

    /// Drops the remaining batches of a transaction that has ended, and removes its partitions from it.
    fn clear_transaction(&mut self) {
        for slot in std::mem::take(&mut self.active_slots) {
            let Some(partition) = self.partitions.get_mut(slot) else { continue };
            for unsealed in partition.open_batch.take().into_iter().chain(partition.full_batches.drain(..)) {
                self.packer.recycle(unsealed.builder.into_buffer());
            }
            partition.sealed_batches.drain(..).for_each(|batch| recycle(&mut self.packer, batch.bytes));
            if !is_on(Mistake::AddedBefore) {
                partition.membership = TransactionMembership::Out;
            }
            partition.is_active = false;
            partition.is_draining = false;
            partition.backoff.reset();
        }
        self.held_bytes = 0;
        self.lacks_room = false;
        self.is_flushing = false;
        self.may_be_open = false;
        self.has_added_group = false;
    }
}

/// Takes back a batch's buffer, unless a connection is still writing it.
fn recycle(packer: &mut Packer, bytes: Arc<Vec<u8>>) {
    if let Ok(bytes) = Arc::try_unwrap(bytes) {
        packer.recycle(bytes);
    }
}
