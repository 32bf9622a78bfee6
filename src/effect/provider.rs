//! The interface of a calling sink: a provider, and one lane's access to it.
//!
//! Nothing here blocks, decides or writes a transaction. A lane [`submit`](Calls::submit)s a request once a transaction
//! permits it, and [`take`](Calls::take)s the outcome; [`super::call`] decides what happens to the call. The driver
//! guarantees:
//!
//! - at most as many requests are on the wire as the topology allows, in the order in which they were submitted
//! - **the key's window is checked when a request is written to the socket**, even for lanes that have lost their task:
//!   afterwards nobody can stop the request
//! - a withdrawn request was certainly not written, and never will be
//! - the end of an attempt is reported exactly once, unless it was withdrawn or its lane is gone
//!
//! A handler's attempt consists of steps, and a step's outcome is remembered before the next step begins: the driver
//! [reports](Calls::told) it to the lane, and goes on once it is [committed](Calls::journaled).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::call::{Answer, Fingerprint, Key, KeyOf, StepOf};
use crate::format::{Journal, JournalWriter, Step, StepHow};

/// A topology's provider, shared by all its lanes.
pub trait Provider: Send + Sync {
    /// The kind of sink in metrics and messages: `http`.
    fn kind(&self) -> &'static str;

    /// One lane's access to it. Connects when it is first used.
    fn calls(&self) -> Box<dyn Calls>;
}

/// One lane's access to its topology's provider. No method blocks.
pub trait Calls: Send {
    /// Queues an attempt. It is written to the socket when its turn comes.
    fn submit(&mut self, request: Request);

    /// The end of the next attempt that is over, if there is one.
    fn take(&mut self) -> Option<Heard>;

    /// Withdraws an attempt. If it returns true, nothing of the attempt was or will be written; otherwise the attempt
    /// ends and is reported as usual.
    fn withdraw(&mut self, number: CallNumber) -> bool;

    /// How many requests are on the wire or about to be: those that can no longer be withdrawn and have not ended.
    fn in_flight(&self) -> usize;

    /// The next progress that a handler has reported during an attempt, if there is any.
    fn told(&mut self) -> Option<Told> {
        None
    }

    /// The progress that a handler has reported is committed: it goes on. Its next step may act from `first_at_ms` on,
    /// by the wall clock, in milliseconds since the epoch.
    fn journaled(&mut self, _number: CallNumber, _first_at_ms: i64) {}

    /// The call whose handler occupies the handlers' thread at present, and for how long.
    fn blocked(&self) -> Option<(CallNumber, Duration)> {
        None
    }

    /// Nobody waits for this call any more: whatever can be stopped of it is stopped. Its end may be reported all the
    /// same.
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
    pub first_at_ms: i64,
    /// Whether an earlier attempt may have acted beyond what the journal records.
    pub may_have_acted: bool,
    /// What is requested: the same for each attempt.
    pub asks: Asks,
    /// The outcomes of a handler's steps in earlier attempts, all committed.
    pub journal: Arc<JournalWriter>,
}

impl Request {
    /// An HTTP attempt; no earlier one may have acted.
    pub fn by_http(number: CallNumber, attempt: u32, first_at_ms: i64, rendered: Arc<Rendered>) -> Self {
        let (asks, journal) = (Asks::Http(rendered), Arc::default());
        Self { number, attempt, first_at_ms, may_have_acted: false, asks, journal }
    }
}

/// What is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// An HTTP request.
    Http(Arc<Rendered>),
    /// A handler's work.
    Handler(Arc<Work>),
}

impl Asks {
    /// The key of the request; `None` if the provider honours no keys, or if each step has its own.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Http(rendered) => rendered.key.as_ref(),
            Self::Handler(_) => None,
        }
    }

    /// Distinguishes it from a different request under the same key.
    pub fn fingerprint(&self) -> &Fingerprint {
        match self {
            Self::Http(rendered) => &rendered.fingerprint,
            Self::Handler(work) => &work.fingerprint,
        }
    }
}

/// What a handler works on: a record, and what its steps' keys are made of.
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
    /// The record's headers, in their order.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The identity: its store key.
    pub identity: Vec<u8>,
    /// The epoch's bytes, if it is in one.
    pub epoch: Option<Vec<u8>>,
    /// The version's bytes, if it has one.
    pub version: Option<Vec<u8>>,
    /// Distinguishes it from other work under the same identity and version.
    pub fingerprint: Fingerprint,
}

impl Work {
    /// The key of a step: the same in each attempt, and different from that of any other step.
    pub fn key_of(&self, step: StepOf<'_>) -> Key {
        Key::of(KeyOf {
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

/// What a handler reports during an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Some of its steps have ended or are about to begin. The handler waits until that is committed.
    Steps {
        /// The call.
        number: CallNumber,
        /// The number of the attempt.
        attempt: u32,
        /// What is to be added to the journal, in order.
        steps: Vec<OwnedStep>,
    },
    /// It cannot go on, and only a different program would help: its task stops before the record. The attempt is over.
    Stops {
        /// The call.
        number: CallNumber,
        /// The number of the attempt.
        attempt: u32,
        /// Why: in lower case, without a full stop and without secrets.
        reason: String,
    },
}

/// A step of a journal, with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedStep {
    /// Its name.
    pub name: String,
    /// Its progress.
    pub how: OwnedHow,
}

/// The progress of a step; see [`StepHow`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedHow {
    /// It is about to begin.
    Begun,
    /// It is done, with this result.
    Done(Vec<u8>),
    /// It has not acted and never will, for this reason.
    Rejected(String),
}

impl OwnedStep {
    /// The same, borrowed.
    pub fn as_step(&self) -> Step<'_> {
        let how = match &self.how {
            OwnedHow::Begun => StepHow::Begun,
            OwnedHow::Done(result) => StepHow::Done(result),
            OwnedHow::Rejected(reason) => StepHow::Rejected(reason),
        };
        Step { name: &self.name, how }
    }
}

impl From<Step<'_>> for OwnedStep {
    fn from(step: Step<'_>) -> Self {
        let how = match step.how {
            StepHow::Begun => OwnedHow::Begun,
            StepHow::Done(result) => OwnedHow::Done(result.to_vec()),
            StepHow::Rejected(reason) => OwnedHow::Rejected(reason.to_owned()),
        };
        Self { name: step.name.to_owned(), how }
    }
}

/// Whether the last step of a journal was begun and has no recorded outcome: it may have acted.
pub fn is_open(journal: Journal<'_>) -> bool {
    journal.steps().last().is_some_and(|step| step.how == StepHow::Begun)
}

/// A request as it is sent, made from a record and its topology alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The address, with path and query.
    pub url: String,
    /// Names and values of the headers, in the topology's order. The key's header is not among them.
    pub headers: Vec<(Arc<str>, Vec<u8>)>,
    /// The body; `None` if there is none, which is not the same as an empty one.
    pub body: Option<Vec<u8>>,
    /// The key; `None` if the provider honours no keys.
    pub key: Option<Key>,
    /// Distinguishes it from a different request under the same key.
    pub fingerprint: Fingerprint,
}

/// Without address, headers and body: they may hold secrets.
impl fmt::Debug for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendered")
            .field("key", &self.key)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The call.
    pub number: CallNumber,
    /// The number of the attempt.
    pub attempt: u32,
    /// Its outcome.
    pub answer: Answer,
    /// The body of the answer.
    pub body: Body,
    /// Why there is no answer, or what was wrong with it: in lower case, without a full stop and without secrets.
    pub message: Option<String>,
    /// How long it took, from its first byte on.
    pub took: Duration,
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// There was none, or it is not wanted.
    None,
    /// All of it.
    Whole(Vec<u8>),
    /// It was longer than is kept.
    Digest {
        /// The digest of all its bytes.
        sha256: [u8; 32],
        /// Its length in bytes.
        bytes: u64,
    },
}
