//! Writes in transactions, without I/O: records become batches, batches become Produce requests, and the transaction is
//! ended at its coordinator (KIP-98, KIP-447, KIP-890).
//!
//! The caller drives it: it hands over records ([`Writer::send`]), starts an operation ([`Writer::open`],
//! [`Writer::commit`], [`Writer::abort`]), has its [`Brokers`] read and write, calls [`Writer::drive`], and checks for
//! an [`Writer::outcome`].
//!
//! - `types`: its inputs and outputs; `send`: handing records over
//! - `partition`: batches on their way to one partition, and their sequences
//! - `produce`: which batches are sent where, and when; `answer`: what the answers mean for each batch
//! - `calls`: requests to coordinators; `replies`: their answers
//! - `ending`: the steps of opening, committing and aborting; `session`: the producer's identity
//! - `delivery`: what Kafka's error codes mean
//!
//! Invariants: a batch keeps its sequence until it is in the log or dropped with its transaction; the batches of a
//! partition are sent, and sent again, in order; a batch is sent only in the epoch in which it was sealed; a commit is
//! requested only when all records of the transaction are in the log and its offsets are accepted. At most
//! [`WriteSettings::buffered_bytes_max`] bytes of records are held, or a single record.
//!
//! **Failure**: after a broker's refusal, the transaction can only be aborted. If it is unknown whether the end of a
//! transaction took effect, the outcome is [`WriteErrorKind::Unknown`], and the writer does nothing more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use self::calls::{Call, Seat};
pub use self::delivery::{WriteError, WriteErrorKind};
use self::ending::{Aborting, Commit};
use self::partition::{Membership, Partition};
use self::produce::Produce;
use self::session::Session;
pub use self::types::{Failure, Group, NewRecord, Offset, Slot, Ticket, Transactions, WriteSettings};
use super::brokers::{Brokers, Event, RequestId};
use super::mistakes::{Mistake, is_on};
use super::records::{Packer, Unsupported};

mod answer;
mod calls;
mod delivery;
mod ending;
mod partition;
mod produce;
mod replies;
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
    /// It is getting one; given up at this time.
    Opening(Instant),
    /// No transaction is open.
    Idle,
    /// A transaction is open.
    Open,
    /// The transaction is being committed.
    Committing(Box<Commit>),
    /// The transaction is being aborted.
    Aborting(Aborting),
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
    outcome: Option<Result<(), WriteError>>,
    partitions: Vec<Partition>,
    slots: HashMap<Arc<str>, HashMap<i32, usize, ahash::RandomState>, ahash::RandomState>,
    /// Topics that [`Brokers`] has not been asked to watch yet.
    unwatched: Vec<Arc<str>>,
    /// Partitions that are part of the transaction, or have batches.
    active: Vec<usize>,
    /// Bytes of records that are held.
    held: usize,
    /// Whether there was no room: batches are then sent before they are full.
    is_pressed: bool,
    /// Whether batches are sent before they are full, until the transaction ends.
    is_flushing: bool,
    /// Compresses batches, and keeps the buffers of delivered ones for reuse.
    packer: Packer,
    /// Requests to coordinators under way.
    calls: Vec<Call>,
    /// Produce requests under way.
    produces: HashMap<RequestId, Produce, ahash::RandomState>,
    /// The coordinator of the transactional id.
    txn: Seat,
    /// The coordinator of the group.
    group: Seat,
    /// The group whose offsets were committed last, and probably will be again.
    group_id: Option<Arc<str>>,
    /// Whether the transaction may be open at its coordinator.
    is_started: bool,
    /// Whether the group is part of the transaction.
    has_group: bool,
    /// The code with which a coordinator last put off a call; `None` once a call has succeeded.
    delayed_by: Option<i16>,
    /// Why the transaction can only be aborted.
    trouble: Option<WriteError>,
    failures: Vec<Failure>,
    delivered: Vec<(u64, i64)>,
    /// The lowest offset allowed for each number's reported records.
    expected: HashMap<u64, i64, ahash::RandomState>,
    /// Where the search for partitions with batches to send begins, so that each gets its turn.
    turn: usize,
    /// When [`Writer::drive`] was last called.
    seen: Option<Instant>,
}

impl Writer {
    /// A writer under the transactional id `id`. Nothing happens until [`Writer::open`].
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
            active: Vec::new(),
            held: 0,
            is_pressed: false,
            is_flushing: false,
            calls: Vec::new(),
            produces: HashMap::default(),
            txn: Seat::default(),
            group: Seat::default(),
            group_id: None,
            is_started: false,
            has_group: false,
            delayed_by: None,
            trouble: None,
            failures: Vec::new(),
            delivered: Vec::new(),
            expected: HashMap::default(),
            turn: 0,
            seen: None,
        })
    }

    /// The transactional id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Asks for an identity under the transactional id: whatever is open under it is aborted, and its former holder is
    /// fenced. The outcome is [`WriteErrorKind::Retry`] if that takes longer than `patience`.
    pub fn open(&mut self, patience: Duration, now: Instant) {
        debug_assert!(matches!(self.state, State::New), "opened twice");
        self.outcome = None;
        self.state = State::Opening(now + patience);
    }

    /// Whether [`Writer::open`] has succeeded and nothing since has made the writer unusable. If so, it can be used
    /// again after a failed commit and a successful abort.
    pub fn is_fit(&self) -> bool {
        let is_fenced = self.trouble.as_ref().is_some_and(|trouble| trouble.kind == WriteErrorKind::Fenced);
        !is_fenced && !self.session.is_doubtful() && !matches!(self.state, State::New | State::Opening(_) | State::Lost)
    }

    /// Whether each transaction has its own epoch (KIP-890).
    pub fn is_v2(&self) -> bool {
        self.session.is_v2
    }

    /// Opens a transaction. [`WriteErrorKind::Fenced`] if the writer must no longer be used.
    pub fn begin(&mut self) -> Result<(), WriteError> {
        if self.session.is_doubtful() {
            let message = "a request of an earlier transaction may still take effect, or the producer's epoch could \
                           not be raised: a new producer is needed";
            return Err(WriteError::new(WriteErrorKind::Fenced, message));
        }
        if !matches!(self.state, State::Idle) {
            return Err(WriteError::new(WriteErrorKind::Fenced, "this producer cannot begin a transaction"));
        }
        self.outcome = None;
        self.trouble = None;
        self.is_started = false;
        self.has_group = false;
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

    /// Requires records whose offsets are reported under `number` to be written at `offset` or beyond in the open
    /// transaction: otherwise its commit is refused with [`WriteErrorKind::Abort`].
    pub fn expect(&mut self, number: u64, offset: i64) {
        self.expected.insert(number, offset);
    }

    /// How many records were handed over and are neither in the log nor failed. If the transaction can only be aborted,
    /// all of its records have failed, whether or not a broker was ever asked to write them: the caller need not wait
    /// for any.
    pub fn in_flight(&self) -> usize {
        if self.trouble.is_some() {
            return 0;
        }
        self.active.iter().filter_map(|at| self.partitions.get(*at)).map(Partition::records).sum()
    }

    /// Bytes of records that are held.
    pub fn held_bytes(&self) -> usize {
        self.held
    }

    /// Whether [`Writer::take_failures`] has anything to return: the transaction can no longer be committed.
    pub fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The failures since the last call.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.failures)
    }

    /// The numbers and offsets of reported records that are in the log, since the last call.
    pub fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        std::mem::take(&mut self.delivered)
    }

    /// Why the open transaction can only be aborted, if so.
    pub fn trouble(&self) -> Option<&WriteError> {
        self.trouble.as_ref()
    }

    /// Takes the outcome of the last [`Writer::open`], [`Writer::commit`] or [`Writer::abort`]; `None` while it is
    /// under way.
    pub fn outcome(&mut self) -> Option<Result<(), WriteError>> {
        self.outcome.take()
    }

    /// Handles what the brokers have answered, and sends what can be sent. Call it after their input was read, after
    /// records were handed over, and at [`Writer::next_tick`].
    pub fn drive(&mut self, brokers: &mut Brokers, now: Instant) {
        if !self.unwatched.is_empty() {
            brokers.watch(&self.unwatched);
            self.unwatched.clear();
        }
        self.seen = Some(now);
        while let Some(event) = brokers.next_event() {
            self.take_event(event, brokers, now);
        }
        self.expire(brokers, now);
        self.step(brokers, now);
        self.dispatch(brokers, now);
    }

    fn take_event(&mut self, event: Event, brokers: &mut Brokers, now: Instant) {
        match event {
            Event::Answered { id, version, body } => {
                let id = self.mistaken(id);
                if let Some(produce) = self.produces.remove(&id) {
                    self.produce_answered(id, &produce, version, body.as_slice(), brokers, now);
                } else if let Some(call) = self.take_call(id) {
                    self.call_answered(call, version, body.as_slice(), now);
                }
                brokers.recycle(body.into_buffer());
            }
            Event::Failed { id, sent, reason } => {
                if let Some(produce) = self.produces.remove(&id) {
                    self.produce_failed(id, &produce, sent, &reason, brokers, now);
                } else if let Some(call) = self.take_call(id) {
                    self.call_failed(call, sent, &reason, now);
                }
            }
        }
    }

    /// The request that an answer is matched to: with a deliberate mistake, another one.
    fn mistaken(&self, id: RequestId) -> RequestId {
        let other = || self.produces.keys().filter(|other| **other != id).min().copied();
        let is_mistaken = is_on(Mistake::WrongAnswer) && self.produces.contains_key(&id);
        if is_mistaken { other().unwrap_or(id) } else { id }
    }

    /// When to call [`Writer::drive`] at the latest, even if the brokers send nothing.
    pub fn next_tick(&self) -> Option<Instant> {
        let lingering = self.send_times();
        let calls = [self.txn.pace.until(), self.group.pace.until()];
        let deadline = match &self.state {
            State::Opening(deadline) => Some(*deadline),
            State::Committing(commit) => Some(commit.deadline),
            State::Aborting(aborting) => Some(aborting.deadline),
            _ => None,
        };
        // What was already due at the last call of `drive`, and could not be done, waits for the brokers.
        let is_ahead = |at: &Instant| self.seen.is_none_or(|seen| *at > seen);
        calls.into_iter().flatten().chain(lingering).chain(deadline).filter(is_ahead).min()
    }

    /// From now on the transaction can only be aborted. The gravest error is kept.
    fn fail(&mut self, error: WriteError) {
        let grave = |kind| match kind {
            WriteErrorKind::Fenced => 2,
            WriteErrorKind::Refused => 1,
            _ => 0,
        };
        if self.trouble.as_ref().is_none_or(|known| grave(known.kind) < grave(error.kind)) {
            self.trouble = Some(error);
        }
    }

    /// Sets the state and the outcome.
    fn finish(&mut self, state: State, outcome: Result<(), WriteError>) {
        self.state = state;
        self.outcome = Some(outcome);
    }

    /// Drops what is left of a transaction that has ended, and forgets which partitions it had.
    fn clear(&mut self) {
        for at in std::mem::take(&mut self.active) {
            let Some(partition) = self.partitions.get_mut(at) else { continue };
            for left in partition.open.take().into_iter().chain(partition.full.drain(..)) {
                self.packer.recycle(left.builder.into_buffer());
            }
            partition.window.drain(..).for_each(|batch| recycle(&mut self.packer, batch.bytes));
            if !is_on(Mistake::AddedBefore) {
                partition.membership = Membership::Out;
            }
            partition.is_active = false;
            partition.is_draining = false;
            partition.pace.reset();
        }
        self.held = 0;
        self.is_pressed = false;
        self.is_flushing = false;
        self.is_started = false;
        self.has_group = false;
    }
}

/// Takes back a batch's buffer, unless a connection is still writing it.
fn recycle(packer: &mut Packer, bytes: Arc<Vec<u8>>) {
    if let Ok(bytes) = Arc::try_unwrap(bytes) {
        packer.recycle(bytes);
    }
}
