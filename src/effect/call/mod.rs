//! The logic of one call to a provider: the action that follows each event. It is pure: without input and output, and
//! without clock, threads or random numbers of its own.
//!
//! A sink that calls a provider reserves, acts and settles. Each change of a call's state is written in a Kafka
//! transaction whose group generation is the fence. A request that is under way cannot be fenced, so it carries a key
//! that the provider honours for a while. Two questions about a call therefore matter: may one of its attempts have
//! acted, and does the provider still honour the key of the first attempt?
//!
//! - [`next`] is the state machine: a [`Call`], an [`Event`] and the time determine the new call and the next action
//! - [`Answers`] gives an [`AttemptOutcome`] its class, which depends on whether there is a key, and which the
//!   topology may override
//! - [`RetryAfter`] and [`Retry`] determine the wait: at least as long as the provider asks, and with full jitter
//! - [`Key`] is the key by which the provider recognises an effect; [`KeyWindow`] is the time during which the provider
//!   honours the key
//! - [`Fingerprint`] shows whether two requests under one key are the same
//!
//! The model of the protocol (`tests/models/calls`) has the same states and steps, but neither backoff nor the status
//! 409.
//!
//! **Failure.** Nothing here fails: every response of a provider has a class, and after a response with an unknown
//! status the attempt may have acted. An event that is impossible in the call's stage is a broken invariant, and
//! panics.

use std::time::Duration;

mod attempt_outcome;
mod backoff;
mod fingerprint;
mod http_date;
mod key;
mod machine;
mod retry_after;
mod window;

pub use attempt_outcome::{
    Answers, AttemptOutcome, Class, Classification, Error, OverrideClass, Status, StatusCodes, is_replay_marker,
    names_key,
};
pub use backoff::{Draw, Jitter, RETRY_AFTER_MAX, Retry};
pub use fingerprint::{Comparison, Content, FINGERPRINT_BYTES, Fingerprint, Form};
pub use http_date::parse as parse_http_date;
pub use key::{Key, KeyParts, StepName};
pub use machine::{
    Action, Call, CoveringGrant, Event, FoundCall, IN_PROGRESS_MAX, Outcome, Permit, RememberedOutcome, Stage, begin,
    next, resume,
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
    /// How often a call is made again, and after which waits.
    pub retry: Retry,
    /// The topology's overrides of the classes of status codes.
    pub answers: Answers,
}

/// When a reservation is written before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Always.
    Always,
    /// Unless a grant in the position record permits the call.
    Auto,
}

/// What happens to a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInDoubt {
    /// Its record goes to the dead letters, and the identity is remembered as failed.
    DeadLetter,
    /// The call is made again: at-least-once.
    Retry,
    /// The task stops before its record.
    Fail,
}

/// What happens to calls while the provider is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// The calls wait, and one call at a time is tried.
    Hold,
    /// Their records go to the dead letters once their attempts are exhausted.
    DeadLetter,
    /// The task stops before the first record whose attempts are exhausted.
    Fail,
}

/// The current time, by the engine's two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, in milliseconds since the epoch: for times that outlive the process.
    pub wall_ms: i64,
    /// The monotonic clock: for waits.
    pub monotonic: Duration,
}
