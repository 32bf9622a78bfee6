//! The failure of a connection, and whether a person has to fix its cause.

use super::super::brokers::TroubleKind;

/// Why a connection failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// The kind of trouble, if a person has to fix it.
    pub kind: Option<TroubleKind>,
    /// A sentence that refers to the broker as "it".
    pub reason: String,
}

impl Failure {
    /// A temporary failure: a later attempt may succeed.
    pub fn temporary(reason: impl Into<String>) -> Self {
        Self { kind: None, reason: reason.into() }
    }
}
