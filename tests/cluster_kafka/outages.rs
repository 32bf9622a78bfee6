//! A cluster that freezes, restarts or rejects a password holds nobody up, and the error says what happened.
//! Each test starts its own broker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ratchet::cluster::kafka::{Batch, Kafka};
use ratchet::cluster::{Cluster, ErrorKind, Inquiry, Member as _, NewTopic, Producer as _, RecordBatch, Settling as _};

use crate::cluster_kafka::common::*;
use crate::kafka::Broker;

fn connect(broker: &Broker, producer: &[(&str, &str)]) -> Kafka {
    kafka(&map(&[("bootstrap.servers", &broker.bootstrap())]), &map(&[]), &map(producer)).unwrap()
}

fn create(cluster: &Kafka, name: &str) -> std::sync::Arc<str> {
    cluster.create_topic(&NewTopic { name, partition_count: 1, replication_factor: 1, settings: &[] }).unwrap();
    name.into()
}

#[test]
fn frozen_broker_does_not_hold_up_a_commit() {
    let broker = Broker::start();
    let cluster = connect(&broker, &[("transaction.timeout.ms", "3000")]);
    let (input, output) = (create(&cluster, "in"), create(&cluster, "out"));
    let (_, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer("tx").unwrap();
    let to = at(&output, 0);
    producer.begin().unwrap();
    producer.send(SILENT, &message(&to, "a", "x")).unwrap();
    eventually("the delivery", || (producer.in_flight() == 0).then_some(()));
    let metadata = member.metadata().unwrap();
    broker.freeze();
    let started = Instant::now();
    let error = producer.commit(&[commit_of(&at(&input, 0), 1, "")], metadata).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    assert!(matches!(error.kind, ErrorKind::Abort | ErrorKind::Unknown), "{error}");
    let started = Instant::now();
    drop(producer);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    broker.thaw();
    // A new producer with the same id ends any open transaction.
    let mut producer = eventually("a new producer", || cluster.producer("tx").ok());
    producer.begin().unwrap();
    producer.send(SILENT, &message(&to, "a", "y")).unwrap();
    eventually("the delivery", || (producer.in_flight() == 0).then_some(()));
    producer.abort().unwrap();
}

#[test]
fn broker_restart_is_reported_once_and_reading_continues() {
    let mut broker = Broker::start();
    // A broker may take longer to start than the default session timeout, which is not what is tested here.
    let session = map(&[("session.timeout.ms", "60000")]);
    let servers = map(&[("bootstrap.servers", &broker.bootstrap())]);
    let cluster = kafka(&servers, &session, &map(&[])).unwrap();
    let (input, output) = (create(&cluster, "in"), create(&cluster, "out"));
    let from = at(&input, 0);
    let (_, mut member) = lone_member(&cluster, &input);
    member.start(&from, 0).unwrap();
    let mut producer = cluster.producer("tx").unwrap();
    commit(&mut producer, &member, &[message(&from, "a", "before")], &[commit_of(&from, 0, "")]);
    assert_eq!(poll_records(&mut member, 1).len(), 1);
    broker.kill();
    let (mut batch, mut reports) = (Batch::default(), 0);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        if let Err(error) = member.poll(&mut batch, 10, STEP) {
            assert_eq!(error.kind, ErrorKind::Retry, "{error}");
            reports += 1;
        }
    }
    assert_eq!(reports, 1);
    broker.restart();
    // The connection that ended the last transaction broke long after it: the producer can continue.
    eventually("a commit after the restart", || {
        let mut producer = cluster.producer("tx").ok()?;
        producer.begin().unwrap();
        producer.send(SILENT, &message(&from, "a", "after")).unwrap();
        producer.commit(&[commit_of(&from, 1, "")], member.metadata().ok()?).ok()
    });
    eventually("a record after the restart", || {
        let _ = member.poll(&mut batch, 10, STEP);
        seen(&batch).iter().any(|seen| seen.2 == "after").then_some(())
    });
    drop(output);
}

fn login(broker: &Broker, password: &str) -> BTreeMap<String, String> {
    broker.login("ratchet", password).map(|(name, value)| (name.to_owned(), value)).into()
}

#[test]
fn wrong_password_is_refused_and_never_shown() {
    let broker = Broker::start();
    let right = kafka(&login(&broker, "ratchet-secret"), &map(&[]), &map(&[])).unwrap();
    assert_eq!(right.describe_topic("missing").unwrap(), None);
    let wrong = kafka(&login(&broker, "hunter2hunter2"), &map(&[]), &map(&[])).unwrap();
    let producing = wrong.producer("tx").err().unwrap();
    let describing = wrong.describe_topic("missing").unwrap_err();
    let mut member = wrong.member("group", &["missing".into()]).unwrap();
    let mut batch = Batch::default();
    let joining =
        eventually("a refusal", || member.poll(&mut batch, 10, STEP).err().filter(|e| e.kind == ErrorKind::Refused));
    for error in [producing, describing, joining] {
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    assert!(batch.is_empty());
}

/// After one successful login, a rejected one may be due to a changed password or a broker that has not loaded its
/// credentials: it is an error to retry. That includes calls with a client of their own (a producer; a takeover, which
/// queries the group).
#[test]
fn login_that_succeeded_once_is_retried_when_rejected() {
    let mut broker = Broker::start();
    let plain = connect(&broker, &[]);
    let (input, changelog) = (create(&plain, "in"), create(&plain, "changelog"));
    let cluster = kafka(&login(&broker, "ratchet-secret"), &map(&[]), &map(&[])).unwrap();
    assert_eq!(cluster.describe_topic("missing").unwrap(), None);
    broker.set_password("ratchet", "another-secret");
    // Existing connections stay.
    broker.restart();
    let settle = || cluster.settle(Inquiry::of("group", &at(&input, 0), &at(&changelog, 0)));
    let mut settling = settle();
    let described = cluster.describe_topic("missing").unwrap_err();
    let produced = cluster.producer("tx").err().unwrap();
    let settled = loop {
        if let Some(settled) = settling.poll() {
            break settled.unwrap_err();
        }
        std::thread::sleep(STEP);
    };
    for error in [&described, &produced, &settled] {
        assert_eq!(error.kind, ErrorKind::Retry, "{error}");
    }
    for error in [&described, &settled] {
        assert!(error.message.contains("uthentication"), "{error}");
    }
    broker.set_password("ratchet", "ratchet-secret");
    eventually("a description", || matches!(cluster.describe_topic("missing"), Ok(None)).then_some(()));
    let mut settling = settle();
    eventually("a takeover", || settling.poll()?.ok());
    drop(cluster.producer("tx").unwrap());
}

/// The first query about a group makes the broker create the topic of the groups, and succeeds once that exists: it
/// does not time out.
#[test]
fn group_is_described_by_a_broker_that_never_had_one() {
    // As many partitions as by default.
    let broker = Broker::start_with(&[("offsets.topic.num.partitions", "50")]);
    let cluster = connect(&broker, &[]);
    assert_eq!(cluster.describe_topic("missing").unwrap(), None);
    let started = Instant::now();
    cluster.group_rights("group").unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// A group's coordinator that responds only after it was given up does no harm: librdkafka keeps a request to a
/// coordinator past its timeout, and would end the process once the coordinator is found.
#[test]
fn late_response_of_a_coordinator_does_no_harm() {
    let broker = Broker::start();
    // The group has a coordinator, which the other client has yet to find.
    connect(&broker, &[]).group_rights("group").unwrap();
    let cluster = connect(&broker, &[]);
    assert_eq!(cluster.describe_topic("missing").unwrap(), None);
    broker.freeze();
    let rights = std::thread::scope(|scope| {
        let asked = scope.spawn(|| cluster.group_rights("group"));
        std::thread::sleep(Duration::from_secs(4));
        broker.thaw();
        asked.join().unwrap()
    });
    assert!(rights.unwrap().is_some());
    // The request that librdkafka kept is served by now, or never.
    assert_eq!(cluster.describe_topic("missing").unwrap(), None);
    std::thread::sleep(Duration::from_secs(1));
}

#[test]
fn query_for_open_transactions_times_out_on_a_frozen_broker() {
    let broker = Broker::start();
    let cluster = connect(&broker, &[]);
    let partition = at(&create(&cluster, "in"), 0);
    let wait = Duration::from_secs(1);
    // The clients know the leader, like those of a process that has run for a while.
    eventually("a result", || cluster.open_transaction(&partition, wait).ok());
    broker.freeze();
    let started = Instant::now();
    let asked = cluster.open_transaction(&partition, wait);
    assert!(started.elapsed() < wait * 2, "{:?}", started.elapsed());
    assert!(asked.is_err(), "{asked:?}");
    broker.thaw();
    eventually("a result again", || cluster.open_transaction(&partition, wait).ok());
}

/// After a freeze, an only broker is fenced until its next heartbeat, and lists no broker until then, not even itself.
/// librdkafka then gives up the brokers that it knows, for good as it happens (confluentinc/librdkafka#5301).
#[test]
fn client_that_hears_of_no_broker_begins_anew() {
    const TOPICS: usize = 8;
    const FENCED: usize = 3;
    const ROUNDS_MAX: usize = 10;
    let broker = Broker::start_with(&[("broker.session.timeout.ms", "6000"), ("broker.heartbeat.interval.ms", "5000")]);
    let cluster = connect(&broker, &[]);
    // Where its heartbeat is heard before its session is looked at, it is not.
    let fenced = || std::fs::read_to_string(broker.log()).expect("its log").matches("Fencing broker 1").count();
    for round in 0.. {
        if fenced() >= FENCED {
            return;
        }
        assert!(round < ROUNDS_MAX, "fenced {} times only", fenced());
        // Nobody knows their leaders yet.
        let topics: Vec<_> =
            (0..TOPICS).map(|topic| at(&create(&cluster, &format!("in-{round}-{topic}")), 0)).collect();
        broker.freeze();
        std::thread::scope(|scope| {
            // What is asked during the freeze is answered at its end, while the broker is fenced.
            for topic in &topics {
                scope.spawn(|| cluster.bounds(topic));
            }
            std::thread::sleep(Duration::from_secs(8));
            broker.thaw();
        });
        eventually("the end to be found", || cluster.bounds(&topics[0]).ok());
    }
}
