//! One call to the outside, pure: what is to be done with it next, whatever has happened. No input or output, no clock,
//! no threads, no random numbers of its own.
//!
//! A sink that calls a provider reserves, acts and settles. Each change of a call's state is written in a Kafka
//! transaction whose group generation is the fence; nobody can fence a request that is under way, so it carries a key
//! that the provider honours for a while. What is known of a call therefore comes down to two questions: may one of its
//! attempts have acted, and is the key of the first one still honoured.
//!
//! - [`next`] is the state machine: a [`Call`], an [`Event`] and the time give the call and what to do
//! - [`Answers`] says what class an [`Answer`] is of: with and without a key, and as the topology names it
//! - [`RetryAfter`] and [`Retry`] say how long to wait: as the provider asks, and by full jitter
//! - [`Key`] is what the provider recognises an effect by; [`KeyWindow`] is for how long
//! - [`Fingerprint`] tells whether two requests under one key are the same
//!
//! The model of the protocol (`tests/models/calls`) has the same states and steps. What is different: it knows neither
//! back-off nor an answer 409.
//!
//! **Failure.** There is none: every answer of a provider is of some class, and what is not understood may have acted.
//! An event that cannot come in the state that a call is in is a broken invariant, and panics.

use std::time::Duration;

mod answer;
mod backoff;
mod fingerprint;
mod http_date;
mod key;
mod machine;
mod retry_after;
mod window;

pub use answer::{Answer, Answers, Class, Codes, Error, Named, Reading, Status, is_replay_marker, names_key};
pub use backoff::{Draw, Jitter, RETRY_AFTER_MAX, Retry};
pub use fingerprint::{Comparison, Content, FINGERPRINT_BYTES, Fingerprint, Form};
pub use http_date::parse as parse_http_date;
pub use key::{Key, KeyOf, StepOf};
pub use machine::{
    Action, Call, Event, Found, Grant, IN_PROGRESS_MAX, Kept, Outcome, Permit, Stage, begin, next, resume,
};
pub use retry_after::RetryAfter;
pub use window::KeyWindow;

/// How a topology's calls are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// For how long the provider honours a key; `None` if it honours none.
    pub key: Option<KeyWindow>,
    /// When a reservation is written before a call. Without a key it always is.
    pub reserve: Reserve,
    /// What becomes of a call in doubt.
    pub on_in_doubt: OnInDoubt,
    /// What becomes of a call whose attempts are exhausted while the provider is down.
    pub on_unavailable: OnUnavailable,
    /// How often, and after how long, a call is made again.
    pub retry: Retry,
    /// What answers mean.
    pub answers: Answers,
}

/// When a reservation is written before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Always.
    Always,
    /// Where the position record does not say that calls may have gone.
    Auto,
}

/// What becomes of a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInDoubt {
    /// Its record goes to the dead letters, and the identity is remembered as failed.
    DeadLetter,
    /// It is made again: at least once.
    Retry,
    /// The task stops before its record.
    Fail,
}

/// What becomes of calls while the provider is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// They wait, and one at a time is tried.
    Hold,
    /// Their records go to the dead letters once their attempts are exhausted.
    DeadLetter,
    /// The task stops before the first whose attempts are exhausted.
    Fail,
}

/// The time, as the engine's clock tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, in milliseconds since the epoch: for what outlives the process.
    pub wall_ms: i64,
    /// The monotonic clock: for waits.
    pub monotonic: Duration,
}
