//! The database of the embedded store: its keys, and what is read and written.
//!
//! An entry and the time at which it is to be forgotten are written together, so one is there if the other is.

use std::path::Path;

use bytes::Bytes;
use rocksdb::{DB, IteratorMode, WriteBatch, WriteOptions};

use super::options;
use crate::format::request::{REQUEST_FORMAT, RequestEntry};
use crate::request::{Error, Id};

/// How many entries are removed at once.
const TIDY_MAX: usize = 1_000;

/// The database's folder within the store's.
pub(super) const DATABASE: &str = "requests";

pub(super) const FORMAT_KEY: &[u8] = &[0x00];
pub(super) const ENTRY: u8 = 0x10;
pub(super) const UNTIL: u8 = 0x20;

/// The open database.
pub(super) struct Database {
    db: DB,
    synced: WriteOptions,
    unsynced: WriteOptions,
}

impl Database {
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(DATABASE);
        let db = DB::open(&options::of_requests(), &path).map_err(|error| from_rocksdb(&path, &error))?;
        let (mut synced, unsynced) = (WriteOptions::default(), WriteOptions::default());
        synced.set_sync(true);
        let database = Self { db, synced, unsynced };
        match database.get(FORMAT_KEY)?.as_deref() {
            Some([REQUEST_FORMAT]) => {}
            Some(_) => {
                return Err(Error::Refused(format!(
                    "{} was written by a later release; run that one, or name another folder",
                    dir.display()
                )));
            }
            None => {
                let mut batch = WriteBatch::default();
                batch.put(FORMAT_KEY, [REQUEST_FORMAT]);
                database.write(batch, true)?;
            }
        }
        Ok(database)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let found = self.db.get(key).map_err(|error| from_rocksdb(self.db.path(), &error))?;
        Ok(found.map(Bytes::from))
    }

    pub fn entry(&self, id: Id) -> Result<Option<RequestEntry>, Error> {
        let Some(bytes) = self.get(&entry_key(id))? else { return Ok(None) };
        let decoded = RequestEntry::decode(&bytes);
        decoded.map(Some).map_err(|error| Error::Refused(format!("{}: {error}", self.db.path().display())))
    }

    pub fn write(&self, batch: WriteBatch, sync: bool) -> Result<(), Error> {
        let options = if sync { &self.synced } else { &self.unsynced };
        self.db.write_opt(batch, options).map_err(|error| from_rocksdb(self.db.path(), &error))
    }

    /// Times at which entries were to be forgotten, and which have come; the oldest first.
    pub fn due(&self, now_ms: i64) -> Result<Vec<(i64, Id)>, Error> {
        let from = [UNTIL];
        let mut due = Vec::new();
        for item in self.db.iterator(IteratorMode::From(&from, rocksdb::Direction::Forward)).take(TIDY_MAX) {
            let (key, _) = item.map_err(|error| from_rocksdb(self.db.path(), &error))?;
            let Some((until_ms, id)) = read_until(&key) else { break };
            if until_ms > now_ms {
                break;
            }
            due.push((until_ms, id));
        }
        Ok(due)
    }
}

fn from_rocksdb(path: &Path, error: &rocksdb::Error) -> Error {
    let text = format!("{}: {}", path.display(), error.as_ref());
    match error.kind() {
        rocksdb::ErrorKind::Corruption | rocksdb::ErrorKind::NotSupported | rocksdb::ErrorKind::InvalidArgument => {
            Error::Refused(text)
        }
        _ => Error::Unavailable(text),
    }
}

pub(super) fn entry_key(id: Id) -> [u8; 33] {
    let mut key = [ENTRY; 33];
    key[1..].copy_from_slice(&id.0);
    key
}

/// Times sort as their bytes do, because none is before the epoch.
pub(super) fn until_key(until_ms: i64, id: Id) -> [u8; 41] {
    let mut key = [UNTIL; 41];
    key[1..9].copy_from_slice(&until_ms.max(0).to_be_bytes());
    key[9..].copy_from_slice(&id.0);
    key
}

fn read_until(key: &[u8]) -> Option<(i64, Id)> {
    let (&UNTIL, rest) = key.split_first()? else { return None };
    let (until, id) = rest.split_first_chunk::<8>()?;
    Some((i64::from_be_bytes(*until), Id(id.try_into().ok()?)))
}
