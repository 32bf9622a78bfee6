//! The options of the database of requests.

use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, LogLevel, Options};

/// The block cache: it holds the filters of a day's requests, and the responses to repeated requests.
const CACHE_BYTES: usize = 64 << 20;
pub(super) const WRITE_BUFFER_BYTES: usize = 16 << 20;
/// The part of the write buffer that is a filter: most requests that are looked up are new, which the filter shows at
/// once.
const WRITE_BUFFER_FILTER: f64 = 0.02;
/// Bits of a file's filter per key: the lookup of only one in a hundred new requests reads a block.
const FILTER_BITS: f64 = 10.0;
const OPEN_FILES_MAX: i32 = 256;
/// The bounds of RocksDB's text logs, which are for people to read.
const TEXT_LOG_BYTES_MAX: usize = 1 << 20;
const TEXT_LOG_FILES_MAX: usize = 2;
/// The write-ahead log is written out in steps of this size, so that a sync has little left to do.
const LOG_STEP_BYTES: u64 = 1 << 20;
/// How many old write-ahead logs are kept to be overwritten: as long as a file does not grow, a sync need not write its
/// length. Behind the end of such a log there are bytes of an older one. No client can make these look like the log's
/// next record, since responses are stored masked (`format::request`).
const OLD_LOGS: usize = 2;

/// Options for requests: most keys that are looked up are new.
pub(super) fn request_options() -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
    blocks.set_bloom_filter(FILTER_BITS, false);
    blocks.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_memtable_prefix_bloom_ratio(WRITE_BUFFER_FILTER);
    options.set_memtable_whole_key_filtering(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_wal_bytes_per_sync(LOG_STEP_BYTES);
    options.set_recycle_log_file_num(OLD_LOGS);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(TEXT_LOG_BYTES_MAX);
    options.set_keep_log_file_num(TEXT_LOG_FILES_MAX);
    options
}
