//! What a look at a topology's topics has brought to light.

use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The topology cannot run so.
    Refused,
    /// It can, but something may come out otherwise than expected.
    Warning,
    /// Good to know.
    Note,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was found, in lower case and without a full stop.
    pub message: String,
    /// What to do about it.
    pub help: String,
    /// Whether it is that a topic is not known: the broker that was asked may not have heard of it yet.
    pub is_missing: bool,
}

impl Finding {
    /// The topology cannot run so.
    pub fn refused(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity: Severity::Refused, message: message.into(), help: help.into(), is_missing: false }
    }

    /// The topology cannot run without this topic, which is not known.
    pub fn missing(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { is_missing: true, ..Self::refused(message, help) }
    }

    /// Something may come out otherwise than expected.
    pub fn warning(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::refused(message, help) }
    }

    /// Good to know.
    pub fn note(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::refused(message, help) }
    }

    /// Whether the topology cannot run so.
    pub fn is_refused(&self) -> bool {
        self.severity == Severity::Refused
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.help)
    }
}
