//! `ratchet check`: every mistake at once, each with its place; or a summary of what was understood.

use super::{PAYMENTS, Room};

#[test]
fn good_topology_is_summarised_on_standard_error() {
    let ran = Room::new().run("check payments.yaml").ended(0).wrote(&[]);
    ran.said(&[
        "payments.yaml: fine",
        "input payments, from the earliest record",
        "identity value.order_id + value.operation",
        "version value.version",
        "retention forever",
        "output payments.unique",
        "dead letter payments.dead_letter",
        "group ratchet.payments",
        "changelog ratchet.payments.payments.changelog",
    ]);
}

#[test]
fn gate_is_said_to_suppress_and_to_guarantee_nothing() {
    let room = Room::new();
    let gated = |more: &str| format!("{PAYMENTS}gate: {{redis: {{url: 'redis://h:6379/1'{more}}}}}\n");
    room.write("payments.yaml", gated(""));
    room.run("check payments.yaml").ended(0).said(&[
        "gate redis, shared by all who name it payments; it keeps an identity for 7d; while it does not answer, records wait",
        "promise exactly once, for readers with isolation.level=read_committed",
        "the gate suppresses what was passed on elsewhere for as long as it keeps what it was told, and guarantees nothing",
    ]);
    room.write("payments.yaml", gated(", name: all, retention: 1h, on_unavailable: pass"));
    room.run("check payments.yaml").ended(0).said(&[
        "shared by all who name it all; it keeps an identity for 1h; while it does not answer, records go on unasked",
    ]);
}

#[test]
fn all_mistakes_of_a_file_are_reported_with_their_places() {
    let room = Room::new();
    room.write(
        "broken.yaml",
        "name: Payments\ninput: {topics: [payments], value_fromat: json}\nidentity: value.id\nretention: soon\noutput: {topic: payments}\non_invalid: explode\n",
    );
    room.run("check broken.yaml").ended(2).wrote(&[]).said(&[
        "broken.yaml:1:7",
        "broken.yaml:2:29",
        "value_format",
        "broken.yaml:4:12",
        "broken.yaml:6:13",
        "dead_letter",
    ]);
}

#[test]
fn misspelt_key_is_one_mistake() {
    let room = Room::new();
    room.write("payments.yaml", PAYMENTS.replace("\nidentity:", "\nidentitty:"));
    let ran = room.run("check payments.yaml").ended(2);
    ran.said(&["unknown key `identitty`", "did you mean `identity`?", "1 mistake"]).never_said("is missing");
}

#[test]
fn mistakes_of_several_files_are_reported_at_once() {
    let room = Room::new();
    room.write("a.yaml", PAYMENTS.replace("identity", "identiti"));
    room.write("b.yaml", PAYMENTS.replace("integer", "integr"));
    room.run("check a.yaml payments.yaml b.yaml nowhere.yaml").ended(2).said(&[
        "a.yaml:3:1",
        "b.yaml:4:",
        "nowhere.yaml",
    ]);
}

#[test]
fn folder_stands_for_its_yaml_files() {
    let room = Room::new();
    room.write("topologies/one.yaml", PAYMENTS.replace("name: payments", "name: one"));
    room.write(
        "topologies/two.yaml",
        PAYMENTS.replace("name: payments", "name: two").replace("payments.unique", "two"),
    );
    room.write("topologies/deeper/three.yaml", "broken: [");
    room.write("topologies/notes.txt", "broken: [");
    let ran = room.run("check topologies").ended(0).said(&[
        "topologies/one.yaml: fine",
        "topologies/two.yaml: fine",
        "2 topologies, no mistakes",
    ]);
    let ran = ran.never_said("no mistakes,");
    assert!(!ran.stderr.contains("three"), "{}", ran.stderr);
}

#[test]
fn warning_is_printed_and_is_no_mistake() {
    let room = Room::new();
    room.write("loose.yaml", PAYMENTS.replace("partitioned_by_identity: true\n", ""));
    let said = ["loose.yaml:3:11", "partitioned_by_identity: true", "loose.yaml: fine"];
    room.run("check loose.yaml").ended(0).said(&said).never_said("no mistakes");

    room.write("other.yaml", PAYMENTS.replace("name: payments", "name: other").replace("payments.unique", "other"));
    room.run("check loose.yaml other.yaml").ended(0).said(&["2 topologies, no mistakes, 1 warning"]);
}

#[test]
fn topology_and_configuration_are_checked_together() {
    let room = Room::new();
    room.write("broken.yaml", PAYMENTS.replace("identity", "identiti"));
    room.write("ratchet.yaml", "cluster: kafka\nlanes: many\nkafka: {bootstrap.servers: 'localhost:9092'}\n");
    room.run("check broken.yaml --config ratchet.yaml").ended(2).said(&[
        "broken.yaml:3:1",
        "ratchet.yaml:2:8",
        "lanes",
    ]);
}

#[test]
fn command_line_setting_is_checked_as_in_a_run() {
    let room = Room::new();
    room.run("check payments.yaml --set lanes=2 --set kafka.bootstrap.servers=localhost:9092").ended(0);
    room.run("check payments.yaml --set lnaes=2").ended(2).said(&["lnaes", "lanes"]);

    // Its warnings are shown and counted, too.
    room.write("other.yaml", PAYMENTS.replace("name: payments", "name: other").replace("payments.unique", "other"));
    let short =
        "--set kafka.bootstrap.servers=localhost:9092 --set kafka.transaction.timeout.ms=1500 --set commit.interval=1s";
    room.run(&format!("check payments.yaml other.yaml {short}")).ended(0).said(&[
        "⚠",
        "transaction.timeout.ms",
        "2 topologies, no mistakes, 1 warning",
    ]);
}

#[test]
fn servers_elsewhere_that_are_not_authenticated_are_noted() {
    let room = Room::new();
    let config = room.write("worker.yaml", "kafka: {bootstrap.servers: 'kafka:9092'}\n").display().to_string();
    let kafka = "Kafka is not authenticated, and nothing is encrypted (security.protocol plaintext)";
    let noted = [&*format!("{config}: fine note {kafka}")];
    room.run(&format!("check payments.yaml --config {config}")).ended(0).said(&noted);
    let noted = [&*format!("note for the settings: {kafka}")];
    room.run("check payments.yaml --set kafka.bootstrap.servers=kafka:9092").ended(0).said(&noted);
    let local = "check payments.yaml --set kafka.bootstrap.servers=localhost:9092";
    room.run(local).ended(0).never_said("not authenticated");
    let proxy = "proxy --listen 127.0.0.1:0 --caller none --check";
    room.run(&format!("{proxy} --upstream http://shop:3000 --store redis --url redis://cache")).ended(0).said(&[
        "note the service is not authenticated, and nothing is encrypted (http)",
        "note the store's Redis is not authenticated, and nothing is encrypted (redis)",
    ]);
    let local = format!("{proxy} --upstream http://127.0.0.1:3000 --store embedded");
    room.run(&local).ended(0).never_said("not authenticated");
}

#[test]
fn secret_is_not_shown_beside_a_mistake() {
    let room = Room::new();
    room.write(
        "ratchet.yaml",
        "cluster: kafka\nkafka: {bootstrap.servers: 'localhost:9092', sasl.password: '${env:KAFKA_PASSWORD}', nonsense.property: '${env:KAFKA_PASSWORD}'}\nlanes: '${env:KAFKA_PASSWORD}'\n",
    );
    for command in ["check payments.yaml --config ratchet.yaml", "run payments.yaml --config ratchet.yaml"] {
        let output = room.command(command).env("KAFKA_PASSWORD", "hunter2-topsecret").output().unwrap();
        let ran = super::Ran::from(output).ended(2).said(&["ratchet.yaml:3:8"]);
        assert!(!ran.stderr.contains("hunter2") && !ran.stdout.contains("hunter2"), "{ran:#?}");
    }
}

#[test]
fn all_mistakes_are_reported_even_if_some_hinder_the_check() {
    let room = Room::new();
    room.write("cdc.yaml", "name: Bad_Name\npreset: debezium-postgers@1\ninput: {topics: [a]}\noutput: {topic: a}\n");
    room.write("other.yaml", PAYMENTS.replace("integer", "integr"));
    room.write(
        "ratchet.yaml",
        "lanes: many\ncommit.interval: 5s\nkafka:\n  bootstrap.servers: localhost:9092\n  nonsense: 1\n  consumer: {fetch.wait: 1}\n  \
         producer: {transaction.timeout.ms: 4000}\n",
    );
    room.run("check cdc.yaml other.yaml payments.yaml --config ratchet.yaml").ended(2).said(&[
        "cdc.yaml:1:7",
        "cdc.yaml:2:9",
        "cdc.yaml:4:17",
        "other.yaml:4:",
        "there are two topologies named `payments`",
        "ratchet.yaml:1:8",
        "ratchet.yaml:2:18",
        "the broker ends it before, after 4s",
        "ratchet.yaml:5:3",
        "nonsense is no kafka property that librdkafka knows",
        "ratchet.yaml:6:14",
        "fetch.wait is no kafka property",
        "9 mistakes",
    ]);
}

#[test]
fn tables_that_share_an_output_are_warned_about() {
    let room = Room::new();
    let cdc = CDC.replace("NAME", "cdc").replace("topics: [cdc]", "topics: [shop.orders, shop.customers]");
    room.write("cdc.yaml", &cdc);
    room.run("check cdc.yaml").ended(0).said(&["cdc.yaml:4:17", "have the same key", "topic: \"{topic}.unique\""]);
    room.write("cdc.yaml", cdc.replace("cdc.clean", "'{topic}.clean'"));
    room.run("check cdc.yaml").ended(0).never_said("have the same key");
}

#[test]
fn output_of_several_inputs_is_listed_once() {
    let room = Room::new();
    let several =
        |output: &str| PAYMENTS.replace("[payments]", "[payments, refunds]").replace("payments.unique", output);
    room.write("payments.yaml", several("all.unique"));
    room.run("check payments.yaml").ended(0).said(&["output all.unique dead letter", "refunds.changelog"]);
    room.write("payments.yaml", several("'{topic}.unique'"));
    room.run("check payments.yaml").ended(0).said(&["output payments.unique, refunds.unique dead letter"]);
}

#[test]
fn file_of_a_proxy_is_recognised() {
    let room = Room::new();
    room.write("proxy.yaml", "listen: 127.0.0.1:8080\nupstream: http://127.0.0.1:3000\nstore: {embedded: {dir: d}}\n");
    let ran = room.run("check proxy.yaml payments.yaml").ended(2);
    ran.said(&[
        "proxy.yaml:1:1",
        "this is a proxy's file, no topology",
        "ratchet proxy --config proxy.yaml --check",
        "1 mistake",
    ])
    .never_said("is missing");
    // A topology into which such a key has strayed is still one.
    room.write("payments.yaml", format!("{PAYMENTS}upstream: http://127.0.0.1:3000\n"));
    room.run("check payments.yaml").ended(2).said(&["unknown key `upstream`", "1 mistake"]).never_said("proxy");
}

#[test]
fn missing_variable_is_named() {
    let room = Room::new();
    room.write("ratchet.yaml", "cluster: kafka\nkafka: {bootstrap.servers: '${env:NO_SUCH_BROKERS}'}\n");
    room.run("check payments.yaml --config ratchet.yaml").ended(2).said(&["NO_SUCH_BROKERS", "ratchet.yaml:2:"]);
}

#[test]
fn closed_standard_error_is_no_failure() {
    let room = Room::new();
    room.write("broken.yaml", "name: 7\n");
    for (file, code) in [("payments.yaml", 0), ("broken.yaml", 2)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_ratchet"));
        let status = check.args(["check", file]).current_dir(room.path()).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{file}");
    }
}

#[test]
fn expanded_preset_loads_again() {
    let room = Room::new();
    room.write(
        "cdc.yaml",
        "name: cdc\npreset: debezium-postgres@2\ninput: {pattern: '^shop\\.public\\.'}\noutput: {topic: 'clean.{topic}'}\n",
    );
    let ran =
        room.run("check cdc.yaml --expand").ended(0).said(&["preset debezium-postgres@2", "note Flattened records"]);
    assert!(ran.stdout.starts_with("# What `preset: debezium-postgres@2` stands for"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\nidentity: {content: key}\n"), "{}", ran.stdout);
    room.write("expanded.yaml", ran.stdout);
    room.run("check expanded.yaml").ended(0).said(&["identity {content: key}", "output clean.{topic}"]);
}

#[test]
fn newer_number_of_a_preset_is_named() {
    let room = Room::new();
    let topology = |number| {
        format!("name: cdc\npreset: debezium-postgres@{number}\ninput: {{topics: [a]}}\noutput: {{topic: b}}\n")
    };
    room.write("cdc.yaml", topology(2));
    room.run("check cdc.yaml").ended(0).said(&["debezium-postgres@2; the newest is debezium-postgres@3"]);
    room.write("cdc.yaml", topology(3));
    room.run("check cdc.yaml").ended(0).said(&["preset debezium-postgres@3"]).never_said("the newest");
}

/// A preset that forwards what has no identity means an output; in a sink that is refused.
#[test]
fn expanded_table_loads_again_and_says_what_its_connector_needs() {
    let room = Room::new();
    room.write(
        "copy.yaml",
        "name: copy\npreset: debezium-postgres@2\ninput: {topics: [accounts]}\nkinds: {reads: by_version}\n\
         sink: {postgres: {url: 'postgres://db/shop', table: {name: accounts, key: [id]}}}\n",
    );
    let connector = "decimal.handling.mode=string";
    let ran = room.run("check copy.yaml --expand").ended(0).said(&["reads by version", connector]);
    for line in ["\non_missing: dead_letter\n", "of: {first_of: [value.after, value]}", "reads: by_version"] {
        assert!(ran.stdout.contains(line), "{}", ran.stdout);
    }
    room.write("expanded.yaml", &ran.stdout);
    let again = room.run("check expanded.yaml --expand").ended(0).said(&["value.after or value", connector]);
    assert_eq!(again.stdout, ran.stdout);
}

const CDC: &str = "name: NAME\npreset: debezium-postgres@2\ninput: {topics: [NAME]}\noutput: {topic: NAME.clean}\n";

#[test]
fn several_topologies_are_expanded_into_a_document_each() {
    let room = Room::new();
    room.write("cdc/a.yaml", CDC.replace("NAME", "a"));
    room.write("cdc/b.yaml", CDC.replace("NAME", "b"));
    let ran = room.run("check cdc --expand").ended(0);
    let documents: Vec<&str> = ran.stdout.split("---\n").collect();
    assert_eq!(documents.len(), 2, "{}", ran.stdout);
    for (name, document) in ["a", "b"].into_iter().zip(documents) {
        assert!(document.starts_with(&format!("# cdc/{name}.yaml\n# What `preset")), "{document}");
        room.write("one.yaml", document);
        room.run("check one.yaml").ended(0).said(&[&format!("name {name}"), "identity {content: key}"]);
    }
    // All in one file: the error says what to do.
    room.write("all.yaml", &ran.stdout);
    room.run("check all.yaml").ended(2).said(&["a second document", "put each into a file of its own"]);
}

#[test]
fn note_is_printed_once_with_its_topologies() {
    let room = Room::new();
    room.write("cdc/a.yaml", CDC.replace("NAME", "a"));
    room.write("cdc/b.yaml", CDC.replace("NAME", "b"));
    room.write("cdc/c.yaml", CDC.replace("NAME", "c").replace("debezium-postgres@2", "maxwell@1"));
    let ran = room.run("check cdc").ended(0).said(&["note for a, b: Flattened records"]);
    assert_eq!(ran.stderr.matches("Flattened records").count(), 1, "{}", ran.stderr);
    let of_c = ran.stderr.split("cdc/c.yaml: fine").nth(1).unwrap();
    assert!(of_c.contains("  note         "), "a note on one topology should be printed with it: {}", ran.stderr);
}

#[test]
fn name_of_a_preset_family_lists_its_presets() {
    let room = Room::new();
    room.write("cdc.yaml", CDC.replace("NAME", "cdc").replace("debezium-postgres@2", "debezium@1"));
    let ran = room.run("check cdc.yaml").ended(2);
    let ran = ran.said(&["there is no preset `debezium`", "`debezium-postgres@3`", "`debezium-mysql@2`"]);
    assert!(!ran.stderr.contains("did you mean") && !ran.stderr.contains("maxwell"), "{}", ran.stderr);
}

#[test]
fn printed_schema_equals_the_stored_one() {
    let ran = Room::new().run("schema").ended(0).quietly();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/topology.schema.json");
    assert_eq!(ran.stdout, std::fs::read_to_string(path).unwrap());
}
