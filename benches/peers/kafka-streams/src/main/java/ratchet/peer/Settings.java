package ratchet.peer;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Kafka Streams' settings: what the benchmark asks for, and what made it fastest (README.md beside the build says how
 * that was found). {@code PEER_PROPERTIES} adds or replaces any of them, as {@code name=value,name=value}.
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

    private static void throughput(Map<String, Object> settings) {
    }

    /** The same times as ratchet's; and a closed instance says so, where Streams by default lets it time out. */
    private static void takeover(Map<String, Object> settings) {
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 10_000);
        settings.put(StreamsConfig.mainConsumerPrefix("internal.leave.group.on.close"), true);
    }

    static String required(Map<String, String> environment, String name) {
        String value = environment.get(name);
        if (value == null || value.isEmpty()) {
            throw new IllegalArgumentException(name + " is not set");
        }
        return value;
    }

    static boolean flag(Map<String, String> environment, String name) {
        return environment.getOrDefault(name, "0").equals("1");
    }
}
