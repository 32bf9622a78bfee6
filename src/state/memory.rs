//! The memory and the threads that all stores of a process share: one block cache, one budget of write buffers charged
//! to the cache, budgets of memtables and of load buffers, for which the cache shrinks, and RocksDB's few background
//! threads. Also the options with which every store is opened.
//!
//! A **memtable** is a hash table of a store's last commits, which later becomes a file. RocksDB's own memtables, its
//! **write buffers**, take what is too small for a file. A **load buffer** holds changelog records that a restore has
//! read.
//!
//! The options are tuned for many small stores whose lookups mostly miss: a task's typical lookup is for an identity
//! that it has never seen, and a worker may have hundreds of tasks.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, Env, LogLevel, Options, WriteBufferManager,
};

use super::background;
use super::build::Builders;
use super::disk::Disk;
use super::load::{BufferBound, LoadBuffer};
use super::memtable::{MemtableBounds, MemtableBudget};

/// All memtables together get 1 / this of the memory; a larger fraction would mean fewer, larger files.
const ALL_MEMTABLES_SHARE: usize = 4;
/// The bounds of one memtable's size, whatever its store's share is. A larger memtable takes too long to write when the
/// store is closed.
const MEMTABLE_BYTES_RANGE: RangeInclusive<usize> = 64 << 10..=64 << 20;
/// How many changelog records the memtables that accept commits get, in all stores together. They are read again after
/// a crash, which takes well below a second. Many stores get more, because of the minimum below.
const ALL_MEMTABLES_RECORDS_MAX: usize = 2_000_000;
/// The bounds of one memtable's changelog records. A lower minimum would make many small files if there are many
/// stores, and these are hardly ever all busy at the same time.
const MEMTABLE_RECORDS_RANGE: RangeInclusive<usize> = 32_000..=500_000;
/// The cache shrinks for memtables in steps of this size.
const MEMTABLES_BYTES_STEP: usize = 1 << 20;
/// RocksDB's write buffers of all stores together may take 1 / this of the memory.
const ALL_WRITE_BUFFERS_SHARE: u64 = 8;
/// A store flushes its write buffer when the buffer takes 1 / this of the memory, within the bounds below.
const WRITE_BUFFER_SHARE: u64 = 64;
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;
const WRITE_BUFFER_BYTES_MAX: u64 = 16 << 20;
/// The allocation step of RocksDB's write buffers; its default (1 MiB) would take a quarter of a gigabyte for 256
/// stores with one entry each.
const ARENA_BLOCK_BYTES: usize = 64 << 10;
/// A table file that a compaction writes may be 1 / this of the memory, within the bounds below. A compaction keeps up
/// to 30 % of a file's size in memory while it writes the file (8 bytes of each entry for the filter, and the index
/// twice), and no budget counts that memory.
const FILE_SHARE: u64 = 4;
const FILE_BYTES_MIN: u64 = 16 << 20;
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of table files that one store keeps open, if each file has its target size. Other files are opened
/// when they are read.
const OPEN_FILES_BYTES: u64 = 48 * FILE_BYTES_MAX;
/// The bits per entry of a file's filter, which rules out most keys that the file does not have: one in a hundred
/// lookups of an unknown identity reads a block.
const FILTER_BITS: f64 = 10.0;
/// How aggressively blocks of replaced files are evicted from the cache: the value that RocksDB's authors intend as the
/// default.
const UNCACHE: &str = "uncache_aggressiveness=300";
/// The cache counts as full once at most 1 / this of its size is free, because its shards fill unevenly.
const CACHE_FULL_SHARE: usize = 8;
/// The most files in level 0, which has the files that no compaction has merged yet: every miss (a lookup of an unknown
/// key) checks the filter of each, so beyond this number writes wait for a compaction. A restore leaves some dozens of
/// files, and later writes need not wait until those are merged.
const LEVEL_ZERO_FILES_MAX: i32 = 256;
const LOG_BYTES_MAX: usize = 1 << 20;
const MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Concurrent flushes of all stores together; a flush is short.
const FLUSH_THREADS: i32 = 2;
/// Concurrent compactions of all stores together.
pub(super) const COMPACTION_THREADS: i32 = 2;
/// Concurrent jobs of one store. RocksDB assigns a quarter of them, at least one, to flushes and the rest to
/// compactions. If it has fewer compaction threads than that, it starts more, which would compact with a lane's
/// priority.
const STORE_JOBS: i32 = 1 + COMPACTION_THREADS;
const _: () = assert!(STORE_JOBS / 4 <= 1);

/// Load buffers may take 1 / this of the memory, since blocks are evicted for them; [`LOAD_BUFFERS_MIN`] buffers are
/// always allowed.
const LOADS_SHARE: usize = 2;
/// The target number of load buffers: for several concurrent restores, each with a buffer to fill, and for buffers
/// whose files are being built.
const LOAD_BUFFERS: usize = 8;
const LOAD_BUFFERS_MIN: usize = 2;
/// A smaller buffer makes too many files from a changelog; a larger buffer takes too long to build at the end of a
/// restore.
const LOAD_BUFFER_BYTES_MIN: usize = 4 << 20;
const LOAD_BUFFER_BYTES_MAX: usize = 64 << 20;
/// Building a table file takes 1 / this of its buffer's size in addition, for the filter's hashes and blocks.
const BUILD_SHARE: usize = 5;

/// One memory budget for all stores of a process: the block cache, the write buffers inside it, and the memtables and
/// load buffers, for which the cache shrinks. It also decides on which [`Disk`] the stores are: this machine's, or a
/// simulation's. Cheap to clone; all clones are the same budget.
#[derive(Clone)]
pub struct Memory(Arc<dyn Disk>);

impl Memory {
    /// A budget of `bytes` for all stores together, on this machine's disk. To keep within it, blocks are evicted and
    /// write buffers flushed, but writes are not rejected: the memory in use may exceed it.
    pub fn new(bytes: u64) -> Self {
        Self::with_disk(Arc::new(RocksMemory::new(bytes, Builders::default())))
    }

    /// A budget without builder threads, for a simulation, whose time does not wait for threads.
    pub fn without_builders(bytes: u64) -> Self {
        Self::with_disk(Arc::new(RocksMemory::new(bytes, Builders::none())))
    }

    /// A budget with memtables of at most `table_bytes` bytes and `records_max` changelog records.
    #[cfg(test)]
    pub(super) fn with_memtables(bytes: u64, table_bytes: usize, records_max: usize) -> Self {
        let mut memory = RocksMemory::new(bytes, Builders::default());
        let bytes = MemtableBounds { total: usize::MAX, table: table_bytes..=table_bytes };
        let records = MemtableBounds { total: records_max, table: records_max..=records_max };
        memory.memtables = Arc::new(MemtableBudget::new(bytes, records, |_| {}));
        Self::with_disk(Arc::new(memory))
    }

    /// The budget of stores on this disk, which has its own memory.
    pub fn with_disk(disk: Arc<dyn Disk>) -> Self {
        Self(disk)
    }

    /// The disk of the stores.
    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.0
    }

    /// A buffer for a load; `None` while other loads have the whole budget. Its share of the budget is released once
    /// the buffer is loaded or dropped.
    pub fn load_buffer(&self) -> Option<LoadBuffer> {
        self.0.load_buffer()
    }

    /// The memory in use, in bytes, memtables included.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }
}

/// The memory of all RocksDBs of a process.
#[derive(Clone)]
pub(super) struct RocksMemory {
    cache: Cache,
    loads: Arc<Loads>,
    memtables: Arc<MemtableBudget>,
    write_buffers: WriteBufferManager,
    /// `None` if RocksDB cannot create an environment; its stores then use the default one.
    env: Option<Env>,
    /// The size at which one store flushes its write buffer.
    write_buffer_bytes: usize,
    /// The target size of the table files that compactions write.
    file_bytes: u64,
}

impl RocksMemory {
    /// A budget of `bytes`, with these builders of table files.
    pub fn new(bytes: u64, builders: Builders) -> Self {
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let cache = Cache::new_lru_cache(to_usize(bytes));
        let all_write_buffers_bytes = (bytes / ALL_WRITE_BUFFERS_SHARE).max(WRITE_BUFFER_BYTES_MIN);
        // Full buffers do not stall writers: what was committed to Kafka must get into the store.
        let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            to_usize(all_write_buffers_bytes),
            false,
            cache.clone(),
        );
        let env = Env::new().ok().map(|mut env| {
            env.set_high_priority_background_threads(FLUSH_THREADS);
            env.set_low_priority_background_threads(COMPACTION_THREADS);
            background::lower_compaction_priority();
            env
        });
        let write_buffer_bytes = (bytes / WRITE_BUFFER_SHARE).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX);
        let blocks = Arc::new(BlockCache::new(cache.clone(), to_usize(bytes)));
        let loads = Arc::new(Loads::new(Arc::clone(&blocks), to_usize(bytes), builders));
        let memtable_bytes =
            MemtableBounds { total: to_usize(bytes) / ALL_MEMTABLES_SHARE, table: MEMTABLE_BYTES_RANGE };
        let records = MemtableBounds { total: ALL_MEMTABLES_RECORDS_MAX, table: MEMTABLE_RECORDS_RANGE };
        let memtables = MemtableBudget::new(memtable_bytes, records, move |used| blocks.reserve_for_memtables(used));
        let (memtables, write_buffer_bytes) = (Arc::new(memtables), to_usize(write_buffer_bytes));
        let file_bytes = (bytes / FILE_SHARE).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        Self { cache, loads, memtables, write_buffers, env, write_buffer_bytes, file_bytes }
    }

    /// The budget of the memtables.
    pub fn memtables(&self) -> &Arc<MemtableBudget> {
        &self.memtables
    }

    /// A share of the budget, for one load buffer; `None` while other loads have the whole budget.
    pub fn load_buffer_share(&self) -> Option<LoadBufferShare> {
        Loads::take_buffer(&self.loads)
    }

    /// The memory that the cache uses, in bytes, write buffers included.
    pub fn cache_bytes(&self) -> usize {
        self.cache.get_usage()
    }

    /// Whether another block fits into the cache only after an eviction.
    pub fn is_cache_full(&self) -> bool {
        let bytes_max = self.loads.blocks.cache_bytes_max();
        self.cache.get_usage() >= bytes_max - bytes_max / CACHE_FULL_SHARE
    }

    /// The threads that build table files.
    pub fn builders(&self) -> &Builders {
        &self.loads.builders
    }

    /// The options for opening a store.
    pub fn options(&self) -> Options {
        let mut options = Options::default();
        // Evicts blocks of files that a compaction has replaced together with the files; otherwise they would fill the
        // cache. The bindings offer no other way to set this option.
        options = options.get_options_from_string(UNCACHE).expect("RocksDB knows its own option");
        options.create_if_missing(true);
        if let Some(env) = &self.env {
            options.set_env(env);
        }
        options.set_block_based_table_factory(&self.table_options());
        options.set_write_buffer_manager(&self.write_buffers);
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_arena_block_size(ARENA_BLOCK_BYTES);
        // To open a store, RocksDB starts this many threads less one, even if there are no files. Its default is 16.
        options.set_max_file_opening_threads(1);
        // One buffer is being written, one is being flushed, and one more keeps writes from waiting for the flush.
        options.set_max_write_buffer_number(3);
        // Writes continue or stop, see `Rocks::write`; they are never slowed down.
        options.set_level_zero_slowdown_writes_trigger(LEVEL_ZERO_FILES_MAX);
        options.set_level_zero_stop_writes_trigger(LEVEL_ZERO_FILES_MAX);
        options.set_soft_pending_compaction_bytes_limit(0);
        options.set_memtable_prefix_bloom_ratio(0.02);
        options.set_memtable_whole_key_filtering(true);
        // Entries are mostly digests, which do not compress; and without compression, lookups in an uncached block are
        // a sixth faster.
        options.set_compression_type(DBCompressionType::None);
        options.set_target_file_size_base(self.file_bytes);
        options.set_max_open_files(i32::try_from(OPEN_FILES_BYTES / self.file_bytes).unwrap_or(i32::MAX));
        options.set_max_background_jobs(STORE_JOBS);
        options.set_bytes_per_sync(1 << 20);
        options.set_max_manifest_file_size(MANIFEST_BYTES_MAX);
        options.set_log_level(LogLevel::Warn);
        options.set_keep_log_file_num(2);
        options.set_max_log_file_size(LOG_BYTES_MAX);
        // Statistics in the log are written by a thread that wakes up for every store.
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }

    fn table_options(&self) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        // Indexes and filters are in the cache, so that the budget covers them. Those of level 0, which every miss
        // checks, are pinned.
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_bloom_filter(FILTER_BITS, false);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
        table
    }
}

/// The cache of blocks, which shrinks by the memory of loads and memtables.
struct BlockCache {
    cache: Cache,
    /// The whole budget, which the cache has while loads and memtables need no memory.
    bytes: usize,
    /// The memory that is reserved for load buffers.
    load_bytes: AtomicUsize,
    /// The memory that is reserved for memtables, a multiple of [`MEMTABLES_BYTES_STEP`].
    memtable_bytes: AtomicUsize,
}

impl BlockCache {
    fn new(cache: Cache, bytes: usize) -> Self {
        Self { cache, bytes, load_bytes: AtomicUsize::new(0), memtable_bytes: AtomicUsize::new(0) }
    }

    fn reserve_for_loads(&self, bytes: usize) {
        self.load_bytes.store(bytes, Ordering::Relaxed);
        self.resize_cache();
    }

    fn reserve_for_memtables(&self, bytes: usize) {
        let bytes = bytes.next_multiple_of(MEMTABLES_BYTES_STEP);
        if self.memtable_bytes.swap(bytes, Ordering::Relaxed) != bytes {
            self.resize_cache();
        }
    }

    /// Sets the cache's capacity. If two threads call this at once, the capacity may be one change behind until the
    /// next call.
    fn resize_cache(&self) {
        self.cache.clone().set_capacity(self.cache_bytes_max());
    }

    /// The memory that loads and memtables leave to the cache.
    fn cache_bytes_max(&self) -> usize {
        let reserved_bytes = self.load_bytes.load(Ordering::Relaxed) + self.memtable_bytes.load(Ordering::Relaxed);
        self.bytes.saturating_sub(reserved_bytes)
    }
}

/// The memory budget for load buffers, all of which have the same size.
struct Loads {
    buffer_bytes: usize,
    buffers_max: usize,
    blocks: Arc<BlockCache>,
    buffers_in_use: Mutex<usize>,
    builders: Builders,
}

impl Loads {
    fn new(blocks: Arc<BlockCache>, memory_bytes: usize, builders: Builders) -> Self {
        let bytes = memory_bytes / LOADS_SHARE;
        let with_build_memory = |buffer_bytes: usize| buffer_bytes + buffer_bytes / BUILD_SHARE;
        // A buffer, together with the memory for building its file, takes 1 / LOAD_BUFFERS of the loads' memory.
        let share = bytes / LOAD_BUFFERS * BUILD_SHARE / (BUILD_SHARE + 1);
        let buffer_bytes = share.clamp(LOAD_BUFFER_BYTES_MIN, LOAD_BUFFER_BYTES_MAX);
        let buffers_max = (bytes / with_build_memory(buffer_bytes)).max(LOAD_BUFFERS_MIN);
        Self { buffer_bytes, buffers_max, blocks, buffers_in_use: Mutex::new(0), builders }
    }

    /// A share for one more buffer; `None` if `buffers_max` buffers are in use.
    fn take_buffer(loads: &Arc<Self>) -> Option<LoadBufferShare> {
        let mut buffers_in_use = loads.buffers_in_use();
        (*buffers_in_use < loads.buffers_max).then(|| {
            loads.set_buffers_in_use(&mut buffers_in_use, |count| count + 1);
            LoadBufferShare { loads: Arc::clone(loads) }
        })
    }

    /// Changes the number of buffers in use by `count`, which gets the old number and returns the new one, and reserves
    /// memory for as many buffers.
    fn set_buffers_in_use(&self, buffers_in_use: &mut usize, count: impl Fn(usize) -> usize) {
        *buffers_in_use = count(*buffers_in_use);
        self.blocks.reserve_for_loads(*buffers_in_use * (self.buffer_bytes + self.buffer_bytes / BUILD_SHARE));
    }

    fn buffers_in_use(&self) -> MutexGuard<'_, usize> {
        self.buffers_in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One load buffer's share of the budget; dropping it releases the share.
pub(super) struct LoadBufferShare {
    loads: Arc<Loads>,
}

impl LoadBufferShare {
    /// An empty buffer that keeps within this share.
    pub fn buffer(self) -> LoadBuffer {
        LoadBuffer::allocated(self.records(), Box::new(self))
    }

    /// How many records of typical size fit into the share.
    fn records(&self) -> usize {
        self.loads.buffer_bytes / LoadBuffer::RECORD_BYTES
    }
}

impl BufferBound for LoadBufferShare {
    fn has_room(&self, buffer: &LoadBuffer, records: usize) -> bool {
        buffer.fits(records, self.records())
    }
}

impl Drop for LoadBufferShare {
    fn drop(&mut self) {
        self.loads.set_buffers_in_use(&mut self.loads.buffers_in_use(), |count| count - 1);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("used_bytes", &self.used_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the options file that RocksDB itself writes for a store.
    #[test]
    fn files_are_smaller_and_more_numerous_with_little_memory() {
        for (memory_mib, file_mib, open_files_max) in
            [(8, 16, 192), (40, 16, 192), (160, 40, 76), (640, 64, 48), (6_400, 64, 48)]
        {
            let folder = tempfile::tempdir().unwrap();
            let memory = RocksMemory::new(memory_mib << 20, Builders::none());
            drop(rocksdb::DB::open(&memory.options(), folder.path()).unwrap());
            let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
            let options_files = files.filter(|file| file.to_string_lossy().contains("OPTIONS-"));
            let options: String = options_files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
            for line in [
                format!("target_file_size_base={}\n", file_mib << 20),
                format!("max_open_files={open_files_max}\n"),
                "max_file_opening_threads=1\n".to_owned(),
            ] {
                assert!(options.contains(&line), "{memory_mib} MiB: {line}");
            }
        }
    }
}
