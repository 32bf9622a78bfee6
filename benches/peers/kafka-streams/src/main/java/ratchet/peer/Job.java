package ratchet.peer;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.avro.Schema;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/** Processes a task's records; one for each task. Forwarded records are unchanged. */
abstract class Job implements Processor<byte[], byte[], byte[], byte[]> {
    /** The store's name, which is part of the changelog's. */
    static final String STORE = "seen";

    private final SamePartition samePartition;
    private Optional<Set<Integer>> partition;
    private ProcessorContext<byte[], byte[]> context;

    /** The remembered state. */
    protected KeyValueStore<byte[], byte[]> store;

    private Job(SamePartition samePartition) {
        this.samePartition = samePartition;
    }

    /** Creates a task's processor. */
    interface Maker {
        Job processor(SamePartition samePartition);
    }

    /** The job that the environment names. */
    static Maker of(Map<String, String> environment) {
        String part = Settings.required(environment, "BENCH_PART");
        return switch (part) {
            case "ids", "large" -> Ids::new;
            case "versions" -> Versions::new;
            case "envelopes" -> Envelopes::new;
            case "avro" -> {
                Schema written = AvroFields.schema(Settings.required(environment, "BENCH_SCHEMA"));
                yield samePartition -> new Avro(samePartition, written);
            }
            default -> throw new IllegalArgumentException("BENCH_PART: no such job: " + part);
        };
    }

    @Override
    public final void init(ProcessorContext<byte[], byte[]> context) {
        this.context = context;
        partition = Optional.of(Set.of(context.taskId().partition()));
        store = context.getStateStore(STORE);
    }

    @Override
    public final void process(Record<byte[], byte[]> record) {
        if (isNew(record)) {
            samePartition.set(partition);
            context.forward(record);
        }
    }

    /** Whether to forward the record; if so, the state is updated. */
    protected abstract boolean isNew(Record<byte[], byte[]> record);

    /** The first record of each {@code event_id}; remembers its timestamp. */
    private static final class Ids extends Job {
        private final Fields fields = new Fields();

        Ids(SamePartition samePartition) {
            super(samePartition);
        }

        @Override
        protected boolean isNew(Record<byte[], byte[]> record) {
            byte[] id = fields.eventId(record.value());
            return store.putIfAbsent(id, Bytes8.of(record.timestamp())) == null;
        }
    }

    /** Each {@code account}'s records whose {@code version} is higher than all before; remembers the version. */
    private static final class Versions extends Job {
        private final Fields fields = new Fields();

        Versions(SamePartition samePartition) {
            super(samePartition);
        }

        @Override
        protected boolean isNew(Record<byte[], byte[]> record) {
            fields.readVersioned(record.value());
            byte[] known = store.get(fields.account);
            if (known != null && Bytes8.toLong(known) >= fields.version) {
                return false;
            }
            store.put(fields.account, Bytes8.of(fields.version));
            return true;
        }
    }

    /** Changes in Avro of each {@code after.order_id} whose {@code source.lsn} is higher than all before; remembers it. */
    private static final class Avro extends Job {
        private final AvroFields fields;

        Avro(SamePartition samePartition, Schema written) {
            super(samePartition);
            fields = new AvroFields(written);
        }

        @Override
        protected boolean isNew(Record<byte[], byte[]> record) {
            fields.read(record.value());
            byte[] id = Bytes8.of(fields.id);
            byte[] known = store.get(id);
            if (known != null && Bytes8.toLong(known) >= fields.version) {
                return false;
            }
            store.put(id, Bytes8.of(fields.version));
            return true;
        }
    }

    /**
     * Each record key's changes whose {@code source.lsn} is higher than all before; a null follows its delete.
     * Remembers the LSN, and in the lowest bit whether a null is due. Records without a key or an LSN are
     * forwarded.
     */
    private static final class Envelopes extends Job {
        private final Fields fields = new Fields();

        Envelopes(SamePartition samePartition) {
            super(samePartition);
        }

        @Override
        protected boolean isNew(Record<byte[], byte[]> record) {
            if (record.key() == null) {
                return true;
            }
            if (record.value() == null) {
                return owesNull(record.key());
            }
            if (!fields.readEnvelope(record.value())) {
                return true;
            }
            byte[] known = store.get(record.key());
            if (known != null && Bytes8.toLong(known) >> 1 >= fields.version) {
                return false;
            }
            store.put(record.key(), Bytes8.of(fields.version << 1 | (fields.isDelete ? 1 : 0)));
            return true;
        }

        private boolean owesNull(byte[] key) {
            byte[] known = store.get(key);
            if (known == null || (known[Bytes8.LAST] & 1) == 0) {
                return false;
            }
            store.put(key, Bytes8.of(Bytes8.toLong(known) & ~1L));
            return true;
        }
    }
}
