//! Statements, as the server carries them out. A statement that needs a row which another transaction has locked says
//! so, and is tried again: the client waits in its place.

use ratchet::effect::{Call, ClaimedRow, Effect, Row, RowKey, RowMark};
use ratchet::format::Token;

use crate::kafka::Time;

use super::{Change, Code, Commit, Connection, Entry, Lock, Server, Transaction};

/// Statements of the topology, by number: the first inserts, the second counts.
const INSERT: u32 = 0;
/// The column of the inserted row that a constraint is on, and values that it refuses: at once, and at the commit.
const AMOUNT: usize = 3;
pub const REFUSED: &str = "-1";
pub const REFUSED_AT_COMMIT: &str = "-2";

/// What a statement counts.
fn bucket(call: Call<'_>) -> String {
    call.parameters().next().flatten().unwrap_or_default().to_owned()
}

impl Server {
    pub fn connect(&mut self, process: usize) -> Result<u64, Code> {
        if self.now < self.down_until {
            return Err(Code::Down);
        }
        self.numbers += 1;
        let active_at = self.now;
        let connection = Connection { process, transaction: None, active_at, closes_at: Time::MAX, waits_for: None };
        self.connections.insert(self.numbers, connection);
        Ok(self.numbers)
    }

    pub fn begin(&mut self, number: u64) -> Result<(), Code> {
        let now = self.now;
        let connection = self.connections.get_mut(&number).ok_or(Code::Gone)?;
        connection.transaction = Some(Transaction::default());
        connection.active_at = now;
        Ok(())
    }

    pub fn roll_back(&mut self, number: u64) {
        self.release(number);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.transaction = None;
        }
    }

    /// Changes a task's row if it is as `mark` says; whether it was. The redo follows.
    pub fn update(
        &mut self,
        number: u64,
        (key, mark): (&RowKey, &RowMark),
        (token, next): (Token, i64),
        compares: bool,
    ) -> Result<bool, Code> {
        self.lock(number, Lock::Row(key.clone()))?;
        let Some(row) = self.tables.rows.get(key) else { return Ok(false) };
        if compares && row.mark != *mark {
            return Ok(false);
        }
        let (former, epoch) = (row.mark.token, row.mark.epoch);
        let row = Row { mark: RowMark { epoch, token: Some(token) }, former, redo: None, next };
        self.change(number, Change::Row(key.clone(), row))?;
        Ok(true)
    }

    /// Adds the redo to the row changed before.
    pub fn complete(&mut self, number: u64, of: &RowKey, bytes: Vec<u8>) -> Result<(), Code> {
        let transaction = self.transaction(number)?;
        for change in &mut transaction.changes {
            if let Change::Row(key, row) = change
                && key == of
            {
                row.redo = Some(bytes.clone());
            }
        }
        Ok(())
    }

    /// Puts an identity into the inbox, unless it is there with this version or a later one; whether it was put.
    pub fn know(&mut self, number: u64, effect: Effect<'_>) -> Result<bool, Code> {
        let identity = effect.identity().to_vec();
        self.lock(number, Lock::Identity(identity.clone()))?;
        let version = effect.version().map(<[u8]>::to_vec);
        let own = self.transaction(number)?.changes.iter().rev().find_map(|change| match change {
            Change::Known(known, version) if *known == identity => Some(version.clone()),
            _ => None,
        });
        let known = own.or_else(|| self.tables.inbox.get(&identity).cloned());
        if known.is_some_and(|known| known >= version) {
            return Ok(false);
        }
        self.change(number, Change::Known(identity, version))?;
        Ok(true)
    }

    /// Carries out what a record causes; returns what its statements return.
    pub fn affect(&mut self, number: u64, token: Token, effect: Effect<'_>) -> Result<Vec<String>, Code> {
        if self.now < self.missing_until {
            return Err(Code::UndefinedTable);
        }
        // First, since a record that has to wait is tried again as a whole.
        for call in effect.calls().filter(|call| call.statement() != INSERT) {
            self.lock(number, Lock::Bucket(bucket(call)))?;
        }
        let mut returned = Vec::new();
        for call in effect.calls() {
            let columns: Vec<Option<String>> = call.parameters().map(|text| text.map(str::to_owned)).collect();
            if call.statement() != INSERT {
                self.change(number, Change::Counted(bucket(call)))?;
                continue;
            }
            match columns.get(AMOUNT).and_then(Option::as_deref) {
                Some(REFUSED) => return Err(Code::Refused("the amount is below zero".to_owned())),
                Some(REFUSED_AT_COMMIT) => self.transaction(number)?.is_refused = true,
                _ => {}
            }
            self.serials += 1;
            let entry = Entry { token, offset: effect.offset(), serial: self.serials, columns };
            returned.push(entry.returned());
            self.change(number, Change::Inserted(entry))?;
        }
        Ok(returned)
    }

    /// Claims a row: raises its epoch and reads it. `None` if there is none, and may be none.
    pub fn claim(&mut self, number: u64, key: &RowKey, may_insert: bool) -> Result<Option<ClaimedRow>, Code> {
        if !self.connections.contains_key(&number) {
            return Err(Code::Gone);
        }
        if self.locks.get(&Lock::Row(key.clone())).is_some_and(|holder| *holder != number) {
            return Err(Code::Locked);
        }
        let found = self.tables.rows.get(key).cloned();
        if found.is_none() && !may_insert {
            return Ok(None);
        }
        let former_epoch = found.as_ref().map_or(0, |row| row.mark.epoch);
        let none = Row { mark: RowMark { epoch: 0, token: None }, former: None, redo: None, next: 0 };
        let mut row = found.unwrap_or(none);
        row.mark.epoch = former_epoch + 1;
        self.keep(vec![Change::Row(key.clone(), row.clone())]);
        Ok(Some(ClaimedRow { former_epoch, row }))
    }

    pub fn look(&mut self, number: u64, keys: &[RowKey]) -> Result<Vec<Option<RowMark>>, Code> {
        if !self.connections.contains_key(&number) {
            return Err(Code::Gone);
        }
        Ok(keys.iter().map(|key| self.tables.rows.get(key).map(|row| row.mark.clone())).collect())
    }

    /// A COMMIT is sent, and arrives at `at`; returns its number.
    pub fn send_commit(&mut self, number: u64, at: Time) -> u64 {
        self.numbers += 1;
        self.arriving.insert((at, self.numbers), number);
        self.numbers
    }

    /// What became of a COMMIT, if it has arrived.
    pub fn outcome(&mut self, sent: u64) -> Option<Result<(), Code>> {
        self.arrived.remove(&sent)
    }

    pub(super) fn commit(&mut self, number: u64) -> Result<(), Code> {
        let now = self.now;
        let connection = self.connections.get_mut(&number).ok_or(Code::Gone)?;
        connection.active_at = now;
        let transaction = connection.transaction.take().ok_or(Code::Gone)?;
        self.release(number);
        if transaction.is_refused {
            return Err(Code::Refused("the amount is below zero, says a deferred constraint".to_owned()));
        }
        self.keep(transaction.changes);
        Ok(())
    }

    fn keep(&mut self, changes: Vec<Change>) {
        changes.iter().for_each(|change| self.tables.take(change));
        self.commits.push(Commit { at: self.now, changes });
    }

    fn transaction(&mut self, number: u64) -> Result<&mut Transaction, Code> {
        let connection = self.connections.get_mut(&number).ok_or(Code::Gone)?;
        connection.transaction.as_mut().ok_or(Code::Gone)
    }

    fn change(&mut self, number: u64, change: Change) -> Result<(), Code> {
        self.transaction(number)?.changes.push(change);
        Ok(())
    }

    /// Takes a lock, for the transaction of a connection.
    fn lock(&mut self, number: u64, lock: Lock) -> Result<(), Code> {
        let now = self.now;
        self.transaction(number)?;
        let holder = self.locks.get(&lock).copied().filter(|holder| *holder != number);
        let connection = self.connections.get_mut(&number).ok_or(Code::Gone)?;
        connection.active_at = now;
        connection.waits_for = holder;
        let Some(holder) = holder else {
            self.locks.insert(lock, number);
            return Ok(());
        };
        let mut next = Some(holder);
        while let Some(at) = next {
            if at == number {
                return Err(Code::Deadlock);
            }
            next = self.connections.get(&at).and_then(|connection| connection.waits_for);
        }
        Err(Code::Locked)
    }

    /// A client that has waited for a lock gives up.
    pub fn stop_waiting(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.waits_for = None;
        }
    }
}
