package ratchet.peer;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Numbers as eight bytes, big-endian. */
final class Bytes8 {
    /** The index of the lowest byte. */
    static final int LAST = Long.BYTES - 1;

    private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);

    private Bytes8() {}

    static byte[] of(long number) {
        byte[] bytes = new byte[Long.BYTES];
        LONG.set(bytes, 0, number);
        return bytes;
    }

    static long toLong(byte[] bytes) {
        return (long) LONG.get(bytes, 0);
    }
}
