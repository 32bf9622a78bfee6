//! Effects outside Kafka: the effects of a topology with a `sink`, and how they are committed.
//!
//! A committing sink keeps one **row** for each task: its own account of the task's progress. The sink commits a
//! transaction's effects, the rows of the tasks it touches and their redos together; only then is the Kafka transaction
//! committed. The next owner of a task claims its row, compares its token with the changelog's position record, and
//! replays the redo if the row is one transaction ahead. docs/guarantees.md explains why that is exactly once.
//!
//! - [`Sink`] is shared by all lanes of a topology; [`Session`] is one lane's access to it.
//! - [`Effects`] holds the effects of one task's records in one transaction: numbered statements with text parameters.
//! - [`call`] decides the next action of a call to a provider, which no transaction can contain. It is pure.
//! - [`provider`] is the interface of a calling sink: [`provider::Provider`] for all lanes, [`provider::Calls`] for
//!   one.
//! - [`gate`] is the interface of a gate, which is asked before a record is passed on.
//! - [`lazy`] holds a driver's connection, which is made when it is first needed.
//!
//! The drivers are rooms of their own: `postgres`, `provider` (HTTP, and the user's functions) and `redis` (a gate).
//!
//! Sessions wait for the sink, and give up if it does not respond to a request within half a minute. A session connects
//! when it is first used, and reconnects after its connection was lost.
//!
//! **Failure**: every error shows whether effects can have happened. A commit that fails with a [`CommitError`]
//! has had no effect unless the error is [`CommitError::Unknown`].

use std::fmt;
use std::sync::Arc;

use crate::format::Token;

pub mod call;
mod effects;
pub mod gate;
pub mod lazy;
pub mod provider;

pub use effects::{Call, Effect, Effects};

/// The key of a task's row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// The topology's name.
    pub topology: Arc<str>,
    /// The input topic.
    pub topic: Arc<str>,
    /// The input topic's id: a recreated topic has rows of its own.
    pub topic_id: [u8; 16],
    /// The input partition.
    pub partition: i32,
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} of {}", self.topic, self.partition, self.topology)
    }
}

/// The part of a task's row that its transactions compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMark {
    /// How often the row was claimed. The task with the last claim owns the row.
    pub epoch: i64,
    /// The last transaction's token; `None` before the first one.
    pub token: Option<Token>,
}

/// A task's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its epoch and token.
    pub mark: RowMark,
    /// The token of the previous transaction; `None` before the second one.
    pub former: Option<Token>,
    /// The Kafka half of the last transaction: the bytes of a [`crate::format::Redo`].
    pub redo: Option<Vec<u8>>,
    /// The next source offset after the last transaction: for people, and to show whether the row is ahead or behind.
    pub next: i64,
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRow {
    /// The epoch before the claim; 0 if the claim inserted the row.
    pub former_epoch: i64,
    /// The row, with the epoch that it has now.
    pub row: Row,
}

/// The part of a transaction that belongs to one task.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The task's row.
    pub key: &'a RowKey,
    /// The epoch of the task's claim, and the token that its row must have before the transaction.
    pub mark: &'a RowMark,
    /// The transaction's token, which the row has afterwards.
    pub token: Token,
    /// The next source offset after the transaction.
    pub next: i64,
    /// The effects of the task's records, in their order.
    pub effects: &'a Effects,
}

/// The outcome of one record's effects within the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The effects were carried out, and their statements returned these rows, as JSON objects.
    Done(Vec<String>),
    /// The inbox already has this record or a newer one: no effect was carried out.
    InInbox,
}

/// Builds a transaction's redos once the sink has carried out its effects.
pub trait RedoBuilder {
    /// Returns the redo of step number `step`. `outcomes` has one outcome for each record of the step, if the sink
    /// returns outcomes ([`Sink::answers`]), and is empty otherwise.
    fn redo(&mut self, step: usize, outcomes: &[Answer]) -> Vec<u8>;
}

/// A record whose effects the sink refuses, whatever else is in the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The index of the step in the transaction.
    pub step: usize,
    /// The index of the record in the step's effects.
    pub effect: usize,
    /// The sink's message. May quote the record, never a secret.
    pub message: String,
}

/// The reason why a transaction was not committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The rows of these steps no longer have their marks: another owner has claimed or written them. Nothing was
    /// committed.
    #[error("another owner has claimed the row of a task")]
    Fenced(Vec<usize>),
    /// The sink refuses these records; each record of the transaction was tried. Nothing was committed.
    #[error("the sink refuses {} of its records", .0.len())]
    Rejected(Vec<Rejected>),
    /// The sink refuses something in the transaction and cannot say which record: a smaller transaction may show it.
    /// Nothing was committed.
    #[error("the sink refuses part of the transaction: {0}")]
    Refused(String),
    /// The sink cannot carry out the transaction now. Nothing was committed.
    #[error("the sink cannot carry out the transaction now: {0}")]
    Held(Error),
    /// The response to the commit was lost: the transaction may be committed.
    #[error("the sink's response to the commit was lost: {0}")]
    Unknown(Error),
}

/// An error of a sink or a gate. After a sink's error no effect has happened, except in [`CommitError::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What to do about the error.
    pub kind: ErrorKind,
    /// What happened, in lower case and without a full stop; never holds a secret.
    pub message: String,
}

/// What to do about an [`Error`]. In either case the call is made again later: no records are set aside because a
/// database is down or a permission is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A temporary error: a deadlock, a serialization failure, a shutdown, a lost connection, a lock that someone else
    /// holds; a server that is full, slow or loading.
    Transient,
    /// A person has to act: a table that does not exist, a missing permission, a wrong password, a syntax error; a
    /// server that is too old.
    Permanent,
}

/// A topology's sink, shared by all its lanes.
pub trait Sink: Send + Sync {
    /// The kind of sink in metrics and messages: `postgres`.
    fn kind(&self) -> &'static str;

    /// Whether its commits return an outcome for each record. Then redos depend on the outcomes.
    fn answers(&self) -> bool;

    /// A session of one lane. Connects when it is first used.
    fn session(&self) -> Box<dyn Session>;
}

/// One lane's access to its topology's sink.
pub trait Session: Send {
    /// Claims the row of a task: raises its epoch, so that no other owner's transaction can write it any more, and
    /// reads it. If there is no row, inserts one if `may_insert`, and returns `None` otherwise. If another open
    /// transaction locks the row, fails with [`ErrorKind::Transient`] within half a second; connecting may take a few
    /// seconds.
    fn claim(&mut self, key: &RowKey, may_insert: bool) -> Result<Option<ClaimedRow>, Error>;

    /// Reads the marks in the rows of these tasks, in order, without changing the rows.
    fn look(&mut self, keys: &[RowKey]) -> Result<Vec<Option<RowMark>>, Error>;

    /// Commits one transaction: its effects, and for each step the row with its token, next offset and redo, provided
    /// that the row has the step's mark. Takes as long as needed while the sink responds to each request. Steps
    /// have different keys.
    fn commit(&mut self, steps: &[Step<'_>], redos: &mut dyn RedoBuilder) -> Result<(), CommitError>;

    /// Removes a bounded number of entries that the driver keeps in the sink and no longer needs. Returns whether more
    /// may be left.
    fn tidy(&mut self) -> Result<bool, Error>;
}
