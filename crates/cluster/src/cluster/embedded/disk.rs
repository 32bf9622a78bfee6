//! The folder of an embedded cluster: its lock and its RocksDB.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::{DB, DBCompressionType, DBRawIteratorWithThreadMode, Options, ReadOptions, WriteBatch, WriteOptions};

use super::layout::{self, FolderMeta, PartitionMeta, TopicMeta};
use crate::cluster::{Detail, Error, ErrorKind, TopicId};
use crate::lock::FileLock;
use crate::logs;

const LOCK_FILE: &str = "embedded.lock";
const DB_FOLDER: &str = "db";
/// Memory for data not yet in files; also roughly what has to be read again at a start.
const WRITE_BUFFER_BYTES: usize = 32 << 20;
/// Read-ahead of a scan.
const READAHEAD_BYTES: usize = 256 << 10;

/// A topic and its partitions, as stored in the folder.
pub(super) struct StoredTopic {
    pub name: Arc<str>,
    pub meta: TopicMeta,
    pub partitions: Vec<PartitionMeta>,
}

/// The open folder.
pub(super) struct Disk {
    db: DB,
    dir: PathBuf,
    /// Held as long as the cluster is open: dropped after the database.
    _lock: FileLock,
}

impl Disk {
    /// Opens the folder, creating it if necessary (0700), with `seed` for a new one.
    pub fn open(dir: &Path, seed: u64) -> Result<(Self, FolderMeta), Error> {
        let refused = |what: &str, e: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Refused, format!("the embedded cluster's folder {} {what}: {e}", dir.display()))
        };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| refused("cannot be created", &e))?;
        let lock = FileLock::try_take(&dir.join(LOCK_FILE)).map_err(|e| refused("cannot be locked", &e))?.ok_or_else(
            || {
                Error::new(
                ErrorKind::Refused,
                format!(
                    "the embedded cluster in {} is already open: one process at a time can use it; stop the other one, \
                     choose another folder, or use Kafka",
                    dir.display()
                ),
            )
            .with(Some(Detail::InUse))
            },
        )?;
        let database = dir.join(DB_FOLDER);
        if let Some(damage) = logs::check(&database).map_err(|e| refused("cannot be read", &e))? {
            let advice = format!("{damage}; put a copy of the folder in its place, or begin with a new one");
            return Err(refused("cannot be opened", &advice));
        }
        let db = DB::open(&options(), database).map_err(|e| refused("cannot be opened", &e))?;
        let disk = Self { db, dir: dir.to_owned(), _lock: lock };
        let folder = match disk.get(&layout::folder_meta_key())? {
            Some(bytes) => {
                // Checked first: what follows it may mean something else in another release.
                if let Some(&found) = bytes.first().filter(|format| **format != layout::FORMAT) {
                    return Err(refused("is of another release", &other_release(found)));
                }
                layout::decode("the metadata", &bytes)?
            }
            None => {
                let folder = FolderMeta { format: layout::FORMAT, seed, topics_created: 0 };
                let mut batch = WriteBatch::default();
                batch.put(layout::folder_meta_key(), layout::encode(&folder));
                disk.write(batch)?;
                folder
            }
        };
        Ok((disk, folder))
    }

    /// All topics.
    pub fn topics(&self) -> Result<Vec<StoredTopic>, Error> {
        let mut topics = Vec::new();
        let prefix = layout::topic_key("");
        self.each(&prefix, |key, value| {
            let name = std::str::from_utf8(&key[prefix.len()..]).map_err(|e| self.error("a topic's name", &e))?;
            let meta: TopicMeta = layout::decode("a topic", value)?;
            topics.push(StoredTopic { name: Arc::from(name), meta, partitions: Vec::new() });
            Ok(())
        })?;
        for topic in &mut topics {
            for partition in 0..topic.meta.partition_count {
                let bytes = self.get(&layout::partition_key(TopicId(topic.meta.id), partition))?;
                let meta = layout::decode("a partition", &bytes.unwrap_or_default())?;
                topic.partitions.push(meta);
            }
        }
        Ok(topics)
    }

    /// The value under `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.db.get(key).map_err(|e| self.error("cannot be read", &e))
    }

    /// Writes all of `batch` or nothing, and returns when it is on the disk.
    /// Another write then says in the log that it is: see [`crate::logs`].
    pub fn write(&self, batch: WriteBatch) -> Result<(), Error> {
        let (mut options, mut mark) = (WriteOptions::default(), WriteBatch::default());
        options.set_sync(true);
        let written = self.db.write_opt(batch, &options).and_then(|()| {
            mark.put_log_data(logs::mark(self.db.latest_sequence_number()));
            self.db.write(mark)
        });
        written.map_err(|e| {
            Error::new(
                ErrorKind::Unknown,
                format!("the embedded cluster's folder {} could not be written: {e}", self.dir.display()),
            )
        })
    }

    /// Visits all pairs whose key begins with `prefix`, in order.
    pub fn each(&self, prefix: &[u8], mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut scan = self.scan_between(prefix.to_vec(), layout::after(prefix));
        scan.iterator.seek_to_first();
        while let Some((key, value)) = scan.iterator.item() {
            visit(key, value)?;
            scan.iterator.next();
        }
        scan.status()
    }

    /// A partition's records from offset `from` to `to` (exclusive), as of now.
    pub fn scan(&self, id: TopicId, partition: i32, from: i64, to: i64) -> Scan<'_> {
        self.scan_between(layout::record_key(id, partition, from), layout::record_key(id, partition, to))
    }

    fn scan_between(&self, from: Vec<u8>, to: Vec<u8>) -> Scan<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(from);
        options.set_iterate_upper_bound(to);
        options.set_readahead_size(READAHEAD_BYTES);
        options.fill_cache(false);
        Scan { iterator: self.db.raw_iterator_opt(options), disk: self }
    }

    fn error(&self, what: &str, e: &dyn std::fmt::Display) -> Error {
        Error::new(ErrorKind::Refused, format!("the embedded cluster's folder {} {what}: {e}", self.dir.display()))
    }
}

/// Records of one partition, as of the scan's creation.
pub(super) struct Scan<'a> {
    iterator: DBRawIteratorWithThreadMode<'a, DB>,
    disk: &'a Disk,
}

impl Scan<'_> {
    /// Visits the records in ascending order until `take` returns `false` for one. Returns the
    /// offset of that one, `None` at the end.
    pub fn forward(&mut self, mut take: impl FnMut(i64, &[u8]) -> Result<bool, Error>) -> Result<Option<i64>, Error> {
        self.iterator.seek_to_first();
        while let Some((key, value)) = self.iterator.item() {
            let offset = self.offset(key)?;
            if !take(offset, value)? {
                return Ok(Some(offset));
            }
            self.iterator.next();
        }
        self.status().map(|()| None)
    }

    /// Visits all records in descending order.
    pub fn backward(&mut self, mut visit: impl FnMut(i64, &[u8]) -> Result<(), Error>) -> Result<(), Error> {
        self.iterator.seek_to_last();
        while let Some((key, value)) = self.iterator.item() {
            visit(self.offset(key)?, value)?;
            self.iterator.prev();
        }
        self.status()
    }

    fn offset(&self, key: &[u8]) -> Result<i64, Error> {
        layout::offset_of(key).ok_or_else(|| self.disk.error("is damaged", &"a record's key is too short"))
    }

    /// An iterator that stopped early because of an error says so only here.
    fn status(&self) -> Result<(), Error> {
        self.iterator.status().map_err(|e| self.disk.error("cannot be read", &e))
    }
}

/// The message for a folder with another format number.
fn other_release(found: u8) -> String {
    let ours = layout::FORMAT;
    format!(
        "it has format {found}, this release reads {ours}; start the release that wrote it or a later one, or choose \
         another folder"
    )
}

fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_compression_type(DBCompressionType::Lz4);
    // RocksDB's own log is of no use here, and would grow.
    options.set_keep_log_file_num(1);
    options.set_log_level(rocksdb::LogLevel::Warn);
    options
}

/// Seeds of several folders must differ, and nothing else may depend on them.
pub(super) fn random_seed() -> u64 {
    rand::random()
}

/// Topics by name.
pub(super) type ByName<T> = HashMap<Arc<str>, T>;
