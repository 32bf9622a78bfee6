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
 * One bounded memory for all stores, as in Kafka Streams' guide to memory management; and a bloom filter for every
 * level: Streams leaves out the last level's, where most lookups of new keys end.
 */
public final class RocksDb implements RocksDBConfigSetter {
    /** Blocks and write buffers. Indexes and filters come on top, with 1.5 bytes per key: that is faster. */
    private static final long MEMORY_BYTES = megabytes("PEER_MEMORY_MB", 1024);

    /** The part of it for write buffers. */
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

    /** The memory belongs to the process and stays. */
    @Override
    public void close(String store, Options options) {
        filter.close();
    }
}
