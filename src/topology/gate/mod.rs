//! A gate, compiled: who is asked whether an identity was passed on elsewhere.
//!
//! A gate suppresses: what it knows from another partition, topic or topology is dropped as a duplicate. It promises
//! nothing, since what it was told may be lost with the server that keeps it.

use crate::yaml::Text;

pub(super) mod compile;
pub(super) mod keys;
pub(super) mod spec;

/// How long an identity is kept where the topology does not say, in milliseconds.
pub const RETENTION_MS: i64 = 7 * 24 * 3_600_000;
/// The longest time that an identity is kept, in milliseconds.
pub const RETENTION_MS_MAX: i64 = 36_500 * 24 * 3_600_000;

/// A gate that is a server of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Where it is, with user and password: always secret.
    pub url: Text,
    /// Its name; topologies that name the same one share what it knows.
    pub name: String,
    /// How long it keeps an identity, in milliseconds of the server's clock.
    pub retention_ms: i64,
    /// What becomes of records while it does not answer.
    pub on_unavailable: OnUnavailable,
}

/// What becomes of records while a gate does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// They wait.
    Hold,
    /// They go on as if there were no gate.
    Pass,
}

impl OnUnavailable {
    /// Both of them.
    pub const ALL: &[OnUnavailable] = &[OnUnavailable::Hold, OnUnavailable::Pass];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Pass => "pass",
        }
    }
}
