//! The database of steps' transactions: the table `step`, and what leaves a row there.
//!
//! A transaction inserts its row first, and one that finds the row of another that is open waits for its end. A COMMIT
//! that is under way arrives whatever has become of its client; the server learns late that a client is gone, or never,
//! and then gives the transaction up once it has been silent for too long.

use std::collections::{BTreeMap, BTreeSet};

use crate::kafka::{MS, SECOND, Time};
use crate::lies::{self, Lie};

use super::{Act, Event, Mail, Server};

/// How long a transaction may be silent.
const SILENCE: Time = 5 * SECOND;
/// How long a statement waits for another transaction.
pub const LOCK_WAIT: Time = SECOND / 2;
/// How often it looks again.
const LOOK: Time = 10 * MS;
/// Where the numbers of what transactions do begin: those of calls are below.
const SERIALS: u64 = 1 << 32;

/// A session: its client, and the number that it has there.
pub type Session = (u64, u64);

/// What a step's row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// It is done: its number.
    Done(u64),
    /// It was refused: why.
    Refused(String),
}

/// What the database answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The transaction is open, and the step's row is its own: what it does has this number.
    Began(u64),
    /// The row is there already.
    Found(Row),
    /// It is committed.
    Committed,
    /// It is not, or nobody knows.
    Failed,
}

/// A statement on its way.
#[derive(Clone, Debug)]
pub struct Statement {
    pub client: u64,
    pub number: u64,
    /// How long the answer takes; `None` if it is lost.
    pub back: Option<Time>,
    pub what: What,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum What {
    /// Opens a transaction of this session with this step's row; waits for another one until then.
    Begin { session: Session, key: String, asked: Vec<u8>, until: Time },
    /// Commits the transaction that does what has this number, with this row.
    Commit(u64, Row),
}

/// An open transaction.
struct Open {
    session: Session,
    key: String,
    asked: Vec<u8>,
}

/// The table, and what is open.
#[derive(Default)]
pub struct Table {
    rows: BTreeMap<String, Row>,
    open: BTreeMap<u64, Open>,
    /// The sessions whose clients are known to be gone.
    gone: BTreeSet<Session>,
    begun: u64,
}

impl Server {
    /// A statement arrives.
    pub(super) fn execute(&mut self, statement: Statement) {
        let Statement { client, number, back, what } = statement;
        let said = match what {
            _ if self.is_down() => Said::Failed,
            What::Begin { session, .. } if self.table.gone.contains(&session) => return,
            What::Begin { session, key, asked, until } => match self.table.rows.get(&key) {
                Some(row) => Said::Found(row.clone()),
                None if self.table.open.values().any(|open| open.key == key) => {
                    if self.now < until {
                        let what = What::Begin { session, key, asked, until };
                        let again = Statement { client, number, back, what };
                        return self.at(self.now + LOOK, Event::Executes(again));
                    }
                    Said::Failed
                }
                None => self.begin_transaction(Open { session, key, asked }, back.is_some()),
            },
            What::Commit(serial, row) => self.commit(serial, row),
        };
        if let Some(back) = back {
            self.at(self.now + back, Event::Mail(client, number, Mail::Said(said)));
        }
    }

    fn begin_transaction(&mut self, open: Open, has_client: bool) -> Said {
        self.table.begun += 1;
        let serial = SERIALS + self.table.begun;
        let gone = if has_client { SILENCE } else { self.random.below(2 * SECOND) };
        self.at(self.now + gone, Event::Gone(open.session));
        self.table.open.insert(serial, open);
        Said::Began(serial)
    }

    fn commit(&mut self, serial: u64, row: Row) -> Said {
        let Some(Open { key, asked, .. }) = self.table.open.remove(&serial) else { return Said::Failed };
        if matches!(row, Row::Done(_)) {
            self.acts.push(Act { key: Some(key.clone()), asked, serial, at: self.now });
        }
        if !lies::is_told(Lie::StepRowNotKept) {
            self.table.rows.insert(key, row);
        }
        Said::Committed
    }

    /// The server gives a session up.
    pub(super) fn end_session(&mut self, session: Session) {
        self.table.gone.insert(session);
        self.table.open.retain(|_, open| open.session != session);
    }
}
