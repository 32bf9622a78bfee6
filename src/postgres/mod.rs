//! The driver for PostgreSQL: the only module that knows `tokio-postgres`.
//!
//! - [`Postgres`] is the [`Sink`], made from [`Settings`]. Each lane's session has one connection, opened on first use,
//!   and one small runtime, which runs only during a call.
//! - `transaction` commits a `batch`: its `run` sends the rows' updates, the inbox's statements and the effects, all
//!   pipelined, then COMMIT. `bundle` combines calls into statements over many rows. `rejected` finds the records that
//!   the database refuses. `claim` claims and reads tasks' rows. `sink_tables` creates the sink's own tables.
//!   `positions`, `inbox` and `upsert` contain SQL.
//! - [`steps`] executes the transactions of handlers' steps; [`requests`] stores the responses to HTTP requests. Each
//!   has a table of its own (`own_table`).
//! - `class` classifies errors by SQLSTATE.
//!
//! **Invariants.** COMMIT is sent only once each row is known to have had its step's mark. It is sent behind a query
//! that fails if the transaction has failed: a bare COMMIT would then roll back and report success. The process id of
//! the server's backend is compared at the beginning of each transaction, so that a pooler that switches backends is
//! noticed before anything is committed.
//!
//! **Failure.** A connection that is lost, out of date or in an unknown state is dropped; the next call opens a new
//! one. No message contains the url's password: tokio-postgres's errors about a url are never passed on.
//!
//! All parameters are sent as text, so that PostgreSQL's own parser reads them.

use std::sync::Arc;

use crate::effect::{Error, ErrorKind, Session, Sink};

mod batch;
mod bundle;
mod claim;
mod class;
mod connection;
mod inbox;
mod inspect;
mod own_table;
mod pipeline;
mod positions;
mod quoting;
mod rejected;
pub mod requests;
mod run;
mod server;
mod session;
mod settings;
mod sink_tables;
mod statement;
pub mod steps;
mod tls;
mod transaction;
mod upsert;
mod url;
mod verb;

pub use inspect::{Finding, inspect, inspect_with, rows};
pub use settings::{Inbox, Settings, Statement};
pub use sink_tables::ddl;
pub use verb::{VERBS, check_verb as check_sql};

use server::Server;
use settings::Shared;

/// A sink that is a PostgreSQL database.
#[derive(Clone, Debug)]
pub struct Postgres {
    shared: Arc<Shared>,
}

impl Postgres {
    /// A sink with these settings. Connects to nothing and opens no file.
    ///
    /// # Errors
    /// [`ErrorKind::Permanent`] for a url that cannot be read, or a statement that is not allowed.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let permanent = |message| Error { kind: ErrorKind::Permanent, message };
        let server = Server::parse(&settings.url).map_err(|error| permanent(error.to_string()))?;
        for (number, statement) in settings.statements.iter().enumerate() {
            statement::check(statement).map_err(|message| permanent(format!("statement {}: {message}", number + 1)))?;
        }
        Ok(Self { shared: Arc::new(Shared { settings, server }) })
    }
}

impl Sink for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn answers(&self) -> bool {
        self.shared.has_answers()
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(session::Lane::new(Arc::clone(&self.shared)))
    }
}

/// Checks a url as [`Settings::url`] holds one, without connecting.
///
/// # Errors
/// What is wrong with it; never quotes it.
pub fn check_url(url: &str) -> Result<(), String> {
    url::Target::read(url).map(drop).map_err(|error| error.to_string())
}

/// The database, address and user of a url, for messages; never the password.
///
/// # Errors
/// What is wrong with the url; never quotes it.
pub fn describe_url(url: &str) -> Result<String, String> {
    url::Target::read(url).map(|target| target.description()).map_err(|error| error.to_string())
}

/// The reason why the server at a url is not authenticated; `None` if it is, or if it is on this machine.
///
/// # Errors
/// What is wrong with the url; never quotes it.
pub fn missing_authentication(url: &str) -> Result<Option<String>, String> {
    url::Target::read(url).map(|target| target.missing_authentication()).map_err(|error| error.to_string())
}
