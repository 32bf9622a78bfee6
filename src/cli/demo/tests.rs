//! Goal: the demo shows the run's own numbers, and fails if a job loses or repeats anything. The operator
//! here is a stand-in with a map for a store; the tests of the built program run the real one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::cluster::embedded::{Batch, Embedded};
use crate::cluster::{
    Cluster, CommittedOffset, GroupEvent, Member as _, Message, NewTopic, OffsetCommit, Producer as _, RecordBatch,
    Settling as _, Ticket,
};
use crate::record::{Headers, TopicPartition};

const GROUP: &str = "ratchet.orders";
const CHANGELOG: &str = "ratchet.orders.orders.changes.changelog";

/// Does the job's work in one thread, with a map for a store.
struct StandIn {
    /// Whether it fails to rebuild its store.
    forgets: bool,
}

type Store = BTreeMap<u64, u64>;

impl Operator for StandIn {
    fn run(&mut self, job: &Job<'_>, progress: &mut dyn FnMut(&Counts)) -> Result<Ended, operator::Error> {
        let started = now();
        let cluster = job.site.open().unwrap();
        // A state folder like the real one's, to be removed.
        fs::create_dir_all(job.site.state().join("some")).unwrap();
        fs::write(job.site.state().join("some/file"), b"four").unwrap();
        for name in [sample::OUTPUT, CHANGELOG] {
            let (partition_count, settings) = (sample::PARTITIONS, &[]);
            cluster.create_topic(&NewTopic { name, partition_count, replication_factor: 1, settings }).unwrap();
        }
        let (mut store, mut restored) = (Store::new(), 0);
        for record in (0..sample::PARTITIONS).flat_map(|partition| cluster.read_all(CHANGELOG, partition).unwrap()) {
            let number = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap()).unwrap().parse::<u64>().unwrap();
            store.insert(number(record.key), number(record.value));
            restored += 1;
        }
        if self.forgets {
            store.clear();
        }
        let counts = work(&cluster, job, store, progress);
        let restored = operator::Restored { records: restored, took: Duration::from_millis(1) };
        Ok(Ended { counts, restored, took: started.elapsed() })
    }
}

fn work(cluster: &Embedded, job: &Job<'_>, mut store: Store, progress: &mut dyn FnMut(&Counts)) -> Counts {
    let mut member = cluster.member(GROUP, &[Arc::from(sample::INPUT)]).unwrap();
    let mut producer = cluster.producer("p").unwrap();
    let (mut batch, mut counts) = (Batch::default(), Counts::default());
    while counts.total() < job.expected {
        let event = member.poll(&mut batch, 300, Duration::from_secs(20)).unwrap();
        if let Some(GroupEvent::Assigned(partitions)) = event {
            member.accept_assigned(&partitions).unwrap();
            for partition in &partitions {
                let settled =
                    cluster.settle(crate::cluster::Inquiry::of(GROUP, partition, partition)).poll().unwrap().unwrap();
                member.start(partition, settled.committed.map_or(0, |committed| committed.offset)).unwrap();
            }
            continue;
        }
        producer.begin().unwrap();
        (0..batch.len()).for_each(|index| judge(&mut producer, &batch, index, &mut store, &mut counts));
        if job.fatal_transaction == Some(counts.transactions + 1) {
            return counts;
        }
        let at = |partition: &TopicPartition| CommittedOffset {
            offset: member.position(partition).unwrap(),
            metadata: String::new(),
        };
        let offsets: Vec<_> = batch
            .partitions()
            .iter()
            .map(|partition| OffsetCommit { partition: partition.clone(), committed: at(partition) })
            .collect();
        producer.commit(&offsets, member.metadata().unwrap()).unwrap();
        counts.transactions += 1;
        progress(&counts);
    }
    counts
}

fn judge(
    producer: &mut crate::cluster::embedded::Producer,
    batch: &Batch,
    index: usize,
    store: &mut Store,
    counts: &mut Counts,
) {
    let record = batch.record(index);
    let value: serde_json::Value = serde_json::from_slice(record.value.unwrap()).unwrap();
    let (id, version) = (value["order_id"].as_u64().unwrap(), value["version"].as_u64().unwrap());
    match store.get(&id) {
        Some(known) if *known == version => return counts.duplicate += 1,
        Some(known) if *known > version => return counts.stale += 1,
        _ => counts.forwarded += 1,
    }
    store.insert(id, version);
    let ticket = Ticket { number: 0, report: false };
    let (id, version) = (id.to_string(), version.to_string());
    let forwarded = Message {
        topic: sample::OUTPUT,
        partition: record.partition,
        key: record.key,
        value: record.value,
        headers: record.headers,
        timestamp: record.timestamp,
    };
    let remembered = Message {
        topic: CHANGELOG,
        key: Some(id.as_bytes()),
        value: Some(version.as_bytes()),
        headers: Headers::default(),
        ..forwarded
    };
    producer.send(ticket, &forwarded).unwrap();
    producer.send(ticket, &remembered).unwrap();
}

fn tell(forgets: bool) -> (Result<(), Error>, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let mut screen = Screen::new(&mut out);
    let operator = &mut StandIn { forgets };
    let result = Story { dir: dir.path(), records: 8_000, screen: &mut screen, operator }.tell();
    (result, String::from_utf8(out).unwrap())
}

#[test]
fn demo_succeeds_and_shows_the_runs_own_numbers() {
    let (result, text) = tell(false);
    result.unwrap();
    let mut counts = Counts::default();
    let mut newest = Store::new();
    for event in sample::events().unwrap().take(8_000) {
        let value: serde_json::Value = serde_json::from_str(&event.payload).unwrap();
        let (id, version) = (value["order_id"].as_u64().unwrap(), value["version"].as_u64().unwrap());
        match newest.get(&id) {
            Some(known) if *known == version => counts.duplicate += 1,
            Some(known) if *known > version => counts.stale += 1,
            _ => {
                counts.forwarded += 1;
                newest.insert(id, version);
            }
        }
    }
    assert!(counts.duplicate > 400 && counts.stale > 400, "{counts:?}");
    let Counts { forwarded, duplicate, stale, .. } = counts;
    let line = format!(
        "8,000 records in: {} forwarded, {} duplicates, {} stale",
        count(forwarded),
        count(duplicate),
        count(stale)
    );
    assert!(text.contains(&line), "{line}\n{text}");
    assert_eq!(text.matches("equal byte for byte").count(), sample::PARTITIONS as usize, "{text}");
    assert!(text.contains("committed until then: 3,600 records in"), "12 of 27 transactions: {text}");
    assert!(text.contains("its state folder is removed (4 B)"), "{text}");
    assert!(text.contains("Nothing lost, nothing twice"), "{text}");
}

#[test]
fn operator_that_forgets_its_store_fails_the_check() {
    let (result, text) = tell(true);
    assert!(matches!(result, Err(Error::Differs(_))), "{text}");
    assert!(text.contains("DIFFERENT from record"), "{text}");
}

#[test]
fn folder_that_is_not_empty_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), b"").unwrap();
    let args = Args { dir: Some(dir.path().to_owned()), records: RECORDS_MIN };
    let result = tell_in_folder(&args, StandIn { forgets: false });
    assert!(matches!(result, Err(Error::Occupied(_))));
}

#[test]
fn comparison_finds_different_bytes_and_different_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| Embedded::open(&dir.path().join(name), 1).unwrap();
    let (one, other) = (open("one"), open("other"));
    let message = |value| Message {
        topic: "t",
        partition: 0,
        key: Some(b"key"),
        value: Some(value),
        headers: Headers::default(),
        timestamp: Some(1),
    };
    assert_eq!(compare(&one, &other, "t", 0).unwrap(), Comparison::Equal { records: 0, bytes: 0 });
    one.append("t", 0, &[message(b"a"), message(b"b")]).unwrap();
    assert_eq!(compare(&one, &other, "t", 0).unwrap(), Comparison::Different { at: 0, expected: 2, found: 0 });
    other.append("t", 0, &[message(b"a"), message(b"c")]).unwrap();
    assert_eq!(compare(&one, &other, "t", 0).unwrap(), Comparison::Different { at: 1, expected: 2, found: 2 });
    assert_eq!(compare(&one, &one, "t", 0).unwrap(), Comparison::Equal { records: 2, bytes: 8 });
}

#[test]
fn sample_file_is_what_the_generator_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/samples/orders.jsonl");
    let written: Vec<String> =
        sample::Generator::new().take(SHIPPED).map(|event| serde_json::to_string(&event).unwrap()).collect();
    if std::env::var_os("WRITE_SAMPLE").is_some() {
        fs::write(path, written.join("\n") + "\n").unwrap();
    }
    let shipped = fs::read_to_string(path).unwrap();
    assert_eq!(shipped.lines().count(), SHIPPED);
    for (shipped, written) in shipped.lines().zip(&written) {
        assert_eq!(shipped, written, "the generator has changed: run this test with WRITE_SAMPLE=1");
    }
    assert!(sample::events().unwrap().take(1_000).eq(sample::Generator::new().take(1_000)));
}

/// How many events ship as a file.
const SHIPPED: usize = 200;

#[test]
fn numbers_are_formatted_for_people() {
    assert_eq!(count(1_234_567).to_string(), "1,234,567");
    assert_eq!(seconds(Duration::from_millis(340)).to_string(), "0.34 s");
    assert_eq!(seconds(Duration::from_millis(12_340)).to_string(), "12.3 s");
    assert_eq!(per_second(123_456, Duration::from_secs(1)).to_string(), " (120,000 a second)");
    assert_eq!(per_second(5, Duration::ZERO).to_string(), "");
}
