//! Failed deliveries are reported record by record, and only those that can never succeed are `refused`.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;

use ratchet::cluster::kafka::{Batch, DataPath, Kafka};
use ratchet::cluster::{
    Cluster, DeliveryFailure, ErrorKind, Member as _, Message, Producer as _, Reader as _, RecordBatch as _, Ticket,
};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::alone::is_alone;
use crate::cluster_kafka::common::*;

#[test]
fn record_rejected_by_the_topic_is_reported_as_refused() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let output = topic_with("out", 2, &[("max.message.bytes", "1000")]);
    let (_, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let large = "x".repeat(5000);
    producer.begin().unwrap();
    producer.send(Ticket { number: 41, report: false }, &message(&at(&output, 0), "a", "small")).unwrap();
    producer.send(Ticket { number: 42, report: false }, &message(&at(&output, 1), "a", &large)).unwrap();
    let error = producer.commit(&[commit_of(&at(&input, 0), 1, "")], member.metadata().unwrap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Abort, "{error}");
    // A task that waits for its deliveries goes on.
    eventually("nothing to be under way", || (producer.in_flight() == 0).then_some(()));
    let failures = producer.take_failures();
    let refused: Vec<_> = failures.iter().filter(|failure| failure.refused).collect();
    assert!(matches!(refused[..], [DeliveryFailure { number: 42, .. }]), "{failures:?}");
    // People read this in dead letters and logs, in the same words whichever client has written.
    assert!(refused[0].message.ends_with("Broker: Message size too large"), "{failures:?}");
    producer.abort().unwrap();
    commit(&mut producer, &member, &[message(&at(&output, 0), "a", "after")], &[commit_of(&at(&input, 0), 1, "")]);
    assert_eq!(values(&at(&output, 0), "read_committed"), ["after"]);
}

#[test]
fn timestamp_rejected_by_the_topic_is_reported_as_refused() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let output = topic_with("out", 1, &[("message.timestamp.after.max.ms", "3600000")]);
    let (_, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let to = at(&output, 0);
    producer.begin().unwrap();
    let far = Message { timestamp: Some(32_503_680_000_000), ..message(&to, "a", "in the year 3000") };
    producer.send(Ticket { number: 9, report: false }, &far).unwrap();
    let error = producer.commit(&[commit_of(&at(&input, 0), 1, "")], member.metadata().unwrap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Abort, "{error}");
    let failures = producer.take_failures();
    assert_eq!((failures.len(), failures[0].number, failures[0].refused), (1, 9, true), "{failures:?}");
    producer.abort().unwrap();
}

#[test]
fn record_rejected_by_the_client_leaves_the_transaction_intact() {
    let cluster = cluster_with(&[("message.max.bytes", "2000")]);
    let (input, output) = (topic("in", 1), topic("out", 1));
    let (_, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let (to, large) = (at(&output, 0), "x".repeat(5000));
    producer.begin().unwrap();
    producer.send(SILENT, &message(&to, "a", "before")).unwrap();
    let error = producer.send(SILENT, &message(&to, "a", &large)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    producer.send(SILENT, &message(&to, "a", "after")).unwrap();
    producer.commit(&[commit_of(&at(&input, 0), 1, "")], member.metadata().unwrap()).unwrap();
    assert_eq!(values(&to, "read_committed"), ["before", "after"]);
}

#[test]
fn missing_partition_is_not_blamed_on_the_record() {
    let (cluster, output) = (cluster(), topic("out", 1));
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    producer.begin().unwrap();
    let (first, missing) = (at(&output, 0), at(&output, 7));
    producer.send(SILENT, &message(&first, "a", "x")).unwrap();
    eventually("the delivery", || (producer.in_flight() == 0).then_some(()));
    let reported = match producer.send(Ticket { number: 5, report: false }, &message(&missing, "a", "x")) {
        Err(error) => error.kind == ErrorKind::Abort,
        Ok(()) => eventually("a failure", || producer.take_failures().pop().map(|f| f.number == 5 && !f.refused)),
    };
    assert!(reported);
    producer.abort().unwrap();
}

/// A cluster whose coordinator reports this many times that it is still loading.
fn loading(times: usize) -> (MockCluster<'static, DefaultProducerContext>, Kafka) {
    let broker = MockCluster::new(1).unwrap();
    let errors = vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS; times];
    broker.request_errors(RDKafkaApiKey::InitProducerId, &errors);
    let kafka = kafka(&map(&[("bootstrap.servers", &broker.bootstrap_servers())]), &map(&[]), &map(&[])).unwrap();
    (broker, kafka)
}

/// As at the first start on a fresh cluster, just after the transactions' topic was created. On librdkafka's mock
/// broker, since how long a real one loads cannot be chosen. librdkafka's own lines are logged at debug level, because
/// an error follows if it lasts.
#[test]
fn loading_coordinator_is_an_error_only_if_it_lasts() {
    if !is_alone("cluster_kafka::failures::loading_coordinator_is_an_error_only_if_it_lasts") {
        return;
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let lines = tracing_subscriber::fmt().with_env_filter("librdkafka=debug").with_ansi(false);
    // librdkafka's threads log for the whole process, which has no other test.
    lines.with_writer(Arc::new(log.reopen().unwrap())).init();
    let (_broker, kafka) = loading(2);
    kafka.producer(&unique("tx")).unwrap();
    let said = fs::read_to_string(log.path()).unwrap();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("Coordinator load in progress")).collect();
    // The wire says nothing of what passes.
    assert_eq!(lines.is_empty(), data_path() == DataPath::Wire, "what librdkafka has logged: {said}");
    assert!(lines.iter().all(|line| line.contains("DEBUG librdkafka: GETPID")), "{lines:#?}");

    let (_broker, kafka) = loading(10_000);
    let error = kafka.producer(&unique("tx")).err().expect("it cannot be opened");
    assert_eq!(error.kind, ErrorKind::Retry, "{error}");
    assert!(error.message.contains("Coordinator load in progress"), "{error}");
}

/// Another service's address among the brokers' stops nobody.
#[test]
fn address_that_is_no_brokers_does_not_matter_where_others_are() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let servers = format!("{},{}", other.local_addr().unwrap(), crate::kafka::bootstrap());
    std::thread::spawn(move || {
        for mut stream in other.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let cluster = kafka(&map(&[("bootstrap.servers", &servers)]), &map(&[]), &map(&[])).unwrap();
    let input = topic("in", 1);
    let (_, member) = lone_member(&crate::cluster_kafka::common::cluster(), &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let to = at(&input, 0);
    commit(&mut producer, &member, &[message(&to, "k", "v")], &[commit_of(&to, 0, "")]);
    let mut reader = cluster.reader(&to, 0).unwrap();
    let (mut batch, mut count) = (Batch::default(), 0);
    for _ in 0..150 {
        if let Err(error) = reader.read(&mut batch, 10, STEP) {
            assert_eq!((error.kind, data_path()), (ErrorKind::Retry, DataPath::Librdkafka), "{error}");
        }
        count += batch.len();
    }
    assert_eq!(count, 1);
}

#[test]
fn unreachable_cluster_is_an_error_to_retry() {
    let own = [("bootstrap.servers", "127.0.0.1:1"), ("socket.connection.setup.timeout.ms", "1000")];
    let nowhere = kafka(&map(&own), &map(&[]), &map(&[])).unwrap();
    let error = nowhere.describe_topic("any").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Retry, "{error}");
}
