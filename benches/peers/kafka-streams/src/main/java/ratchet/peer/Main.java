package ratchet.peer;

import java.time.Duration;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * Runs one of the benchmark's jobs until SIGTERM, which leaves the group in good order and exits with 0.
 *
 * <p>Standard output carries one line for each event, its time in milliseconds since 1970 first: {@code TIME state
 * OLD NEW}, {@code TIME restore-start PARTITION FROM TO}, {@code TIME restore-end PARTITION RECORDS}; and {@code ready}
 * alone on a line when everything is restored and running for the first time.
 */
public final class Main {
    /** The same as ratchet's limit for a clean end; and it leaves the group, where Streams lets its session time out. */
    private static final CloseOptions CLOSE =
            CloseOptions.timeout(Duration.ofSeconds(25))
                    .withGroupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP);

    private Main() {}

    /** The settings come from the environment: see {@link Settings}. */
    public static void main(String[] args) {
        Map<String, String> environment = System.getenv();
        KafkaStreams streams = new KafkaStreams(topology(environment), new StreamsConfig(Settings.of(environment)));
        streams.setStateListener(new Told());
        streams.setGlobalStateRestoreListener(new Restores());
        streams.setUncaughtExceptionHandler(
                error -> {
                    error.printStackTrace();
                    // Not `exit`: its hook would wait for this very thread.
                    Runtime.getRuntime().halt(1);
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        // A JVM that ends by SIGTERM reports 143 unless it is halted.
        Runtime.getRuntime()
                .addShutdownHook(new Thread(() -> Runtime.getRuntime().halt(streams.close(CLOSE) ? 0 : 1)));
        streams.start();
    }

    private static Topology topology(Map<String, String> environment) {
        Job.Maker job = Job.of(environment);
        StoreBuilder<?> store =
                Stores.keyValueStoreBuilder(
                                Stores.persistentKeyValueStore(Job.STORE), Serdes.ByteArray(), Serdes.ByteArray())
                        .withLoggingEnabled(Map.of())
                        .withCachingDisabled();
        SamePartition samePartition = new SamePartition();
        ByteArraySerializer serializer = new ByteArraySerializer();
        ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
        String input = Settings.required(environment, "BENCH_INPUT");
        String output = Settings.required(environment, "BENCH_OUTPUT");
        return new Topology()
                .addSource("in", deserializer, deserializer, input)
                .addProcessor("job", () -> job.processor(samePartition), "in")
                .addStateStore(store, "job")
                .addSink("out", output, serializer, serializer, samePartition, "job");
    }

    private static synchronized void tell(String what) {
        System.out.println(System.currentTimeMillis() + " " + what);
        System.out.flush();
    }

    private static final class Told implements KafkaStreams.StateListener {
        private boolean wasReady;

        @Override
        public void onChange(KafkaStreams.State now, KafkaStreams.State before) {
            tell("state " + before + " " + now);
            if (now == KafkaStreams.State.RUNNING && !wasReady) {
                wasReady = true;
                System.out.println("ready");
                System.out.flush();
            }
        }
    }

    private static final class Restores implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
            tell("restore-start " + partition.partition() + " " + from + " " + to);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long records) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long records) {
            tell("restore-end " + partition.partition() + " " + records);
        }
    }
}
