//! A slot of the window: a record and the stage of its processing.
//!
//! A record is **settled** once a transaction has committed its outcome. A **reservation**, stored with a record's
//! identity, says that the record's call may have been sent, and holds a handler's **journal**: the committed outcomes
//! of its steps.

use std::sync::Arc;
use std::time::Duration;

use crate::dedup::{Evaluation, Kept, Progress, Rejection};
use crate::effect::call::{self, Action, Call, Draw, Event, Now, Outcome, Policy, Stage};
use crate::effect::provider::{Body, CallNumber, OwnedStep, OwnedStepState, Payload};
use crate::format::JournalWriter;
use crate::record::{Headers, Record};

/// Roughly the memory of a slot, apart from its record's bytes.
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
    pub fn from_record(record: &Record<'_>, topic: &Arc<str>) -> Self {
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

/// Stream time and horizon: the highest timestamp so far, and the time before which identities may be forgotten.
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

    /// Stores them in `progress`.
    pub fn write_to(self, progress: &mut Progress) {
        (progress.stream_time, progress.horizon) = (self.stream_time, self.horizon);
    }
}

/// The result of checking a record's timestamp against the clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimestampCheck {
    /// The timestamp is believed, or the record has no timestamp.
    Believed,
    /// The timestamp is too far in the future.
    Future(Rejection),
    /// The timestamp seems to be too far in the future, and the cluster has to be asked for the time.
    SeemsFuture,
}

/// A record in the window.
#[derive(Debug)]
pub struct Slot {
    /// The record.
    pub record: OwnedRecord,
    /// The key of its identity; `None` if the record has no identity, or its identity is not needed.
    pub key: Option<Vec<u8>>,
    /// Stream time and horizon after the record.
    pub times: Times,
    /// The result of checking its timestamp.
    pub timestamp_check: TimestampCheck,
    /// The stage of its processing.
    pub stage: SlotStage,
    /// Its part in Kafka's refusal of a transaction.
    pub refusal: RefusalState,
}

/// A record's part in Kafka's refusal of a transaction: the refusal does not name the refused record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RefusalState {
    /// Its settlement is not suspected.
    #[default]
    None,
    /// Its settlement may be the refused one.
    Suspect,
    /// Its settlement is the refused one, with Kafka's message. The next settlement is reduced: a result has no body,
    /// and no message has the record's timestamp.
    Refused(String),
}

/// The stage of a record's processing.
#[derive(Debug)]
pub enum SlotStage {
    /// It is not judged yet.
    Unjudged,
    /// It makes no call, and is settled by the next transaction.
    Judged(Box<JudgedRecord>),
    /// It calls the provider.
    Called(Box<CalledRecord>),
    /// The task has to stop before it, for this reason.
    MustStopTask(String),
    /// It is settled, by this owner or a former one.
    Settled,
}

/// A record that makes no call, and the decision about it.
#[derive(Debug)]
pub struct JudgedRecord {
    /// The decision.
    pub evaluation: Evaluation,
    /// The state that it leaves behind once it is settled.
    pub kept: Kept,
    /// The message of a dead letter, or the reason why the task would stop.
    pub message: String,
    /// The audit record; empty if no audit record is written.
    pub explanation: Vec<u8>,
    /// Whether the remembered result is written once more for it.
    pub repeats_result: bool,
    /// Whether the open transaction settles it.
    pub is_written: bool,
}

/// A record that calls the provider.
#[derive(Debug)]
pub struct CalledRecord {
    /// The call.
    pub call: Call,
    /// The call's number.
    pub number: CallNumber,
    /// When the call may be sent at the earliest, on the monotonic clock.
    pub send_at: Duration,
    /// When its last attempt ended, on the monotonic clock; `None` before the first attempt has ended.
    pub ended_at: Option<Duration>,
    /// The request, or the handler's work.
    pub payload: Payload,
    /// The committed outcomes of a handler's steps.
    pub journal: Arc<JournalWriter>,
    /// Steps that its handler has reported, and that are not in the journal yet.
    pub reported_steps: Option<ReportedSteps>,
    /// Why the record is forwarded.
    pub evaluation: Evaluation,
    /// The state that it leaves behind once it is settled.
    pub kept: Kept,
    /// The response to the last attempt.
    pub last_response: Option<LastResponse>,
    /// Whether the open transaction settles it.
    pub is_written: bool,
    /// Whether the open transaction, or an earlier one, releases its reservation.
    pub is_released: bool,
}

/// Steps that a handler has reported. The handler waits until they are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedSteps {
    /// The steps and their outcomes.
    pub steps: Vec<OwnedStep>,
    /// When they were written into the open transaction, by the wall clock, in milliseconds since the epoch; `None` if
    /// they were not.
    pub written_ms: Option<i64>,
}

impl ReportedSteps {
    /// Removes the mark that announces the next step: that step has not begun.
    pub fn remove_begin_mark(&mut self) {
        self.steps.pop_if(|step| step.state == OwnedStepState::Begun);
    }
}

/// The response to a call's last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastResponse {
    /// The status; `None` if there was no response, or for a handler.
    pub status: Option<u16>,
    /// The body.
    pub body: Body,
    /// What was wrong with the response, or why there is no response.
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
    pub fn can_be_settled(&self) -> bool {
        match &self.stage {
            SlotStage::Judged(_) => true,
            SlotStage::Called(called) => called.outcome().is_some(),
            SlotStage::Unjudged | SlotStage::MustStopTask(_) | SlotStage::Settled => false,
        }
    }

    /// Whether it is settled, or will be settled by the commit of the open transaction.
    pub fn is_settled_after_commit(&self) -> bool {
        matches!(self.stage, SlotStage::Settled) || self.is_written()
    }

    /// Whether the settled prefix (the settled records before the first unsettled one) may include it: this requires
    /// that the stream time after it is known.
    pub(super) fn can_join_prefix(&self) -> bool {
        self.is_settled_after_commit() && self.timestamp_check != TimestampCheck::SeemsFuture
    }

    /// Whether the cluster has to be asked for the time before any record behind it is judged.
    pub fn needs_kafka_time(&self) -> bool {
        self.timestamp_check == TimestampCheck::SeemsFuture
            && matches!(self.stage, SlotStage::Unjudged | SlotStage::Settled)
    }

    /// Whether the open transaction contains its settlement, or the outcomes of its handler's steps.
    pub(super) fn is_in_transaction(&self) -> bool {
        let has_steps =
            |called: &CalledRecord| called.reported_steps.as_ref().is_some_and(|steps| steps.written_ms.is_some());
        self.is_written() || matches!(&self.stage, SlotStage::Called(called) if has_steps(called))
    }

    /// Whether its settlement, or the outcomes of its handler's steps, may go into the next transaction.
    pub fn may_enter_transaction(&self) -> bool {
        self.can_be_settled() || matches!(&self.stage, SlotStage::Called(called) if called.has_unwritten_steps())
    }

    /// Whether the open transaction settles it.
    pub(super) fn is_written(&self) -> bool {
        match &self.stage {
            SlotStage::Judged(judged) => judged.is_written,
            SlotStage::Called(called) => called.is_written,
            SlotStage::Unjudged | SlotStage::MustStopTask(_) | SlotStage::Settled => false,
        }
    }

    /// Whether the state that it leaves behind concerns records of other identities.
    pub fn concerns_others(&self) -> bool {
        match &self.stage {
            SlotStage::Judged(judged) => judged.kept.concerns_others(),
            SlotStage::Called(called) => called.kept.concerns_others(),
            SlotStage::Unjudged | SlotStage::MustStopTask(_) | SlotStage::Settled => false,
        }
    }
}

impl CalledRecord {
    /// Applies an event to the call. Returns the next action, if any.
    pub fn apply_event(&mut self, policy: &Policy, event: Event, now: Now, draw: Draw<'_>) -> Option<Action> {
        let (call, action) = call::next(policy, self.call, event, now, draw);
        self.call = call;
        if let Some(Action::SendAt(at) | Action::Hold(at)) = action {
            self.send_at = at;
        }
        action
    }

    /// Whether it can be sent, apart from its backoff.
    pub fn is_ready(&self) -> bool {
        // The steps that its handler has reported have to be in the journal before the next attempt begins.
        self.call.stage() == Stage::Ready && self.reported_steps.is_none()
    }

    /// Whether its handler has reported steps that are not in the open transaction.
    pub fn has_unwritten_steps(&self) -> bool {
        self.reported_steps.as_ref().is_some_and(|steps| steps.written_ms.is_none())
    }

    /// After a commit: adds the written steps to the journal. Returns the time from which on the handler's next step
    /// may act, if the handler waits for the commit.
    pub(super) fn on_steps_committed(&mut self, policy: &Policy, now: Now, draw: Draw<'_>) -> Option<i64> {
        let ReportedSteps { steps, written_ms } = self.reported_steps.take_if(|steps| steps.written_ms.is_some())?;
        let journal = Arc::make_mut(&mut self.journal);
        for step in &steps {
            assert!(journal.push(step.as_step()), "the step fitted into the journal when it was written");
        }
        let since_ms = written_ms.filter(|_| self.call.stage() == Stage::Sent)?;
        self.apply_event(policy, Event::Journaled { since_ms }, now, draw);
        Some(since_ms)
    }

    /// The call's outcome, if it is decided.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.call.stage() {
            Stage::Decided(outcome) => Some(outcome),
            _ => None,
        }
    }
}
