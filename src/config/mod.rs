//! The worker's settings: where topics live, what this process may take, where it listens.
//!
//! Four layers, each over the one before: defaults, the file (YAML), the environment, `--set a.b=c`.
//! A setting has one name in all of them:
//!
//! | file | environment | `--set` |
//! |---|---|---|
//! | `state_dir: x` | `RATCHET_STATE_DIR=x` | `state_dir=x` |
//! | `commit: {interval: 1s}` or `commit.interval: 1s` | `RATCHET_COMMIT__INTERVAL=1s` | `commit.interval=1s` |
//! | `kafka: {bootstrap.servers: x}` | `RATCHET_KAFKA__BOOTSTRAP_SERVERS=x` | `kafka.bootstrap.servers=x` |
//! | `kafka: {consumer: {fetch.min.bytes: 1}}` | `RATCHET_KAFKA__CONSUMER__FETCH_MIN_BYTES=1` | `kafka.consumer.fetch.min.bytes=1` |
//!
//! In a variable's name `__` separates levels, and inside the name of a Kafka property a single `_` is
//! a dot. An empty variable counts as not set. A variable `RATCHET_…` that is no setting is a mistake if it is nearly one, and a warning
//! otherwise; those that Kubernetes sets for a service of this name are passed over.
//!
//! **Secrets**: a value that holds `${env:NAME}` or `${file:PATH}` ([`crate::yaml::text`]; in the file and in
//! `--set`) is shown as `***` by `Display` and `Debug` and in every mistake; so are properties with names like
//! `sasl.password`, which cannot be written out in a file or on the command line at all.
//!
//! **Failure**: [`Diagnostics`], all mistakes of all layers at once, each with its place.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::yaml::Report;
pub use crate::yaml::{Diagnostics, Environment, Mistake, Process, Text};

mod kafka;
mod keys;
mod layers;
mod machine;
mod settings;
mod show;
mod typed;

pub use kafka::KafkaProperties;

/// The worker's settings.
#[derive(Clone)]
pub struct Config {
    /// Where topics live.
    pub cluster: ClusterKind,
    /// Properties for librdkafka.
    pub kafka: KafkaProperties,
    /// The folder of the stores.
    pub state_dir: PathBuf,
    /// How many lanes there are.
    pub lanes: usize,
    /// What all stores and queues together may take.
    pub memory_bytes: u64,
    /// What compressed batches may unpack to, all that are in memory at once.
    pub unpacked_bytes: u64,
    /// When a transaction ends at the latest.
    pub commit: Commit,
    /// Where metrics and health are served; `None` for nowhere.
    pub http: Option<SocketAddr>,
    /// What is done about topics that do not exist.
    pub topics: Topics,
    /// What is logged, and how.
    pub log: Log,
    /// What the settings should be warned of.
    pub warnings: Vec<Mistake>,
    /// Settings whose value came by substitution and is not to be shown.
    secrets: BTreeSet<String>,
}

/// Where topics live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterKind {
    /// On Apache Kafka.
    Kafka,
    /// In a folder, which only the demo fills, or a program that uses ratchet as a library.
    Embedded {
        /// The folder.
        dir: PathBuf,
        /// How many partitions a topic gets that is made by being used.
        partitions: i32,
    },
}

/// When a transaction ends at the latest; it ends earlier where the input is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// After so long.
    pub interval_ms: u64,
    /// After so many records.
    pub records_max: usize,
    /// After so many bytes of records.
    pub bytes_max: usize,
}

/// What is done about topics that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topics {
    /// Which of them are created.
    pub create: Create,
    /// Replicas of each partition of a created topic.
    pub replication_factor: i32,
    /// `min.insync.replicas` of a created topic.
    pub min_insync_replicas: i32,
}

/// Which topics are created where they do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Changelogs and dead letters.
    Internal,
    /// Outputs too.
    All,
    /// None.
    None,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// As what a line is written.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,ratchet::engine=debug`.
    pub level: String,
}

/// As what a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why whoever is given a Kafka property, by its name and value, does not take it: in words that do not hold the value.
pub type Takes<'a> = &'a dyn Fn(&str, &str) -> Result<(), String>;

/// Reads the settings: the file at `path` if there is one, the environment, and `sets`, each `a.b=c`. Properties for
/// librdkafka are taken as they are.
pub fn load(path: Option<&Path>, sets: &[String], environment: &dyn Environment) -> Result<Config, Diagnostics> {
    load_with(path, sets, environment, &|_, _| Ok(()))
}

/// The same; each Kafka property has to be one that is taken.
pub fn load_with(
    path: Option<&Path>,
    sets: &[String],
    environment: &dyn Environment,
    takes: Takes<'_>,
) -> Result<Config, Diagnostics> {
    let mut report = Report::default();
    let mut layers = layers::Layers::new(environment, &mut report);
    if let Some(path) = path {
        layers.read_file(path);
    }
    layers.read_variables();
    layers.read_sets(sets);
    let said = layers.finish();
    let config = settings::resolve(&said, environment, takes, &mut report);
    report.finish(config).map(|(config, warnings)| Config { warnings, ..config })
}

#[cfg(test)]
mod tests;
