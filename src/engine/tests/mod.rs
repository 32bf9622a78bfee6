//! Goal: a whole topology works on an embedded cluster in this process, with topics that are created and deleted, and
//! with explained drops.
#![expect(clippy::disallowed_methods, reason = "the tests observe a running engine from outside: they may wait")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::*;
use crate::cluster::{Message, NewTopic};
use crate::config;
use crate::dedup::{Identity, Path, Rules, Version};
use crate::record::Headers;
use crate::topology::{Destination, Input, Output, Pattern, Start};
use crate::yaml_testing::Fake;

mod audited;
mod awaited;
mod behind;
mod bounded;
mod changelog_loss;
mod counted;
mod doubted;
mod existing;
mod faulty;
mod isolated;
mod long_work;
mod lost;
mod missed;
mod panics;
mod patterns;
mod reached;
mod remembered;
mod stopped;
mod threads;
mod transactions;
mod unheard;
mod watched;

/// How long any wait may take.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A cluster and a worker's settings, in a folder of their own.
struct Site {
    folder: tempfile::TempDir,
    cluster: Embedded,
}

/// A running engine.
struct Running {
    stop: Arc<AtomicBool>,
    health: Health,
    metrics: Metrics,
    thread: JoinHandle<Result<(), Error>>,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Embedded::open(&folder.path().join("topics"), 1).unwrap();
        Self { folder, cluster }
    }

    fn config(&self) -> Config {
        let state = self.folder.path().join("state");
        let sets = ["cluster=embedded", "lanes=2", "memory=64MiB", "topics.create=all"].map(str::to_owned);
        let sets: Vec<String> = sets.into_iter().chain([format!("state_dir={}", state.display())]).collect();
        config::load(None, &sets, &Fake::default()).map_err(|mistakes| mistakes.render(false)).unwrap()
    }

    fn create(&self, name: &str, partition_count: i32, settings: &[(&str, String)]) {
        self.cluster.create_topic(&NewTopic { name, partition_count, replication_factor: 1, settings }).unwrap();
    }

    /// Appends records with the identity `id` and these versions.
    fn send(&self, topic: &str, id: &str, versions: &[u64]) {
        for version in versions {
            let value = format!(r#"{{"id":"{id}","version":{version}}}"#);
            let message = Message {
                topic,
                partition: 0,
                key: Some(id.as_bytes()),
                value: Some(value.as_bytes()),
                headers: Headers::default(),
                timestamp: Some(1_000 + *version as i64),
            };
            self.cluster.append(topic, 0, &[message]).unwrap();
        }
    }

    /// The values in a topic's first partition; empty if the topic does not exist.
    fn values(&self, topic: &str) -> Vec<String> {
        let records = self.cluster.read_all(topic, 0).unwrap_or_default();
        records.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
    }

    #[track_caller]
    fn await_values(&self, topic: &str, count: usize) {
        await_condition(&format!("{topic} to hold {count} records"), || self.values(topic).len() >= count);
        assert_eq!(self.values(topic).len(), count, "{topic}");
    }

    fn start(&self, topology: &Topology, until_drained: bool) -> Running {
        self.start_with(topology, Handlers::default(), until_drained)
    }

    fn start_with(&self, topology: &Topology, handlers: Handlers, until_drained: bool) -> Running {
        let (stop, health, metrics) = (Arc::new(AtomicBool::new(false)), Health::new(), Metrics::new());
        let options = Options {
            config: self.config(),
            topologies: vec![topology.clone()],
            handlers,
            until_drained,
            stop: stop.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
        };
        let cluster = self.cluster.clone();
        let thread = std::thread::spawn(move || run_on(&cluster, options));
        Running { stop, health, metrics, thread }
    }

    /// Runs until all records are processed.
    fn drain(&self, topology: &Topology) -> Result<(), Error> {
        self.start(topology, true).thread.join().unwrap()
    }
}

impl Running {
    fn end(self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// The sum of a metric's series.
    fn metric(&self, name: &str) -> f64 {
        let text = self.metrics.render();
        let series = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        series.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).unwrap()).sum()
    }

    fn failing_checks(&self) -> Vec<String> {
        self.health.ready().into_iter().filter(|check| !check.ok).map(|check| check.name).collect()
    }
}

#[track_caller]
fn await_condition(condition: &str, mut is_met: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_met() {
        assert!(Instant::now() < deadline, "waited for {condition}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pattern(include: &str, exclude: &[&str]) -> Input {
    let parse = |text: &str| Pattern::parse(text).unwrap();
    Input::Pattern { include: parse(include), exclude: exclude.iter().map(|text| parse(text)).collect() }
}

/// A topology that forwards greater versions of `value.id`.
fn topology(input: Input, output: &str) -> Topology {
    let identity = Identity::of_paths([Path::parse("value.id").unwrap()]);
    let version = Version::integer(Path::parse("value.version").unwrap());
    Topology {
        name: "shop".to_owned(),
        preset: None,
        input,
        start: Start::Earliest,
        rules: Arc::new(Rules::new(identity, Some(version))),
        schemas: Default::default(),
        destination: Destination::Output(Output::to(output)),
        gate: None,
        dead_letter: "shop-dead".to_owned(),
        audit: None,
        only_said_to_be_partitioned: false,
        tests: Vec::new(),
    }
}
