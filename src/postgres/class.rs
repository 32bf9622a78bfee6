//! Classifies errors of PostgreSQL: what to do about them, and whether a record causes them.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error as Failure;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::effect::{Error, ErrorKind};

/// The message for a session that the driver does not have to itself.
pub(super) const POOLER_MESSAGE: &str = "a connection pooler is in between, which hands out the server's sessions or \
                                         does not keep their settings, but a lane needs a session of its own: name \
                                         the server itself in the url";

/// The prefix of messages that ratchet's own SQL raises. The SQL casts the message to a number, which fails, and the
/// server quotes the message in its error.
pub(super) const OWN_PREFIX: &str = "ratchet: ";

/// The SQLSTATEs of errors that either the record or the statement may cause: a text that an extension's type cannot
/// parse (PostGIS, ltree), a subquery or a MERGE that finds two rows, JSON that is nested too deeply.
const DOUBTFUL: [&str; 4] = ["XX000", "42601", "21000", "54001"];

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The same call may succeed later.
    Transient,
    /// Solved by another connection: this one has outdated prepared statements, or its server was demoted.
    Reconnect,
    /// The connection is gone.
    Lost,
    /// The same call fails until a person acts.
    Permanent,
    /// Caused by the data: for a record's call, by the record.
    Data,
    /// Caused by the data or by the statement itself: by the data, if the same statement succeeds for another record.
    Doubtful,
}

/// An error of the database or of the connection, with its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub class: ErrorClass,
    /// In lower case, without a full stop; may quote a record, never a secret.
    pub message: String,
    /// Whether the failed statement and those sent after it certainly had no effect. Only a report of the server makes
    /// that certain.
    pub had_no_effect: bool,
    /// Whether the error has ended the server's session.
    pub is_fatal: bool,
    /// The SQLSTATE, if the server has reported the error.
    pub code: Option<SqlState>,
}

impl Trouble {
    /// An error that is permanent until a person acts.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, message.into())
    }

    /// A transient error.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient, message.into())
    }

    /// A lost connection.
    pub fn lost(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Lost, message.into())
    }

    /// An error that the record's data causes.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Data, message.into())
    }

    fn new(class: ErrorClass, message: String) -> Self {
        Self { class, message, had_no_effect: false, is_fatal: false, code: None }
    }

    /// The error with a prefix that says what failed.
    pub fn with_context(mut self, context: &str) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Whether a trigger or a function of the user has raised it, with an SQLSTATE of a class that the SQL standard
    /// leaves to implementations and users.
    pub fn is_user_defined(&self) -> bool {
        let is_other = |code: &SqlState| !DOUBTFUL.contains(&code.code());
        self.class == ErrorClass::Doubtful && self.code.as_ref().is_some_and(is_other)
    }

    /// Whether a later attempt, or one on another connection, may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self.class, ErrorClass::Transient | ErrorClass::Reconnect | ErrorClass::Lost)
    }

    /// The driver's public error.
    pub fn into_error(self) -> Error {
        let kind = if self.may_pass() { ErrorKind::Transient } else { ErrorKind::Permanent };
        Error { kind, message: self.message }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        if let Some(error) = failure.as_db_error() {
            let code = error.code().code();
            // The other codes of the server mean that the statement was undone; these, that its completion is unknown.
            let had_no_effect = !["40003", "08007"].contains(&code);
            let class = classify(code, error.routine());
            let mut message = message_of(error);
            // duplicate_prepared_statement: names are unique within a session of the driver's own.
            if code == "42P05" {
                message = format!("{message}: {POOLER_MESSAGE}");
            }
            let code = Some(error.code().clone());
            return Self { class, message, had_no_effect, is_fatal: is_fatal(error), code };
        }
        if failure.is_closed() {
            return Self::lost("the connection was lost");
        }
        let cause = failure.source();
        let message = match &cause {
            Some(cause) => format!("{failure}: {}", with_causes(*cause)),
            None => failure.to_string(),
        };
        let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
        let class = match io.map(io::Error::kind) {
            // Errors of TLS and of certificates.
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => ErrorClass::Permanent,
            Some(_) => ErrorClass::Lost,
            None => ErrorClass::Permanent,
        };
        Self::new(class, message)
    }
}

/// Whether the session ends with this error.
fn is_fatal(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// The number of the parameter whose text the error is about, if any.
fn parameter_number(error: &DbError) -> Option<&str> {
    let (_, rest) = error.where_()?.split_once("portal parameter $")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(&rest[..digits])
}

/// The message that ratchet's own SQL has raised by a failing cast.
fn own_message(message: &str) -> Option<&str> {
    let (_, quoted) = message.split_once(": \"").filter(|(_, quoted)| quoted.starts_with(OWN_PREFIX))?;
    quoted[OWN_PREFIX.len()..].strip_suffix('"')
}

/// The server's message with its detail, its column and its SQLSTATE, on one line.
fn message_of(error: &DbError) -> String {
    let parameter = parameter_number(error).map(|number| format!("parameter ${number}: ")).unwrap_or_default();
    let own = own_message(error.message());
    let mut text = own.unwrap_or(error.message()).to_owned();
    if let Some(detail) = error.detail() {
        text = format!("{text}: {detail}");
    }
    if let (Some(table), Some(column)) = (error.table(), error.column())
        && !text.contains(column)
    {
        text = format!("{text}, column {column} of {table}");
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{parameter}{} ({})", text.trim_end_matches('.'), error.code().code())
}

/// The error's message, followed by those of its causes.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// The class of an SQLSTATE. `routine` is the server's C function that has raised the error.
pub(super) fn classify(code: &str, routine: Option<&str>) -> ErrorClass {
    match code {
        // "cached plan must not change result type": a table was altered.
        "0A000" if routine == Some("RevalidateCachedQuery") => ErrorClass::Reconnect,
        // A prepared statement that no longer exists; a server that was demoted.
        "26000" | "25006" => ErrorClass::Reconnect,
        // Poolers report a protocol violation for requests that they do not support.
        "08P01" => ErrorClass::Permanent,
        "55P03" | "55006" | "57014" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" => {
            ErrorClass::Transient
        }
        "XX001" | "XX002" => ErrorClass::Permanent,
        // A row that violates a row-level security policy; a missing grant has the same code.
        "42501" if routine == Some("ExecWithCheckOptions") => ErrorClass::Data,
        // Raised by a trigger or a function; a view's check option; a value too large for its index.
        "P0001" | "P0002" | "P0003" | "P0004" | "44000" | "54000" => ErrorClass::Data,
        _ if DOUBTFUL.contains(&code) => ErrorClass::Doubtful,
        _ => match code.get(..2) {
            Some("08" | "40" | "53" | "58") => ErrorClass::Transient,
            Some("22" | "23") => ErrorClass::Data,
            Some("F0" | "HV" | "P0" | "54" | "55" | "57" | "72" | "XX") => ErrorClass::Permanent,
            // Classes that the SQL standard leaves to implementations and users: a trigger or a function has raised it.
            _ if code.starts_with(|first: char| matches!(first, '5'..='9' | 'I'..='Z')) => ErrorClass::Doubtful,
            _ => ErrorClass::Permanent,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_have_the_class_of_their_cause() {
        for code in ["40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53100", "53300", "08006", "25P03", "57014"]
        {
            assert_eq!(classify(code, None), ErrorClass::Transient, "{code}");
        }
        for code in ["22P02", "22001", "22021", "23502", "23503", "23505", "23514", "P0001", "44000"] {
            assert_eq!(classify(code, None), ErrorClass::Data, "{code}");
        }
        for code in ["42P01", "42501", "28P01", "3D000", "0A000", "57P04", "08P01", "XX001", "55000", "54011", "P0000"]
        {
            assert_eq!(classify(code, None), ErrorClass::Permanent, "{code}");
        }
        for code in ["XX000", "42601", "21000", "54001", "U0001", "99999", "KX100"] {
            assert_eq!(classify(code, None), ErrorClass::Doubtful, "{code}");
        }
        for (code, is_user_defined) in
            [("U0001", true), ("XX000", false), ("21000", false), ("23505", false), ("57P04", false)]
        {
            let code = Some(SqlState::from_code(code));
            let class = classify(code.as_ref().map_or("", SqlState::code), None);
            assert_eq!(
                Trouble { class, code: code.clone(), ..Trouble::data("") }.is_user_defined(),
                is_user_defined,
                "{code:?}"
            );
        }
        for (code, routine) in [("0A000", Some("RevalidateCachedQuery")), ("26000", None), ("25006", None)] {
            assert_eq!(classify(code, routine), ErrorClass::Reconnect, "{code}");
        }
        for (routine, expected) in
            [("ExecWithCheckOptions", ErrorClass::Data), ("aclcheck_error", ErrorClass::Permanent)]
        {
            assert_eq!(classify("42501", Some(routine)), expected, "{routine}");
        }
    }

    /// The server quotes ratchet's message after a text of its own. The prefix at another place of the server's message
    /// comes from a user.
    #[test]
    fn own_message_is_extracted_from_the_servers_message() {
        let server_message = |text: &str| format!("invalid input syntax for type integer: \"{text}\"");
        assert_eq!(own_message(&server_message("ratchet: no key: {\"a\": \"b\"}")), Some("no key: {\"a\": \"b\"}"));
        for message in
            ["ratchet: stop", "no room for ratchet: stop\"", &server_message("a ratchet: stop"), &server_message("")]
        {
            assert_eq!(own_message(message), None, "{message}");
        }
    }
}
