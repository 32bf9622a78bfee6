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
}

impl Finding {
    /// The topology cannot run so.
    pub fn refused(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity: Severity::Refused, message: message.into(), help: help.into() }
    }

    /// Something may come out otherwise than expected.
    pub fn warning(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, message: message.into(), help: help.into() }
    }

    /// Good to know.
    pub fn note(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { severity: Severity::Note, message: message.into(), help: help.into() }
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
