// Writes 2.jsonl or 3.jsonl: what Apicurio's serializers of that version make of the payments of write.py, in all the
// ways in which they name a schema. ../README.md says how to run it.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.squareup.wire.schema.Location;
import com.squareup.wire.schema.internal.parser.ProtoParser;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import io.apicurio.registry.utils.protobuf.schema.FileDescriptorUtils;
import java.math.BigInteger;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serializer;

public class Write {
    record Payment(int schema, String id, long version) {}

    /** Where a record has the id of its schema, and which id that is: `content` or `global`. */
    record Way(String format, String name, String of, String place, Map<String, String> settings) {}

    static final List<Payment> PAYMENTS = List.of(
            new Payment(1, "p1", 1), new Payment(1, "p2", 1), new Payment(1, "p1", 1), new Payment(2, "p1", 2),
            new Payment(2, "p2", 1), new Payment(1, "p1", 1), new Payment(2, "p3", 1));

    static final String USE_ID = "apicurio.registry.use-id";
    static final Map<String, String> HEADERS = Map.of("apicurio.registry.headers.enabled", "true");
    static final Map<String, String> JSON = Map.of("apicurio.registry.avro.encoding", "JSON");
    static final Map<String, String> GLOBAL = Map.of(USE_ID, "globalId");
    static final Map<String, String> CONTENT = Map.of(USE_ID, "contentId");
    static final Map<String, String> NO_NAME = Map.of("apicurio.registry.serde.send-type-ref", "false");
    static final Map<String, String> INDEXES = Map.of("apicurio.registry.serde.send-indexes", "true");

    static final ObjectMapper MAPPER = new ObjectMapper();
    static final Path FOLDER = Path.of("..");

    /** 2 or 3. */
    final String generation;
    final URI registry;
    /** By name, each after those that it refers to itself. */
    final Map<String, ObjectNode> references = new LinkedHashMap<>();
    final Map<String, ObjectNode> schemas = new LinkedHashMap<>();
    final List<ObjectNode> records = new ArrayList<>();

    Write(String generation, String registry) {
        this.generation = generation;
        this.registry = URI.create(registry);
    }

    public static void main(String[] args) throws Exception {
        String version = args[0];
        Write write = new Write(version, args[1]);
        for (String format : List.of("avro", "protobuf", "json_schema")) {
            for (Way way : version.equals("2") ? ofVersion2(format) : ofVersion3(format)) {
                write.payments(way, "payments-" + version + "-" + write.records.size());
            }
        }
        StringBuilder text = new StringBuilder();
        write.references.values().forEach(line -> text.append(line).append('\n'));
        write.schemas.values().forEach(line -> text.append(line).append('\n'));
        write.records.forEach(line -> text.append(line).append('\n'));
        Files.writeString(Path.of(version + ".jsonl"), text);
        // The registry's client has threads that would keep the program.
        System.exit(0);
    }

    static List<Way> ofVersion2(String format) {
        String global = "apicurio.value.globalId", content = "apicurio.value.contentId";
        // Headers are the default.
        Map<String, String> bytes = Map.of("apicurio.registry.headers.enabled", "false");
        Map<String, String> confluent = both(bytes, Map.of("apicurio.registry.as-confluent", "true"));
        List<Way> ways = new ArrayList<>(List.of(
                new Way(format, "default", "global", global, Map.of()),
                new Way(format, "content", "content", content, CONTENT),
                new Way(format, "bytes", "global", "8", bytes),
                new Way(format, "bytes, content", "content", "8", both(bytes, CONTENT)),
                new Way(format, "bytes, as-confluent", "global", "4", confluent),
                new Way(format, "bytes, as-confluent, content", "content", "4", both(confluent, CONTENT))));
        if (format.equals("avro")) {
            ways.add(new Way(format, "as JSON", "global", global, JSON));
        }
        return ways;
    }

    static List<Way> ofVersion3(String format) {
        String global = "apicurio.value.globalId", content = "apicurio.value.contentId";
        Map<String, String> legacy =
                Map.of("apicurio.registry.id-handler", "io.apicurio.registry.serde.Legacy8ByteIdHandler");
        List<Way> ways = new ArrayList<>(List.of(
                new Way(format, "default", "content", "4", Map.of()),
                new Way(format, "global", "global", "4", GLOBAL),
                new Way(format, "legacy", "content", "8", legacy),
                new Way(format, "legacy, global", "global", "8", both(legacy, GLOBAL)),
                new Way(format, "headers", "content", content, HEADERS),
                new Way(format, "headers, global", "global", global, both(HEADERS, GLOBAL))));
        if (format.equals("avro")) {
            ways.add(new Way(format, "as JSON", "content", "4", JSON));
            ways.add(new Way(format, "headers, as JSON", "content", content, both(HEADERS, JSON)));
        }
        if (format.equals("protobuf")) {
            Map<String, String> confluent = both(NO_NAME, INDEXES);
            ways.add(new Way(format, "name, indexes", "content", "4", INDEXES));
            ways.add(new Way(format, "indexes", "content", "4", confluent));
            ways.add(new Way(format, "nothing", "content", "4", NO_NAME));
            ways.add(new Way(format, "legacy, indexes", "content", "8", both(legacy, confluent)));
            ways.add(new Way(format, "headers, name, indexes", "content", content, both(HEADERS, INDEXES)));
            ways.add(new Way(format, "headers, indexes", "content", content, both(HEADERS, confluent)));
            ways.add(new Way(format, "headers, nothing", "content", content, both(HEADERS, NO_NAME)));
        }
        return ways;
    }

    static Map<String, String> both(Map<String, String> one, Map<String, String> other) {
        Map<String, String> settings = new HashMap<>(one);
        settings.putAll(other);
        return settings;
    }

    /** Writes all payments to a topic, in one way. */
    void payments(Way way, String topic) throws Exception {
        Map<Integer, Serializer<Object>> serializers = new HashMap<>();
        for (int schema : List.of(1, 2)) {
            serializers.put(schema, serializer(way, schema));
        }
        List<ObjectNode> written = new ArrayList<>();
        for (Payment payment : PAYMENTS) {
            RecordHeaders headers = new RecordHeaders();
            byte[] value = serializers.get(payment.schema).serialize(topic, headers, data(way.format, payment));
            ObjectNode line = MAPPER.createObjectNode().put("format", way.format).put("way", way.name);
            line.put("schema", payment.schema).put("of", way.of).put("place", way.place);
            for (Header header : headers) {
                line.withArray("/headers").addArray().add(header.key()).add(base64(header.value()));
            }
            written.add(line.put("value", base64(value)));
            check(way, topic, payment, headers, value);
        }
        records.addAll(written);
        for (int schema : List.of(1, 2)) {
            ObjectNode line = MAPPER.createObjectNode().put("format", way.format).put("schema", schema);
            line.put("type", way.format.equals("json_schema") ? "JSON" : way.format.toUpperCase());
            String version = "groups/default/artifacts/" + topic + "-value/versions/" + schema;
            line.put("text", get(version + "/content"));
            refer(version, line);
            ObjectNode before = schemas.putIfAbsent(way.format + schema, line);
            if (before != null && !before.equals(line)) {
                throw new IllegalStateException(before + " was registered as " + line);
            }
        }
    }

    /** Notes what a version of a schema refers to, and what that refers to. */
    void refer(String version, ObjectNode line) throws Exception {
        for (JsonNode reference : MAPPER.readTree(get(version + "/references"))) {
            String name = reference.get("name").asText();
            line.withArray("/references").add(name);
            String id = URLEncoder.encode(reference.get("artifactId").asText(), StandardCharsets.UTF_8);
            String referred = "groups/default/artifacts/" + id + "/versions/" + reference.get("version").asText();
            if (!references.containsKey(name)) {
                ObjectNode own = MAPPER.createObjectNode().put("reference", name).set("type", line.get("type"));
                refer(referred, own);
                references.put(name, own.put("text", get(referred + "/content")));
            }
        }
    }

    /** Checks that the schema's id stands where it is to be expected. */
    void check(Way way, String topic, Payment payment, RecordHeaders headers, byte[] value) throws Exception {
        String version = "groups/default/artifacts/" + topic + "-value/versions/" + payment.schema;
        long id = MAPPER.readTree(get(version)).get(way.of + "Id").asLong();
        ByteBuffer bytes = ByteBuffer.wrap(value, Math.min(1, value.length), Math.max(0, value.length - 1));
        long found = switch (way.place) {
            case "4" -> bytes.getInt();
            case "8" -> bytes.getLong();
            default -> ByteBuffer.wrap(headers.lastHeader(way.place).value()).getLong();
        };
        if (found != id) {
            throw new IllegalStateException(way + ": the schema's id is " + id + ", not " + found);
        }
    }

    Serializer<Object> serializer(Way way, int schema) {
        Map<String, Object> settings = new HashMap<>(way.settings);
        settings.put("apicurio.registry.url", registry.resolve("/apis/registry/v" + generation).toString());
        settings.put("apicurio.registry.auto-register", "true");
        // On the class path: the folder above.
        settings.put("apicurio.registry.artifact.schema.location", "payment-" + schema + ".json");
        Serializer<?> serializer = switch (way.format) {
            case "avro" -> new AvroKafkaSerializer<Object>();
            case "protobuf" -> new ProtobufKafkaSerializer<Message>();
            default -> new JsonSchemaKafkaSerializer<JsonNode>();
        };
        if (!way.format.equals("json_schema")) {
            settings.remove("apicurio.registry.artifact.schema.location");
        }
        serializer.configure(settings, false);
        @SuppressWarnings("unchecked")
        Serializer<Object> ofAny = (Serializer<Object>) serializer;
        return ofAny;
    }

    static Object data(String format, Payment payment) throws Exception {
        return switch (format) {
            case "avro" -> avro(payment);
            case "protobuf" -> protobuf(payment);
            default -> plain(payment);
        };
    }

    static JsonNode plain(Payment payment) {
        ObjectNode fields = MAPPER.createObjectNode().put("id", payment.id).put("version", payment.version);
        fields.put("amount", payment.version + 0.25);
        return payment.schema == 1 ? fields : fields.put("channel", "WEB");
    }

    static Object avro(Payment payment) throws Exception {
        Path file = FOLDER.resolve("payment-" + payment.schema + ".avsc");
        Schema schema = new Schema.Parser().parse(Files.readString(file));
        GenericRecordBuilder fields = new GenericRecordBuilder(schema);
        fields.set("id", payment.id).set(payment.schema == 1 ? "version" : "revision", payment.version);
        fields.set("amount", ByteBuffer.wrap(BigInteger.valueOf(payment.version * 100 + 25).toByteArray()));
        fields.set("paid_at", Instant.parse("2026-03-01T12:30:15.250Z").toEpochMilli());
        LocalDate due = payment.version > 1 ? LocalDate.of(2026, 4, (int) payment.version) : null;
        fields.set("due", due == null ? null : (int) due.toEpochDay());
        if (payment.schema == 2) {
            fields.set("channel", new GenericData.EnumSymbol(schema.getField("channel").schema(), "SHOP"));
            Schema items = schema.getField("items").schema();
            GenericRecordBuilder item = new GenericRecordBuilder(items.getElementType());
            Object one = item.set("sku", "s-1").set("labels", Map.of("size", "xl")).build();
            Object other = item.set("sku", "s-2").set("labels", Map.of()).build();
            fields.set("items", new GenericData.Array<>(items, List.of(one, other)));
        }
        return fields.build();
    }

    static Message protobuf(Payment payment) throws Exception {
        Path file = FOLDER.resolve("payment_" + payment.schema + ".proto");
        var parsed = ProtoParser.Companion.parse(Location.get(file.toString()), Files.readString(file));
        Descriptor type = FileDescriptorUtils.protoFileToFileDescriptor(parsed).findMessageTypeByName("Payment");
        DynamicMessage.Builder message = DynamicMessage.newBuilder(type);
        message.setField(type.findFieldByName("id"), payment.id);
        message.setField(type.findFieldByName("version"), payment.version);
        message.setField(type.findFieldByName("amount"), payment.version + 0.25);
        if (payment.schema == 2) {
            message.setField(type.findFieldByName("channel"), "WEB");
            FieldDescriptor items = type.findFieldByName("items");
            FieldDescriptor labels = items.getMessageType().findFieldByName("labels");
            Descriptor entry = labels.getMessageType();
            DynamicMessage.Builder label = DynamicMessage.newBuilder(entry);
            label.setField(entry.findFieldByName("key"), "size").setField(entry.findFieldByName("value"), "xl");
            FieldDescriptor sku = items.getMessageType().findFieldByName("sku");
            DynamicMessage.Builder item = DynamicMessage.newBuilder(items.getMessageType());
            message.addRepeatedField(items, item.setField(sku, "s-1").addRepeatedField(labels, label.build()).build());
            item = DynamicMessage.newBuilder(items.getMessageType());
            message.addRepeatedField(items, item.setField(sku, "s-2").build());
        }
        return message.build();
    }

    String get(String path) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(registry.resolve("/apis/registry/v3/" + path)).build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IllegalStateException(path + ": " + answer.body());
        }
        return answer.body();
    }

    static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
