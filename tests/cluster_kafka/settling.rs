//! A takeover learns its offsets only once nobody else can write any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratchet::cluster::kafka::Kafka;
use ratchet::cluster::{Cluster, ErrorKind, Inquiry, Producer as _, Settled, Settling as _};
use ratchet::format::ChangelogOffset;
use ratchet::record::TopicPartition;
use rdkafka::producer::Producer as _;

use crate::alone::is_alone;
use crate::cluster_kafka::common::*;

fn settled(cluster: &Kafka, group: &str, input: &TopicPartition, changelog: &TopicPartition) -> Settled {
    let mut settling = cluster.settle(Inquiry::of(group, input, changelog));
    eventually("to be settled", || settling.poll()).unwrap()
}

/// Polls for `time` and asserts that there is no result.
fn stays_open(settling: &mut impl ratchet::cluster::Settling, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        assert!(settling.poll().is_none(), "it settled while a transaction was open");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn quiet_partition_is_settled_at_once() {
    let (cluster, input, log) = (cluster(), topic("in", 2), topic("log", 2));
    write(&at(&input, 1), ["a".to_owned(), "b".to_owned()]);
    let settled = settled(&cluster, &unique("group"), &at(&input, 1), &at(&log, 1));
    assert_eq!(settled.committed, None);
    assert_eq!((settled.input_start, settled.input_end), (0, 2));
    assert_eq!((settled.changelog_start.0, settled.changelog_end.0), (0, 0));
    assert_eq!(settled.input_id, cluster.describe_topic(&input).unwrap().unwrap().id);
    assert_eq!(settled.changelog_id, cluster.describe_topic(&log).unwrap().unwrap().id);
}

#[test]
fn settling_waits_for_pending_offsets() {
    let (cluster, input, log) = (cluster(), topic("in", 1), topic("log", 1));
    let (group, member) = lone_member(&cluster, &input);
    let from = at(&input, 0);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    commit(&mut producer, &member, &[], &[commit_of(&from, 3, "first")]);
    let foreign = foreign_transaction(60_000);
    let mut offsets = rdkafka::TopicPartitionList::new();
    offsets.add_partition_offset(&input, 0, rdkafka::Offset::Offset(9)).unwrap();
    // A membership of the same group, so that its coordinator accepts the offsets.
    foreign.send_offsets_to_transaction(&offsets, &joined_elsewhere(&group), PATIENCE).unwrap();
    let mut settling = cluster.settle(Inquiry::of(&group, &from, &at(&log, 0)));
    stays_open(&mut settling, Duration::from_millis(700));
    // A plain query does not wait.
    let plain = cluster.committed(&group, &[from], Duration::from_secs(5)).unwrap();
    assert_eq!(plain[0].as_ref().unwrap().offset, 3);
    foreign.commit_transaction(PATIENCE).unwrap();
    let settled = eventually("to be settled", || settling.poll()).unwrap();
    assert_eq!(settled.committed.unwrap().offset, 9);
}

/// Another client's membership: brokers accept commits without a generation unfenced.
fn joined_elsewhere(group: &str) -> rdkafka::consumer::ConsumerGroupMetadata {
    use rdkafka::consumer::Consumer as _;
    let mut config = rdkafka::ClientConfig::new();
    config.set("bootstrap.servers", crate::kafka::bootstrap()).set("group.id", group);
    let consumer: rdkafka::consumer::BaseConsumer = config.create().unwrap();
    consumer.group_metadata().unwrap()
}

#[test]
fn settling_waits_for_open_changelog_writes() {
    let (cluster, input, log) = (cluster(), topic("in", 1), topic("log", 1));
    let changelog = at(&log, 0);
    let foreign = foreign_transaction(60_000);
    write_in(&foreign, &changelog, "open");
    let mut settling = cluster.settle(Inquiry::of(&unique("group"), &at(&input, 0), &changelog));
    stays_open(&mut settling, Duration::from_millis(700));
    foreign.abort_transaction(PATIENCE).unwrap();
    let settled = eventually("to be settled", || settling.poll()).unwrap();
    assert!(settled.changelog_end.0 >= 1, "{settled:?}");
}

#[test]
fn settling_waits_for_a_dead_owners_transaction_timeout() {
    let (cluster, input, log) = (cluster(), topic("in", 1), topic("log", 1));
    let changelog = at(&log, 0);
    let dying = cluster_with(&[("transaction.timeout.ms", "3000")]);
    let mut producer = dying.producer(&unique("tx")).unwrap();
    // Before the first record reaches the broker, which counts the timeout from there.
    let started = Instant::now();
    producer.begin().unwrap();
    producer.send(SILENT, &message(&changelog, "a", "never committed")).unwrap();
    eventually("the delivery", || (producer.in_flight() == 0).then_some(()));
    drop(producer);
    settled(&cluster, &unique("group"), &at(&input, 0), &changelog);
    assert!(started.elapsed() >= Duration::from_millis(2900), "{:?}", started.elapsed());
    assert_eq!(values(&changelog, "read_committed"), Vec::<String>::new());
}

/// One client looks for all of them, as often as asked.
#[test]
fn first_record_from_an_offset_on_is_seen() {
    const PARTITIONS: i32 = 40;
    let (cluster, input, log) = (cluster(), topic("in", PARTITIONS), topic("log", PARTITIONS));
    let foreign = foreign_transaction(60_000);
    (0..PARTITIONS).for_each(|number| write_in(&foreign, &at(&log, number), &format!("first {number}")));
    foreign.commit_transaction(PATIENCE).unwrap();
    foreign.begin_transaction().unwrap();
    (0..PARTITIONS).for_each(|number| write_in(&foreign, &at(&log, number), "taken back"));
    foreign.abort_transaction(PATIENCE).unwrap();
    let (group, end) = (unique("group"), 5);
    for number in 0..PARTITIONS {
        settled(&cluster, &group, &at(&input, number), &at(&log, number));
        write(&at(&log, number), [format!("last {number}")]);
    }
    // Behind the marker lie aborted records; the last record is followed by nothing.
    let all = [(0, Some((0, "first"))), (1, Some((4, "last"))), (2, Some((4, "last"))), (end, None), (-1, None)];
    for (from, expected) in all {
        let ask = |number| {
            let of = Inquiry::of(&group, &at(&input, number), &at(&log, number));
            (number, cluster.settle(Inquiry { looks_from: Some(ChangelogOffset(from)), ..of }))
        };
        let asked: Vec<_> = (0..PARTITIONS).map(ask).collect();
        for (number, mut settling) in asked {
            let settled = eventually("to be settled", || settling.poll()).unwrap();
            assert_eq!(settled.changelog_end.0, end);
            let seen = settled.seen.expect("it was asked for");
            let first = seen.first.map(|first| (first.offset.0, String::from_utf8(first.value.unwrap()).unwrap()));
            assert_eq!(seen.from.0, from);
            assert_eq!(first, expected.map(|(offset, which)| (offset, format!("{which} {number}"))), "from {from}");
        }
    }
}

/// If everything that follows was aborted, nothing is found.
#[test]
fn no_record_is_seen_where_nothing_was_committed() {
    let (cluster, input, log) = (cluster(), topic("in", 1), topic("log", 1));
    let changelog = at(&log, 0);
    let foreign = foreign_transaction(60_000);
    (0..9).for_each(|_| write_in(&foreign, &changelog, "taken back"));
    foreign.abort_transaction(PATIENCE).unwrap();
    for from in [0, 8] {
        let of = Inquiry::of(&unique("group"), &at(&input, 0), &changelog);
        let mut settling = cluster.settle(Inquiry { looks_from: Some(ChangelogOffset(from)), ..of });
        let settled = eventually("to be settled", || settling.poll()).unwrap();
        let seen = settled.seen.expect("it was asked for");
        assert_eq!((settled.changelog_end.0, seen.from.0, seen.first), (10, from, None));
    }
}

/// The number of this process's threads that settle.
fn settling_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread that ends meanwhile has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "kafka-settle").count()
}

/// Threads are counted by process: in one of its own no other test settles.
#[test]
fn many_partitions_settle_on_a_bounded_number_of_threads() {
    if !is_alone("cluster_kafka::settling::many_partitions_settle_on_a_bounded_number_of_threads") {
        return;
    }
    const PARTITIONS: i32 = 300;
    const THREADS_MAX: usize = 64;
    let (cluster, input, log) = (cluster(), topic("in", PARTITIONS), topic("log", PARTITIONS));
    let group = unique("group");
    settled(&cluster, &group, &at(&input, 0), &at(&log, 0));
    let started = Instant::now();
    let settle = |p| cluster.settle(Inquiry::of(&group, &at(&input, p), &at(&log, p)));
    let mut all: Vec<_> = (0..PARTITIONS).map(settle).collect();
    let mut threads = 0;
    eventually("all to be settled", || {
        threads = threads.max(settling_threads());
        all.retain_mut(|settling| settling.poll().map(Result::unwrap).is_none());
        all.is_empty().then_some(())
    });
    println!("{PARTITIONS} partitions settled in {:?}, by {threads} threads", started.elapsed());
    assert!((1..=THREADS_MAX).contains(&threads), "{threads} threads");
}

/// Brokers learn of a new topic one after the other: a broker that lags behind responds as here at first.
#[test]
fn unknown_topics_are_queried_again() {
    let (cluster, known) = (cluster(), topic("known", 1));
    for unknown_input in [true, false] {
        let late: Arc<str> = unique("late").into();
        let of = |is_late: bool| at(if is_late { &late } else { &known }, 0);
        let (input, changelog) = (of(unknown_input), of(!unknown_input));
        let mut settling = cluster.settle(Inquiry::of(&unique("group"), &input, &changelog));
        stays_open(&mut settling, Duration::from_millis(700));
        create(&late, 1, &[]);
        let settled = eventually("to be settled", || settling.poll()).unwrap();
        let found = cluster.describe_topic(&late).unwrap().unwrap().id;
        assert_eq!(if unknown_input { settled.input_id } else { settled.changelog_id }, found);
    }
}

#[test]
fn missing_changelog_is_refused() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let missing: Arc<str> = unique("missing").into();
    let mut settling = cluster.settle(Inquiry::of(&unique("group"), &at(&input, 0), &at(&missing, 0)));
    let error = eventually("a result", || settling.poll()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.message.contains(&*missing), "{error}");
}
