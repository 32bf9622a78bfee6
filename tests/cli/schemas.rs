//! Goal: `test`, `replay`, `infer` and `check` understand records that name schemas, from a folder or a registry.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, NewTopic};

use super::{PAYMENTS, Room};

const SCHEMA: &str = r#"{"type": "record", "name": "Payment", "fields": [
    {"name": "order_id", "type": "long"},
    {"name": "operation", "type": "string"},
    {"name": "version", "type": "long"},
    {"name": "amount", "type": "long"}]}"#;
const FOLDER: &str = "--set schemas.dir=schemas";

/// A room with a topology of payments in Avro. Their schema is there by its id, 1, and as the topic's latest.
fn room() -> Room {
    let room = Room::new();
    room.write("payments.yaml", PAYMENTS.replace("[payments]", "[payments], value_format: avro"));
    room.write("schemas/1.avsc", SCHEMA);
    room.write("schemas/payments-value.avsc", SCHEMA);
    room
}

/// A payment in Avro behind the id of its schema. Each number takes one byte.
fn payment(schema: u8, order: u8, operation: &str, version: u8, amount: u8) -> Vec<u8> {
    let text = [&[operation.len() as u8 * 2], operation.as_bytes()].concat();
    [&[0, 0, 0, 0, schema, order * 2][..], &text, &[version * 2, amount * 2]].concat()
}

/// Records in kcat's envelope.
fn captured(values: &[Vec<u8>]) -> String {
    let line = |(offset, value): (usize, &Vec<u8>)| {
        let payload = serde_json::Value::from(String::from_utf8(value.clone()).unwrap());
        format!(
            "{{\"topic\":\"payments\",\"partition\":0,\"offset\":{offset},\"tstype\":\"create\",\"ts\":1000,\"headers\":[],\
             \"key\":\"k\",\"payload\":{payload}}}\n"
        )
    };
    values.iter().enumerate().map(line).collect()
}

#[test]
fn tests_of_topologies_are_json_and_need_no_schemas() {
    let room = room();
    let cases = "\
tests:
  - name: charges
    given:
      - {value: {order_id: 7, operation: charge, version: 1}}
      - {value: {order_id: 7, operation: charge, version: 1}}
      - {value: {order_id: 7, operation: charge, version: 2}}
    expect: [forwarded, duplicate, forwarded]
";
    for format in ["avro", "protobuf", "json_schema", "auto"] {
        let formats = format!("[payments], key_format: {format}, value_format: {format}");
        room.write("payments.yaml", PAYMENTS.replace("[payments]", &formats) + cases);
        let ran = room.run("test payments.yaml").ended(0);
        assert!(ran.stdout.contains("ok      payments: charges"), "{format}: {}", ran.stdout);
    }
}

#[test]
fn replay_reads_records_by_schemas_and_prints_them_unchanged() {
    let room = room();
    let lines = captured(&[
        payment(1, 7, "charge", 1, 5),
        payment(1, 7, "charge", 1, 5),
        payment(1, 7, "charge", 2, 5),
        payment(1, 8, "charge", 1, 5),
        payment(9, 8, "charge", 2, 5),
    ]);
    let all: Vec<&str> = lines.lines().collect();
    let replay = format!("replay payments.yaml --envelope kcat {FOLDER}");
    room.run_with(&replay, lines.clone()).ended(0).quietly().wrote(&[all[0], all[2], all[3]]);
    let ran = room.run_with(&format!("{replay} --explain"), lines).ended(0);
    assert!(ran.stdout.contains(r#""reason":"newer","identity":[7,"charge"],"version":2"#), "{}", ran.stdout);
    assert!(ran.stdout.contains("the value cannot be read: "), "{}", ran.stdout);
}

#[test]
fn replay_without_schemas_is_an_error_as_in_a_run() {
    let room = room();
    let lines = captured(&[payment(1, 7, "charge", 1, 5)]);
    room.run_with("replay payments.yaml --envelope kcat", lines).ended(2).said(&[
        "payments needs the schemas of its records",
        "`schema_registry.url`",
        "`schemas.dir`",
    ]);
    room.run_with(&format!("replay payments.yaml {FOLDER}x"), "").ended(2).said(&["schemas.dir"]);
}

#[test]
fn summary_names_the_fields_that_differ_in_records_with_schemas() {
    let room = room();
    let replay = format!("replay payments.yaml --envelope kcat --summary {FOLDER}");
    let lines = captured(&[payment(1, 7, "charge", 1, 5), payment(1, 7, "charge", 1, 6)]);
    room.run_with(&replay, lines).ended(0).said(&["which differs from payments:0:0 in `value.amount`"]);
    // The same payment with another schema, which has the same fields.
    room.write("schemas/2.avsc", SCHEMA.replace("\"Payment\"", "\"Payment\", \"doc\": \"newer\""));
    let lines = captured(&[payment(1, 7, "charge", 1, 5), payment(2, 7, "charge", 1, 5)]);
    room.run_with(&replay, lines).ended(0).said(&[
        "in its schema or its encoding, and in nothing else that is compared",
        "`contents: {fingerprint: value}`",
    ]);
}

#[test]
fn infer_decodes_records_and_proposes_their_format() {
    let room = room();
    let lines = captured(&[
        payment(1, 7, "charge", 1, 5),
        payment(1, 7, "charge", 1, 5),
        payment(1, 7, "refund", 1, 5),
        payment(1, 8, "charge", 1, 6),
    ]);
    room.write("captured.jsonl", &lines);
    let ran = room.run(&format!("infer captured.jsonl {FOLDER}")).ended(0);
    for line in ["input: {topics: [payments], value_format: avro}", "identity: [value.order_id, value.operation]"] {
        assert!(ran.stdout.lines().any(|found| found == line), "{line} is missing in\n{}", ran.stdout);
    }
    assert!(ran.stdout.contains("3 forwarded, 1 duplicate, 0 stale, 0 invalid"), "{}", ran.stdout);
    room.write("proposed.yaml", &ran.stdout);
    let ran = room.run(&format!("replay proposed.yaml captured.jsonl --envelope kcat {FOLDER}")).ended(0);
    assert_eq!(ran.stdout.lines().count(), 3);
    let by_variable = room.command("infer captured.jsonl").env("RATCHET_SCHEMAS__DIR", "schemas").output().unwrap();
    assert!(String::from_utf8_lossy(&by_variable.stdout).contains("value_format: avro"), "{by_variable:?}");
    room.run("infer captured.jsonl").ended(0).said(&[
        "4 values carry the id of a schema",
        "`--set schema_registry.url=http://localhost:8081`",
        "`--set schemas.dir=FOLDER`",
    ]);
}

#[test]
fn infer_reports_values_that_it_cannot_decode() {
    let room = room();
    let values = [payment(1, 7, "charge", 1, 5), payment(9, 8, "charge", 1, 5)];
    room.run_with(&format!("infer {FOLDER}"), captured(&values))
        .ended(0)
        .said(&["1 value names a schema but cannot be decoded, the first because the value cannot be read"]);
}

#[test]
fn check_says_where_schemas_come_from() {
    let room = room();
    let check = "check payments.yaml --set cluster=embedded";
    let url = "--set schema_registry.url=http://localhost:8081,http://other:8081";
    let secret = "--set schema_registry.username=me --set schema_registry.password=${file:password}";
    room.write("password", "hunter2");
    room.run(&format!("{check} {FOLDER}")).ended(0).said(&["schemas from the folder schemas"]);
    room.run(&format!("{check} {url} {secret}"))
        .ended(0)
        .said(&["schemas from the registry at http://localhost:8081 or http://other:8081"])
        .never_said("hunter2");
    let both = format!("{check} {FOLDER} --set schema_registry.url=http://localhost:8081");
    room.run(&both).ended(0).said(&["from the folder schemas, then from the registry at http://localhost:8081"]);
    room.run(check).ended(0).said(&["schemas from nowhere", "`schema_registry.url`"]);
    room.write("payments.yaml", PAYMENTS);
    room.run(&format!("{check} {FOLDER}")).ended(0).never_said("schemas");
}

/// The command that checks the room's topologies on an embedded cluster, which has their topics.
fn online(room: &Room, settings: &str) -> String {
    let folder = room.path().join("topics");
    room.write("ratchet.yaml", format!("cluster: embedded\nembedded: {{dir: {}}}\n", folder.display()));
    let cluster = Embedded::open(&folder, 1).unwrap();
    for name in ["payments", "payments.unique", "payments.other"] {
        cluster.create_topic(&NewTopic { name, partition_count: 1, replication_factor: 1, settings: &[] }).unwrap();
    }
    format!("check payments.yaml --config ratchet.yaml --online {settings}")
}

/// Starts a registry that has one subject, in version 3. Returns the setting of its address.
fn registry(subject: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let wanted = format!("/subjects/{subject}/versions/latest");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut bytes = [0; 1024];
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut bytes) {
                    Ok(count @ 1..) => head.extend_from_slice(&bytes[..count]),
                    _ => break,
                }
            }
            let (status, body) = match String::from_utf8_lossy(&head).contains(&wanted) {
                true => ("200 OK", serde_json::json!({"id": 1, "version": 3, "schema": SCHEMA})),
                false => ("404 Not Found", serde_json::json!({"error_code": 40401, "message": "Subject not found."})),
            };
            let body = body.to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: application/vnd.schemaregistry.v1+json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    format!("--set schema_registry.url=http://{address}")
}

#[test]
fn latest_schemas_are_compared_online() {
    let room = room();
    let check = online(&room, &registry("payments-value"));
    room.run(&check).ended(0).said(&["payments.yaml: by the latest schemas: fine"]);
    let yaml = PAYMENTS
        .replace("[payments]", "[payments], key_format: avro, value_format: avro")
        .replace("value.operation", "value.kind, key.id")
        .replace("value.version", "{first_of: [value.revision, value.version]}");
    room.write("payments.yaml", yaml);
    room.run(&check)
        .ended(2)
        .said(&[
            "payments.yaml: by the latest schemas: refused",
            "`value.kind` is not in version 3 of payments-value",
            "there is no schema payments-key",
            "the topology does not fit its latest schemas",
        ])
        .never_said("`value.revision`");
}

#[test]
fn no_topology_is_compared_if_the_registry_does_not_answer() {
    let room = room();
    let other = PAYMENTS.replace("name: payments", "name: other").replace("payments.unique", "payments.other");
    room.write("other.yaml", other.replace("[payments]", "[payments], value_format: avro"));
    // Nothing listens at the port of a listener that is gone.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let check = online(&room, &format!("--set schema_registry.url=http://{address}"));
    room.run(&check.replace("payments.yaml", "payments.yaml other.yaml"))
        .ended(2)
        .said(&[
            "payments.yaml: by the latest schemas: not known",
            "other.yaml: by the latest schemas: not known",
            "the schema registry",
        ])
        .never_said("by the latest schemas: fine");
}

#[test]
fn schemas_of_a_folder_are_compared_online_and_none_is_an_error() {
    let room = room();
    let check = online(&room, "");
    room.run(&format!("{check} {FOLDER}")).ended(0).said(&["by the latest schemas: fine"]);
    room.write("payments.yaml", PAYMENTS.replace("[payments]", "[payments], value_format: protobuf"));
    room.run(&format!("{check} {FOLDER}"))
        .ended(2)
        .said(&["the folder's payments-value is written in Avro, not in Protobuf"]);
    room.run(&check).ended(2).said(&["needs the schemas of its records, but no setting says"]);
}
