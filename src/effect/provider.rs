//! The interface of a calling sink: a provider, and one lane's access to it.
//!
//! A provider neither blocks, nor decides what happens to a call, nor writes a transaction. A lane
//! [`submit`](Calls::submit)s a request once a transaction permits it, and [`take_end`](Calls::take_end)s the outcome;
//! [`super::call`] decides what happens to the call. The driver guarantees:
//!
//! - at most as many requests are in flight as the topology allows, written in the order of their submission
//! - **the key's window is checked when a request is written to the socket**, even for lanes that have lost their task:
//!   a written request cannot be stopped
//! - a withdrawn request was certainly not written, and never will be
//! - the end of an attempt is reported exactly once, unless the attempt was withdrawn or its lane is gone
//!
//! A handler's attempt consists of steps, and a step's outcome is remembered before the next step begins: the driver
//! [reports](Calls::take_report) the outcome to the lane, and continues once the outcome is
//! [committed](Calls::resume_after_commit).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::call::{AttemptOutcome, Fingerprint, Key, KeyParts, StepName};
use crate::format::{Journal, JournalWriter, Step, StepState};

/// A topology's provider, shared by all its lanes.
pub trait Provider: Send + Sync {
    /// The kind of sink in metrics and messages: `http`.
    fn kind(&self) -> &'static str;

    /// One lane's access to the provider. Connects when it is first used.
    fn calls(&self) -> Box<dyn Calls>;
}

/// One lane's access to its topology's provider. No method blocks.
pub trait Calls: Send {
    /// Queues an attempt, whose request is written to the socket after the requests that were submitted before.
    fn submit(&mut self, request: Request);

    /// Takes the end of the next attempt that has ended, if there is one.
    fn take_end(&mut self) -> Option<AttemptEnd>;

    /// Withdraws an attempt. If it returns true, nothing of the attempt was or will be written; otherwise the attempt
    /// ends and is reported as usual.
    fn withdraw(&mut self, number: CallNumber) -> bool;

    /// How many requests are in flight or about to be: they can no longer be withdrawn, and have not ended.
    fn in_flight(&self) -> usize;

    /// Takes the next report of a handler that an attempt runs, if there is one.
    fn take_report(&mut self) -> Option<HandlerReport> {
        None
    }

    /// Resumes a handler whose reported steps are committed. Its next step may act from `first_attempt_at_ms` on, by
    /// the wall clock, in milliseconds since the epoch.
    fn resume_after_commit(&mut self, _number: CallNumber, _first_attempt_at_ms: i64) {}

    /// The call whose handler occupies the handlers' thread now, and for how long it has.
    fn blocked(&self) -> Option<(CallNumber, Duration)> {
        None
    }

    /// Abandons a call that nobody waits for any more: stops its handler, if it has one. The end of its attempt may
    /// still be reported.
    fn abandon(&mut self, _number: CallNumber) {}
}

/// A lane's own number for a call, never reused, so that late events match no other call.
pub type CallNumber = u64;

/// One attempt.
#[derive(Clone, Debug)]
pub struct Request {
    /// The call.
    pub number: CallNumber,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// When the call's first attempt may have been written, by the wall clock: milliseconds since the epoch.
    pub first_attempt_at_ms: i64,
    /// Whether an earlier attempt may have acted beyond what the journal records.
    pub may_have_acted: bool,
    /// The request's payload: the same for each attempt.
    pub payload: Payload,
    /// The outcomes of a handler's steps in earlier attempts, all committed.
    pub journal: Arc<JournalWriter>,
}

impl Request {
    /// A request for an HTTP attempt, before which no attempt may have acted.
    pub fn for_http(
        number: CallNumber,
        attempt: u32,
        first_attempt_at_ms: i64,
        rendered: Arc<RenderedRequest>,
    ) -> Self {
        let (payload, journal) = (Payload::Http(rendered), Arc::default());
        Self { number, attempt, first_attempt_at_ms, may_have_acted: false, payload, journal }
    }
}

/// The payload of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// An HTTP request.
    Http(Arc<RenderedRequest>),
    /// A handler's work.
    Handler(Arc<Work>),
}

impl Payload {
    /// The key of the request; `None` if the provider honours no keys, or if each step has its own.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Http(rendered) => rendered.key.as_ref(),
            Self::Handler(_) => None,
        }
    }

    /// The fingerprint, which distinguishes the payload from a different one under the same key.
    pub fn fingerprint(&self) -> &Fingerprint {
        match self {
            Self::Http(rendered) => &rendered.fingerprint,
            Self::Handler(work) => &work.fingerprint,
        }
    }
}

/// The work of a handler: a record, and the parts of its steps' keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Work {
    /// The topology's name.
    pub topology: Arc<str>,
    /// The input topic.
    pub topic: Arc<str>,
    /// The input partition.
    pub partition: i32,
    /// The record's offset.
    pub offset: i64,
    /// The record's timestamp, in milliseconds since the epoch, if it has one.
    pub timestamp: Option<i64>,
    /// The record's key.
    pub key: Option<Vec<u8>>,
    /// The record's value.
    pub value: Option<Vec<u8>>,
    /// The value as JSON; `None` if it was not read by a schema.
    pub decoded: Option<Vec<u8>>,
    /// The record's headers, in their order.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The identity: its store key.
    pub identity: Vec<u8>,
    /// The epoch's bytes, if the record is in an epoch.
    pub epoch: Option<Vec<u8>>,
    /// The version's bytes, if the record has a version.
    pub version: Option<Vec<u8>>,
    /// The fingerprint, which distinguishes the work from other work under the same identity and version.
    pub fingerprint: Fingerprint,
}

impl Work {
    /// The key of a step: the same in each attempt, and different from the key of any other step.
    pub fn step_key(&self, step: StepName<'_>) -> Key {
        Key::of(KeyParts {
            topology: &self.topology,
            identity: &self.identity,
            epoch: self.epoch.as_deref(),
            version: self.version.as_deref(),
            step: Some(step),
        })
    }
}

/// Without key, value and headers: they may hold secrets.
impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({}:{}:{})", self.topic, self.partition, self.offset)
    }
}

/// A report of a handler during an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerReport {
    /// Some steps of the handler have ended or are about to begin. The handler waits until they are committed.
    Steps {
        /// The call.
        number: CallNumber,
        /// The number of the attempt.
        attempt: u32,
        /// The entries to add to the journal, in order.
        steps: Vec<OwnedStep>,
    },
    /// The handler cannot continue, and only another version of the handler would help: its task stops before the
    /// record. The attempt has ended.
    MustStopTask {
        /// The call.
        number: CallNumber,
        /// The number of the attempt.
        attempt: u32,
        /// The reason: in lower case, without a full stop and without secrets.
        reason: String,
    },
}

/// A step of a journal, with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedStep {
    /// Its name.
    pub name: String,
    /// Its progress.
    pub state: OwnedStepState,
}

/// The progress of a step; see [`StepState`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedStepState {
    /// The step is about to begin.
    Begun,
    /// The step is done, with this result.
    Done(Vec<u8>),
    /// The step has not acted and never will, for this reason.
    Rejected(String),
}

impl OwnedStep {
    /// The step, with borrowed bytes.
    pub fn as_step(&self) -> Step<'_> {
        let state = match &self.state {
            OwnedStepState::Begun => StepState::Begun,
            OwnedStepState::Done(result) => StepState::Done(result),
            OwnedStepState::Rejected(reason) => StepState::Rejected(reason),
        };
        Step { name: &self.name, state }
    }
}

impl From<Step<'_>> for OwnedStep {
    fn from(step: Step<'_>) -> Self {
        let state = match step.state {
            StepState::Begun => OwnedStepState::Begun,
            StepState::Done(result) => OwnedStepState::Done(result.to_vec()),
            StepState::Rejected(reason) => OwnedStepState::Rejected(reason.to_owned()),
        };
        Self { name: step.name.to_owned(), state }
    }
}

/// Whether the last step of a journal was begun and has no recorded outcome: it may have acted.
pub fn is_open(journal: Journal<'_>) -> bool {
    journal.steps().last().is_some_and(|step| step.state == StepState::Begun)
}

/// The rendered form of an HTTP request, which depends on the record and its topology alone.
#[derive(Clone, PartialEq, Eq)]
pub struct RenderedRequest {
    /// The address, with path and query.
    pub url: String,
    /// Names and values of the headers, in the topology's order. The key's header is not among them.
    pub headers: Vec<(Arc<str>, Vec<u8>)>,
    /// The body; `None` if there is none, which is not the same as an empty one.
    pub body: Option<Vec<u8>>,
    /// The key; `None` if the provider honours no keys.
    pub key: Option<Key>,
    /// The fingerprint, which distinguishes the request from a different one under the same key.
    pub fingerprint: Fingerprint,
}

/// Without address, headers and body: they may hold secrets.
impl fmt::Debug for RenderedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderedRequest")
            .field("key", &self.key)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// The call.
    pub number: CallNumber,
    /// The number of the attempt.
    pub attempt: u32,
    /// Its outcome.
    pub outcome: AttemptOutcome,
    /// The body of the response.
    pub body: Body,
    /// Why there is no response, or what was wrong with it: in lower case, without a full stop and without secrets.
    pub message: Option<String>,
    /// How long the attempt took, from the request's first byte on.
    pub duration: Duration,
}

/// The body of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// There was no body, or it is not wanted.
    None,
    /// The whole body.
    Whole(Vec<u8>),
    /// The body was too long to be kept.
    Digest {
        /// The digest of all its bytes.
        sha256: [u8; 32],
        /// Its length in bytes.
        bytes: u64,
    },
}
