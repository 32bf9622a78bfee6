//! The settings of a PostgreSQL sink.

use std::fmt;

use super::server::Server;

/// The settings of a sink.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The database's address: `postgres://…` or `key=value …`. A secret.
    pub url: String,
    /// The schema of ratchet's own tables: `ratchet` by default.
    pub schema: String,
    /// Whether ratchet may create its own tables.
    pub create: bool,
    /// The topology's name, part of the sessions' `application_name`.
    pub topology: String,
    /// The statements, by their numbers.
    pub statements: Vec<Statement>,
    /// The inbox, if records are also deduplicated there.
    pub inbox: Option<Inbox>,
    /// Whether every text in a column of numbers is a number. If not, a text that may be base64 is refused: its digits
    /// would be read as a different number.
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

/// An inbox: a record whose identity any of the inbox's writers has written before has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// Its name. Topologies that name the same one share it.
    pub name: String,
    /// How long identities are remembered, in milliseconds of the server's clock; `None` for ever.
    pub retention_ms: Option<i64>,
}

/// A statement that records call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// A single SQL statement that reads or changes data, and does not control the transaction.
    Sql {
        /// Its text, with parameters `$1`, `$2`, …
        text: String,
        /// How many parameters its calls have.
        parameters: usize,
        /// Whether the rows that it returns are part of the answer.
        returns: bool,
        /// The number of rows that it has to change, or to return; with any other number, its record is rejected.
        expect_rows: Option<u64>,
    },
    /// Inserts a row, or updates the one with its key. Has one parameter: the row as a JSON object.
    ///
    /// A value that is a string is read as its column's type reads text, `bytea` as base64 or `\x…`; objects and arrays
    /// are read as JSON by columns of `json`, arrays and composite types. A field that is missing, or that Debezium
    /// marks as an unchanged large value, leaves its column unchanged. In a new row, the column of a missing field has
    /// the default; a record with an unchanged large value is rejected if there is no row with its key.
    Upsert {
        /// The table, as `schema.table` or `table`; a part that contains a dot is in double quotes. Not folded to lower
        /// case.
        table: String,
        /// The columns of its key, which has a unique index.
        key: Vec<String>,
        /// The columns that are written; `None` for all of the table's. Generated columns are never written.
        columns: Option<Vec<String>>,
    },
    /// Deletes the row with a key, if it exists. Has one parameter: a JSON object with the fields of the key.
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

    /// The number of rows that it has to change, or to return, if that is set.
    pub fn expect_rows(&self) -> Option<u64> {
        match self {
            Self::Sql { expect_rows, .. } => *expect_rows,
            Self::Upsert { .. } | Self::DeleteRow { .. } | Self::Truncate { .. } => None,
        }
    }

    /// Whether its SQL has [`Call::texts`](crate::effect::Call::texts) as another parameter.
    pub(super) fn takes_texts(&self) -> bool {
        matches!(self, Self::Upsert { .. } | Self::DeleteRow { .. })
    }

    /// The table that it changes; `None` for SQL.
    pub(super) fn table(&self) -> Option<&str> {
        match self {
            Self::Sql { .. } => None,
            Self::Upsert { table, .. } | Self::DeleteRow { table, .. } | Self::Truncate { table } => Some(table),
        }
    }

    /// Its name in messages; `number` is the statement's, from 0.
    pub(super) fn label(&self, number: usize) -> String {
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

/// The settings and the server, shared by all sessions.
#[derive(Debug)]
pub(super) struct Shared {
    pub settings: Settings,
    pub server: Server,
}

impl Shared {
    /// Whether the sink returns an answer for each record.
    pub fn has_answers(&self) -> bool {
        self.settings.inbox.is_some() || self.settings.statements.iter().any(Statement::returns)
    }
}
