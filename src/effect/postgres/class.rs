//! What an error of PostgreSQL means: who can do something about it, and whether a record is to blame.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error as Failure;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::effect::{Error, ErrorKind};

/// What is said where the server's sessions are not the driver's own.
pub(super) const POOLER: &str = "a connection pooler is in between, which hands out the server's sessions or does not \
                                 keep their settings, but a lane needs one of its own: name the server itself in the url";

/// The prefix of a text that ratchet casts to a number so that the statement fails: the server quotes the text in its
/// error.
pub(super) const OWN: &str = "ratchet: ";

/// What may be a record's fault, or that of the statement: types of extensions say it of a text that they cannot read
/// (PostGIS, ltree), a subquery or a MERGE that finds two rows, JSON that is nested too deeply.
const DOUBTFUL: [&str; 4] = ["XX000", "42601", "21000", "54001"];

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It passes by itself.
    Passing,
    /// It passes with another connection: this one's statements or server are out of date.
    Anew,
    /// The connection is gone.
    Lost,
    /// A person has to act.
    Lasting,
    /// The data is to blame: of a record, where the statement was a record's.
    Data,
    /// The data may be to blame, or the statement itself: that of a record is, if another record passes there.
    Doubtful,
}

/// An error, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub class: Class,
    /// In lower case, without a full stop; may quote a record, never a secret.
    pub message: String,
    /// Whether the server has said so: what was sent after it has had no effect.
    pub is_answer: bool,
    /// Whether the server's session has ended with it.
    pub is_fatal: bool,
    /// The server's own name for it.
    pub code: Option<SqlState>,
}

impl Trouble {
    /// A person has to act.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self::new(Class::Lasting, message.into())
    }

    /// It passes.
    pub fn passing(message: impl Into<String>) -> Self {
        Self::new(Class::Passing, message.into())
    }

    /// The connection cannot be used any more.
    pub fn lost(message: impl Into<String>) -> Self {
        Self::new(Class::Lost, message.into())
    }

    /// The record cannot be sent at all.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(Class::Data, message.into())
    }

    fn new(class: Class, message: String) -> Self {
        Self { class, message, is_answer: false, is_fatal: false, code: None }
    }

    /// The same with what it happened to before it.
    pub fn of(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Whether a trigger or a function of the user's has raised it, under a name of its own.
    pub fn is_users(&self) -> bool {
        let is_own = |code: &SqlState| !DOUBTFUL.contains(&code.code());
        self.class == Class::Doubtful && self.code.as_ref().is_some_and(is_own)
    }

    /// Whether it passes by itself, or with another connection.
    pub fn may_pass(&self) -> bool {
        matches!(self.class, Class::Passing | Class::Anew | Class::Lost)
    }

    /// As callers of the driver see it.
    pub fn into_error(self) -> Error {
        let kind = if self.may_pass() { ErrorKind::Passing } else { ErrorKind::Lasting };
        Error { kind, message: self.message }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        if let Some(error) = failure.as_db_error() {
            let code = error.code().code();
            // Whether the statement was carried out is not known, it says itself.
            let is_answer = !["40003", "08007"].contains(&code);
            let class = class(code, error.routine());
            let mut message = said(error);
            // Statements have names of their own within a session.
            if code == "42P05" {
                message = format!("{message}: {POOLER}");
            }
            let code = Some(error.code().clone());
            return Self { class, message, is_answer, is_fatal: is_fatal(error), code };
        }
        if failure.is_closed() {
            return Self::lost("the connection was lost");
        }
        let cause = failure.source();
        let message = match &cause {
            Some(cause) => format!("{failure}: {}", chain(*cause)),
            None => failure.to_string(),
        };
        let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
        let class = match io.map(io::Error::kind) {
            // What TLS and certificates complain of.
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => Class::Lasting,
            Some(_) => Class::Lost,
            None => Class::Lasting,
        };
        Self::new(class, message)
    }
}

/// Whether the session ends with this error.
fn is_fatal(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// The parameter that an error is about, if it is about the text of one.
fn parameter(error: &DbError) -> Option<&str> {
    let (_, rest) = error.where_()?.split_once("portal parameter $")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(&rest[..digits])
}

/// What a statement of ours says by a cast that fails.
fn own_words(message: &str) -> Option<&str> {
    let (_, quoted) = message.split_once(": \"").filter(|(_, quoted)| quoted.starts_with(OWN))?;
    quoted[OWN.len()..].strip_suffix('"')
}

/// What PostgreSQL says, on one line.
fn said(error: &DbError) -> String {
    let parameter = parameter(error).map(|number| format!("parameter ${number}: ")).unwrap_or_default();
    let own = own_words(error.message());
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

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
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

/// What an SQLSTATE means. `routine` is the server's function that has raised it.
pub(super) fn class(code: &str, routine: Option<&str>) -> Class {
    match code {
        // A cached plan that must not change its result's type: a table was changed.
        "0A000" if routine == Some("RevalidateCachedQuery") => Class::Anew,
        // A statement that was prepared and is gone; a server that was demoted.
        "26000" | "25006" => Class::Anew,
        // A protocol violation is what poolers answer where they cannot do something.
        "08P01" => Class::Lasting,
        "55P03" | "55006" | "57014" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25P04" => Class::Passing,
        "XX001" | "XX002" => Class::Lasting,
        // What a policy of row-level security does not let in; a grant that is missing has the same code.
        "42501" if routine == Some("ExecWithCheckOptions") => Class::Data,
        // Raised by a trigger or a function; a view's check option; a value too large for its index.
        "P0001" | "P0002" | "P0003" | "P0004" | "44000" | "54000" => Class::Data,
        _ if DOUBTFUL.contains(&code) => Class::Doubtful,
        _ => match code.get(..2) {
            Some("08" | "40" | "53" | "58") => Class::Passing,
            Some("22" | "23") => Class::Data,
            Some("F0" | "HV" | "P0" | "54" | "55" | "57" | "72" | "XX") => Class::Lasting,
            // SQL leaves these to its users: a trigger or a function has raised it.
            _ if code.starts_with(|first: char| matches!(first, '5'..='9' | 'I'..='Z')) => Class::Doubtful,
            _ => Class::Lasting,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_errors_has_its_consequence() {
        for code in ["40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53100", "53300", "08006", "25P03", "57014"]
        {
            assert_eq!(class(code, None), Class::Passing, "{code}");
        }
        for code in ["22P02", "22001", "22021", "23502", "23503", "23505", "23514", "P0001", "44000"] {
            assert_eq!(class(code, None), Class::Data, "{code}");
        }
        for code in ["42P01", "42501", "28P01", "3D000", "0A000", "57P04", "08P01", "XX001", "55000", "54011", "P0000"]
        {
            assert_eq!(class(code, None), Class::Lasting, "{code}");
        }
        for code in ["XX000", "42601", "21000", "54001", "U0001", "99999", "KX100"] {
            assert_eq!(class(code, None), Class::Doubtful, "{code}");
        }
        for (code, is_users) in
            [("U0001", true), ("XX000", false), ("21000", false), ("23505", false), ("57P04", false)]
        {
            let code = Some(SqlState::from_code(code));
            let class = class(code.as_ref().map_or("", SqlState::code), None);
            assert_eq!(Trouble { class, code: code.clone(), ..Trouble::data("") }.is_users(), is_users, "{code:?}");
        }
        for (code, routine) in [("0A000", Some("RevalidateCachedQuery")), ("26000", None), ("25006", None)] {
            assert_eq!(class(code, routine), Class::Anew, "{code}");
        }
        for (routine, expected) in [("ExecWithCheckOptions", Class::Data), ("aclcheck_error", Class::Lasting)] {
            assert_eq!(class("42501", Some(routine)), expected, "{routine}");
        }
    }

    /// Ours are quoted by the server, behind what it says itself; a user's text that begins so is not ours.
    #[test]
    fn own_words_are_taken_out_of_what_the_server_says() {
        let says = |words: &str| format!("invalid input syntax for type integer: \"{words}\"");
        assert_eq!(own_words(&says("ratchet: no key: {\"a\": \"b\"}")), Some("no key: {\"a\": \"b\"}"));
        for message in ["ratchet: stop", "no room for ratchet: stop\"", &says("a ratchet: stop"), &says("")] {
            assert_eq!(own_words(message), None, "{message}");
        }
    }
}
