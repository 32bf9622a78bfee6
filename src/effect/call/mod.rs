//! One call to a provider, as pure logic: what is to be done next, after any event. It has no input or output, and no
//! clock, threads or random numbers of its own.
//!
//! A sink that calls a provider reserves, acts and settles. Each change of a call's state is written in a Kafka
//! transaction whose group generation is the fence; nobody can fence a request that is under way, so it carries a key
//! that the provider honours for a while. Two questions about a call therefore matter: may one of its attempts have
//! acted, and is the key of the first one still honoured?
//!
//! - [`next`] is the state machine: a [`Call`], an [`Event`] and the time determine the new call and the next action
//! - [`Answers`] says which class an [`Answer`] has: with or without a key, and as the topology overrides it
//! - [`RetryAfter`] and [`Retry`] say how long to wait: as the provider asks, and with full jitter
//! - [`Key`] is what the provider recognises an effect by; [`KeyWindow`] says for how long
//! - [`Fingerprint`] tells whether two requests under one key are the same
//!
//! The model of the protocol (`tests/models/calls`) has the same states and steps, except that it knows neither
//! back-off nor the answer 409.
//!
//! **Failure.** Nothing here fails: every answer of a provider has a class, and after an answer that is not understood
//! the attempt may have acted. An event that is impossible in the call's stage is a broken invariant, and panics.

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
    /// For how long the provider honours a key; `None` if it honours no keys.
    pub key: Option<KeyWindow>,
    /// When a reservation is written before a call. Without a key, always.
    pub reserve: Reserve,
    /// What happens to a call in doubt.
    pub on_in_doubt: OnInDoubt,
    /// What happens to a call whose attempts are exhausted while the provider is down.
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
    /// Unless the position record already says that calls may have been sent.
    Auto,
}

/// What happens to a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInDoubt {
    /// Its record goes to the dead letters, and the identity is remembered as failed.
    DeadLetter,
    /// It is made again: at-least-once.
    Retry,
    /// The task stops before its record.
    Fail,
}

/// What happens to calls while the provider is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// They wait, and one at a time is tried.
    Hold,
    /// Their records go to the dead letters once their attempts are exhausted.
    DeadLetter,
    /// The task stops before the first whose attempts are exhausted.
    Fail,
}

/// The time by the engine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, in milliseconds since the epoch: for times that outlive the process.
    pub wall_ms: i64,
    /// The monotonic clock: for waits.
    pub monotonic: Duration,
}
