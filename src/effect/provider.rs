//! What a sink that calls is: a provider, and one lane's way to it.
//!
//! Nothing here waits, decides or writes a transaction. A lane [`submit`](Calls::submit)s a request once a transaction
//! has said that it may go, and [`take`](Calls::take)s what was heard; what becomes of a call is said by
//! [`super::call`]. What the driver answers for:
//!
//! - at most as many requests are on the wire as the topology allows, in the order in which they were submitted
//! - **the key's window is looked at when a request is written to the socket**, by lanes that have lost their task too:
//!   afterwards nobody can stop it
//! - a request that is taken back is certainly not written, and never will be
//! - an attempt is heard of exactly once, unless it was taken back or its lane is gone

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::call::{Answer, Fingerprint, Key};

/// What all lanes of a topology share of its provider.
pub trait Provider: Send + Sync {
    /// The kind of sink in metrics and messages: `http`.
    fn kind(&self) -> &'static str;

    /// A lane's own way to it. Connects when it is first used.
    fn calls(&self) -> Box<dyn Calls>;
}

/// One lane's way to its topology's provider. Nothing waits.
pub trait Calls: Send {
    /// Queues an attempt. It is written to the socket when its turn comes.
    fn submit(&mut self, request: Request);

    /// The next thing that was heard, if there is any.
    fn take(&mut self) -> Option<Heard>;

    /// Takes an attempt back. Says whether nothing of it was written, and nothing will be; otherwise it is heard of as
    /// if nobody had asked.
    fn withdraw(&mut self, number: CallNumber) -> bool;

    /// How many requests are on the wire, or begin to be written: those that can no longer be taken back and are not over.
    fn in_flight(&self) -> usize;
}

/// A lane's own number for a call, never reused: what comes late finds nobody.
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
    /// What is sent: the same bytes for each attempt.
    pub rendered: Arc<Rendered>,
}

/// A request as it is sent, made of a record and its topology alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The address, with path and query.
    pub url: String,
    /// Names and values of the headers, in the topology's order. The key's is not among them.
    pub headers: Vec<(Arc<str>, Vec<u8>)>,
    /// The body; `None` if there is none, which is not the same as an empty one.
    pub body: Option<Vec<u8>>,
    /// The key; `None` if the provider honours none.
    pub key: Option<Key>,
    /// What tells another request under the same key.
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

/// An attempt that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The call.
    pub number: CallNumber,
    /// The number of the attempt.
    pub attempt: u32,
    /// What it has come to.
    pub answer: Answer,
    /// What came with it.
    pub body: Body,
    /// Why there is no answer, or what was wrong with it: in lower case, without a full stop and without secrets.
    pub message: Option<String>,
    /// How long it took, from its first byte on.
    pub took: Duration,
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// There was none, or nobody wants it.
    None,
    /// All of it.
    Whole(Vec<u8>),
    /// It was longer than is kept.
    Digest {
        /// Of all its bytes.
        sha256: [u8; 32],
        /// How many they are.
        bytes: u64,
    },
}
