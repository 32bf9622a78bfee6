package ratchet.peer;

import java.util.Optional;
import java.util.Set;
import org.apache.kafka.streams.processor.StreamPartitioner;

/**
 * Sends a record to the partition of the output that has the number of its own, as ratchet does; it is also cheaper
 * than hashing the key. A sink is called on its task's thread, from within the task's processor.
 */
final class SamePartition implements StreamPartitioner<byte[], byte[]> {
    private final ThreadLocal<Optional<Set<Integer>>> current = ThreadLocal.withInitial(Optional::empty);

    /** What the thread forwards from now on came from there. */
    void set(Optional<Set<Integer>> partition) {
        current.set(partition);
    }

    @Override
    public Optional<Set<Integer>> partitions(String topic, byte[] key, byte[] value, int partitions) {
        return current.get();
    }
}
