//! Effects outside Kafka: what a topology with a `sink` causes, and how it is committed.
//!
//! A committing sink keeps one **row** for each task, its own word on how far the task has come. A transaction's
//! effects, the rows of the tasks it touches and their redos are committed together by the sink; only then does Kafka
//! follow. The next owner of a task claims its row, compares its token with the changelog's position record, and plays
//! the redo where the row is one ahead. docs/guarantees.md says why that is exactly once.
//!
//! - [`Sink`] is what all lanes of a topology share; [`Session`] is one lane's way in.
//! - [`Effects`] are what the records of one task cause in one transaction, as text parameters of numbered statements.
//! - `postgres` is the driver for PostgreSQL, the only one that knows its crate.
//! - `http` is the driver for providers that speak HTTP, the only one that knows its crates.
//! - [`call`] is what becomes of a call to a provider, which no transaction can hold: pure.
//! - [`provider`] is what a sink that calls is: [`provider::Provider`] for all lanes, [`provider::Calls`] for one.
//! - [`gate`] is what a gate is, which is asked before a record is passed on; the room `redis` has the driver.
//! - [`handler`] runs functions of the user's, step by step, as if they were a provider.
//! - `lane` is a lane's way to the thread that makes its calls, `job` what that has of one, and the lock that makes taking
//!   back certain. `thread` lets them go: in order, at most so many, at most at a rate (`rate`).
//!
//! Calls wait for the sink, and give it up when it has not answered a request for half a minute. A session connects when
//! it is first used, and again after its connection was lost.
//!
//! **Failure**: every call says whether anything can have happened. A [`Failed`] commit has had no effect, unless it is
//! [`Failed::Unknown`].

use std::fmt;
use std::sync::Arc;

use crate::format::Token;

pub mod call;
mod effects;
pub mod gate;
pub mod handler;
pub mod http;
mod job;
mod lane;
pub mod lazy;
pub mod postgres;
pub mod provider;
mod rate;
mod thread;

pub use effects::{Call, Effect, Effects};

/// The key of a task's row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// The topology's name.
    pub topology: Arc<str>,
    /// The input topic.
    pub topic: Arc<str>,
    /// The input topic's id: a topic that is recreated has rows of its own.
    pub topic_id: [u8; 16],
    /// The input partition.
    pub partition: i32,
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} of {}", self.topic, self.partition, self.topology)
    }
}

/// A task's row, as its transactions compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// How often the row was claimed; the task that raised it last is its owner.
    pub epoch: i64,
    /// The last transaction's token; `None` before the first one.
    pub token: Option<Token>,
}

/// A task's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its epoch and token.
    pub mark: Mark,
    /// The token of the transaction before; `None` before the second one.
    pub former: Option<Token>,
    /// The Kafka half of the last transaction: the bytes of a [`crate::format::Redo`].
    pub redo: Option<Vec<u8>>,
    /// The next source offset after the last transaction: for people, and to tell ahead from behind.
    pub next: i64,
}

/// What a claim has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The epoch before; 0 where the claim has inserted the row.
    pub former_epoch: i64,
    /// The row, with the epoch that it has now.
    pub row: Row,
}

/// What a transaction does for one task.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The task's row.
    pub key: &'a RowKey,
    /// The epoch of the task's claim, and the token that its row must have before.
    pub mark: &'a Mark,
    /// The transaction's token, which the row has afterwards.
    pub token: Token,
    /// The next source offset after the transaction.
    pub next: i64,
    /// What the task's records cause, in their order.
    pub effects: &'a Effects,
}

/// What became of one record's effects within the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// They were carried out, and the statements that return rows have returned these, as JSON objects.
    Done(Vec<String>),
    /// The inbox has the record already, or one that is newer: nothing was carried out.
    InInbox,
}

/// Completes a transaction's redos once the sink has carried out its effects.
pub trait Complete {
    /// The redo of step number `step`. `answers` has one answer for each of its effects, if the sink gives any
    /// ([`Sink::answers`]), and is empty otherwise.
    fn redo(&mut self, step: usize, answers: &[Answer]) -> Vec<u8>;
}

/// A record whose effects the sink refuses, whatever else is in the transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The step, by its number in the transaction.
    pub step: usize,
    /// The record, by its number in the step's effects.
    pub effect: usize,
    /// What the sink says. May quote the record, never a secret.
    pub message: String,
}

/// Why a transaction was not committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The rows of these steps are no longer as their claims have left them: another has claimed them, or has written
    /// them. Nothing was committed.
    #[error("another has claimed the row of a task")]
    Fenced(Vec<usize>),
    /// The sink refuses these records; it was asked for each one of the transaction. Nothing was committed.
    #[error("the sink refuses {} of its records", .0.len())]
    Rejected(Vec<Rejected>),
    /// The sink refuses something in the transaction and cannot say which record: a smaller one may tell. Nothing was
    /// committed.
    #[error("the sink refuses something in it: {0}")]
    Refused(String),
    /// The sink cannot carry it out now. Nothing was committed.
    #[error("the sink cannot carry it out now: {0}")]
    Held(Error),
    /// The answer to the commit was lost: it may have happened.
    #[error("the sink's answer to the commit was lost: {0}")]
    Unknown(Error),
}

/// What a sink, or a gate, could not do. With a sink, nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What to do about it.
    pub kind: ErrorKind,
    /// What happened, in lower case and without a full stop; never holds a secret.
    pub message: String,
}

/// What to do about an [`Error`]. Whatever it is, the call is made again later: nobody's records are set aside because
/// a database is down or a right is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// It passes: a deadlock, a serialization failure, a shutdown, a lost connection, a lock that another holds; a server
    /// that is full, slow or loading.
    Passing,
    /// A person has to act: a table that does not exist, a missing right, a wrong password, a syntax error; a server that
    /// is too old.
    Lasting,
}

/// What all lanes of a topology share of its sink.
pub trait Sink: Send + Sync {
    /// The kind of sink in metrics and messages: `postgres`.
    fn kind(&self) -> &'static str;

    /// Whether its commits answer for each record, so that redos depend on them.
    fn answers(&self) -> bool;

    /// A lane's own way in. Connects when it is first used.
    fn session(&self) -> Box<dyn Session>;
}

/// One lane's way into its topology's sink.
pub trait Session: Send {
    /// Claims the row of a task: raises its epoch, so that nobody else's transactions can write it any more, and reads
    /// it. `may_insert` inserts it where there is none; otherwise `None` then. Where another's open transaction holds
    /// the row, that is [`ErrorKind::Passing`] within half a second; connecting may take some seconds.
    fn claim(&mut self, key: &RowKey, may_insert: bool) -> Result<Option<Claimed>, Error>;

    /// Reads the rows of these tasks, in order, and changes nothing.
    fn look(&mut self, keys: &[RowKey]) -> Result<Vec<Option<Mark>>, Error>;

    /// Commits one transaction, for as long as the sink answers what it is asked: its effects, and for each step the row
    /// with its token, next offset and redo, provided that the row has the step's mark. Steps have different keys.
    fn commit(&mut self, steps: &[Step<'_>], redos: &mut dyn Complete) -> Result<(), Failed>;

    /// Removes what the sink keeps of its own and no longer needs, a bounded slice at a time. Says whether more may be
    /// left.
    fn tidy(&mut self) -> Result<bool, Error>;
}
