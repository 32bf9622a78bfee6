package ratchet.peer;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * Reads the fields that a job needs from Avro behind Confluent's prefix. The writer's schema is given, so that no registry
 * is asked; the reader's has only these fields, so that the others are skipped.
 */
final class AvroFields {
    /** Byte 0, and four of the schema's id. */
    private static final int PREFIX_BYTES = 5;

    private static final Schema WANTED =
            new Schema.Parser()
                    .parse(
                            """
                            {"type": "record", "name": "Envelope", "namespace": "shop.public.orders", "fields": [
                                {"name": "after", "type": ["null", {"type": "record", "name": "Value",
                                    "fields": [{"name": "order_id", "type": "long"}]}]},
                                {"name": "source", "type": {"type": "record", "name": "Source",
                                    "namespace": "io.debezium.connector.postgresql",
                                    "fields": [{"name": "lsn", "type": ["null", "long"]}]}}]}
                            """);

    private static final int AFTER = WANTED.getField("after").pos();
    private static final int SOURCE = WANTED.getField("source").pos();

    /** The fields that were read last. */
    long id;

    long version;

    private final GenericDatumReader<GenericRecord> reader;
    private BinaryDecoder decoder;

    AvroFields(Schema written) {
        GenericData data = new GenericData();
        data.setFastReaderEnabled(true);
        reader = new GenericDatumReader<>(written, WANTED, data);
    }

    /** A schema in a file. */
    static Schema schema(String file) {
        try {
            return new Schema.Parser().parse(new File(file));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** {@code after.order_id} and {@code source.lsn} of Debezium's envelope. Without them it fails the task. */
    void read(byte[] bytes) {
        decoder = DecoderFactory.get().binaryDecoder(bytes, PREFIX_BYTES, bytes.length - PREFIX_BYTES, decoder);
        try {
            GenericRecord envelope = reader.read(null, decoder);
            id = (Long) ((GenericRecord) envelope.get(AFTER)).get(0);
            version = (Long) ((GenericRecord) envelope.get(SOURCE)).get(0);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
