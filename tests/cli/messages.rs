//! Goal: common first mistakes get a message that says what is wrong and what to write instead.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::{PAYMENTS, Room};

/// A room with a configuration that has these properties beside the brokers' address.
fn with_properties(properties: &str) -> Room {
    let room = Room::new();
    room.write("ratchet.yaml", format!("kafka:\n  bootstrap.servers: broker-1.example:9092\n{properties}\nlanes: 2\n"));
    room
}

const CHECK: &str = "check payments.yaml --config ratchet.yaml";

#[test]
fn jaas_configuration_is_told_the_properties_to_use_instead() {
    let jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"me\" password=\"hunter2\";";
    for property in
        [format!("  sasl.jaas.config: '{jaas}'"), format!("  consumer:\n    sasl.jaas.config: >\n      {jaas}")]
    {
        let ran = with_properties(&property).run(CHECK).ended(2).said(&[
            "`sasl.jaas.config` is a property of Java's clients",
            "`sasl.username` and `sasl.password: ${env:NAME}`",
            "logins by Kerberos (GSSAPI) are not built in",
            "1 mistake",
        ]);
        ran.never_said("hunter2");
    }
    let set = format!("{CHECK} --set kafka.sasl.jaas.config=hunter2");
    with_properties("  client.id: x").run(&set).ended(2).said(&["`sasl.username`"]).never_said("hunter2");
}

#[test]
fn kerberos_is_refused_by_name() {
    let words = ["Kerberos", "not built into", "SCRAM-SHA-512", "security.protocol: ssl"];
    let logins = ["security.protocol: sasl_ssl\n  sasl.mechanism: GSSAPI", "security.protocol: sasl_plaintext"];
    for login in logins {
        with_properties(&format!("  {login}")).run(CHECK).ended(2).said(&words);
    }
}

#[test]
fn other_properties_of_javas_clients_are_told_apart() {
    let room = with_properties("  ssl.truststore.location: /etc/trust.jks\n  max.poll.records: 500");
    room.run(CHECK).ended(2).said(&["write `ssl.ca.location`", "`commit.records` bounds", "2 mistakes"]);
}

#[test]
fn misspelt_property_is_suggested_and_addresses_are_shown() {
    let room = with_properties("  sesion.timeout.ms: 6000\n  sasl.pasword: hunter2");
    let ran = room.run(CHECK).ended(2).said(&[
        "sesion.timeout.ms is no kafka property",
        "did you mean `session.timeout.ms`?",
        "write `session.timeout.ms`",
        "bootstrap.servers: broker-1.example:9092",
        "did you mean `sasl.password`?",
    ]);
    ran.never_said("hunter2");
    let set = format!("{CHECK} --set kafka.consumer.sesion.timeout.ms=6000");
    with_properties("  client.id: x").run(&set).ended(2).said(&["did you mean `session.timeout.ms`?"]);
}

#[test]
fn format_that_is_not_supported_yet_is_named_with_a_way_out() {
    let room = Room::new();
    room.write("payments.yaml", PAYMENTS.replace("[payments]", "[payments], value_format: xml"));
    room.run("check payments.yaml").ended(2).said(&[
        "`input.value_format: xml` is not supported yet",
        "payments.yaml:2:",
        "`value.converter: org.apache.kafka.connect.json.JsonConverter`",
        "`value_format: bytes`",
        "1 mistake",
    ]);
    room.write("payments.yaml", PAYMENTS.replace("[payments]", "[payments], value_format: confluent_avro"));
    room.run("check payments.yaml").ended(2).said(&[
        "`input.value_format: confluent_avro` is called `avro` here",
        "write `value_format: avro`",
        "`schema_registry.url`",
    ]);
    room.write("payments.yaml", PAYMENTS.replace("[payments]", "[payments], value_format: jso"));
    room.run("check payments.yaml").ended(2).said(&["did you mean `json`?"]).never_said("not supported");
}

#[test]
fn action_for_duplicates_is_told_that_they_are_always_dropped() {
    let room = Room::new();
    room.write("payments.yaml", format!("{PAYMENTS}on_duplicate: dead_letter\n"));
    room.run("check payments.yaml").ended(2).said(&[
        "`on_duplicate` cannot be `dead_letter`: a duplicate is always dropped",
        "`audit: {topic: payments.audit}`",
        "1 mistake",
    ]);
    room.write("payments.yaml", format!("{PAYMENTS}on_duplicate: drop\n"));
    room.run("check payments.yaml").ended(0);
}

#[test]
fn proxy_without_options_is_told_what_it_needs() {
    let room = Room::new();
    room.run("proxy").ended(2).wrote(&[]).said(&[
        "told neither where to listen nor which service is behind it",
        "`ratchet proxy --listen 127.0.0.1:8080 --upstream http://127.0.0.1:3000`",
        "`ratchet proxy --config proxy.yaml`",
    ]);
    room.run("proxy --upstream http://a").ended(2).said(&["not told where to listen", "--listen 127.0.0.1:8080"]);
    room.run("proxy --listen 127.0.0.1:0").ended(2).said(&["which service is behind it", "--upstream http://"]);
}

#[test]
fn retention_of_no_time_is_told_that_it_must_be_longer() {
    let room = Room::new();
    for retention in ["0s", "0d", "0ms"] {
        room.write("payments.yaml", format!("{PAYMENTS}retention: {retention}\n"));
        let words = ["`retention` must be longer than no time at all", "write e.g. `retention: 30d`", "1 mistake"];
        room.run("check payments.yaml").ended(2).said(&words);
    }
    room.write("payments.yaml", format!("{PAYMENTS}retention: 30d\nfuture_max: 0s\n"));
    room.run("check payments.yaml").ended(2).said(&["`future_max` must be longer than no time at all"]);
    room.write("payments.yaml", format!("{PAYMENTS}retention: 30\n"));
    room.run("check payments.yaml").ended(2).said(&["`retention` must be a duration or `forever`"]);
}

/// Answers every request as a web server does.
fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens").to_string();
    let respond = |mut stream: TcpStream| {
        // Nobody minds if the client has gone meanwhile.
        let _ = stream.read(&mut [0; 256]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    };
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(thread::spawn(move || respond(stream))))
    });
    address
}

#[test]
fn web_server_in_place_of_a_broker_is_recognised() {
    let room = Room::new();
    let address = web_server();
    let ran = room.run(&format!("check payments.yaml --set kafka.bootstrap.servers={address} --online")).ended(1);
    ran.said(&[&address, "it answers in HTTP", "a REST proxy or of a schema registry"])
        .never_said("increase receive.message.max.bytes");
}
