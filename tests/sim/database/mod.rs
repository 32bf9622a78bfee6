//! A relational database as a state machine with time: rows of tasks, two tables that effects write, an inbox, and
//! transactions at READ COMMITTED with row locks. It knows nothing of Kafka, nor what a task is.
//!
//! - A transaction's changes are its own until it commits; a row that it has written is locked until it ends.
//! - Everything committed is kept in order, so that the database can go back in time: by a failover that loses its last
//!   commits, or by a backup that is restored.
//! - A connection whose client is gone ends with its transaction, at once or, if nobody tells the server, once it has
//!   been idle in a transaction for too long. A COMMIT that is under way by then still arrives.
//!
//! - `transactions`: statements; `session`: the driver's part, behind the engine's traits; `trouble`: what goes wrong

use std::collections::BTreeMap;

use ratchet::effect::{Row, RowKey};
use ratchet::format::Token;

use crate::kafka::{SECOND, Time};

mod session;
#[cfg(test)]
mod tests;
mod transactions;
mod trouble;

pub use session::{Database, Kind};
pub use trouble::{Blow, Troubles};

/// What a statement of the topology has inserted into its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The transaction that has inserted it, and the source offset of its record: no database knows them, the judge does.
    pub token: Token,
    pub offset: i64,
    /// From a sequence: it rises, and is never used twice.
    pub serial: u64,
    /// The columns.
    pub columns: Vec<Option<String>>,
}

impl Entry {
    /// What a statement returns for it.
    pub fn returned(&self) -> String {
        let id = self.columns.first().cloned().flatten();
        serde_json::json!({"id": id, "serial": self.serial}).to_string()
    }
}

/// What a transaction changes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Row(RowKey, Row),
    Inserted(Entry),
    /// A bucket is counted up.
    Counted(String),
    /// The inbox knows an identity with this version.
    Known(Vec<u8>, Option<Vec<u8>>),
}

/// What was committed, and when.
#[derive(Clone, Debug)]
struct Commit {
    at: Time,
    changes: Vec<Change>,
}

/// Everything committed, folded.
#[derive(Clone, Debug, Default)]
struct Tables {
    rows: BTreeMap<RowKey, Row>,
    entries: Vec<Entry>,
    counts: BTreeMap<String, u64>,
    inbox: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Tables {
    fn take(&mut self, change: &Change) {
        match change {
            Change::Row(key, row) => drop(self.rows.insert(key.clone(), row.clone())),
            Change::Inserted(entry) => self.entries.push(entry.clone()),
            Change::Counted(bucket) => *self.counts.entry(bucket.clone()).or_default() += 1,
            Change::Known(identity, version) => drop(self.inbox.insert(identity.clone(), version.clone())),
        }
    }
}

/// What a lock is on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lock {
    Row(RowKey),
    Bucket(String),
    Identity(Vec<u8>),
}

/// Why a statement was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// The connection is gone, and its transaction with it.
    Gone,
    /// There is no connecting now.
    Down,
    /// Another transaction holds a lock that it needs.
    Locked,
    Deadlock,
    Serialization,
    UndefinedTable,
    /// A value is refused: classes 22 and 23.
    Refused(String),
}

/// An open transaction.
#[derive(Clone, Debug, Default)]
struct Transaction {
    changes: Vec<Change>,
    /// Whether a deferred constraint will refuse it.
    is_refused: bool,
}

#[derive(Clone, Debug)]
struct Connection {
    process: usize,
    transaction: Option<Transaction>,
    /// When its last statement ended.
    active_at: Time,
    /// When the server learns that the client is gone.
    closes_at: Time,
    /// The connection whose lock it waits for.
    waits_for: Option<u64>,
}

/// The server's state.
pub struct Server {
    now: Time,
    commits: Vec<Commit>,
    tables: Tables,
    connections: BTreeMap<u64, Connection>,
    locks: BTreeMap<Lock, u64>,
    numbers: u64,
    serials: u64,
    /// The commits under way, by time of arrival and number; what became of those that have arrived.
    arriving: BTreeMap<(Time, u64), u64>,
    arrived: BTreeMap<u64, Result<(), Code>>,
    pub troubles: Troubles,
    /// No connecting until then.
    down_until: Time,
    /// A table is missing until then.
    missing_until: Time,
    /// What going back in time has lost.
    lost: Vec<Commit>,
}

impl Server {
    pub fn new() -> Self {
        Self {
            now: 0,
            commits: Vec::new(),
            tables: Tables::default(),
            connections: BTreeMap::new(),
            locks: BTreeMap::new(),
            numbers: 0,
            serials: 0,
            arriving: BTreeMap::new(),
            arrived: BTreeMap::new(),
            troubles: Troubles::default(),
            down_until: 0,
            missing_until: 0,
            lost: Vec::new(),
        }
    }

    /// Whatever was to happen until `now` has happened.
    pub fn advance(&mut self, now: Time) {
        loop {
            let arrival = self.arriving.first_key_value().map(|((at, _), _)| *at);
            let idle_max = self.troubles.idle_max.unwrap_or(10 * SECOND);
            let ends = |connection: &Connection| {
                let idles = connection.transaction.as_ref().map(|_| connection.active_at + idle_max);
                idles.into_iter().chain([connection.closes_at]).min().unwrap_or(Time::MAX)
            };
            let ending = self.connections.iter().map(|(number, of)| (ends(of), *number)).min();
            let (next_arrival, next_end) = (arrival.unwrap_or(Time::MAX), ending.map_or(Time::MAX, |(at, _)| at));
            let at = next_arrival.min(next_end);
            if at > now {
                self.now = now;
                return;
            }
            self.now = at;
            if next_arrival <= next_end {
                let Some(((_, number), connection)) = self.arriving.pop_first() else { continue };
                let outcome = self.commit(connection);
                self.arrived.insert(number, outcome);
            } else if let Some((_, number)) = ending {
                self.end(number);
            }
        }
    }

    /// Ends a connection; its transaction is rolled back.
    fn end(&mut self, number: u64) {
        self.release(number);
        self.connections.remove(&number);
    }

    fn release(&mut self, number: u64) {
        self.locks.retain(|_, holder| *holder != number);
    }

    /// Everything committed since `since` is lost, and every connection.
    pub fn go_back(&mut self, since: Time) {
        let kept = self.commits.partition_point(|commit| commit.at < since);
        self.lost.extend(self.commits.drain(kept..));
        self.tables = Tables::default();
        for change in self.commits.iter().flat_map(|commit| &commit.changes) {
            self.tables.take(change);
        }
    }

    /// The server stops, and is there again at `until`.
    pub fn stop(&mut self, until: Time) {
        let all: Vec<u64> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|number| self.end(number));
        self.down_until = self.down_until.max(until);
    }

    /// A table is missing until then.
    pub fn lose_table(&mut self, until: Time) {
        self.missing_until = until;
    }

    /// A process is dead: the server learns of it at `at`.
    pub fn hang_up(&mut self, process: usize, at: Time) {
        for connection in self.connections.values_mut().filter(|connection| connection.process == process) {
            connection.closes_at = connection.closes_at.min(at);
        }
    }

    /// A client has given a connection up: the server learns of it at `at`.
    pub fn close(&mut self, number: u64, at: Time) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.closes_at = connection.closes_at.min(at);
        }
    }

    /// Whether a process has a connection.
    pub fn knows(&self, process: usize) -> bool {
        self.connections.values().any(|connection| connection.process == process)
    }

    /// Whether a process has an open transaction.
    pub fn has_open(&self, process: usize) -> bool {
        self.connections.values().any(|connection| connection.process == process && connection.transaction.is_some())
    }

    /// Whether commits of this partition's row were lost.
    pub fn has_lost(&self, partition: i32) -> bool {
        let is_its = |change: &Change| matches!(change, Change::Row(key, row) if key.partition == partition && row.mark.token.is_some());
        self.lost.iter().flat_map(|commit| &commit.changes).any(is_its)
    }

    /// Whether it has ever gone back in time.
    pub fn went_back(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The transactions of a partition's rows, in order: of each the topic's id, its token, and the one before.
    pub fn chain(&self, partition: i32) -> Vec<(Token, Option<Token>)> {
        let mut chain: Vec<(Token, Option<Token>)> = Vec::new();
        for change in self.commits.iter().flat_map(|commit| &commit.changes) {
            let Change::Row(key, row) = change else { continue };
            let Some(token) = row.mark.token.filter(|_| key.partition == partition) else { continue };
            // A claim changes the epoch alone.
            if chain.last().is_none_or(|(last, _)| *last != token) {
                chain.push((token, row.former));
            }
        }
        chain
    }

    /// All entries in the order of their insertion.
    pub fn entries(&self) -> &[Entry] {
        &self.tables.entries
    }

    /// The buckets and their counts.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.tables.counts
    }
}
