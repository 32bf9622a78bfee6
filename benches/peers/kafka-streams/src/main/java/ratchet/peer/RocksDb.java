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

/** One memory budget for all stores, as Kafka Streams' memory management guide shows it. */
public final class RocksDb implements RocksDBConfigSetter {
    private static final Map<String, String> ENV = System.getenv();
    private static final long TOTAL = Long.parseLong(ENV.getOrDefault("PEER_TOTAL_MB", "1024")) << 20;
    private static final long WRITES = Long.parseLong(ENV.getOrDefault("PEER_WRITES_MB", "256")) << 20;
    private static final Cache CACHE = new LRUCache(TOTAL, -1, false, 0.1);
    private static final WriteBufferManager BUFFERS = new WriteBufferManager(WRITES, CACHE);

    private final Filter filter = new BloomFilter(10);

    @Override
    public void setConfig(String store, Options options, Map<String, Object> settings) {
        String mode = ENV.getOrDefault("PEER_ROCKS", "");
        if (mode.contains("default")) {
            return;
        }
        BlockBasedTableConfig table = (BlockBasedTableConfig) options.tableFormatConfig();
        table.setBlockCache(CACHE);
        table.setFilterPolicy(filter);
        if (!mode.contains("noindex")) {
            table.setCacheIndexAndFilterBlocks(true);
            table.setCacheIndexAndFilterBlocksWithHighPriority(true);
            table.setPinTopLevelIndexAndFilter(true);
        }
        options.setTableFormatConfig(table);
        options.setWriteBufferManager(BUFFERS);
        if (!mode.contains("hits")) {
            options.setOptimizeFiltersForHits(false);
        }
        if (mode.contains("wb64")) {
            options.setWriteBufferSize(64L << 20);
        }
        if (mode.contains("wb32")) {
            options.setWriteBufferSize(32L << 20);
        }
        if (mode.contains("membloom")) {
            options.setMemtablePrefixBloomSizeRatio(0.1);
            options.setMemtableWholeKeyFiltering(true);
        }
        if (mode.contains("hash")) {
            table.setDataBlockIndexType(org.rocksdb.DataBlockIndexType.kDataBlockBinaryAndHash);
        }
        if (mode.contains("level")) {
            options.setCompactionStyle(org.rocksdb.CompactionStyle.LEVEL);
        }
    }

    @Override
    public void close(String store, Options options) {
        filter.close();
    }
}
