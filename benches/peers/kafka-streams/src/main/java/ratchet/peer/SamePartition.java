package ratchet.peer;

import java.util.Optional;
import java.util.Set;
import org.apache.kafka.streams.processor.StreamPartitioner;

/**
 * Sends a record to the output partition with the number of its input partition, as ratchet does; this is also cheaper
 * than hashing the key. A sink is called on its task's thread, from within the task's processor.
 */
final class SamePartition implements StreamPartitioner<byte[], byte[]> {
    private final ThreadLocal<Optional<Set<Integer>>> current = ThreadLocal.withInitial(Optional::empty);

    /** Sets the partition of the records that this thread forwards from now on. */
    void set(Optional<Set<Integer>> partition) {
        current.set(partition);
    }

    @Override
    public Optional<Set<Integer>> partitions(String topic, byte[] key, byte[] value, int partitions) {
        return current.get();
    }
}
