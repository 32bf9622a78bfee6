//! Why a step, or a function, has not ended well.

use std::fmt;
use std::time::Duration;

/// Why a step has not ended well, and so what becomes of the record.
///
/// Any other error becomes one of these by `?`, as [`StepError::unknown`]: what is not known may have happened.
///
/// ```
/// use ratchet::StepError;
///
/// fn read(answer: u16) -> Result<(), StepError> {
///     match answer {
///         200..300 => Ok(()),
///         400..500 => Err(StepError::rejected("the card was declined")),
///         503 => Err(StepError::again("busy")),
///         answer => Err(StepError::unknown(format!("the provider answered {answer}"))),
///     }
/// }
/// assert!(read(402).unwrap_err().is_rejected());
/// ```
#[derive(Clone)]
pub struct StepError {
    kind: Kind,
    message: String,
    after: Option<Duration>,
}

/// What is known of a step that has not ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rejected,
    Again,
    Unknown,
}

impl StepError {
    /// It has not happened, and never will: the other system says no. The record is rejected (`on_rejected`), after
    /// what undoes its steps ([`Steps::compensate`](super::Steps::compensate)).
    pub fn rejected(message: impl Into<String>) -> Self {
        Self { kind: Kind::Rejected, message: message.into(), after: None }
    }

    /// It has certainly not happened, and is to be tried again.
    pub fn again(message: impl Into<String>) -> Self {
        Self { kind: Kind::Again, message: message.into(), after: None }
    }

    /// It may have happened: there was no answer, or none that says so. It is tried again under its key, where that is
    /// honoured; otherwise it is in doubt (`on_in_doubt`).
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { kind: Kind::Unknown, message: message.into(), after: None }
    }

    /// The same, not to be tried again before this time has passed: five minutes at most.
    pub fn after(self, wait: Duration) -> Self {
        Self { after: Some(wait), ..self }
    }

    /// Whether it has not happened, and never will.
    pub fn is_rejected(&self) -> bool {
        self.kind == Kind::Rejected
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn wait(&self) -> Option<Duration> {
        self.after
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

/// With everything that has led to it.
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
    //! Goal: an error says what has led to it, and is not taken for a rejection.

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the answer cannot be read")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn other_errors_are_unknown_and_say_why() {
        let failed = || -> Result<(), StepError> { Err(Outer("x".parse::<u8>().unwrap_err()))? };
        let error = failed().unwrap_err();
        assert_eq!(error.to_string(), "the answer cannot be read: invalid digit found in string");
        assert_eq!((error.kind(), error.is_rejected()), (Kind::Unknown, false));
    }
}
