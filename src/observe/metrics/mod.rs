//! The metrics, under the names in the documentation.
//!
//! A handle ([`LaneMetrics`], [`TaskMetrics`]) is created once and keeps what it has looked up, so that
//! counting costs an atomic addition and no search by labels. Labels are bounded: topologies, topics
//! and partitions that this process works on, verdicts, reasons and a few fixed words.
//!
//! A partition's own series live as long as its [`TaskMetrics`]; otherwise those of a partition that
//! has moved to another instance would stand still for ever and look like a lag. What is counted by
//! topic ends with the topic; otherwise topics that come and go would leave more and more series.

use std::sync::Arc;

use prometheus::{Encoder, IntCounter, IntGaugeVec, Registry, TextEncoder};

mod brokers;
mod calls;
mod gate;
mod lane;
mod long_work;
mod part;
mod register;
mod requests;
mod schemas;
mod sink;
mod task;

pub use brokers::BrokersSeen;
pub use calls::{CallMetrics, Settled};
pub use gate::GateMetrics;
pub use lane::{LaneMetrics, TransactionResult};
pub use long_work::{LongWork, Work};
pub use requests::{BoundMetrics, OneConnection, OneRequest, RouteMetrics, StoreMetrics};
pub use schemas::{Asked, SchemaMetrics};
pub use sink::{Outcomes, SinkMetrics};
pub use task::{KeptSeries, Phase, TaskMetrics};

use register::{TOPOLOGY, VALID, int_gauge};

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// All metrics of this process. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Metrics {
    families: Arc<Families>,
}

/// The families.
struct Families {
    registry: Registry,
    task: Arc<task::Families>,
    lane: lane::Families,
    sink: sink::Families,
    calls: calls::Families,
    gate: gate::Families,
    requests: requests::Families,
    brokers: brokers::Families,
    schemas: schemas::Families,
    refused_topics: IntGaugeVec,
    panics: IntCounter,
}

impl Metrics {
    /// Metrics without any count.
    pub fn new() -> Self {
        Self { families: Arc::new(Families::new()) }
    }

    /// The metrics that a lane of `topology` counts; lanes of one topology add up.
    pub fn lane(&self, topology: &str) -> LaneMetrics {
        Phase::show_all(&self.families.task, topology);
        LaneMetrics::new(&self.families.lane, topology)
    }

    /// The metrics that a lane of `topology` counts of its sink, which is of this kind.
    pub fn sink(&self, topology: &str, kind: &str) -> SinkMetrics {
        SinkMetrics::new(&self.families.sink, topology, kind)
    }

    /// The metrics that a lane of `topology` counts of its gate.
    pub fn gate(&self, topology: &str) -> GateMetrics {
        GateMetrics::new(&self.families.gate, topology)
    }

    /// The metrics that a lane of `topology` counts of its calls to a provider of this kind. `classes` are the words for
    /// the classes of answers, by their numbers, and `commands` those for what becomes of commands.
    pub fn calls(&self, topology: &str, kind: &str, (classes, commands): (&[&str], &[&str])) -> CallMetrics {
        CallMetrics::new((&self.families.calls, &self.families.sink), (topology, kind), (classes, commands))
    }

    /// The metrics of one task. Its partition's series are removed when the last handle is dropped.
    pub fn task(&self, topology: &str, partition: &crate::record::TopicPartition) -> TaskMetrics {
        TaskMetrics::new(&self.families.task, topology, partition)
    }

    /// A topic was deleted and is no longer read: its counts are removed with its last task.
    pub fn topic_gone(&self, topology: &str, topic: &str) {
        self.families.task.topic_gone(topology, topic);
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

    /// The metrics of the schema registry, which are shown from now on.
    pub fn schemas(&self) -> SchemaMetrics {
        self.families.schemas.get()
    }

    /// A thread has panicked.
    pub fn panicked(&self) {
        self.families.panics.inc();
    }

    /// The restores and sweeps in progress, in the order of topology, topic and partition.
    pub fn long_work(&self) -> Vec<LongWork> {
        self.families.task.long_work().values().cloned().collect()
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
            task: Arc::new(task::Families::new(&registry)),
            lane: lane::Families::new(&registry),
            sink: sink::Families::new(&registry),
            calls: calls::Families::new(&registry),
            gate: gate::Families::new(&registry),
            requests: requests::Families::new(&registry),
            brokers: brokers::Families::new(&registry),
            schemas: schemas::Families::new(&registry),
            refused_topics: int_gauge(
                &registry,
                "ratchet_refused_topics",
                "Topics that the input's pattern means and that are left alone, because they were refused.",
                TOPOLOGY,
            ),
            panics: panics(&registry),
            registry,
        }
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

#[cfg(test)]
mod tests;
