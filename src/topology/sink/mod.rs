//! A sink, compiled: where it is, and what a record causes there.
//!
//! - A database: which statements a record calls, and what their parameters are. Statements are numbered, all of a
//!   topology's in one list; a record calls those of its kind of change, in their order.
//! - A provider ([`http`]): the request that a record makes.
//!
//! What parameters and requests are in a given record is the matter of the room `rendering`.

use std::fmt;

use crate::dedup::{Action, Kind, Places};
use crate::yaml::Text;

pub(super) mod compile;
pub mod http;
pub(super) mod keys;
pub(super) mod spec;
mod sql;
mod statement;
mod table;
pub mod terms;

pub use http::Http;
pub use terms::Terms;

/// What can be done with a record that a sink refuses.
pub const REJECTED: &[Action] = &[Action::DeadLetter, Action::Drop, Action::Fail];

/// A sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// A database of PostgreSQL.
    Postgres(Postgres),
    /// A provider that is called over HTTP.
    Http(Box<Http>),
    /// A handler: a function of the program that runs the topology.
    Handler(Box<Handler>),
}

impl Sink {
    /// The word for its kind.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "postgres",
            Self::Http(_) => "http",
            Self::Handler(_) => "handler",
        }
    }

    /// The topic for what was answered.
    pub fn result(&self) -> Option<&str> {
        match self {
            Self::Postgres(postgres) => postgres.result.as_deref(),
            Self::Http(http) => http.terms.result.as_ref().map(|result| result.topic.as_str()),
            Self::Handler(handler) => handler.terms.result.as_ref().map(|result| result.topic.as_str()),
        }
    }

    /// The statements; none if it is no database.
    pub fn statements(&self) -> &[Statement] {
        match self {
            Self::Postgres(postgres) => &postgres.statements,
            Self::Http(_) | Self::Handler(_) => &[],
        }
    }

    /// The numbers of the statements that a record of this kind calls, in their order; it is remembered, and has no
    /// effect, if there are none.
    pub fn called_by(&self, kind: Kind) -> impl Iterator<Item = usize> + '_ {
        let of_kind = move |(number, statement): (usize, &Statement)| statement.kinds.contains(&kind).then_some(number);
        self.statements().iter().enumerate().filter_map(of_kind)
    }
}

/// A handler, and what becomes of its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// How it is run, and what becomes of that.
    pub terms: Terms,
}

/// A database of PostgreSQL, and what records cause in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postgres {
    /// Where it is, with user and password: always secret.
    pub url: Text,
    /// The schema of ratchet's own tables.
    pub schema: String,
    /// All statements.
    pub statements: Vec<Statement>,
    /// The inbox; `None` if each task's own position decides.
    pub inbox: Option<Inbox>,
    /// The topic for what statements return.
    pub result: Option<String>,
    /// Whether every text in the table's columns of numbers is a number, even if it may be base64.
    pub has_text_decimals: bool,
}

/// What recognises a repetition in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedup {
    /// Each task's own row.
    Position,
    /// A row for each identity.
    Inbox,
}

impl Dedup {
    /// Both of them.
    pub const ALL: &[Dedup] = &[Dedup::Position, Dedup::Inbox];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Position => "position",
            Self::Inbox => "inbox",
        }
    }
}

/// An inbox: a table that knows every identity, for all that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// Its name; topologies that name the same one share it.
    pub name: String,
    /// How long it knows an identity, in milliseconds by the database's clock; `None` for ever.
    pub retention_ms: Option<i64>,
}

/// A statement, and when and with what it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What it does.
    pub command: Command,
    /// Its parameters, in order.
    pub with: Vec<Parameter>,
    /// The kinds of change that call it.
    pub kinds: Vec<Kind>,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// As written, with parameters from `$1` on.
    Sql {
        /// The text: one statement, without a semicolon after it.
        text: Text,
        /// Whether the rows that it returns are answers.
        returns: bool,
        /// How many rows it has to change, or to return: with any other number its record is refused.
        expect_rows: Option<u64>,
    },
    /// Inserts a row, or changes the one with the same key. Its one parameter is the row as a JSON object.
    Upsert {
        /// The table.
        table: Table,
        /// The columns of its key.
        key: Vec<String>,
        /// The columns to write, the key's among them; `None` for all that the object has.
        columns: Option<Vec<String>>,
    },
    /// Deletes a row. Its one parameter is a JSON object with the key's fields.
    DeleteRow {
        /// The table.
        table: Table,
        /// The columns of its key.
        key: Vec<String>,
    },
    /// Empties a table. It has no parameters.
    Truncate {
        /// The table.
        table: Table,
    },
}

/// A table's name: its schema, if it is named, and itself; letters count as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(pub Vec<String>);

impl Table {
    /// The name as SQL: each part in double quotes.
    pub fn quoted(&self) -> String {
        self.0.iter().map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect::<Vec<_>>().join(".")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// What a parameter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// What the first of these leads to that is there and not null, as text.
    At(Places),
    /// A row as JSON: the first of these objects in which no field of the key is missing or null.
    Row {
        /// Where it may be.
        of: Places,
        /// The fields of its key.
        key: Vec<String>,
    },
    /// A UUID that is a digest of topology, identity, epoch and version: the same for a repetition.
    Digest,
}
