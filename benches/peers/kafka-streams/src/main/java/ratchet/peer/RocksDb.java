package ratchet.peer;

import java.util.Map;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.Cache;
import org.rocksdb.Filter;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.WriteBufferManager;

/**
 * One bounded memory for all stores, as Kafka Streams' guide to memory management shows it; and a bloom filter of every
 * level: Streams leaves out the last one's, where most lookups of what was never seen end.
 */
public final class RocksDb implements RocksDBConfigSetter {
    /** Blocks and what is not written yet. Indexes and filters come on top, 1.5 bytes for each key: that is faster. */
    private static final long MEMORY_BYTES = megabytes("PEER_MEMORY_MB", 1024);

    /** The part of it that may hold what is not written yet. */
    private static final long WRITES_BYTES = MEMORY_BYTES / 4;

    private static final long WRITE_BUFFER_BYTES = 64L << 20;
    private static final int FILTER_BITS = 10;

    private static final Cache CACHE = new LRUCache(MEMORY_BYTES);
    private static final WriteBufferManager WRITES = new WriteBufferManager(WRITES_BYTES, CACHE);

    private final Filter filter = new BloomFilter(FILTER_BITS);

    private static long megabytes(String name, long usually) {
        String text = System.getenv(name);
        return (text == null ? usually : Long.parseLong(text)) << 20;
    }

    @Override
    public void setConfig(String store, Options options, Map<String, Object> settings) {
        BlockBasedTableConfig table = (BlockBasedTableConfig) options.tableFormatConfig();
        table.setBlockCache(CACHE);
        table.setFilterPolicy(filter);
        options.setTableFormatConfig(table);
        options.setOptimizeFiltersForHits(false);
        options.setWriteBufferManager(WRITES);
        options.setWriteBufferSize(WRITE_BUFFER_BYTES);
    }

    /** The memory is the process's and stays. */
    @Override
    public void close(String store, Options options) {
        filter.close();
    }
}
