//! Bulk load: what a restore has read of the changelog, on its way into the store.
//!
//! Records are only appended here; sorting once per load is cheaper than finding the former record of each
//! key. A large load becomes a table file that RocksDB takes over as it is, past its write buffers (measured
//! at five times the speed of the next best way); for a small one the file would not pay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rocksdb::{DB, IngestExternalFileOptions, Options, SstFileWriter};

use super::Error;

/// Where a table file is written before RocksDB takes it over. Never there while no load is under way: it
/// is removed when a load fails and, after a crash, when the store is opened.
const FILE: &str = "load.tmp";

/// Changelog records to be loaded into a store, the last one of each key counts.
#[derive(Default)]
pub struct LoadBuffer {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// [`key_head`] of the key: most comparisons need not look further.
    head: u128,
    /// Where the key begins, and after it the value. Grows from put to put: of two records with one key
    /// the later has the greater.
    start: usize,
    key_length: u32,
    /// [`DELETED`] for a tombstone.
    value_length: u32,
}

/// The value length that stands for a tombstone.
const DELETED: u32 = u32::MAX;

impl Entry {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..][..self.key_length as usize]
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.start + self.key_length as usize;
        (self.value_length != DELETED).then(|| &bytes[start..][..self.value_length as usize])
    }
}

/// A key's first bytes as a number, filled up with zeros: where two differ, their order is the keys'.
pub fn key_head(key: &[u8]) -> u128 {
    if let Some(head) = key.first_chunk::<16>() {
        return u128::from_be_bytes(*head);
    }
    let mut head = [0; 16];
    head[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(head)
}

impl LoadBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record; `None` deletes the key.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        const FITS: &str = "keys and values are far below 4 GiB";
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.entries.push(Entry {
            head: key_head(key),
            start,
            key_length: u32::try_from(key.len()).expect(FITS),
            value_length: value.map_or(DELETED, |value| {
                u32::try_from(value.len()).ok().filter(|&length| length != DELETED).expect(FITS)
            }),
        });
    }

    /// How many records were added, repeated keys included until the load.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The memory that the records take.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    /// Forgets all records and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// Sorts by key and drops all but the last record of each.
    pub(super) fn sort(&mut self) {
        let Self { entries, bytes } = self;
        entries.sort_unstable_by(|a, b| {
            a.head.cmp(&b.head).then_with(|| a.key(bytes).cmp(b.key(bytes))).then(b.start.cmp(&a.start))
        });
        // Of equal keys the first one stays, which is the latest.
        entries.dedup_by(|later, kept| later.head == kept.head && later.key(bytes) == kept.key(bytes));
    }

    /// The records, in order of key after [`LoadBuffer::sort`].
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> + Clone {
        self.entries.iter().map(|entry| (entry.key(&self.bytes), entry.value(&self.bytes)))
    }
}

/// A table file on its way into the store; removed when dropped, unless RocksDB has taken it over.
struct TableFile(PathBuf);

impl Drop for TableFile {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the store is opened next.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes the records of `buffer`, which are sorted and not none, to a table file and hands it to `db`.
pub(super) fn ingest(db: &DB, dir: &Path, options: &Options, buffer: &LoadBuffer) -> Result<(), Error> {
    let failed = |error: rocksdb::Error| Error::from_rocksdb(dir, &error);
    let file = TableFile(dir.join(FILE));
    let mut writer = SstFileWriter::create(options);
    writer.open(&file.0).map_err(failed)?;
    for (key, value) in buffer.iter() {
        match value {
            Some(value) => writer.put(key, value),
            None => writer.delete(key),
        }
        .map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    let mut options = IngestExternalFileOptions::default();
    // Linked into its place, not copied.
    options.set_move_files(true);
    db.ingest_external_file_cf_opts(&super::store::column_family(db), &options, vec![&file.0]).map_err(failed)
}

/// Removes what a load that was killed has left behind. Only to be called while holding the store's lock.
pub(super) fn remove_leftovers(dir: &Path) -> Result<(), Error> {
    let path = dir.join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::from_io(&path, &error)),
        _ => Ok(()),
    }
}
