//! Goal: ratchet reads records of Confluent's serializers with schemas from a real registry, and forwards them byte for
//! byte; identities are the same in each format.

use std::fs;

use super::payments::{FORWARDED, Payments, forwarded, job, records, values_of};
use crate::cluster::{Fresh, Kafka};
use crate::database::Database;
use crate::job::Job;
use crate::operator::Operator;
use crate::schema_registry::Server;
use crate::until::DEADLINE;

const FORMATS: [&str; 3] = ["avro", "protobuf", "json_schema"];

/// Reads all records, and stops.
fn drain(job: &Job) {
    let mut operator = Operator::start(job, "a");
    job.await_drained(DEADLINE);
    operator.stop();
}

/// With each of the registry's two APIs.
#[test]
fn duplicates_are_dropped_and_newer_versions_pass_byte_for_byte() {
    let registry = Server::shared();
    for (format, url) in FORMATS.iter().flat_map(|format| [(format, registry.url()), (format, registry.own_url())]) {
        let payments = Payments::of(format);
        let job = payments.job(&format!("read-{}", format.replace('_', "-")), &url);
        let values = payments.values(payments.register(registry, &job.input));
        job.send(records(0, &values));
        drain(&job);
        let output = job.output();
        let keys: Vec<_> = output.iter().map(|record| record.key.clone().unwrap()).collect();
        assert_eq!(keys, FORWARDED.map(|at| format!("key-{at}").into_bytes()), "{format} {url}");
        assert_eq!(values_of(output), forwarded(&values), "{format} {url}");
        assert_eq!(job.kafka.read_visible(&job.dead_letter()).into_values().flatten().count(), 0, "{format} {url}");
    }
}

/// Go counts messages by descriptors, which have one for each map. Where the schema's text leaves open which message
/// that makes a record, it is refused.
#[test]
fn messages_of_gos_serializer_are_read_or_refused_but_never_mistaken() {
    let registry = Server::shared();
    let payments = Payments::by_go("protobuf");
    let job = job("by-go", "protobuf", 1, &registry.url());
    let whole = payments.values(payments.register(registry, &job.input));
    let payments = Payments::by_go("nested");
    let numbers = payments.register(registry, &format!("{}-nested", job.input));
    let nested = payments.values(numbers);
    // Of other payments.
    let other = |value: &Vec<u8>| {
        let mut value = value.clone();
        let at = value.windows(2).position(|id| id == b"\x02p").unwrap();
        value[at + 1] = b'n';
        value
    };
    let nested: Vec<Vec<u8>> = nested.iter().map(other).collect();
    job.send(records(0, &[&whole[..], &nested].concat()));
    drain(&job);
    assert_eq!(values_of(job.output()), [&forwarded(&whole)[..], &[3, 4, 6].map(|at| nested[at].clone())].concat());
    let letters: Vec<_> = job.kafka.read_visible(&job.dead_letter()).into_values().flatten().collect();
    for letter in &letters {
        let reason = letter.header("__ratchet.errors.message").unwrap();
        let said = format!("schema {} has the messages `Payment` and `Refund`", numbers[0]);
        assert!(reason.contains(&said), "{reason}");
    }
    assert_eq!(values_of(letters), [0, 1, 2, 5].map(|at| nested[at].clone()));
}

/// The producers change from plain JSON to one format after the other.
#[test]
fn producer_may_change_its_format_without_an_identity_being_forgotten() {
    let registry = Server::shared();
    let job = job("switch", "auto", 1, &registry.url());
    let plain = |id: &str, version: u32| format!(r#"{{"id":"{id}","version":{version}}}"#).into_bytes();
    let mut all = vec![plain("p1", 1)];
    let mut expected = vec![plain("p1", 1)];
    for (round, format) in FORMATS.iter().enumerate() {
        let payments = Payments::of(format);
        let values = payments.values(payments.register(registry, &format!("{}-{format}", job.input)));
        // The JSON record has the first payment's identity and version; the first format has all others.
        if round == 0 {
            expected.extend([1, 3, 6].map(|at| values[at].clone()));
        }
        all.extend(values);
    }
    all.extend([plain("p3", 1), plain("p1", 2), plain("p1", 3)]);
    expected.push(plain("p1", 3));
    job.send(records(0, &all));
    drain(&job);
    assert_eq!(values_of(job.output()), expected);
}

#[test]
fn dead_letter_names_the_missing_schema_or_the_field_that_cannot_be_read() {
    let registry = Server::shared();
    let payments = Payments::of("avro");
    let job = payments.job("no-schema", &registry.url());
    let numbers = payments.register(registry, &job.input);
    let values = payments.values(numbers);
    let unknown = payments.values([1_000_001, numbers[1]])[0].clone();
    let cut_off = values[0][..values[0].len() - 2].to_vec();
    let no_framing = br#"{"id":"p9","version":1}"#.to_vec();
    let sent = [values[0].clone(), unknown, cut_off, no_framing, values[3].clone()];
    job.send(records(0, &sent));
    drain(&job);
    assert_eq!(values_of(job.output()), [values[0].clone(), values[3].clone()]);
    let letters: Vec<_> = job.kafka.read_visible(&job.dead_letter()).into_values().flatten().collect();
    let reasons: Vec<String> =
        letters.iter().map(|letter| letter.header("__ratchet.errors.message").unwrap()).collect();
    assert_eq!(values_of(letters), sent[1..4], "as they were sent");
    assert!(reasons[0].contains("schema 1000001"), "{reasons:?}");
    assert!(reasons[1].contains("paid_at") || reasons[1].contains("due"), "{reasons:?}");
    assert!(reasons[2].contains("no schema id"), "{reasons:?}");
}

const TABLE: &str = "create table payments (id text primary key, version bigint not null, amount numeric(12, 2), \
    paid_at timestamptz, due date)";

/// A decimal, a timestamp and a date in Avro become values of PostgreSQL's types.
#[test]
fn table_has_the_values_that_avro_had() {
    let registry = Server::shared();
    let payments = Payments::of("avro");
    let database = Database::with(TABLE);
    let mut job = Job::on(Kafka::shared(), "avro-table");
    job.kafka.create(&job.input, 1, &[]);
    fs::write(job.path("url"), &database.url).unwrap();
    job.instead = Some(format!(
        "identity: [value.id]\nversion: {{of: value.version, as: integer}}\n\
         input: {{topics: [{}], value_format: avro}}\n",
        job.input
    ));
    job.topology = vec![format!(
        "sink: {{postgres: {{url: '${{file:{}}}', table: {{name: payments, key: [id], \
         columns: [id, amount, paid_at, due, version]}}}}}}",
        job.path("url").display()
    )];
    job.worker.push(format!("schema_registry: {{url: \"{}\"}}", registry.url()));
    let number = registry.register(&format!("{}-value", job.input), "AVRO", include_str!("written/payment-1.avsc"));
    // Version 2 of the first payment, by the first schema: 2.25, the time, and a day.
    let mut dated = payments.values([number, number])[0].clone();
    let at = 5 + 1 + 2;
    assert_eq!(dated[at], 2, "version 1");
    dated[at] = 4;
    dated.truncate(dated.len() - 1);
    dated.extend_from_slice(&[2, 0x82, 0xc1, 0x02]);
    let values = payments.values([number, number]);
    let sent: Vec<Fresh> = records(0, &[values[0].clone(), values[1].clone(), dated, values[2].clone()]);
    job.send(sent);
    drain(&job);
    assert_eq!(
        database.rows("select id, version, amount, paid_at at time zone 'utc', due from payments order by id"),
        ["p1|2|1.25|2026-03-01 12:30:15.25|2026-04-02", "p2|1|1.25|2026-03-01 12:30:15.25|-",]
    );
}
