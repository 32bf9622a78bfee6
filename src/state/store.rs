//! A task's store: an **entry** for each identity, the **position record** (how far the input partition was processed),
//! and the store's own **meta**: the offset up to which the store has applied the changelog, and the **token** of the
//! transaction that the store is the result of; no token while it is being restored.
//!
//! There is no write-ahead log: the changelog, a topic with all that was committed, serves as one. A commit goes whole
//! into one memtable ([`super::memtable`]), memtables reach the disk in order, each as a whole, and all keys share
//! them: so after a crash the disk has the state after some commit, with that commit's meta.
//!
//! A **load** is a buffer of changelog records that a restore writes to the store in bulk. Loads break that rule,
//! because their table files reach the disk at once. Therefore [`Store::begin_load`] comes before the first load of a
//! restore, and makes sure that the meta on the disk names no transaction. If the process is killed during the restore,
//! the store is partly ahead of its meta's changelog offset, never behind, and reading the changelog again from that
//! offset repairs it. A complete store is copied before the first load ([`super::aside`]); but usually it lacks few
//! records, which are written atomically instead ([`Store::apply`]).
//!
//! The RocksDB calls are in [`super::rocks`], behind the traits of [`super::disk`]. `sabotage::is_on` says whether a
//! test has switched on a deliberate fault.

use std::fmt;
use std::path::Path;

use super::disk::{Files, Ingest};
use super::load::LoadBuffer;
use super::memtable::Memtable;
use super::records::{Put, Records};
use super::{Error, Memory, Overlay};
use crate::format::{STORE_META_KEY, StoreMeta};
use crate::sabotage::{self, Sabotage};

/// A task's store. Only one `Store` per folder may be open, in all processes together.
pub struct Store {
    /// Commits that are newer than the files. Empty while the store is loading.
    memtable: Memtable,
    files: Box<dyn Files>,
    /// Whether loads have begun, and the restore has not ended: the meta, on the disk too, names no transaction, so
    /// that the store cannot look current.
    is_loading: bool,
}

impl Store {
    /// Opens the store in `dir`, creating an empty one if it does not exist. [`Error::Damaged`] means that the store
    /// has to be rebuilt, using [`super::aside`].
    pub fn open(dir: &Path, memory: &Memory) -> Result<Self, Error> {
        let files = memory.disk().open(dir)?;
        let memtable = Memtable::new(memory.disk().memtables());
        let mut store = Self { memtable, files, is_loading: false };
        match store.meta()? {
            Some(meta) => store.is_loading = meta.token.is_none(),
            None => store.expect_empty()?,
        }
        Ok(store)
    }

    /// The meta of the last commit or load; `None` for a store that was never written to.
    pub fn meta(&self) -> Result<Option<StoreMeta>, Error> {
        match self.memtable.meta() {
            Some(meta) => Ok(Some(meta.clone())),
            None => self.meta_in_files(),
        }
    }

    /// The meta in the store's files, which may be older than that in the memtable.
    pub(super) fn meta_in_files(&self) -> Result<Option<StoreMeta>, Error> {
        self.files
            .get(STORE_META_KEY)?
            .map(|bytes| StoreMeta::decode(&bytes).map_err(|error| self.damaged(error.to_string())))
            .transpose()
    }

    /// The value under `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self.memtable.get(key) {
            Some(value) => Ok(value.map(<[u8]>::to_vec)),
            None => self.files.get(key),
        }
    }

    /// Looks up `keys`, which must ascend; duplicates are allowed. `on_value` is called for each, in order, with
    /// its index and value.
    pub fn get_sorted(&self, keys: &[&[u8]], mut on_value: impl FnMut(usize, Option<&[u8]>)) -> Result<(), Error> {
        debug_assert!(keys.is_sorted(), "keys must ascend");
        if self.memtable.has_no_keys() {
            return self.files.get_sorted(keys, &mut on_value);
        }
        let mut in_memtable: Vec<(usize, Option<&[u8]>)> = Vec::new();
        let (mut missing_keys, mut missing_indices) = (Vec::new(), Vec::new());
        self.memtable.get_each(keys, |index, value| match value {
            Some(value) => in_memtable.push((index, value)),
            None => {
                missing_keys.push(keys[index]);
                missing_indices.push(index);
            }
        });
        let mut in_memtable = in_memtable.into_iter().peekable();
        if !missing_keys.is_empty() {
            self.files.get_sorted(&missing_keys, &mut |missing, value| {
                while let Some((index, value)) = in_memtable.next_if(|(index, _)| *index < missing_indices[missing]) {
                    on_value(index, value);
                }
                on_value(missing_indices[missing], value);
            })?;
        }
        in_memtable.for_each(|(index, value)| on_value(index, value));
        Ok(())
    }

    /// Applies a transaction that Kafka has committed, and the new meta, atomically. The commit is only in memory until
    /// its memtable has reached the disk: a crash undoes the last commits, each as a whole.
    pub fn commit(&mut self, overlay: &Overlay, meta: &StoreMeta) -> Result<(), Error> {
        assert!(overlay.get(STORE_META_KEY).is_none(), "the store's meta is written by the store");
        if self.is_loading {
            let sorted = |put: &mut Put<'_>| overlay.in_order().iter().for_each(|(key, value)| put(key, value));
            return self.write(&sorted, overlay.bytes(), meta);
        }
        self.memtable.put(overlay, meta);
        self.freeze_and_ingest()
    }

    /// Begins the loads of a restore: writes `meta`, which must name no transaction. The meta is on the disk when this
    /// returns, before any record is loaded, so that the store never looks current if the process is killed during the
    /// restore.
    pub fn begin_load(&mut self, meta: &StoreMeta) -> Result<(), Error> {
        // The second condition is a deliberate fault for tests.
        let may_begin = meta.token.is_none() || sabotage::is_on(Sabotage::TokenInRestore);
        assert!(may_begin, "a store that is being restored is the result of no transaction");
        if self.is_loading {
            // An earlier restore has not ended. The records of its pending loads are read again by this restore, so
            // those loads must not be ingested after this restore's.
            self.files.drop_loads();
        }
        self.set_meta(meta)?;
        self.flush()?;
        // Loaded records do not pass through the memtable, so its cached tables would hide them.
        self.memtable.drop_ingested();
        self.is_loading = true;
        Ok(())
    }

    /// Submits the records that a restore has read; `meta` says up to where the changelog was read. Another thread
    /// sorts them and makes a file of them, and [`Store::ingest_ready_loads`] brings the files into the store in the
    /// order in which they were submitted. After an error the store has to be reopened. Panics unless
    /// [`Store::begin_load`] was called before, perhaps before the store was last opened.
    pub fn load(&mut self, buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error> {
        assert!(self.is_loading, "a load begins with begin_load");
        assert!(meta.token.is_none(), "a store that is being restored is the result of no transaction");
        self.files.add_load(buffer, meta)
    }

    /// Whether this load is small enough to be written atomically, by [`Store::apply`].
    pub fn fits_one_write(&self, buffer: &LoadBuffer) -> bool {
        self.files.fits_one_write(buffer)
    }

    /// Writes the records that a restore has read, and the new meta, atomically: like [`Store::commit`], and without
    /// [`Store::begin_load`].
    pub fn apply(&mut self, mut buffer: LoadBuffer, meta: &StoreMeta) -> Result<(), Error> {
        buffer.sort(self.path())?;
        if self.is_loading {
            return self.write(&|put| buffer.iter().for_each(|(key, value)| put(key, value)), buffer.bytes(), meta);
        }
        self.memtable.put_each(buffer.iter(), meta);
        self.freeze_and_ingest()
    }

    /// Copies the store to the folder `to`, which must not exist; complete and on the disk when this returns.
    pub(super) fn copy(&mut self, to: &Path) -> Result<(), Error> {
        self.flush()?;
        self.files.copy(to)
    }

    /// Brings the loads that are ready into the store; returns how many are still pending. After an error the store has
    /// to be reopened.
    pub fn ingest_ready_loads(&mut self) -> Result<usize, Error> {
        if self.is_loading { self.files.ingest_pending(Ingest::Ready) } else { Ok(0) }
    }

    /// Brings all loads into the store, waiting for them.
    pub fn finish_loads(&mut self) -> Result<(), Error> {
        if self.is_loading { self.files.ingest_pending(Ingest::All).map(|_| ()) } else { Ok(()) }
    }

    /// Writes only the meta.
    pub fn set_meta(&mut self, meta: &StoreMeta) -> Result<(), Error> {
        if self.is_loading {
            return self.write(&|_| {}, 0, meta);
        }
        self.memtable.put_each(std::iter::empty(), meta);
        self.freeze_and_ingest()
    }

    /// Flushes all writes to the disk, and waits for that.
    pub fn flush(&mut self) -> Result<(), Error> {
        if !self.is_loading {
            if self.memtable.is_pending_full() {
                self.ingest_pending(Ingest::All)?;
            }
            self.freeze()?;
            self.ingest_pending(Ingest::All)?;
        }
        self.files.flush()
    }

    /// Begins to flush all writes to the disk, and does not wait for files that are being built: a later call brings
    /// them into the store, or returns their error. If too many tables are pending, the active one is not frozen, but
    /// grows until a commit finds it full: tables must not pile up while the disk is full.
    pub fn begin_flush(&mut self) -> Result<(), Error> {
        if !self.is_loading {
            if !self.memtable.is_pending_full() {
                self.freeze()?;
            }
            if self.ingest_pending(Ingest::ReadyOrFailed)? > 0 {
                return Ok(());
            }
        }
        self.files.flush()
    }

    /// Passes up to `keys_max` (at least 1) entries to `visit`, in key order, starting with the first after the key
    /// `after`. Returns the key after which to continue; `None` after the last entry. The position record is not an
    /// entry. A key that is new since the last flush may be missing; every value is the latest.
    pub fn scan(
        &self,
        after: Option<&[u8]>,
        keys_max: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>, Error> {
        assert!(keys_max > 0, "a scan makes progress");
        self.files.scan(after, keys_max, &mut |key, value| match self.memtable.get(key) {
            None => visit(key, value),
            Some(Some(newer)) => visit(key, newer),
            Some(None) => {}
        })
    }

    /// The approximate number of entries: overwritten and deleted entries count until a compaction has removed them.
    pub fn entries_estimate(&self) -> u64 {
        self.files.entries_estimate() + self.memtable.len() as u64
    }

    /// The size of the table files and memtables, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.bytes() + self.memtable.bytes() as u64
    }

    /// The store's folder.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// Freezes the active table if it is full, and brings tables that are ready into the files. Called after each write
    /// to the memtable. A failure to bring a table into the files is only logged, and the attempt repeated, until too
    /// many tables are pending: then it is returned.
    fn freeze_and_ingest(&mut self) -> Result<(), Error> {
        if self.memtable.is_full() {
            if self.memtable.is_pending_full() {
                self.ingest_pending(Ingest::All)?;
            }
            self.freeze()?;
        }
        if let Err(error) = self.ingest_pending(Ingest::Ready) {
            let store = self.path().display();
            tracing::warn!(%store, %error, "a memtable could not be written; the write will be retried");
        }
        Ok(())
    }

    /// Freezes the active table, and queues it for the files.
    fn freeze(&mut self) -> Result<(), Error> {
        self.memtable.freeze().map_or(Ok(()), |frozen| self.files.add_memtable(frozen))
    }

    /// Brings frozen tables into the files; returns how many are still pending.
    fn ingest_pending(&mut self, mode: Ingest) -> Result<usize, Error> {
        let pending = self.files.ingest_pending(mode)?;
        self.memtable.set_pending(pending);
        Ok(pending)
    }

    /// Writes `records` and then `meta` as one batch, bypassing the memtable.
    fn write(&mut self, records: &Records<'_>, bytes: usize, meta: &StoreMeta) -> Result<(), Error> {
        self.files.write(records, bytes, meta)?;
        // A write whose meta names a transaction ends the restore. No write begins one: only `begin_load` makes sure
        // that the meta is on the disk.
        self.is_loading &= meta.token.is_none();
        if self.is_loading { Ok(()) } else { self.files.end_load() }
    }

    /// Returns an error if a store without a meta is not empty: its entries could be from any changelog.
    fn expect_empty(&self) -> Result<(), Error> {
        if self.files.is_empty()? {
            return Ok(());
        }
        Err(self.damaged("it holds entries and does not say of which changelog".to_owned()))
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Damaged { path: self.path().to_owned(), reason }
    }

    /// Every key in the memtable, once for each of its tables that has the key.
    #[cfg(test)]
    pub(super) fn keys_in_memory(&self) -> Vec<Vec<u8>> {
        self.memtable.keys()
    }

    /// Sets the size from which loads and memtables become table files, for tests.
    #[cfg(test)]
    pub(super) fn set_ingest_bytes_min(&mut self, bytes: usize) {
        self.files.set_file_bytes_min(bytes);
    }
}

impl Drop for Store {
    /// Flushes the store, if possible.
    fn drop(&mut self) {
        if !self.is_loading {
            // After a failure the disk has an earlier commit; the later ones are read again when the store is next
            // opened.
            let _ = self.flush();
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.path()).field("is_loading", &self.is_loading).finish_non_exhaustive()
    }
}
