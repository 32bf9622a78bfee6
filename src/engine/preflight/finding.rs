//! A finding about a topology's topics.

use std::fmt;

/// A finding's severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The topology cannot run like this.
    Refused,
    /// It can run, but the result may not be as expected.
    Warning,
    /// Additional information.
    Note,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The finding, in lower case and without a full stop.
    pub message: String,
    /// What to do about it.
    pub help: String,
    /// Whether the problem is an unknown topic: the broker's metadata may be outdated.
    pub is_missing: bool,
    /// Whether the missing topic held contents that cannot be recreated.
    pub is_lost: bool,
}

impl Finding {
    /// The topology cannot run like this.
    pub fn refused(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::of(Severity::Refused, message, help)
    }

    /// A finding of this severity.
    pub fn of(severity: Severity, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity, message: message.into(), help: help.into(), is_missing: false, is_lost: false }
    }

    /// The topology cannot run without this topic, which is unknown, and whose former contents a new topic would lack.
    pub fn lost(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { is_lost: true, ..Self::missing(message, help) }
    }

    /// The topology cannot run without this topic, which is unknown.
    pub fn missing(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { is_missing: true, ..Self::refused(message, help) }
    }

    /// The result may not be as expected.
    pub fn warning(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::of(Severity::Warning, message, help)
    }

    /// Additional information.
    pub fn note(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::of(Severity::Note, message, help)
    }

    /// Whether the topology cannot run like this.
    pub fn is_refused(&self) -> bool {
        self.severity == Severity::Refused
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.help)
    }
}
