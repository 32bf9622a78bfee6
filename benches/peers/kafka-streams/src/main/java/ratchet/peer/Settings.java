package ratchet.peer;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Kafka Streams' settings: those of the benchmark, and those that made it fastest (benches/peers/README.md
 * says how they were found). {@code PEER_PROPERTIES} adds or replaces any of them, as {@code name=value,name=value}.
 */
final class Settings {
    private Settings() {}

    static Map<String, Object> of(Map<String, String> environment) {
        Map<String, Object> settings = new HashMap<>();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, required(environment, "BENCH_BROKERS"));
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, required(environment, "BENCH_GROUP"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, required(environment, "BENCH_STATE_DIR"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, environment.getOrDefault("BENCH_COMMIT_MS", "100"));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, environment.getOrDefault("BENCH_THREADS", "2"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, RocksDb.class);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        throughput(settings);
        takeover(settings);
        for (String property : environment.getOrDefault("PEER_PROPERTIES", "").split(",")) {
            if (!property.isBlank()) {
                String[] parts = property.split("=", 2);
                settings.put(parts[0], parts[1]);
            }
        }
        return settings;
    }

    /** Fewer, larger requests and batches: the defaults are for many small tasks. */
    private static void throughput(Map<String, Object> settings) {
        settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 5_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 2_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG), 4 << 20);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 << 10);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BUFFER_MEMORY_CONFIG), 128L << 20);
        // A restore writes the result of a poll in one batch.
        settings.put(StreamsConfig.restoreConsumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 20_000);
    }

    /** The same timeouts as ratchet's. */
    private static void takeover(Map<String, Object> settings) {
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 10_000);
    }

    static String required(Map<String, String> environment, String name) {
        String value = environment.get(name);
        if (value == null || value.isEmpty()) {
            throw new IllegalArgumentException(name + " is not set");
        }
        return value;
    }
}
