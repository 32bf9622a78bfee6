//! The metrics, under the names in the documentation.
//!
//! A handle ([`LaneMetrics`], [`TaskMetrics`]) is created once and keeps what it has looked up, so that
//! counting costs an atomic addition and no search by labels. Labels are bounded: topologies, topics
//! and partitions that this process works on, verdicts, reasons and a few fixed words.
//!
//! A partition's own series live as long as its [`TaskMetrics`]; otherwise those of a partition that
//! has moved to another instance would stand still for ever and look like a lag. What is counted by
//! topic ends with the topic; otherwise topics that come and go would leave more and more series.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};

mod brokers;
mod calls;
mod gate;
mod lane;
mod requests;
mod sink;
mod task;

pub use brokers::BrokersSeen;
pub use calls::{CallMetrics, Settled};
pub use gate::GateMetrics;
pub use lane::{LaneMetrics, TransactionResult};
pub use requests::{BoundMetrics, OneConnection, OneRequest, RouteMetrics, StoreMetrics};
pub use sink::{Outcomes, SinkMetrics};
pub use task::{KeptSeries, LongWork, Phase, TaskMetrics, Work};

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Labels of what belongs to a topology.
const TOPOLOGY: &[&str] = &["topology"];
/// Labels of what belongs to one input partition.
const PARTITION: &[&str] = &["topology", "topic", "partition"];

/// All metrics of this process. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Metrics {
    families: Arc<Families>,
}

/// Which handles exist.
#[derive(Default)]
struct Handles {
    /// How many handles each partition has.
    partitions: HashMap<task::Labels, usize>,
    /// Topologies with deleted topics that some task has not released yet.
    gone: HashSet<[String; 2]>,
}

/// The families, and how many handles each partition has.
struct Families {
    registry: Registry,
    records: IntCounterVec,
    lag_records: IntGaugeVec,
    lag_seconds: GaugeVec,
    lag_measured: GaugeVec,
    processing_duration: HistogramVec,
    commit_duration: HistogramVec,
    transactions: IntCounterVec,
    state_entries: IntGaugeVec,
    state_bytes: IntGaugeVec,
    restore_remaining: IntGaugeVec,
    restore_seconds: GaugeVec,
    restored_records: IntCounterVec,
    sweep_walked: IntCounterVec,
    sweep_removed: IntCounterVec,
    sweep_remaining: IntGaugeVec,
    sweep_seconds: GaugeVec,
    tasks: IntGaugeVec,
    stream_time: GaugeVec,
    last_commit: GaugeVec,
    clock_behind: GaugeVec,
    epoch_changes: IntCounterVec,
    dead_letters: IntCounterVec,
    keyless: IntCounterVec,
    takeovers: IntCounterVec,
    rebalances: IntCounterVec,
    refused_topics: IntGaugeVec,
    effects: IntCounterVec,
    effect_attempts: IntCounterVec,
    effect_duration: HistogramVec,
    effects_in_flight: IntGaugeVec,
    effects_in_doubt: IntGaugeVec,
    commands: IntCounterVec,
    commands_waiting: IntGaugeVec,
    sink_held: IntGaugeVec,
    handlers_blocked: IntGaugeVec,
    gate_answers: IntCounterVec,
    gate_duration: HistogramVec,
    gate_unasked: IntCounterVec,
    gate_held: IntGaugeVec,
    requests: requests::Families,
    panics: IntCounter,
    brokers: brokers::Families,
    handles: Mutex<Handles>,
    /// The tasks with long work: each has at most one, since a store is swept only after it was restored.
    long_work: Mutex<BTreeMap<task::Labels, LongWork>>,
}

impl Metrics {
    /// Metrics without any count.
    pub fn new() -> Self {
        Self { families: Arc::new(Families::new()) }
    }

    /// The metrics that a lane of `topology` counts; lanes of one topology add up.
    pub fn lane(&self, topology: &str) -> LaneMetrics {
        LaneMetrics::new(&self.families, topology)
    }

    /// The metrics that a lane of `topology` counts of its sink, which is of this kind.
    pub fn sink(&self, topology: &str, kind: &str) -> SinkMetrics {
        SinkMetrics::new(&self.families, topology, kind)
    }

    /// The metrics that a lane of `topology` counts of its gate.
    pub fn gate(&self, topology: &str) -> GateMetrics {
        GateMetrics::new(&self.families, topology)
    }

    /// The metrics that a lane of `topology` counts of its calls to a provider of this kind. `classes` are the words for
    /// the classes of answers, by their numbers, and `commands` those for what becomes of commands.
    pub fn calls(&self, topology: &str, kind: &str, (classes, commands): (&[&str], &[&str])) -> CallMetrics {
        CallMetrics::new(&self.families, topology, kind, (classes, commands))
    }

    /// The metrics of one task. Its partition's series are removed when the last handle is dropped.
    pub fn task(&self, topology: &str, partition: &crate::record::TopicPartition) -> TaskMetrics {
        TaskMetrics::new(&self.families, topology, partition)
    }

    /// A topic was deleted and is no longer read: its counts are removed with its last task.
    pub fn topic_gone(&self, topology: &str, topic: &str) {
        task::topic_gone(&self.families, topology, topic);
    }

    /// How many topics that match the input's pattern were refused.
    pub fn refused_topics(&self, topology: &str, count: usize) {
        self.families.refused_topics.with_label_values(&[topology]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// What is counted of HTTP requests by one route of the proxy.
    pub fn route(&self, route: &str) -> RouteMetrics {
        self.families.requests.route(route)
    }

    /// The metrics of a bound on clients of the proxy.
    pub fn bound(&self, name: &str, max: usize) -> BoundMetrics {
        self.families.requests.bound(name, max)
    }

    /// What is counted of the store that remembers HTTP requests.
    pub fn store(&self) -> StoreMetrics {
        self.families.requests.store()
    }

    /// A connection of a client's, until what is returned is dropped.
    pub fn connection(&self) -> OneConnection {
        self.families.requests.connection()
    }

    /// Has `seen` say what was seen of the brokers, whenever the metrics are rendered.
    pub fn brokers(&self, seen: impl Fn() -> BrokersSeen + Send + Sync + 'static) {
        self.families.brokers.ask(seen);
    }

    /// A thread has panicked.
    pub fn panicked(&self) {
        self.families.panics.inc();
    }

    /// The restores and sweeps in progress, in the order of topology, topic and partition.
    pub fn long_work(&self) -> Vec<LongWork> {
        self.families.long_work().values().cloned().collect()
    }

    /// All metrics in Prometheus' text format (see [`CONTENT_TYPE`]).
    pub fn render(&self) -> String {
        self.families.brokers.update();
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.families.registry.gather(), &mut text) {
            tracing::warn!(%error, "metrics could not be rendered");
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Families {
    fn new() -> Self {
        let registry = Registry::new();
        build_info(&registry);
        Self {
            records: counter(
                &registry,
                "ratchet_records_total",
                "Records of which a verdict was reached and committed.",
                &["topology", "topic", "verdict", "reason"],
            ),
            lag_records: int_gauge(&registry, "ratchet_lag_records", "Records that are still to be read.", PARTITION),
            lag_seconds: gauge(
                &registry,
                "ratchet_lag_seconds",
                "Age of the next record to be read; 0 when drained.",
                PARTITION,
            ),
            lag_measured: gauge(
                &registry,
                "ratchet_lag_measured_timestamp_seconds",
                "When a broker last said what the lag follows from.",
                PARTITION,
            ),
            processing_duration: histogram(
                &registry,
                "ratchet_processing_duration_seconds",
                "Time from reading a batch to having handed over all that is written because of it.",
                exponential(0.000_05, 4.0, 10),
            ),
            commit_duration: histogram(
                &registry,
                "ratchet_commit_duration_seconds",
                "Time of a transaction's end: deliveries, commit and the store's write.",
                exponential(0.001, 2.0, 16),
            ),
            transactions: counter(
                &registry,
                "ratchet_transactions_total",
                "Transactions by how they ended: committed, aborted or unknown.",
                &["topology", "result"],
            ),
            state_entries: int_gauge(
                &registry,
                "ratchet_state_entries",
                "Entries in the store, as estimated.",
                PARTITION,
            ),
            state_bytes: int_gauge(
                &registry,
                "ratchet_state_bytes",
                "Bytes of the store's table files and of what is not yet written to files.",
                PARTITION,
            ),
            restore_remaining: int_gauge(
                &registry,
                "ratchet_restore_remaining_records",
                "Changelog offsets that a restore has still to pass; 0 when it has ended.",
                PARTITION,
            ),
            restore_seconds: gauge(
                &registry,
                "ratchet_restore_remaining_seconds",
                "How long a restore will still take at its present rate; 0 when it has ended, +Inf while it stands still.",
                PARTITION,
            ),
            restored_records: counter(
                &registry,
                "ratchet_restored_records_total",
                "Changelog records that were read to restore the store.",
                PARTITION,
            ),
            sweep_walked: counter(
                &registry,
                "ratchet_sweep_walked_entries_total",
                "Entries that the sweeper has looked at.",
                PARTITION,
            ),
            sweep_removed: counter(
                &registry,
                "ratchet_sweep_removed_entries_total",
                "Expired entries that the sweeper has removed, counted once their transaction was committed.",
                PARTITION,
            ),
            sweep_remaining: int_gauge(
                &registry,
                "ratchet_sweep_remaining_entries",
                "Entries that the sweeper's walk has still to look at, as estimated; 0 between walks.",
                PARTITION,
            ),
            sweep_seconds: gauge(
                &registry,
                "ratchet_sweep_remaining_seconds",
                "How long the sweeper's walk will still take at its present rate; 0 between walks.",
                PARTITION,
            ),
            tasks: int_gauge(
                &registry,
                "ratchet_tasks",
                "Tasks by what they are doing: settling, restoring, running, isolated or failed.",
                &["topology", "state"],
            ),
            stream_time: gauge(
                &registry,
                "ratchet_stream_time_timestamp_seconds",
                "Stream time: the highest record timestamp that the task has seen.",
                PARTITION,
            ),
            last_commit: gauge(
                &registry,
                "ratchet_last_commit_timestamp_seconds",
                "When the task's last transaction was committed.",
                PARTITION,
            ),
            clock_behind: gauge(
                &registry,
                "ratchet_clock_behind_seconds",
                "How far this host's clock is behind Kafka's, where the task waits for that; 0 once it goes on.",
                PARTITION,
            ),
            epoch_changes: counter(
                &registry,
                "ratchet_epoch_changes_total",
                "Changes of the scope in which versions are comparable.",
                TOPOLOGY,
            ),
            dead_letters: counter(
                &registry,
                "ratchet_dead_letters_total",
                "Records that were written to the dead letter topic.",
                TOPOLOGY,
            ),
            keyless: counter(
                &registry,
                "ratchet_keyless_records_total",
                "Records without a key, where records of one identity are said to be in one partition.",
                &["topology", "topic"],
            ),
            takeovers: counter(
                &registry,
                "ratchet_takeovers_total",
                "Tasks that were taken over, by kind.",
                &["topology", "kind"],
            ),
            rebalances: counter(&registry, "ratchet_rebalances_total", "Changes of a lane's assignment.", TOPOLOGY),
            refused_topics: int_gauge(
                &registry,
                "ratchet_refused_topics",
                "Topics that the input's pattern means and that are left alone, because they were refused.",
                TOPOLOGY,
            ),
            effects: counter(
                &registry,
                "ratchet_effects_total",
                "Records that went to a sink, by what became of them.",
                &["topology", "sink", "outcome"],
            ),
            effect_attempts: counter(
                &registry,
                "ratchet_effect_attempts_total",
                "Attempts of calls, by what their answers meant.",
                &["topology", "sink", "class"],
            ),
            effect_duration: histogram(
                &registry,
                "ratchet_effect_duration_seconds",
                "Time in which a sink has committed a transaction, or a provider was called.",
                exponential(0.001, 2.0, 16),
            ),
            effects_in_flight: int_gauge(
                &registry,
                "ratchet_effects_in_flight",
                "Requests that are on the wire.",
                TOPOLOGY,
            ),
            effects_in_doubt: int_gauge(
                &registry,
                "ratchet_effects_in_doubt",
                "Calls that this process has settled in doubt: each may have happened, and a person has to look.",
                TOPOLOGY,
            ),
            commands: counter(
                &registry,
                "ratchet_commands_total",
                "Commands that this process's partitions have acknowledged, by what became of them.",
                &["topology", "outcome"],
            ),
            commands_waiting: int_gauge(
                &registry,
                "ratchet_commands_waiting",
                "Partitions whose next command waits.",
                TOPOLOGY,
            ),
            handlers_blocked: int_gauge(
                &registry,
                "ratchet_handlers_blocked",
                "Lanes with a handler that blocks its thread.",
                TOPOLOGY,
            ),
            sink_held: int_gauge(
                &registry,
                "ratchet_sink_held",
                "Lanes that wait for their sink: it is down, or a person has to act.",
                TOPOLOGY,
            ),
            gate_answers: counter(
                &registry,
                "ratchet_gate_answers_total",
                "Records that a gate was asked about, by what it said.",
                &["topology", "answer"],
            ),
            gate_duration: histogram(
                &registry,
                "ratchet_gate_duration_seconds",
                "Time in which a gate has answered about a portion of records.",
                exponential(0.0001, 2.0, 16),
            ),
            gate_unasked: counter(
                &registry,
                "ratchet_gate_unasked_total",
                "Records that went on unasked while a gate did not answer.",
                TOPOLOGY,
            ),
            gate_held: int_gauge(
                &registry,
                "ratchet_gate_held",
                "Lanes in which records wait for a gate: it does not answer, or a person has to act.",
                TOPOLOGY,
            ),
            requests: requests::Families::new(&registry),
            panics: panics(&registry),
            brokers: brokers::Families::new(&registry),
            handles: Mutex::default(),
            long_work: Mutex::default(),
            registry,
        }
    }

    /// How many handles each partition has. A thread that panicked while it held the lock cannot have left
    /// a number half changed, so poisoning is ignored.
    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tasks with long work. Every change is one call on the map: see [`Families::handles`].
    fn long_work(&self) -> MutexGuard<'_, BTreeMap<task::Labels, LongWork>> {
        self.long_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build_info(registry: &Registry) {
    let info = int_gauge(registry, "ratchet_build_info", "Always 1; the labels say what runs.", &["version"]);
    info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
}

fn panics(registry: &Registry) -> IntCounter {
    let counter = IntCounter::new("ratchet_panics_total", "Panics of any thread: mistakes in ratchet.").expect(VALID);
    registry.register(Box::new(counter.clone())).expect(VALID);
    counter
}

/// Names and labels are constants in this file, so only a bug can make one of these fail, and every
/// test would show it.
const VALID: &str = "names and labels are valid and registered once";

fn counter(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let family = IntCounterVec::new(Opts::new(name, help), labels).expect(VALID);
    registry.register(Box::new(family.clone())).expect(VALID);
    family
}

fn int_gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    let family = IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID);
    registry.register(Box::new(family.clone())).expect(VALID);
    family
}

fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    let family = GaugeVec::new(Opts::new(name, help), labels).expect(VALID);
    registry.register(Box::new(family.clone())).expect(VALID);
    family
}

fn histogram(registry: &Registry, name: &str, help: &str, buckets: Vec<f64>) -> HistogramVec {
    histogram_by(registry, name, help, (TOPOLOGY, buckets))
}

fn histogram_by(registry: &Registry, name: &str, help: &str, (labels, buckets): (&[&str], Vec<f64>)) -> HistogramVec {
    let family = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels).expect(VALID);
    registry.register(Box::new(family.clone())).expect(VALID);
    family
}

fn exponential(first: f64, factor: f64, count: usize) -> Vec<f64> {
    prometheus::exponential_buckets(first, factor, count).expect(VALID)
}

#[cfg(test)]
mod tests;
