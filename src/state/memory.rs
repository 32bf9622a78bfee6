//! What all stores of a process share: one block cache, one budget of write buffers charged to it, and
//! RocksDB's few background threads. And the options that every store is opened with.
//!
//! They are made for many small stores that mostly miss: a task's usual question is for an identity that
//! it has never seen, and a worker may have hundreds of tasks.

use std::fmt;

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, Env, LogLevel, Options, WriteBufferManager,
};

/// Blocks take the rest of the memory; more for write buffers makes fewer, larger flushes.
const WRITE_BUFFERS_SHARE: u64 = 4;
/// One store's part of the memory before it flushes by itself.
const WRITE_BUFFER_SHARE: u64 = 64;
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;
const WRITE_BUFFER_BYTES_MAX: u64 = 16 << 20;
/// A memtable allocates in steps of this; RocksDB's own choice (1 MiB) would take a quarter of a gigabyte
/// from 256 stores with one entry each.
const ARENA_BLOCK_BYTES: usize = 64 << 10;
/// Table files that one store keeps open, about 2 GB of entries; more are opened when they are read.
const OPEN_FILES_MAX: i32 = 48;
/// Bits of the full-key filter for each entry: one lookup in a hundred of an unknown identity reads a block.
const FILTER_BITS: f64 = 10.0;
/// Every miss asks the filter of each of these: beyond, writes wait for a compaction.
const LEVEL_ZERO_FILES_MAX: i32 = 36;
const LOG_BYTES_MAX: usize = 1 << 20;
const MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Flushes of all stores together; a flush is short.
const FLUSH_THREADS: i32 = 2;
/// Compactions of all stores together.
const COMPACTION_THREADS: i32 = 2;

/// One budget of memory for all stores of a process: the block cache, and the write buffers inside it.
/// Cheap to clone; all clones are the same budget.
#[derive(Clone)]
pub struct Memory {
    cache: Cache,
    buffers: WriteBufferManager,
    /// `None` where RocksDB has no environment to give; its stores then use the default one.
    env: Option<Env>,
    write_buffer_bytes: usize,
}

impl Memory {
    /// A budget of `bytes` for all stores together. It is kept by evicting blocks and flushing write
    /// buffers, not by refusing: what is in use at a moment may pass it.
    pub fn new(bytes: u64) -> Self {
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let cache = Cache::new_lru_cache(to_usize(bytes));
        let buffers_bytes = (bytes / WRITE_BUFFERS_SHARE).max(WRITE_BUFFER_BYTES_MIN);
        // Writers are not stalled: a lane that has committed to Kafka must be able to apply the overlay.
        let buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(to_usize(buffers_bytes), false, cache.clone());
        let env = Env::new().ok().map(|mut env| {
            env.set_high_priority_background_threads(FLUSH_THREADS);
            env.set_low_priority_background_threads(COMPACTION_THREADS);
            env
        });
        let write_buffer_bytes = (bytes / WRITE_BUFFER_SHARE).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX);
        Self { cache, buffers, env, write_buffer_bytes: to_usize(write_buffer_bytes) }
    }

    /// Bytes in use, write buffers included.
    pub fn used_bytes(&self) -> usize {
        self.cache.get_usage()
    }

    /// What a store is opened with.
    pub(super) fn options(&self) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        if let Some(env) = &self.env {
            options.set_env(env);
        }
        options.set_block_based_table_factory(&self.table_options());
        options.set_write_buffer_manager(&self.buffers);
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_arena_block_size(ARENA_BLOCK_BYTES);
        // One is written, one is flushed, one more so that writing need not wait for the flush.
        options.set_max_write_buffer_number(3);
        // Writes go on or stop, see `Store::write`; they are never slowed down.
        options.set_level_zero_slowdown_writes_trigger(LEVEL_ZERO_FILES_MAX);
        options.set_level_zero_stop_writes_trigger(LEVEL_ZERO_FILES_MAX);
        options.set_soft_pending_compaction_bytes_limit(0);
        options.set_memtable_prefix_bloom_ratio(0.02);
        options.set_memtable_whole_key_filtering(true);
        // Cold data only: what was just flushed is read most and soon rewritten by a compaction.
        options.set_compression_type(DBCompressionType::None);
        options.set_bottommost_compression_type(DBCompressionType::Lz4);
        options.set_max_open_files(OPEN_FILES_MAX);
        options.set_max_background_jobs(FLUSH_THREADS + COMPACTION_THREADS);
        options.set_bytes_per_sync(1 << 20);
        options.set_max_manifest_file_size(MANIFEST_BYTES_MAX);
        options.set_log_level(LogLevel::Warn);
        options.set_keep_log_file_num(2);
        options.set_max_log_file_size(LOG_BYTES_MAX);
        // Statistics in the log are written by a thread that wakes for every store.
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }

    fn table_options(&self) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        // In the cache, so that the budget holds; pinned for level 0, which every miss has to ask.
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_bloom_filter(FILTER_BITS, false);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
        table
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("used_bytes", &self.used_bytes()).finish_non_exhaustive()
    }
}
