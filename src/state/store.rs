//! A task's RocksDB: the entries, the position record and the store's own meta in one column family.
//!
//! There is no write-ahead log: the changelog is one. A write batch goes whole into one write buffer, write
//! buffers reach the disk in order, and all keys share them: so what is on disk after a crash is
//! some earlier commit as a whole, with the meta that belongs to it.
//!
//! A load breaks that rule, because table files reach the disk at once: so [`Store::begin_load`] first makes sure
//! that the meta on disk names no transaction. A store that was killed while loading is partly ahead
//! of its meta's changelog offset, never behind, and reading the changelog again from there repairs it. Of a complete
//! store, a copy is kept first ([`super::aside`]); usually it lacks little, which is written atomically instead
//! ([`Store::apply`]).
//!
//! RocksDB's part of this is in [`super::rocks`]; see [`super::disk`].

use std::fmt;
use std::path::Path;

use super::disk::{Files, Put, Records};
use super::load::{LoadBuffer, key_head};
use super::{Error, Memory, Overlay};
use crate::format::{STORE_META_KEY, StoreMeta};
use crate::sabotage::{self, Sabotage};

/// Approximate overhead of each record in a write batch.
const BATCH_RECORD_BYTES: usize = 12;

/// A task's store. Only one may be open per folder, in all processes.
pub struct Store {
    files: Box<dyn Files>,
    /// Whether the meta names no transaction, on disk too: loaded data cannot make the store look current.
    loading: bool,
    /// The overlay's keys in order; reused from commit to commit.
    order: Vec<(u128, u32)>,
}

impl Store {
    /// Opens the store in `dir`, creating an empty one if there is none. [`Error::Damaged`] means that it
    /// has to be rebuilt, using [`super::aside`].
    pub fn open(dir: &Path, memory: &Memory) -> Result<Self, Error> {
        let mut store = Self { files: memory.disk().open(dir)?, loading: false, order: Vec::new() };
        match store.meta()? {
            Some(meta) => store.loading = meta.token.is_none(),
            None => store.expect_empty()?,
        }
        Ok(store)
    }

    /// How far the store has got; `None` for one that was never written to.
    pub fn meta(&self) -> Result<Option<StoreMeta>, Error> {
        self.get(STORE_META_KEY)?
            .map(|bytes| StoreMeta::decode(&bytes).map_err(|error| self.damaged(error.to_string())))
            .transpose()
    }

    /// The value under `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.files.get(key)
    }

    /// Looks up `keys`, which must ascend; duplicates are allowed. `found` is called for each, in order, with
    /// its index and value.
    pub fn get_sorted(&self, keys: &[&[u8]], mut found: impl FnMut(usize, Option<&[u8]>)) -> Result<(), Error> {
        debug_assert!(keys.is_sorted(), "keys must ascend");
        self.files.get_sorted(keys, &mut found)
    }

    /// Applies a transaction that Kafka has committed, and the new meta, atomically. In memory
    /// only, until RocksDB's write buffers are flushed: a crash undoes whole commits, the last ones.
    pub fn commit(&mut self, overlay: &Overlay, meta: &StoreMeta) -> Result<(), Error> {
        assert!(overlay.get(STORE_META_KEY).is_none(), "the store's meta is written by the store");
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(overlay.iter().zip(0..).map(|((key, _), index)| (key_head(key), index)));
        // RocksDB's write buffer is a sorted list: in order, each key is found starting from the one before.
        let key = |index: u32| overlay.at(index as usize).0;
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
        let sorted = |put: &mut Put<'_>| {
            for &(_, index) in &order {
                let (key, value) = overlay.at(index as usize);
                put(key, value);
            }
        };
        let written = self.write(&sorted, overlay.bytes() + overlay.len() * BATCH_RECORD_BYTES, meta);
        self.order = order;
        written
    }

    /// Marks the store as being restored: `meta` names no transaction. On disk when this returns, before
    /// anything is loaded, so that a store that was killed while loading never looks current.
    pub fn begin_load(&mut self, meta: &StoreMeta) -> Result<(), Error> {
        let is_restored = meta.token.is_none() || sabotage::is_on(Sabotage::TokenInRestore);
        assert!(is_restored, "a store that is being restored is the result of no transaction");
        // What is pending from an earlier load is read again by this one, and must not follow it.
        self.files.drop_loads();
        self.set_meta(meta)?;
        self.flush()?;
        self.loading = true;
        Ok(())
    }

    /// Takes what a restore has read, and how far the changelog was read. It is sorted and made into a file elsewhere;
    /// [`Store::take_loaded`] brings it into the store, in the order in which it was submitted. After an error the
    /// store has to be reopened. Panics unless [`Store::begin_load`] was called first, on this or an earlier instance
    /// of the store.
    pub fn load(&mut self, buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error> {
        assert!(self.loading, "a load begins with begin_load");
        assert!(meta.token.is_none(), "a store that is being restored is the result of no transaction");
        self.files.load(buffer, meta)
    }

    /// Whether [`Store::apply`] accepts all of this: it is small enough to be written atomically.
    pub fn takes_at_once(&self, buffer: &LoadBuffer) -> bool {
        self.files.takes_at_once(buffer)
    }

    /// Writes everything that a restore has read, and the new meta, atomically: like [`Store::commit`], and without
    /// [`Store::begin_load`].
    pub fn apply(&mut self, mut buffer: LoadBuffer, meta: &StoreMeta) -> Result<(), Error> {
        buffer.sort(self.path())?;
        self.write(&|put| buffer.iter().for_each(|(key, value)| put(key, value)), buffer.bytes(), meta)
    }

    /// Copies the store to the folder `to`, which must not exist; complete and on the disk when this returns.
    pub(super) fn copy(&self, to: &Path) -> Result<(), Error> {
        self.files.copy(to)
    }

    /// Brings the loads that are ready into the store; returns how many are not. After an error the store has
    /// to be reopened.
    pub fn take_loaded(&mut self) -> Result<usize, Error> {
        self.files.take_over(false)
    }

    /// Brings all loads into the store, waiting for them.
    pub fn finish_loads(&mut self) -> Result<(), Error> {
        self.files.take_over(true).map(|_| ())
    }

    /// Writes the meta alone.
    pub fn set_meta(&mut self, meta: &StoreMeta) -> Result<(), Error> {
        self.write(&|_| {}, 0, meta)
    }

    /// Flushes everything that was written to the disk.
    pub fn flush(&self) -> Result<(), Error> {
        self.files.flush()
    }

    /// Passes up to `keys_max` (at least 1) entries to `visit`, in key order, starting with the first after `after`.
    /// Returns where to continue, `None` if there are no more. The position record is not an entry.
    pub fn scan(
        &self,
        after: Option<&[u8]>,
        keys_max: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>, Error> {
        assert!(keys_max > 0, "a scan makes progress");
        self.files.scan(after, keys_max, &mut visit)
    }

    /// The approximate number of entries: overwritten and deleted ones count until a compaction has removed
    /// them.
    pub fn entries_estimate(&self) -> u64 {
        self.files.entries_estimate()
    }

    /// The bytes of table files and write buffers.
    pub fn bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// The store's folder.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// One write batch: `records`, then `meta`.
    fn write(&mut self, records: &Records<'_>, bytes: usize, meta: &StoreMeta) -> Result<(), Error> {
        self.files.write(records, bytes, meta)?;
        // Loading starts only in begin_load, which makes sure that the meta is on disk.
        self.loading &= meta.token.is_none();
        if self.loading { Ok(()) } else { self.files.end_load() }
    }

    /// A store without meta must be empty: its entries could be from any changelog.
    fn expect_empty(&self) -> Result<(), Error> {
        if self.files.is_empty()? {
            return Ok(());
        }
        Err(self.damaged("it holds entries and does not say of which changelog".to_owned()))
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Damaged { path: self.path().to_owned(), reason }
    }

    /// Lets a test have small loads become table files.
    #[cfg(test)]
    pub(super) fn set_ingest_bytes_min(&mut self, bytes: usize) {
        self.files.set_file_bytes_min(bytes);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.path()).field("loading", &self.loading).finish_non_exhaustive()
    }
}
