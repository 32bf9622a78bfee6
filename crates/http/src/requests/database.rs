//! The database of the embedded store: its keys, reads and writes.
//!
//! An **entry** is what is remembered of a request: its reservation or its response. An entry and the time of its
//! removal are written together, so the database has either both or neither.
//!
//! **Damage of a log.** Each batch in RocksDB's write-ahead log carries a mark: the sequence number up to which the
//! batches before it were synced. A batch that cannot be read is damage if a later mark says that it was synced
//! ([`crate::logs`]); otherwise a crash may have cut it off. When nothing is left to sync, [`Database::mark_synced`]
//! writes a batch for the sake of its mark.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rocksdb::properties::PropName;
use rocksdb::{DB, IteratorMode, ReadOptions, ReadTier, WriteBatch, WriteOptions};

use super::options;
use crate::format::request::{REQUEST_FORMAT, RequestEntry, UNMASKED_FORMAT};
use crate::logs;
use crate::request::{Error, Id};

/// The most entries that one batch removes.
const TIDY_MAX: usize = 1_000;

/// Properties of RocksDB: whether it has stopped accepting writes, and how often it could not write its files.
const WRITE_STOPPED: &PropName = rocksdb::properties::IS_WRITE_STOPPED;
const BACKGROUND_ERRORS: &PropName = rocksdb::properties::BACKGROUND_ERRORS;
/// The pause before a write is retried while the database accepts no writes.
const WRITE_STOPPED_PAUSE: Duration = Duration::from_millis(2);

/// The database's folder within the store's.
pub(super) const DATABASE_DIR: &str = "requests";

/// The key of the format's number.
pub(super) const FORMAT_KEY: &[u8] = &[0x00];
/// Begins the key of an entry; the request's id follows.
pub(super) const ENTRY_PREFIX: u8 = 0x10;
/// Begins the key of an entry's removal time; the time and the request's id follow.
pub(super) const EXPIRY_PREFIX: u8 = 0x20;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// The read waits for as long as it takes.
    MayWait,
    /// It reads only what is in memory; anything else is an error.
    Cached,
}

/// Whether a write, which is not synced, may wait for the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    /// The write waits for as long as it takes.
    MayWait,
    /// Nothing is written if the write would have to wait.
    AtOnce,
}

/// The number of background errors before the last successful write. RocksDB's count never falls: errors before that
/// write are past, and only later errors explain why RocksDB accepts no writes.
#[derive(Debug, Default)]
struct PastErrors(AtomicU64);

impl PastErrors {
    /// Records a successful write, before which there were this many errors.
    fn note_success(&self, errors: u64) {
        self.0.store(errors, Ordering::Relaxed);
    }

    /// Whether this number includes errors after the last successful write.
    fn has_new(&self, errors: u64) -> bool {
        errors > self.0.load(Ordering::Relaxed)
    }
}

/// The open database.
pub(super) struct Database {
    db: DB,
    past_errors: PastErrors,
    /// Everything up to this sequence number is synced.
    synced: AtomicU64,
    cached_reads: ReadOptions,
    immediate_writes: WriteOptions,
}

impl Database {
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(DATABASE_DIR);
        check_logs(&path)?;
        let db = DB::open(&options::request_options(), &path).map_err(|error| from_rocksdb(&path, &error))?;
        let (mut cached_reads, mut immediate_writes) = (ReadOptions::default(), WriteOptions::default());
        cached_reads.set_read_tier(ReadTier::BlockCache);
        immediate_writes.set_no_slowdown(true);
        // Opening has written the logs' contents to another file, and synced that file.
        let synced = AtomicU64::new(db.latest_sequence_number());
        let database = Self { db, past_errors: PastErrors::default(), synced, cached_reads, immediate_writes };
        match database.get(FORMAT_KEY)?.as_deref() {
            Some([REQUEST_FORMAT]) => {}
            // Entries of the old format stay readable. An earlier version of ratchet could not read the entries that
            // are written from now on, so the folder gets the new format's number.
            None | Some([UNMASKED_FORMAT]) => {
                let mut batch = WriteBatch::default();
                batch.put(FORMAT_KEY, [REQUEST_FORMAT]);
                database.write(batch, Writing::MayWait)?;
                database.sync()?;
            }
            Some(_) => {
                return Err(Error::Refused(format!(
                    "{} was written by a later release; run that release, or name another folder",
                    dir.display()
                )));
            }
        }
        Ok(database)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let found = self.db.get(key).map_err(|error| from_rocksdb(self.db.path(), &error))?;
        Ok(found.map(Bytes::from))
    }

    pub fn entry(&self, id: Id, reading: Reading) -> Result<Option<RequestEntry>, Error> {
        let bytes = match reading {
            Reading::MayWait => self.get(&entry_key(id))?,
            Reading::Cached => {
                let found = self.db.get_opt(entry_key(id), &self.cached_reads);
                found.map_err(|error| from_rocksdb(self.db.path(), &error))?.map(Bytes::from)
            }
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let decoded = RequestEntry::decode(&bytes);
        decoded.map(Some).map_err(|error| Error::Refused(format!("{}: {error}", self.db.path().display())))
    }

    /// Calls `visit` with each entry, in the order of their ids.
    pub fn each_entry(&self, mut visit: impl FnMut(Id, Result<RequestEntry, Error>)) -> Result<(), Error> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        for item in self.db.iterator_opt(IteratorMode::From(&[ENTRY_PREFIX], rocksdb::Direction::Forward), options) {
            let (key, value) = item.map_err(|error| from_rocksdb(self.db.path(), &error))?;
            let Some(id) = key.strip_prefix(&[ENTRY_PREFIX]).and_then(|id| Some(Id(id.try_into().ok()?))) else {
                break;
            };
            let decoded = RequestEntry::decode(&Bytes::from(value));
            visit(id, decoded.map_err(|error| Error::Refused(format!("{}: {error}", self.db.path().display()))));
        }
        Ok(())
    }

    /// Writes a batch. Returns `false` if the write would have to wait, and `mode` does not allow that.
    ///
    /// # Errors
    /// The write failed: parts of it may be on the disk. Or RocksDB cannot write its files: then nothing was written.
    pub fn write(&self, mut batch: WriteBatch, mode: Writing) -> Result<bool, Error> {
        batch.put_log_data(logs::mark(self.synced.load(Ordering::Acquire)));
        loop {
            if mode == Writing::MayWait {
                self.wait_for_files()?;
            }
            let errors = self.property(BACKGROUND_ERRORS);
            // RocksDB itself would wait as long as the disk is full, so the waiting is done here: with these options,
            // RocksDB returns the error `Incomplete` instead of waiting.
            match self.db.write_opt(WriteBatch::from_data(batch.data()), &self.immediate_writes) {
                Ok(()) => {
                    self.past_errors.note_success(errors);
                    return Ok(true);
                }
                Err(error) if error.kind() != rocksdb::ErrorKind::Incomplete => {
                    return Err(from_rocksdb(self.db.path(), &error));
                }
                Err(_) if mode == Writing::AtOnce => return Ok(false),
                Err(_) => pause(),
            }
        }
    }

    /// Waits while RocksDB accepts no writes because it is writing its files. Fails if it cannot write its files:
    /// otherwise a write would wait until the disk has room.
    fn wait_for_files(&self) -> Result<(), Error> {
        while self.property(WRITE_STOPPED) > 0 {
            if self.past_errors.has_new(self.property(BACKGROUND_ERRORS)) {
                return Err(Error::Full(format!(
                    "{}: the database could not write its files",
                    self.db.path().display()
                )));
            }
            pause();
        }
        Ok(())
    }

    /// The value of one of the database's properties.
    fn property(&self, name: &PropName) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }

    /// Syncs all writes before the call; other threads may write meanwhile.
    ///
    /// # Errors
    /// The sync failed: any part of the unsynced writes may be on the disk.
    pub fn sync(&self) -> Result<(), Error> {
        let written = self.db.latest_sequence_number();
        self.db.flush_wal(true).map_err(|error| from_rocksdb(self.db.path(), &error))?;
        self.synced.fetch_max(written, Ordering::Release);
        Ok(())
    }

    /// Marks in the log the point up to which it is synced, with a batch that changes nothing.
    ///
    /// # Errors
    /// The write failed: parts of it may be on the disk.
    pub fn mark_synced(&self) -> Result<(), Error> {
        let mut batch = WriteBatch::default();
        batch.put(FORMAT_KEY, [REQUEST_FORMAT]);
        self.write(batch, Writing::AtOnce).map(drop)
    }

    /// Frees the disk space of removed entries; other threads may write meanwhile.
    pub fn compact(&self) {
        self.db.compact_range::<&[u8], &[u8]>(None, None);
    }

    /// Stops all background work, for good.
    pub fn stop_background_work(&self) {
        self.db.cancel_all_background_work(true);
    }

    /// The removal times that have passed, with the ids of their entries: the oldest first, at most [`TIDY_MAX`].
    pub fn expired_entries(&self, now_ms: i64) -> Result<Vec<(i64, Id)>, Error> {
        let from = [EXPIRY_PREFIX];
        let mut expired = Vec::new();
        for item in self.db.iterator(IteratorMode::From(&from, rocksdb::Direction::Forward)).take(TIDY_MAX) {
            let (key, _) = item.map_err(|error| from_rocksdb(self.db.path(), &error))?;
            let Some((removal_ms, id)) = parse_expiry_key(&key) else { break };
            if removal_ms > now_ms {
                break;
            }
            expired.push((removal_ms, id));
        }
        Ok(expired)
    }
}

#[expect(clippy::disallowed_methods, reason = "RocksDB does not notify when it accepts writes again")]
fn pause() {
    thread::sleep(WRITE_STOPPED_PAUSE);
}

/// Parts of the operating system's messages about a lack of disk space.
const NO_ROOM_MESSAGES: [&str; 3] = ["No space left", "Disk quota exceeded", "File too large"];

/// RocksDB takes damage of a log for the log's end, so logs are checked before it opens them.
fn check_logs(path: &Path) -> Result<(), Error> {
    match logs::check(path).map_err(|error| Error::Unavailable(format!("{}: {error}", path.display())))? {
        None => Ok(()),
        Some(damage) => Err(Error::Refused(format!(
            "{damage}: restore the folder from a backup; with an empty folder, requests that were answered before are \
             carried out again when they are repeated"
        ))),
    }
}

fn from_rocksdb(path: &Path, error: &rocksdb::Error) -> Error {
    let text = format!("{}: {}", path.display(), error.as_ref());
    match error.kind() {
        _ if NO_ROOM_MESSAGES.iter().any(|words| text.contains(words)) => Error::Full(text),
        rocksdb::ErrorKind::Corruption | rocksdb::ErrorKind::NotSupported | rocksdb::ErrorKind::InvalidArgument => {
            Error::Refused(text)
        }
        _ => Error::Unavailable(text),
    }
}

pub(super) fn entry_key(id: Id) -> [u8; 33] {
    let mut key = [ENTRY_PREFIX; 33];
    key[1..].copy_from_slice(&id.0);
    key
}

/// The bytes sort like the times, since no time is before the epoch.
pub(super) fn expiry_key(removal_ms: i64, id: Id) -> [u8; 41] {
    let mut key = [EXPIRY_PREFIX; 41];
    key[1..9].copy_from_slice(&removal_ms.max(0).to_be_bytes());
    key[9..].copy_from_slice(&id.0);
    key
}

fn parse_expiry_key(key: &[u8]) -> Option<(i64, Id)> {
    let (&EXPIRY_PREFIX, rest) = key.split_first()? else { return None };
    let (removal_ms, id) = rest.split_first_chunk::<8>()?;
    Some((i64::from_be_bytes(*removal_ms), Id(id.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_error_does_not_make_a_later_stall_look_like_a_full_disk() {
        let past_errors = PastErrors::default();
        assert!(!past_errors.has_new(0));
        assert!(past_errors.has_new(1), "no write has succeeded since");
        past_errors.note_success(1);
        assert!(!past_errors.has_new(1), "a write has succeeded since");
        assert!(past_errors.has_new(2));
    }

    #[test]
    fn successful_write_makes_earlier_errors_past() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        database.past_errors.note_success(7);
        assert_eq!(database.write(WriteBatch::default(), Writing::MayWait), Ok(true));
        assert!(database.past_errors.has_new(1) && !database.past_errors.has_new(database.property(BACKGROUND_ERRORS)));
    }
}
