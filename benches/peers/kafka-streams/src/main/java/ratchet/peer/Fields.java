package ratchet.peer;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/**
 * Reads the fields that a job needs from Jackson's tokens: no tree is built, and reading ends with the last needed
 * field. A value without them fails the task; the benchmark's data has none.
 */
final class Fields {
    private static final JsonFactory JSON = new JsonFactoryBuilder().build();

    /** The fields that were read last. */
    byte[] account;

    long version;
    boolean isDelete;

    /** {@code event_id}, a text or an integer, as bytes. */
    byte[] eventId(byte[] json) {
        try (JsonParser parser = open(json)) {
            for (String name; (name = parser.nextFieldName()) != null; ) {
                JsonToken token = parser.nextToken();
                if (name.equals("event_id")) {
                    return token == JsonToken.VALUE_NUMBER_INT
                            ? Bytes8.of(parser.getLongValue())
                            : parser.getText().getBytes(StandardCharsets.UTF_8);
                }
                parser.skipChildren();
            }
            throw new IllegalArgumentException("no event_id");
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** {@code account}, a text, and {@code version}, an integer. */
    void readVersioned(byte[] json) {
        account = null;
        boolean hasVersion = false;
        try (JsonParser parser = open(json)) {
            for (String name; (account == null || !hasVersion) && (name = parser.nextFieldName()) != null; ) {
                parser.nextToken();
                switch (name) {
                    case "account" -> account = parser.getText().getBytes(StandardCharsets.UTF_8);
                    case "version" -> {
                        version = parser.getLongValue();
                        hasVersion = true;
                    }
                    default -> parser.skipChildren();
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        if (account == null || !hasVersion) {
            throw new IllegalArgumentException("no account or no version");
        }
    }

    /** {@code source.lsn} and {@code op} of Debezium's envelope without a schema. Returns whether there was an LSN. */
    boolean readEnvelope(byte[] json) {
        boolean hasVersion = false;
        boolean hasOp = false;
        try (JsonParser parser = open(json)) {
            for (String name; !(hasVersion && hasOp) && (name = parser.nextFieldName()) != null; ) {
                JsonToken token = parser.nextToken();
                switch (name) {
                    case "op" -> {
                        isDelete = parser.getText().equals("d");
                        hasOp = true;
                    }
                    case "source" -> hasVersion = token == JsonToken.START_OBJECT && readLsn(parser);
                    default -> parser.skipChildren();
                }
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return hasVersion;
    }

    /** Reads an object to its end. */
    private boolean readLsn(JsonParser parser) throws IOException {
        boolean found = false;
        for (String name; (name = parser.nextFieldName()) != null; ) {
            JsonToken token = parser.nextToken();
            if (name.equals("lsn") && token == JsonToken.VALUE_NUMBER_INT) {
                version = parser.getLongValue();
                found = true;
            } else {
                parser.skipChildren();
            }
        }
        return found;
    }

    private static JsonParser open(byte[] json) throws IOException {
        JsonParser parser = JSON.createParser(json, 0, json.length);
        if (parser.nextToken() != JsonToken.START_OBJECT) {
            throw new IllegalArgumentException("not an object");
        }
        return parser;
    }
}
