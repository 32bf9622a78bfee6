//! Failures, as text: a run, a contender or a part that fails is reported, and the rest continues.

use std::fmt;

/// Why something has no figure.
#[derive(Debug)]
pub struct Failure(pub String);

/// A result, or why there is none.
pub type Outcome<T> = Result<T, Failure>;

/// Returns a failure with a message in the form of `format!`.
macro_rules! fail {
    ($($words:tt)*) => { return Err($crate::failure::Failure(format!($($words)*))) };
}
pub(crate) use fail;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure(error.to_string())
    }
}

impl From<rdkafka::error::KafkaError> for Failure {
    fn from(error: rdkafka::error::KafkaError) -> Self {
        Failure(error.to_string())
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let more = error.as_db_error().map(|error| format!(": {}", error.message())).unwrap_or_default();
        Failure(format!("{error}{more}"))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure(error.to_string())
    }
}

/// Adds to an error what was being done.
pub trait Context<T> {
    /// Puts `what` before the error's message, if there is one.
    fn context(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: impl fmt::Display) -> Outcome<T> {
        self.ok_or_else(|| Failure(what.to_string()))
    }
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
