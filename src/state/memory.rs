//! What all stores of a process share: one block cache, one budget of write buffers charged to it, one of memtables, for
//! which the cache shrinks, and RocksDB's few background threads. And the options with which every store is opened.
//!
//! They are tuned for many small stores that mostly miss: a task's typical lookup is for an identity that
//! it has never seen, and a worker may have hundreds of tasks.

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
use super::load::{Bound, LoadBuffer};
use super::memtable::{Bounds, Budget};

/// The fraction for memtables is 1 / this; a larger one would mean fewer, larger files.
const MEMTABLES_SHARE: usize = 4;
/// The bounds of one memtable, whatever its store's share is. A larger one takes too long to write in the end.
const MEMTABLE_BYTES: RangeInclusive<usize> = 64 << 10..=64 << 20;
/// The changelog records in all active memtables, which are read again after a crash: so many take well below a second.
const MEMTABLES_RECORDS: usize = 2_000_000;
/// The bounds of one memtable; fewer make many small files where there are many stores, which hardly are at full load all
/// at once.
const MEMTABLE_RECORDS: RangeInclusive<usize> = 32_000..=500_000;
/// The cache shrinks for memtables in steps of this size.
const MEMTABLES_STEP: usize = 1 << 20;
/// The fraction for RocksDB's own write buffers, which take what is too little for a file, is 1 / this.
const WRITE_BUFFERS_SHARE: u64 = 8;
/// One store's fraction of the memory before it flushes.
const WRITE_BUFFER_SHARE: u64 = 64;
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;
const WRITE_BUFFER_BYTES_MAX: u64 = 16 << 20;
/// Allocation step of a memtable; RocksDB's default (1 MiB) would take a quarter of a gigabyte
/// for 256 stores with one entry each.
const ARENA_BLOCK_BYTES: usize = 64 << 10;
/// One table file's fraction of the memory. A compaction keeps up to 30 % of a file's size in memory while it writes the
/// file (8 bytes of each entry for the filter, and the index twice), and no budget knows of that.
const FILE_SHARE: u64 = 4;
const FILE_BYTES_MIN: u64 = 16 << 20;
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The table files that one store keeps open, in bytes: about 2 GB of entries. Others are opened when they are read.
const OPEN_FILES_BYTES: u64 = 48 * FILE_BYTES_MAX;
/// Bits of the full-key filter per entry: one in a hundred lookups of an unknown identity reads a block.
const FILTER_BITS: f64 = 10.0;
/// How aggressively blocks of replaced files are evicted from the cache: the value that RocksDB's authors intend as the
/// default.
const UNCACHE: &str = "uncache_aggressiveness=300";
/// The cache counts as full from here on, 1 / this below its size: its parts do not fill alike.
const CACHE_FULL_SHARE: usize = 8;
/// Every miss checks the filter of each of these files: beyond this number, writes wait for a compaction. A load leaves
/// some dozens, and later writes do not wait until they are merged.
const LEVEL_ZERO_FILES_MAX: i32 = 256;
const LOG_BYTES_MAX: usize = 1 << 20;
const MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Concurrent flushes of all stores together; a flush is short.
const FLUSH_THREADS: i32 = 2;
/// Concurrent compactions of all stores together.
pub(super) const COMPACTION_THREADS: i32 = 2;
/// Concurrent jobs of one store. RocksDB assigns a quarter of them to flushes, at least one, and starts threads of its
/// own for the rest if there are fewer: those would compact with a lane's priority.
const STORE_JOBS: i32 = 1 + COMPACTION_THREADS;
const _: () = assert!(STORE_JOBS / 4 <= 1);

/// Loads may take at most 1 / this of the memory, as blocks are evicted for them.
const LOADS_SHARE: usize = 2;
/// The target number of load buffers: one for each of some loads that fill theirs, and some being built.
const LOAD_BUFFERS: usize = 8;
const LOAD_BUFFERS_MIN: usize = 2;
/// A smaller buffer makes too many files from a changelog, a larger one takes too long to build at the end.
const LOAD_BUFFER_BYTES_MIN: usize = 4 << 20;
const LOAD_BUFFER_BYTES_MAX: usize = 64 << 20;
/// Building a table file takes 1 / this of its buffer's size in addition, for the filter's hashes and blocks.
const BUILD_SHARE: usize = 5;

/// One memory budget for all stores of a process: the block cache, the write buffers inside it, and the memtables and
/// the buffers of loads, for which the cache shrinks while there are any. It also determines where the stores are. Cheap to clone;
/// all clones are the same budget.
#[derive(Clone)]
pub struct Memory(Arc<dyn Disk>);

impl Memory {
    /// A budget of `bytes` for all stores together, which are on this machine's disk. It is enforced by evicting blocks
    /// and flushing write buffers, not by rejecting writes: current use may exceed it.
    pub fn new(bytes: u64) -> Self {
        Self::on(Arc::new(RocksMemory::new(bytes, Builders::default())))
    }

    /// The same without builder threads: for a simulation, whose time does not wait for them.
    pub fn without_builders(bytes: u64) -> Self {
        Self::on(Arc::new(RocksMemory::new(bytes, Builders::none())))
    }

    /// The same, with memtables of so many bytes and changelog records at most.
    #[cfg(test)]
    pub(super) fn with_memtables(bytes: u64, table_bytes: usize, records_max: usize) -> Self {
        let mut memory = RocksMemory::new(bytes, Builders::default());
        let bytes = Bounds { all: usize::MAX, table: table_bytes..=table_bytes };
        let records = Bounds { all: records_max, table: records_max..=records_max };
        memory.memtables = Arc::new(Budget::new(bytes, records, |_| {}));
        Self::on(Arc::new(memory))
    }

    /// The memory of stores on another disk.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self(disk)
    }

    /// Where the stores are.
    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.0
    }

    /// A buffer for a load; `None` while other loads have the whole budget.
    /// Its share is released when it was loaded, or is dropped.
    pub fn load_buffer(&self) -> Option<LoadBuffer> {
        self.0.load_buffer()
    }

    /// Bytes in use, memtables included.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }
}

/// The memory of all RocksDBs of a process.
#[derive(Clone)]
pub(super) struct RocksMemory {
    cache: Cache,
    loads: Arc<Loads>,
    memtables: Arc<Budget>,
    buffers: WriteBufferManager,
    /// `None` if RocksDB cannot create an environment; its stores then use the default one.
    env: Option<Env>,
    write_buffer_bytes: usize,
    /// How large compactions make table files.
    file_bytes: u64,
}

impl RocksMemory {
    /// A budget of `bytes`, with these builders for loads.
    pub fn new(bytes: u64, builders: Builders) -> Self {
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let cache = Cache::new_lru_cache(to_usize(bytes));
        let buffers_bytes = (bytes / WRITE_BUFFERS_SHARE).max(WRITE_BUFFER_BYTES_MIN);
        // Writers are not stalled: a lane that has committed to Kafka must be able to apply the overlay.
        let buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(to_usize(buffers_bytes), false, cache.clone());
        let env = Env::new().ok().map(|mut env| {
            env.set_high_priority_background_threads(FLUSH_THREADS);
            env.set_low_priority_background_threads(COMPACTION_THREADS);
            background::let_compactions_yield();
            env
        });
        let write_buffer_bytes = (bytes / WRITE_BUFFER_SHARE).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX);
        let blocks = Arc::new(Blocks::new(cache.clone(), to_usize(bytes)));
        let loads = Arc::new(Loads::new(Arc::clone(&blocks), to_usize(bytes), builders));
        let of_memtables = Bounds { all: to_usize(bytes) / MEMTABLES_SHARE, table: MEMTABLE_BYTES };
        let records = Bounds { all: MEMTABLES_RECORDS, table: MEMTABLE_RECORDS };
        let memtables = Budget::new(of_memtables, records, move |used| blocks.leave_to_memtables(used));
        let (memtables, write_buffer_bytes) = (Arc::new(memtables), to_usize(write_buffer_bytes));
        let file_bytes = (bytes / FILE_SHARE).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        Self { cache, loads, memtables, buffers, env, write_buffer_bytes, file_bytes }
    }

    /// What the memtables may take.
    pub fn memtables(&self) -> &Arc<Budget> {
        &self.memtables
    }

    /// A share of the budget for a load's buffer; `None` while others have all of it.
    pub fn share_for_load(&self) -> Option<BudgetShare> {
        Loads::take(&self.loads)
    }

    /// The cache's size, write buffers included.
    pub fn cache_bytes(&self) -> usize {
        self.cache.get_usage()
    }

    /// Whether a block more in the cache means one less.
    pub fn is_cache_full(&self) -> bool {
        let bytes = self.loads.blocks.bytes_left();
        self.cache.get_usage() >= bytes - bytes / CACHE_FULL_SHARE
    }

    /// The threads that build table files.
    pub fn builders(&self) -> &Builders {
        &self.loads.builders
    }

    /// The options for opening a store.
    pub fn options(&self) -> Options {
        let mut options = Options::default();
        // Blocks of files that a compaction has replaced are evicted with them; otherwise they fill the cache. The
        // bindings offer no other way to set it.
        options = options.get_options_from_string(UNCACHE).expect("RocksDB knows its own option");
        options.create_if_missing(true);
        if let Some(env) = &self.env {
            options.set_env(env);
        }
        options.set_block_based_table_factory(&self.table_options());
        options.set_write_buffer_manager(&self.buffers);
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_arena_block_size(ARENA_BLOCK_BYTES);
        // To open a store, RocksDB starts this many threads less one, even if there are no files. Its default is 16.
        options.set_max_file_opening_threads(1);
        // One is being written, one is being flushed, one more so that writes need not wait for the flush.
        options.set_max_write_buffer_number(3);
        // Writes continue or stop, see `Store::write`; they are never slowed down.
        options.set_level_zero_slowdown_writes_trigger(LEVEL_ZERO_FILES_MAX);
        options.set_level_zero_stop_writes_trigger(LEVEL_ZERO_FILES_MAX);
        options.set_soft_pending_compaction_bytes_limit(0);
        options.set_memtable_prefix_bloom_ratio(0.02);
        options.set_memtable_whole_key_filtering(true);
        // Mostly digests, which do not compress; and lookups in an uncached block are a sixth faster.
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
        // In the cache, so that the budget is kept; pinned for level 0, which every miss has to check.
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_bloom_filter(FILTER_BITS, false);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
        table
    }
}

/// The cache of blocks, which leaves what others need of the whole.
struct Blocks {
    cache: Cache,
    /// What it may take while nobody else needs anything.
    bytes: usize,
    for_loads: AtomicUsize,
    /// In steps.
    for_memtables: AtomicUsize,
}

impl Blocks {
    fn new(cache: Cache, bytes: usize) -> Self {
        Self { cache, bytes, for_loads: AtomicUsize::new(0), for_memtables: AtomicUsize::new(0) }
    }

    fn leave_to_loads(&self, bytes: usize) {
        self.for_loads.store(bytes, Ordering::Relaxed);
        self.fit();
    }

    fn leave_to_memtables(&self, bytes: usize) {
        let bytes = bytes.next_multiple_of(MEMTABLES_STEP);
        if self.for_memtables.swap(bytes, Ordering::Relaxed) != bytes {
            self.fit();
        }
    }

    /// Two at once may leave a size that is old by one step, until the next change.
    fn fit(&self) {
        self.cache.clone().set_capacity(self.bytes_left());
    }

    /// What the others leave to it.
    fn bytes_left(&self) -> usize {
        let others = self.for_loads.load(Ordering::Relaxed) + self.for_memtables.load(Ordering::Relaxed);
        self.bytes.saturating_sub(others)
    }
}

/// The memory budget for loads.
struct Loads {
    buffer_bytes: usize,
    buffers_max: usize,
    blocks: Arc<Blocks>,
    /// How many buffers are in use.
    taken: Mutex<usize>,
    builders: Builders,
}

impl Loads {
    fn new(blocks: Arc<Blocks>, cache_bytes: usize, builders: Builders) -> Self {
        let bytes = cache_bytes / LOADS_SHARE;
        let of_one = |buffer_bytes: usize| buffer_bytes + buffer_bytes / BUILD_SHARE;
        let share = bytes / LOAD_BUFFERS * BUILD_SHARE / (BUILD_SHARE + 1);
        let buffer_bytes = share.clamp(LOAD_BUFFER_BYTES_MIN, LOAD_BUFFER_BYTES_MAX);
        let buffers_max = (bytes / of_one(buffer_bytes)).max(LOAD_BUFFERS_MIN);
        Self { buffer_bytes, buffers_max, blocks, taken: Mutex::new(0), builders }
    }

    fn take(loads: &Arc<Self>) -> Option<BudgetShare> {
        let mut taken = loads.taken();
        (*taken < loads.buffers_max).then(|| {
            loads.set(&mut taken, |count| count + 1);
            BudgetShare { loads: Arc::clone(loads) }
        })
    }

    fn set(&self, taken: &mut usize, count: impl Fn(usize) -> usize) {
        *taken = count(*taken);
        self.blocks.leave_to_loads(*taken * (self.buffer_bytes + self.buffer_bytes / BUILD_SHARE));
    }

    fn taken(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One load buffer's share of the budget; released when dropped.
pub(super) struct BudgetShare {
    loads: Arc<Loads>,
}

impl BudgetShare {
    /// An empty buffer that keeps within this share.
    pub fn buffer(self) -> LoadBuffer {
        LoadBuffer::allocated(self.records(), Box::new(self))
    }

    /// How many records of typical size fit.
    fn records(&self) -> usize {
        self.loads.buffer_bytes / LoadBuffer::RECORD_BYTES
    }
}

impl Bound for BudgetShare {
    fn has_room(&self, buffer: &LoadBuffer, records: usize) -> bool {
        buffer.fits(records, self.records())
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.loads.set(&mut self.loads.taken(), |count| count - 1);
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

    /// What RocksDB itself says of an open store.
    #[test]
    fn files_are_smaller_and_more_where_there_is_little_memory() {
        for (memory_mib, file_mib, open) in [(8, 16, 192), (40, 16, 192), (160, 40, 76), (640, 64, 48), (6_400, 64, 48)]
        {
            let folder = tempfile::tempdir().unwrap();
            let memory = RocksMemory::new(memory_mib << 20, Builders::none());
            drop(rocksdb::DB::open(&memory.options(), folder.path()).unwrap());
            let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
            let written = files.filter(|file| file.to_string_lossy().contains("OPTIONS-"));
            let written: String = written.map(|file| std::fs::read_to_string(file).unwrap()).collect();
            for line in [
                format!("target_file_size_base={}\n", file_mib << 20),
                format!("max_open_files={open}\n"),
                "max_file_opening_threads=1\n".to_owned(),
            ] {
                assert!(written.contains(&line), "{memory_mib} MiB: {line}");
            }
        }
    }
}
