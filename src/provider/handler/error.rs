//! Why a step has failed, or a function: the user's code that works on a record in steps.

use std::fmt;
use std::time::Duration;

/// Why a step has failed, which decides what happens to the record.
///
/// Any other error is turned into [`StepError::unknown`] by `?`: the step may have happened.
///
/// ```
/// use ratchet::StepError;
///
/// fn read(status: u16) -> Result<(), StepError> {
///     match status {
///         200..300 => Ok(()),
///         400..500 => Err(StepError::rejected("the card was declined")),
///         503 => Err(StepError::again("busy")),
///         status => Err(StepError::unknown(format!("the provider returned the status {status}"))),
///     }
/// }
/// assert!(read(402).unwrap_err().is_rejected());
/// ```
#[derive(Clone)]
pub struct StepError {
    kind: Kind,
    message: String,
    wait: Option<Duration>,
}

/// Whether a failed step has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has not happened, and never will.
    Rejected,
    /// It has not happened; it is attempted again.
    Again,
    /// It may have happened.
    Unknown,
}

impl StepError {
    /// The step has not happened and never will: the other system refuses it. The record is rejected (`on_rejected`)
    /// after its steps are undone ([`Steps::compensate`](super::Steps::compensate)).
    pub fn rejected(message: impl Into<String>) -> Self {
        Self { kind: Kind::Rejected, message: message.into(), wait: None }
    }

    /// The step has certainly not happened, and is attempted again.
    pub fn again(message: impl Into<String>) -> Self {
        Self { kind: Kind::Again, message: message.into(), wait: None }
    }

    /// The step may have happened: there was no response, or the response does not show whether it has. The step is
    /// attempted again under its key if the provider honours keys; otherwise it is in doubt (`on_in_doubt`).
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { kind: Kind::Unknown, message: message.into(), wait: None }
    }

    /// The same error, with a wait before the next attempt (at most five minutes).
    pub fn after(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Whether the step has not happened and never will.
    pub fn is_rejected(&self) -> bool {
        self.kind == Kind::Rejected
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn wait(&self) -> Option<Duration> {
        self.wait
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

/// The message includes all causes.
impl<E: std::error::Error> From<E> for StepError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !message.ends_with(&cause_text) {
                message = format!("{message}: {cause_text}");
            }
            source = cause.source();
        }
        Self::unknown(message)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: an error names its causes, and does not count as a rejection.

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the answer cannot be read")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn other_error_is_unknown_and_names_its_cause() {
        let failed = || -> Result<(), StepError> { Err(Outer("x".parse::<u8>().unwrap_err()))? };
        let error = failed().unwrap_err();
        assert_eq!(error.to_string(), "the answer cannot be read: invalid digit found in string");
        assert_eq!((error.kind(), error.is_rejected()), (Kind::Unknown, false));
    }
}
