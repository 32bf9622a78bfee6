//! A task's RocksDB: the entries, the position record and the store's own meta in one column family.
//!
//! There is no write-ahead log: the changelog is one. A commit goes whole into one memtable ([`super::memtable`]),
//! memtables reach the disk in order, each as a whole, and all keys share them: so what is on disk after a crash is
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

use super::disk::{Files, Take};
use super::load::LoadBuffer;
use super::memtable::Memtable;
use super::records::{Put, Records};
use super::{Error, Memory, Overlay};
use crate::format::{STORE_META_KEY, StoreMeta};
use crate::sabotage::{self, Sabotage};

/// A task's store. Only one may be open per folder, in all processes.
pub struct Store {
    /// Newer than the files. Empty while the store is being loaded into.
    memtable: Memtable,
    files: Box<dyn Files>,
    /// Whether the meta names no transaction, on disk too: loaded data cannot make the store look current.
    loading: bool,
}

impl Store {
    /// Opens the store in `dir`, creating an empty one if there is none. [`Error::Damaged`] means that it
    /// has to be rebuilt, using [`super::aside`].
    pub fn open(dir: &Path, memory: &Memory) -> Result<Self, Error> {
        let files = memory.disk().open(dir)?;
        let memtable = Memtable::new(memory.disk().memtables());
        let mut store = Self { memtable, files, loading: false };
        match store.meta()? {
            Some(meta) => store.loading = meta.token.is_none(),
            None => store.expect_empty()?,
        }
        Ok(store)
    }

    /// How far the store has got; `None` for one that was never written to.
    pub fn meta(&self) -> Result<Option<StoreMeta>, Error> {
        match self.memtable.meta() {
            Some(meta) => Ok(Some(meta.clone())),
            None => self.meta_in_files(),
        }
    }

    /// How far its files have got.
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

    /// Looks up `keys`, which must ascend; duplicates are allowed. `found` is called for each, in order, with
    /// its index and value.
    pub fn get_sorted(&self, keys: &[&[u8]], mut found: impl FnMut(usize, Option<&[u8]>)) -> Result<(), Error> {
        debug_assert!(keys.is_sorted(), "keys must ascend");
        if self.memtable.is_blank() {
            return self.files.get_sorted(keys, &mut found);
        }
        let mut known: Vec<(usize, Option<&[u8]>)> = Vec::new();
        let (mut others, mut places) = (Vec::new(), Vec::new());
        self.memtable.get_each(keys, |at, value| match value {
            Some(value) => known.push((at, value)),
            None => {
                others.push(keys[at]);
                places.push(at);
            }
        });
        let mut known = known.into_iter().peekable();
        if !others.is_empty() {
            self.files.get_sorted(&others, &mut |other, value| {
                while let Some((at, value)) = known.next_if(|(at, _)| *at < places[other]) {
                    found(at, value);
                }
                found(places[other], value);
            })?;
        }
        known.for_each(|(at, value)| found(at, value));
        Ok(())
    }

    /// Applies a transaction that Kafka has committed, and the new meta, atomically. In memory
    /// only, until the memtable has reached the disk: a crash undoes whole commits, the last ones.
    pub fn commit(&mut self, overlay: &Overlay, meta: &StoreMeta) -> Result<(), Error> {
        assert!(overlay.get(STORE_META_KEY).is_none(), "the store's meta is written by the store");
        if self.loading {
            let sorted = |put: &mut Put<'_>| overlay.in_order().iter().for_each(|(key, value)| put(key, value));
            return self.write(&sorted, overlay.bytes(), meta);
        }
        self.memtable.put(overlay, meta);
        self.go_on()
    }

    /// Marks the store as being restored: `meta` names no transaction. On disk when this returns, before
    /// anything is loaded, so that a store that was killed while loading never looks current.
    pub fn begin_load(&mut self, meta: &StoreMeta) -> Result<(), Error> {
        let is_restored = meta.token.is_none() || sabotage::is_on(Sabotage::TokenInRestore);
        assert!(is_restored, "a store that is being restored is the result of no transaction");
        if self.loading {
            // What is pending from an earlier load is read again by this one, and must not follow it.
            self.files.drop_loads();
        }
        self.set_meta(meta)?;
        self.flush()?;
        // What is loaded does not pass through it.
        self.memtable.drop_cached();
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
        if self.loading {
            return self.write(&|put| buffer.iter().for_each(|(key, value)| put(key, value)), buffer.bytes(), meta);
        }
        self.memtable.put_each(buffer.iter(), meta);
        self.go_on()
    }

    /// Copies the store to the folder `to`, which must not exist; complete and on the disk when this returns.
    pub(super) fn copy(&mut self, to: &Path) -> Result<(), Error> {
        self.flush()?;
        self.files.copy(to)
    }

    /// Brings the loads that are ready into the store; returns how many are not. After an error the store has
    /// to be reopened.
    pub fn take_loaded(&mut self) -> Result<usize, Error> {
        if self.loading { self.files.take_over(Take::Ready) } else { Ok(0) }
    }

    /// Brings all loads into the store, waiting for them.
    pub fn finish_loads(&mut self) -> Result<(), Error> {
        if self.loading { self.files.take_over(Take::All).map(|_| ()) } else { Ok(()) }
    }

    /// Writes the meta alone.
    pub fn set_meta(&mut self, meta: &StoreMeta) -> Result<(), Error> {
        if self.loading {
            return self.write(&|_| {}, 0, meta);
        }
        self.memtable.put_each(std::iter::empty(), meta);
        self.go_on()
    }

    /// Flushes everything that was written to the disk, and waits for it.
    pub fn flush(&mut self) -> Result<(), Error> {
        if !self.loading {
            if self.memtable.is_backed_up() {
                self.take_over(Take::All)?;
            }
            self.freeze()?;
            self.take_over(Take::All)?;
        }
        self.files.flush()
    }

    /// Has everything that was written flushed to the disk, and does not wait for what takes long: a later call brings
    /// it into the files, or says that it failed. While too much waits already, what is newer goes on growing in memory
    /// until a commit finds it full: a disk without space must not have tables pile up.
    pub fn begin_flush(&mut self) -> Result<(), Error> {
        if !self.loading {
            if !self.memtable.is_backed_up() {
                self.freeze()?;
            }
            if self.take_over(Take::Retry)? > 0 {
                return Ok(());
            }
        }
        self.files.flush()
    }

    /// Passes up to `keys_max` (at least 1) entries to `visit`, in key order, starting with the first after `after`.
    /// Returns where to continue, `None` if there are no more. The position record is not an entry. A key that is new
    /// since the last flush may be missing; every value is the last one.
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

    /// The approximate number of entries: overwritten and deleted ones count until a compaction has removed
    /// them.
    pub fn entries_estimate(&self) -> u64 {
        self.files.entries_estimate() + self.memtable.len() as u64
    }

    /// The bytes of table files and memtables.
    pub fn bytes(&self) -> u64 {
        self.files.bytes() + self.memtable.bytes() as u64
    }

    /// The store's folder.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// After a write to the memtable: freezes the table if it is full, and brings into the files what is ready for them.
    /// A failure is one only once there is no room for what could not be written.
    fn go_on(&mut self) -> Result<(), Error> {
        if self.memtable.is_full() {
            if self.memtable.is_backed_up() {
                self.take_over(Take::All)?;
            }
            self.freeze()?;
        }
        if let Err(error) = self.take_over(Take::Ready) {
            tracing::warn!(store = %self.path().display(), %error, "a memtable could not be written; that is tried again");
        }
        Ok(())
    }

    /// Passes what is in the memtable to the files, which take it in when it is ready for them.
    fn freeze(&mut self) -> Result<(), Error> {
        self.memtable.freeze().map_or(Ok(()), |frozen| self.files.add(frozen))
    }

    /// Brings frozen tables into the files; returns how many are not in them.
    fn take_over(&mut self, take: Take) -> Result<usize, Error> {
        let waiting = self.files.take_over(take)?;
        self.memtable.set_waiting(waiting);
        Ok(waiting)
    }

    /// One write batch, past the memtable: `records`, then `meta`.
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

    /// Every key in the memtable.
    #[cfg(test)]
    pub(super) fn keys_in_memory(&self) -> Vec<Vec<u8>> {
        self.memtable.keys()
    }

    /// Lets a test have small loads and memtables become table files.
    #[cfg(test)]
    pub(super) fn set_ingest_bytes_min(&mut self, bytes: usize) {
        self.files.set_file_bytes_min(bytes);
    }
}

impl Drop for Store {
    /// Closing flushes, as far as that can be done.
    fn drop(&mut self) {
        if !self.loading {
            // A failure leaves an earlier commit; what the store lacks then is read again when it is next opened.
            let _ = self.flush();
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.path()).field("loading", &self.loading).finish_non_exhaustive()
    }
}
