//! The driver for PostgreSQL: the only module that knows `tokio-postgres`.
//!
//! - [`Postgres`] is the [`Sink`], made of [`Settings`]; each lane's session has one connection, made when it is first
//!   used, and one small runtime, which only runs within a call.
//! - `transaction` commits: the rows' updates, the inbox, the effects, all pipelined, then COMMIT. `bundle` makes one
//!   statement of many. `rejected` finds the records that the database refuses. `positions` claims and reads rows.
//!   `inbox` and `upsert` are SQL.
//! - [`steps`] carries out the transactions of handlers' steps; [`requests`] keeps what is remembered of HTTP requests.
//!   Each has a table of its own (`own_table`).
//! - `class` says what to do about an SQLSTATE.
//!
//! **Invariants.** COMMIT is sent only once each row is known to have had its step's mark. It is sent behind a query
//! that fails where the transaction has failed, so that it is never answered by a silent ROLLBACK. The server's process
//! is compared at the beginning of each transaction, so that a pooler which hands out another one is noticed before
//! anything is committed.
//!
//! **Failure.** A connection that is lost, out of date or in an unknown state is dropped; the next call makes another.
//! No message holds the url's password: what tokio-postgres says about a url is never passed on.
//!
//! All parameters are sent as text, so that PostgreSQL's own parser reads them.

use std::fmt;
use std::sync::Arc;

use super::{Error, ErrorKind, Session, Sink};

mod bundle;
mod class;
mod connection;
mod inbox;
mod inspect;
mod own_table;
mod pipeline;
mod positions;
mod prepare;
mod rejected;
pub mod requests;
mod session;
mod statement;
pub mod steps;
mod tls;
mod transaction;
mod upsert;
mod url;
mod verb;

pub use inspect::{Finding, inspect, inspect_with, rows};
pub use prepare::ddl;
pub use verb::{VERBS, check_verb as check_sql};

/// What a sink of this kind is made of.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where the database is: `postgres://…` or `key=value …`. A secret.
    pub url: String,
    /// The schema of ratchet's own tables: `ratchet` by default.
    pub schema: String,
    /// Whether own tables may be created.
    pub create: bool,
    /// The topology's name, by which the server's administrators see the sessions.
    pub topology: String,
    /// The statements, by their numbers.
    pub statements: Vec<Statement>,
    /// The inbox, if effects are recognised there too.
    pub inbox: Option<Inbox>,
    /// Whether every text in a column of numbers is a number. If not, a text that may be base64 is refused: its digits would
    /// be read as a different number.
    pub has_text_decimals: bool,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("url", &"***")
            .field("schema", &self.schema)
            .field("create", &self.create)
            .field("topology", &self.topology)
            .field("statements", &self.statements)
            .field("inbox", &self.inbox)
            .field("has_text_decimals", &self.has_text_decimals)
            .finish()
    }
}

/// An inbox: records whose identity any writer of it has brought before are not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// Its name. Topologies that name the same one share it.
    pub name: String,
    /// How long identities are remembered, in milliseconds of the server's clock; `None` for ever.
    pub retention_ms: Option<i64>,
}

/// A statement that calls carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// A single SQL statement: one that reads or changes data, none that controls the transaction.
    Sql {
        /// Its text, with parameters `$1`, `$2`, …
        text: String,
        /// How many parameters its calls have.
        parameters: usize,
        /// Whether the rows that it returns are part of the answer.
        returns: bool,
        /// How many rows it has to change, or to return; with any other number its record is refused.
        expect_rows: Option<u64>,
    },
    /// Inserts a row, or updates the one with its key. Has one parameter: the row as a JSON object.
    ///
    /// A value that is a string is read as its column's type reads text, `bytea` as base64 or `\x…`; objects and arrays
    /// are read as JSON by columns of `json`, arrays and composite types. A field that is missing, or that Debezium
    /// says is an unchanged large one, keeps what is there, or has its column's default in a new row.
    Upsert {
        /// The table, as `schema.table` or `table`; parts with a dot in them in double quotes. Not folded to lower case.
        table: String,
        /// The columns of its key, which has a unique index.
        key: Vec<String>,
        /// The columns that are written; `None` for all of the table. Generated ones are left to the database.
        columns: Option<Vec<String>>,
    },
    /// Deletes the row with a key, if it is there. Has one parameter: a JSON object with the fields of the key.
    DeleteRow {
        /// The table, as for [`Statement::Upsert`].
        table: String,
        /// The columns of its key.
        key: Vec<String>,
    },
    /// Empties a table. Has no parameters.
    Truncate {
        /// The table, as for [`Statement::Upsert`].
        table: String,
    },
}

impl Statement {
    /// How many parameters its calls have.
    pub fn parameters(&self) -> usize {
        match self {
            Self::Sql { parameters, .. } => *parameters,
            Self::Upsert { .. } | Self::DeleteRow { .. } => 1,
            Self::Truncate { .. } => 0,
        }
    }

    /// How many rows it has to change, or to return.
    pub fn expect_rows(&self) -> Option<u64> {
        match self {
            Self::Sql { expect_rows, .. } => *expect_rows,
            Self::Upsert { .. } | Self::DeleteRow { .. } | Self::Truncate { .. } => None,
        }
    }

    /// Whether its SQL also takes what [`Call::texts`](super::Call::texts) says of its row.
    fn takes_texts(&self) -> bool {
        matches!(self, Self::Upsert { .. } | Self::DeleteRow { .. })
    }

    /// The table that it keeps, if it is not SQL.
    fn table(&self) -> Option<&str> {
        match self {
            Self::Sql { .. } => None,
            Self::Upsert { table, .. } | Self::DeleteRow { table, .. } | Self::Truncate { table } => Some(table),
        }
    }

    /// What messages call it; `number` is its own, from 0.
    fn named(&self, number: usize) -> String {
        match self {
            Self::Sql { .. } => format!("statement {}", number + 1),
            Self::Upsert { table, .. } => format!("upsert into {table}"),
            Self::DeleteRow { table, .. } => format!("delete from {table}"),
            Self::Truncate { table } => format!("truncate {table}"),
        }
    }

    /// Whether the rows that it returns are part of the answer.
    pub fn returns(&self) -> bool {
        matches!(self, Self::Sql { returns: true, .. })
    }
}

/// A sink that is a PostgreSQL database.
#[derive(Clone, Debug)]
pub struct Postgres {
    shared: Arc<Shared>,
}

/// What all sessions share.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    server: connection::Server,
}

impl Postgres {
    /// A sink with these settings. Connects to nothing and opens no file.
    ///
    /// # Errors
    /// A url that cannot be read, or a statement that cannot be one, [`ErrorKind::Lasting`].
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let lasting = |message| Error { kind: ErrorKind::Lasting, message };
        let server = connection::Server::read(&settings.url).map_err(|error| lasting(error.to_string()))?;
        for (number, statement) in settings.statements.iter().enumerate() {
            statement::check(statement).map_err(|message| lasting(format!("statement {}: {message}", number + 1)))?;
        }
        Ok(Self { shared: Arc::new(Shared { settings, server }) })
    }
}

impl Sink for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn answers(&self) -> bool {
        self.shared.answers()
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(session::Lane::new(Arc::clone(&self.shared)))
    }
}

impl Shared {
    fn answers(&self) -> bool {
        self.settings.inbox.is_some() || self.settings.statements.iter().any(Statement::returns)
    }
}

/// Checks a url as [`Settings::url`] holds one, without connecting.
///
/// # Errors
/// What is wrong with it; never quotes it.
pub fn check_url(url: &str) -> Result<(), String> {
    url::Target::read(url).map(drop).map_err(|error| error.to_string())
}

/// The database at a url, where it is and as whom, for messages: never the password.
///
/// # Errors
/// What is wrong with the url; never quotes it.
pub fn shown_url(url: &str) -> Result<String, String> {
    url::Target::read(url).map(|target| target.shown()).map_err(|error| error.to_string())
}

/// Why the server at a url is not authenticated, in words; `None` if it is, or if it is on this machine.
///
/// # Errors
/// What is wrong with the url; never quotes it.
pub fn unauthenticated(url: &str) -> Result<Option<String>, String> {
    url::Target::read(url).map(|target| target.unauthenticated()).map_err(|error| error.to_string())
}

/// A name as SQL quotes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as an SQL constant.
fn constant(text: &str) -> String {
    // With the escapes of E'', which mean the same whatever the session's settings are.
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
