//! A slot of the window: a record, and how far it has come.

use std::sync::Arc;
use std::time::Duration;

use crate::dedup::{Evaluation, Kept, Progress, Rejection};
use crate::effect::call::{self, Action, Call, Draw, Event, Now, Outcome, Policy, Stage};
use crate::effect::provider::{Asks, Body, CallNumber, OwnedHow, OwnedStep};
use crate::format::JournalWriter;
use crate::record::{Headers, Record};

/// Roughly what a slot takes besides its record's bytes.
const SLOT_BYTES: usize = 1 << 10;

/// A record that owns its bytes.
#[derive(Debug)]
pub struct OwnedRecord {
    topic: Arc<str>,
    partition: i32,
    offset: i64,
    timestamp: Option<i64>,
    key: Option<Box<[u8]>>,
    value: Option<Box<[u8]>>,
    headers: Box<[u8]>,
}

impl OwnedRecord {
    /// A copy of a record of this topic.
    pub fn of(record: &Record<'_>, topic: &Arc<str>) -> Self {
        Self {
            topic: Arc::clone(topic),
            partition: record.partition,
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(Into::into),
            value: record.value.map(Into::into),
            headers: record.headers.as_bytes().into(),
        }
    }

    /// The record, borrowed.
    pub fn record(&self) -> Record<'_> {
        Record {
            topic: &self.topic,
            partition: self.partition,
            offset: self.offset,
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: Headers::from_bytes(&self.headers),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let length = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        length(&self.key) + length(&self.value) + self.headers.len() + SLOT_BYTES
    }
}

/// Stream time and horizon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub(super) stream_time: i64,
    horizon: i64,
}

impl Times {
    /// The times in this progress.
    pub fn of(progress: &Progress) -> Self {
        Self { stream_time: progress.stream_time, horizon: progress.horizon }
    }

    /// Puts them into `progress`.
    pub fn put(self, progress: &mut Progress) {
        (progress.stream_time, progress.horizon) = (self.stream_time, self.horizon);
    }
}

/// What the clocks say about a record's timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Time {
    /// It may be believed, or there is none.
    Believed,
    /// It is too far in the future.
    Future(Rejection),
    /// It seems to be too far in the future, and the cluster has to be asked.
    Doubted,
}

/// A record in the window.
#[derive(Debug)]
pub struct Slot {
    /// The record.
    pub record: OwnedRecord,
    /// The key of its identity; `None` where it has none, or is not read.
    pub key: Option<Vec<u8>>,
    /// Stream time and horizon after it.
    pub times: Times,
    /// What the clocks say about its timestamp.
    pub time: Time,
    /// How far it has come.
    pub stage: SlotStage,
    /// Whether Kafka refuses its settlement.
    pub trouble: Trouble,
}

/// What is known about a record when Kafka refuses a settlement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// Its settlement may be the refused one.
    Suspect,
    /// Its settlement is the refused one, with Kafka's message. The next settlement has less in it: a result without
    /// its body, everything without the record's timestamp.
    Refused(String),
}

/// How far a record has come.
#[derive(Debug)]
pub enum SlotStage {
    /// It is to be judged.
    Unjudged,
    /// It makes no call, and is settled by the next transaction.
    Judged(Box<Judged>),
    /// It calls the provider.
    Called(Box<Called>),
    /// The task stops before it, for this reason.
    Stops(String),
    /// It is settled, by this owner or a former one.
    Settled,
}

/// What was decided about a record that makes no call.
#[derive(Debug)]
pub struct Judged {
    /// What to do with it.
    pub evaluation: Evaluation,
    /// What it leaves behind.
    pub kept: Kept,
    /// What a dead letter says, or why the task would stop.
    pub message: String,
    /// The audit record to write; empty if there is none.
    pub explanation: Vec<u8>,
    /// Whether it is answered with the remembered result.
    pub is_answered: bool,
    /// Whether the open transaction settles it.
    pub is_written: bool,
}

/// A record that calls the provider.
#[derive(Debug)]
pub struct Called {
    /// The call.
    pub call: Call,
    /// Its number.
    pub number: CallNumber,
    /// When it may be sent at the earliest, on the monotonic clock.
    pub send_at: Duration,
    /// When its last attempt ended, on the monotonic clock; `None` before.
    pub ended_at: Option<Duration>,
    /// The request, or the handler's work.
    pub asks: Asks,
    /// The committed outcomes of a handler's steps.
    pub journal: Arc<JournalWriter>,
    /// What is to be added to the journal.
    pub steps: Option<Steps>,
    /// Why it survived.
    pub evaluation: Evaluation,
    /// What it leaves behind once it is done.
    pub kept: Kept,
    /// The last answer.
    pub last_answer: Option<LastAnswer>,
    /// Whether the open transaction settles it.
    pub is_written: bool,
    /// Whether the open transaction, or an earlier one, takes back its reservation.
    pub is_released: bool,
}

/// Steps of a handler that waits until they are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Their outcomes.
    pub steps: Vec<OwnedStep>,
    /// When they were written into the open transaction, by the wall clock, in milliseconds since the epoch; `None` if
    /// they were not.
    pub written_ms: Option<i64>,
}

impl Steps {
    /// Removes the mark that a step begins: it has not begun.
    pub fn take_mark_back(&mut self) {
        self.steps.pop_if(|step| step.how == OwnedHow::Begun);
    }
}

/// The last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAnswer {
    /// The status; `None` if there was no answer, or for a handler.
    pub status: Option<u16>,
    /// The body.
    pub body: Body,
    /// What was wrong with the answer, or why there is none.
    pub message: Option<String>,
}

impl Slot {
    /// The record's offset.
    pub fn offset(&self) -> i64 {
        self.record.offset
    }

    /// The record's place, for messages.
    pub fn place(&self) -> String {
        let OwnedRecord { topic, partition, offset, .. } = &self.record;
        format!("{topic}:{partition}:{offset}")
    }

    /// Whether the next transaction may settle it.
    pub fn is_to_be_settled(&self) -> bool {
        match &self.stage {
            SlotStage::Judged(_) => true,
            SlotStage::Called(called) => called.outcome().is_some(),
            SlotStage::Unjudged | SlotStage::Stops(_) | SlotStage::Settled => false,
        }
    }

    /// Whether it is settled, or will be once the open transaction is committed.
    pub fn is_ahead(&self) -> bool {
        matches!(self.stage, SlotStage::Settled) || self.is_written()
    }

    /// Whether the settled prefix may include it: the stream time after it has to be known.
    pub(super) fn may_be_passed(&self) -> bool {
        self.is_ahead() && self.time != Time::Doubted
    }

    /// Whether the cluster has to be asked for the time before anything behind it is judged.
    pub fn is_doubted(&self) -> bool {
        self.time == Time::Doubted && matches!(self.stage, SlotStage::Unjudged | SlotStage::Settled)
    }

    /// Whether the open transaction contains its settlement, or the outcomes of its handler's steps.
    pub(super) fn is_in_transaction(&self) -> bool {
        let has_steps = |called: &Called| called.steps.as_ref().is_some_and(|steps| steps.written_ms.is_some());
        self.is_written() || matches!(&self.stage, SlotStage::Called(called) if has_steps(called))
    }

    /// Whether its settlement, or the outcomes of its handler's steps, may go into the next transaction.
    pub fn may_enter_transaction(&self) -> bool {
        self.is_to_be_settled() || matches!(&self.stage, SlotStage::Called(called) if called.has_steps_due())
    }

    /// Whether the open transaction settles it.
    pub(super) fn is_written(&self) -> bool {
        match &self.stage {
            SlotStage::Judged(judged) => judged.is_written,
            SlotStage::Called(called) => called.is_written,
            SlotStage::Unjudged | SlotStage::Stops(_) | SlotStage::Settled => false,
        }
    }

    /// Whether what it leaves behind concerns records of other identities.
    pub fn concerns_others(&self) -> bool {
        match &self.stage {
            SlotStage::Judged(judged) => judged.kept.concerns_others(),
            SlotStage::Called(called) => called.kept.concerns_others(),
            SlotStage::Unjudged | SlotStage::Stops(_) | SlotStage::Settled => false,
        }
    }
}

impl Called {
    /// Applies an event to the call. Returns what is to be done next, if anything.
    pub fn apply_event(&mut self, policy: &Policy, event: Event, now: Now, draw: Draw<'_>) -> Option<Action> {
        let (call, action) = call::next(policy, self.call, event, now, draw);
        self.call = call;
        if let Some(Action::SendAt(at) | Action::Hold(at)) = action {
            self.send_at = at;
        }
        action
    }

    /// Whether it is to be sent, once it is time.
    pub fn is_ready(&self) -> bool {
        // The steps that its handler has reported have to be in the journal before the next attempt begins.
        self.call.stage() == Stage::Ready && self.steps.is_none()
    }

    /// Whether steps that its handler has reported are to be written.
    pub fn has_steps_due(&self) -> bool {
        self.steps.as_ref().is_some_and(|steps| steps.written_ms.is_none())
    }

    /// After a commit: adds the written steps to the journal. Returns from when on the handler's next step may act, if
    /// the handler waits for that.
    pub(super) fn steps_committed(&mut self, policy: &Policy, now: Now, draw: Draw<'_>) -> Option<i64> {
        let Steps { steps, written_ms } = self.steps.take_if(|steps| steps.written_ms.is_some())?;
        let journal = Arc::make_mut(&mut self.journal);
        for step in &steps {
            assert!(journal.push(step.as_step()), "the step fitted into the journal when it was written");
        }
        let since_ms = written_ms.filter(|_| self.call.stage() == Stage::Sent)?;
        self.apply_event(policy, Event::Journaled { since_ms }, now, draw);
        Some(since_ms)
    }

    /// Its outcome, if it is decided.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.call.stage() {
            Stage::Decided(outcome) => Some(outcome),
            _ => None,
        }
    }
}
