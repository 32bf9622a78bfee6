//! Goal: whatever records hold, whole lanes on the embedded cluster decide as the model does, in order and byte for
//! byte; nothing panics, and reading the input again, with or without the stores, forwards nothing new.
//!
//! `RATCHET_TEST_FUZZ_SECONDS` says how long new rounds are started (`make fuzz`); without it, there is one round.
//! `RATCHET_TEST_SEED` repeats a run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ratchet::cluster::embedded::{Embedded, StoredRecord};
use ratchet::cluster::{Cluster, CommittedOffset, Message, NewTopic};
use ratchet::config;
use ratchet::dedup::{Action, Model};
use ratchet::engine::{self, Error, Options};
use ratchet::format::STORE_META_KEY;
use ratchet::observe::{Health, Metrics};
use ratchet::record::{Headers, Record, TopicPartition};
use ratchet::topology::{self, Process, Topology, presets};

use crate::bounds::hostile::{Hostile, Maker};
use crate::random::Random;

const INPUT: &str = "in";
const PARTITIONS: i32 = 2;
/// How long a round may take; usually seconds.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// Records in a round, over all partitions.
const RECORDS: usize = 500;

/// Topologies besides the presets, each with features that the others lack.
const OWN: &[(&str, &str)] = &[
    ("bytes", "identity: key\non_null_value: forward\nretention: 1h\n"),
    (
        "composite",
        "input: {topics: [in], key_format: json}\non_null_value: forward\npartitioned_by_identity: true\n\
         identity: [{first_of: [value.id, {fingerprint: value, except: [value.ts]}]}, {content: key}, {bucket: 1h}]\n",
    ),
    (
        "versions",
        "identity: value.id\npartitioned_by_identity: true\non_equal: forward\non_missing_version: drop\nversion:\n\
         - {of: {first_of: [value.v, header.v]}, as: integer, missing: highest}\n\
         - {of: value.ts, as: timestamp}\n- {of: value.a, as: decimal}\n- {of: value.b, as: text}\n",
    ),
    (
        "kinds",
        "input: {topics: [in], key_format: connect_json, value_format: connect_json}\nidentity: {content: key}\n\
         version: {of: value.v, as: integer}\nepoch: [{of: value.epoch, none: [0]}, {const: 1}]\n\
         on_epoch_change: forward\non_null_value: follow_delete\nkinds: {of: value.op, delete: [d], read: [r], \
         reads: by_version, truncate: [t], message: [m], table: [value.table]}\n",
    ),
    (
        "rows",
        "identity: [value.table, {rows: value.data, named: value.pkNames}]\npartitioned_by_identity: true\n\
         version: {of: value.v, as: integer}\n",
    ),
    (
        "narrow",
        "identity: value\non_invalid: forward\non_missing: forward\nretention: 10s\nrefresh: on_duplicate\n\
         on_late: forward\nlimits: {record_bytes: 300B, key_bytes: 20B, header_bytes: 40B, identity_bytes: 120B, \
         json_depth: 5}\npartitioned_by_identity: true\n",
    ),
    (
        "headers",
        "identity: [header.id, meta.partition]\nversion: {of: header.v, as: hex}\nepoch: header.epoch\n\
         on_epoch_change: drop\npartitioned_by_identity: true\naudit: {topic: headers.audit}\n",
    ),
];

/// A cluster, its topologies, and the stores' folder.
struct Site {
    folder: tempfile::TempDir,
    cluster: Embedded,
    topologies: Vec<Topology>,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = Embedded::open(&folder.path().join("topics"), PARTITIONS).expect("an empty cluster");
        let input = NewTopic { name: INPUT, partition_count: PARTITIONS, replication_factor: 1, settings: &[] };
        cluster.create_topic(&input).expect("a new topic");
        let topologies = topologies(folder.path());
        Site { folder, cluster, topologies }
    }

    fn write(&self, records: &[Hostile]) {
        for record in records {
            let message = Message {
                topic: INPUT,
                partition: record.partition,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: record.headers.as_headers(),
                timestamp: record.timestamp,
            };
            self.cluster.append(INPUT, record.partition, &[message]).expect("the input takes any record");
        }
    }

    /// Runs all topologies until the input is drained, in a bounded time.
    fn drain(&self) -> Result<(), Error> {
        let state = format!("state_dir={}", self.folder.path().join("state").display());
        let sets = ["cluster=embedded", "lanes=1", "memory=64MiB", "topics.create=all", state.as_str()];
        let config = config::load(None, &sets.map(str::to_owned), &Process);
        let stop = Arc::new(AtomicBool::new(false));
        let options = Options {
            config: config.unwrap_or_else(|mistakes| panic!("{mistakes}")),
            topologies: self.topologies.clone(),
            handlers: Default::default(),
            until_drained: true,
            stop: Arc::clone(&stop),
            metrics: Metrics::new(),
            health: Health::new(),
        };
        let (done, is_done) = channel::<()>();
        let watchdog = std::thread::spawn(move || {
            let late = is_done.recv_timeout(DRAIN_MAX) == Err(RecvTimeoutError::Timeout);
            stop.store(late, Ordering::Relaxed);
            late
        });
        let ended = engine::run_on(&self.cluster, options);
        drop(done);
        assert!(!watchdog.join().expect("it only waits"), "not drained within {DRAIN_MAX:?}: {ended:?}");
        ended
    }

    fn read(&self, topic: &str, partition: i32) -> Vec<StoredRecord> {
        self.cluster.read_all(topic, partition).unwrap_or_default()
    }

    /// Resets the groups as an administrator would, to have everything read again.
    fn reset(&self) {
        for topology in &self.topologies {
            for partition in 0..PARTITIONS {
                let rewound = Some(CommittedOffset { offset: 0, metadata: String::new() });
                let partition = TopicPartition::new(INPUT, partition);
                self.cluster.reset_offset(&topology.group(), &partition, rewound).expect("the group is empty");
            }
        }
    }

    fn outputs(&self) -> Vec<Vec<StoredRecord>> {
        let of = |topology: &Topology| (0..PARTITIONS).map(|p| self.read(&output_of(topology), p)).collect::<Vec<_>>();
        self.topologies.iter().flat_map(of).collect()
    }
}

fn output_of(topology: &Topology) -> String {
    topology.output_topic(INPUT).expect("it ends in an output")
}

fn topologies(folder: &Path) -> Vec<Topology> {
    let preset = |name: String| (name.replace('@', "-"), format!("preset: {name}\n"));
    let own = OWN.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let load = |(name, text): (String, String)| {
        let input = if text.contains("input:") { "" } else { "input: {topics: [in]}\n" };
        let whole = format!("name: {name}\n{input}{text}output: {{topic: {name}.out}}\n");
        let path = folder.join(format!("{name}.yaml"));
        std::fs::write(&path, &whole).expect("the folder is writable");
        let loaded = topology::load(&path, &Process);
        loaded.unwrap_or_else(|mistakes| panic!("{whole}\n{mistakes}")).topology
    };
    presets::names().map(preset).chain(own).map(load).collect()
}

/// The model's decisions on a partition: offsets to forward, offsets to set aside, and whether the task stops.
fn expected(topology: &Topology, input: &[StoredRecord], partition: i32) -> (Vec<i64>, Vec<i64>, bool) {
    let mut model = Model::new(Arc::clone(&topology.rules));
    let (mut forwarded, mut aside) = (Vec::new(), Vec::new());
    for stored in input {
        let record = Record {
            topic: INPUT,
            partition,
            offset: stored.offset,
            timestamp: stored.timestamp,
            key: stored.key.as_deref(),
            value: stored.value.as_deref(),
            headers: stored.headers.as_headers(),
        };
        match model.judge(&record, now_ms()).action {
            Action::Forward => forwarded.push(stored.offset),
            Action::DeadLetter => aside.push(stored.offset),
            Action::Drop => {}
            Action::Fail => return (forwarded, aside, true),
        }
    }
    (forwarded, aside, false)
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as i64
}

/// Key, value, headers and timestamp: everything of a record but its offset.
type Content<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, &'a [u8], Option<i64>);

fn content(record: &StoredRecord) -> Content<'_> {
    let headers = record.headers.as_headers().as_bytes();
    (record.key.as_deref(), record.value.as_deref(), headers, record.timestamp)
}

fn check(site: &Site, topology: &Topology, partition: i32) -> bool {
    let input = site.read(INPUT, partition);
    let (forwarded, aside, stops) = expected(topology, &input, partition);
    let name = &topology.name;
    let at = |offset: &i64| &input[usize::try_from(*offset).expect("an offset")];
    let output = site.read(&output_of(topology), partition);
    for (place, (offset, found)) in forwarded.iter().zip(&output).enumerate() {
        let wanted = at(offset);
        assert_eq!(content(found), content(wanted), "{name}:{partition}: number {place} is not the input's {offset}");
    }
    assert_eq!(output.len(), forwarded.len(), "{name}:{partition}: the number of forwarded records");
    let letters = site.read(&topology.dead_letter, partition);
    let coordinate = |letter: &StoredRecord| {
        let header = letter.headers.as_headers().last(b"__ratchet.errors.offset").and_then(|header| header.value);
        String::from_utf8_lossy(header.expect("a dead letter has its record's offset"))
            .parse::<i64>()
            .expect("an offset")
    };
    assert_eq!(letters.iter().map(coordinate).collect::<Vec<_>>(), aside, "{name}:{partition}: dead letters");
    for letter in &letters {
        let wanted = at(&coordinate(letter));
        assert_eq!((&letter.key, &letter.value), (&wanted.key, &wanted.value), "{name}:{partition}: a dead letter");
    }
    stops
}

fn round(maker: &mut Maker) -> usize {
    let site = Site::new();
    site.write(&maker.records(RECORDS, PARTITIONS));
    let ended = site.drain();
    assert!(!matches!(ended, Err(Error::Panicked { .. })), "{ended:?}");
    let mut stopped = 0;
    for topology in &site.topologies {
        for partition in 0..PARTITIONS {
            stopped += usize::from(check(&site, topology, partition));
        }
    }
    match &ended {
        Ok(()) => assert_eq!(stopped, 0, "a task should have stopped"),
        Err(error) => assert!(stopped > 0, "{error}"),
    }
    let outputs = site.outputs();
    site.reset();
    std::fs::remove_dir_all(site.folder.path().join("state")).expect("the stores are there");
    let again = site.drain();
    assert!(!matches!(again, Err(Error::Panicked { .. })), "{again:?}");
    assert_eq!(site.outputs(), outputs, "reading the input again forwarded something");
    outputs.iter().map(Vec::len).sum()
}

#[test]
fn hostile_records_are_decided_as_by_the_model() {
    let seconds = std::env::var("RATCHET_TEST_FUZZ_SECONDS").ok();
    let seconds = seconds.map_or(0, |text| text.parse().expect("RATCHET_TEST_FUZZ_SECONDS is a number"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut maker = Maker::new(Random::seeded("hostile lanes"), now_ms());
    let (mut rounds, mut forwarded) = (0, 0);
    loop {
        forwarded += round(&mut maker);
        rounds += 1;
        if Instant::now() >= until {
            break;
        }
    }
    println!("hostile lanes: {rounds} rounds of {RECORDS} records, {forwarded} forwarded in all");
    assert!(forwarded > rounds * RECORDS, "hardly anything was forwarded: is anything decided at all?");
}

/// Adds corrupted records to the changelog, and corrupts the committed offset's metadata.
fn tamper(site: &Site, maker: &mut Maker, topology: &Topology, partition: i32) {
    let changelog = topology.changelog(INPUT);
    for record in site.read(&changelog, partition).into_iter().rev().take(6) {
        let key = maker.mutated(record.key.unwrap_or_default());
        let value = record.value.map(|value| maker.mutated(value));
        let message = Message {
            topic: &changelog,
            partition,
            key: Some(&key),
            value: value.as_deref(),
            headers: Headers::default(),
            timestamp: record.timestamp,
        };
        site.cluster.append(&changelog, partition, &[message]).expect("a changelog takes any record with a key");
    }
    let input = [TopicPartition::new(INPUT, partition)];
    let committed = site.cluster.committed(&topology.group(), &input, Duration::ZERO).expect("it was committed");
    let Some(CommittedOffset { offset, metadata }) = committed.into_iter().next().flatten() else { return };
    let metadata = String::from_utf8_lossy(&maker.mutated(metadata.into_bytes())).into_owned();
    let tampered = Some(CommittedOffset { offset, metadata });
    site.cluster.reset_offset(&topology.group(), &input[0], tampered).expect("the group is empty");
}

/// A restore would find it again every time, so the task is stopped.
#[test]
fn stores_own_key_in_a_changelog_stops_its_task() {
    let mut site = Site::new();
    site.topologies.retain(|topology| topology.name == "bytes");
    let keyed = |key: &str, partition| Hostile {
        partition,
        timestamp: Some(now_ms()),
        key: Some(key.as_bytes().to_vec()),
        value: Some(b"1".to_vec()),
        ..Hostile::default()
    };
    site.write(&[keyed("a", 0), keyed("b", 1)]);
    site.drain().expect("nothing is wrong yet");
    let changelog = site.topologies[0].changelog(INPUT);
    let foreign = Message {
        topic: &changelog,
        partition: 0,
        key: Some(STORE_META_KEY),
        value: Some(b"whatever"),
        headers: Headers::default(),
        timestamp: None,
    };
    site.cluster.append(&changelog, 0, &[foreign]).expect("a changelog takes any record with a key");
    std::fs::remove_dir_all(site.folder.path().join("state")).expect("the stores are there");
    let ended = site.drain();
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, .. })), "{ended:?}");
}

#[test]
fn tampering_stops_tasks_but_forwards_nothing() {
    let site = Site::new();
    let mut maker = Maker::new(Random::seeded("hostile changelogs"), now_ms());
    site.write(&maker.records(RECORDS, PARTITIONS));
    assert!(!matches!(site.drain(), Err(Error::Panicked { .. })));
    let outputs = site.outputs();
    let (untouched, tampered) = site.topologies.split_last().expect("there are some");
    for topology in tampered {
        (0..PARTITIONS).for_each(|partition| tamper(&site, &mut maker, topology, partition));
    }
    std::fs::remove_dir_all(site.folder.path().join("state")).expect("the stores are there");
    let ended = site.drain();
    assert!(!matches!(ended, Err(Error::Panicked { .. })), "{ended:?}");
    assert!(ended.is_err(), "nothing was noticed");
    assert_eq!(site.outputs(), outputs, "old input forwarded something");
    // The untouched topology continues.
    let fresh: Vec<Hostile> = (0..5)
        .map(|number| {
            let mut headers = ratchet::record::HeaderBuf::default();
            headers.push(b"id", Some(format!("fresh-{number}").as_bytes()));
            Hostile { timestamp: Some(now_ms()), headers, ..Hostile::default() }
        })
        .collect();
    let before = site.read(&output_of(untouched), 0).len() + site.read(&untouched.dead_letter, 0).len();
    site.write(&fresh);
    assert!(!matches!(site.drain(), Err(Error::Panicked { .. })));
    let after = site.read(&output_of(untouched), 0).len() + site.read(&untouched.dead_letter, 0).len();
    assert_eq!(after, before + fresh.len(), "{} makes no progress", untouched.name);
}
