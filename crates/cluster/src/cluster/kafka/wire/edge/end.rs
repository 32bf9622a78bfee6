//! The end of a connection: why it ended, and whether a person has to fix something.

use super::super::brokers::TroubleKind;

/// How a connection ended.
#[derive(Debug)]
pub(super) struct End {
    /// What a person has to fix, if anything.
    pub kind: Option<TroubleKind>,
    pub reason: String,
}

impl End {
    /// A temporary failure: a later attempt may succeed.
    pub fn passing(reason: impl Into<String>) -> Self {
        Self { kind: None, reason: reason.into() }
    }
}
