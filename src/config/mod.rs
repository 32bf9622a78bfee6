//! The worker's settings: where topics live, what resources this process may use, where it listens.
//!
//! Four layers, each overriding the one before: defaults, the file (YAML), the environment, `--set a.b=c`.
//! A setting has the same name in all of them:
//!
//! | file | environment | `--set` |
//! |---|---|---|
//! | `state_dir: x` | `RATCHET_STATE_DIR=x` | `state_dir=x` |
//! | `commit: {interval: 1s}` or `commit.interval: 1s` | `RATCHET_COMMIT__INTERVAL=1s` | `commit.interval=1s` |
//! | `kafka: {bootstrap.servers: x}` | `RATCHET_KAFKA__BOOTSTRAP_SERVERS=x` | `kafka.bootstrap.servers=x` |
//! | `kafka: {consumer: {fetch.min.bytes: 1}}` | `RATCHET_KAFKA__CONSUMER__FETCH_MIN_BYTES=1` | `kafka.consumer.fetch.min.bytes=1` |
//!
//! In a variable's name `__` separates levels, and inside the name of a Kafka property a single `_` is
//! a dot. An empty variable counts as not set. A variable `RATCHET_…` that is not a setting is a mistake if it looks
//! like a misspelt one, and a warning otherwise; those that Kubernetes sets for a service of this name are ignored.
//!
//! **Secrets**: a value that contains `${env:NAME}` or `${file:PATH}` ([`crate::yaml::text`]; in the file and in
//! `--set`) is shown as `***` by `Display` and `Debug` and in every mistake; so are properties with names like
//! `sasl.password`, which must not be written out in a file or on the command line.
//!
//! **Failure**: [`Diagnostics`], all mistakes of all layers at once, each with its place.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::yaml::Report;
pub use crate::yaml::{Diagnostics, Environment, Explained, Mistake, Process, Text};

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
    /// Who reads and writes records.
    pub data_path: DataPath,
    /// The folder of the stores.
    pub state_dir: PathBuf,
    /// How many lanes there are.
    pub lanes: usize,
    /// Memory for all stores and queues together.
    pub memory_bytes: u64,
    /// Memory for unpacked batches, all that exist at once.
    pub unpacked_bytes: u64,
    /// When a transaction ends at the latest.
    pub commit: Commit,
    /// The address that serves metrics and health; `None` to serve neither.
    pub http: Option<SocketAddr>,
    /// What to do about topics that do not exist.
    pub topics: TopicSettings,
    /// Whether to create ratchet's own tables in the database of a sink if they do not exist.
    pub tables_create: bool,
    /// What to log, and how.
    pub log: Log,
    /// Warnings about the settings.
    pub warnings: Vec<Mistake>,
    /// Settings whose value was substituted and must not be shown.
    secrets: BTreeSet<String>,
}

/// Where topics live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterKind {
    /// On Apache Kafka.
    Kafka,
    /// In a folder, which only the demo or a program that uses ratchet as a library fills.
    Embedded {
        /// The folder.
        dir: PathBuf,
        /// How many partitions a topic gets that is created by being used.
        partitions: i32,
    },
}

/// Who reads and writes records on Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPath {
    /// Ratchet itself, unless a property needs librdkafka.
    Auto,
    /// Ratchet itself; a property that needs librdkafka is refused.
    Wire,
    /// librdkafka.
    Librdkafka,
}

impl DataPath {
    /// All, by their names.
    pub const NAMED: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("wire", Self::Wire), ("librdkafka", Self::Librdkafka)];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        Self::NAMED.iter().find(|(_, path)| *path == self).map_or("", |(name, _)| name)
    }
}

/// When a transaction ends: at a maximum, or once the input is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Maximum duration.
    pub interval_ms: u64,
    /// Minimum time from the start of a lane's commit to that of the next one, where a drained input ends the transaction.
    pub spacing_ms: u64,
    /// Maximum number of records.
    pub records_max: usize,
    /// Maximum number of bytes of records.
    pub bytes_max: usize,
}

/// What to do about topics that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Which of them to create.
    pub create: Create,
    /// Replicas of each partition of a created topic.
    pub replication_factor: i32,
    /// `min.insync.replicas` of a created topic.
    pub min_insync_replicas: i32,
}

/// Which topics to create if they do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Changelogs and dead letters.
    Internal,
    /// Outputs too.
    All,
    /// None.
    None,
}

/// What to log, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The format of a line.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,ratchet::engine=debug`.
    pub level: String,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Checks a Kafka property by name and value. The error says why librdkafka rejects it and what to write instead, without
/// containing the value.
pub type CheckProperty<'a> = &'a dyn Fn(&str, &str) -> Result<(), Explained>;

/// Reads the settings: the file at `path` if there is one, the environment, and `sets`, each `a.b=c`. Properties for
/// librdkafka are not checked.
pub fn load(path: Option<&Path>, sets: &[String], environment: &dyn Environment) -> Result<Config, Diagnostics> {
    load_with(path, sets, environment, &|_, _| Ok(()))
}

/// The same, with a check for each Kafka property.
pub fn load_with(
    path: Option<&Path>,
    sets: &[String],
    environment: &dyn Environment,
    check_property: CheckProperty<'_>,
) -> Result<Config, Diagnostics> {
    let mut report = Report::default();
    let mut layers = layers::Layers::new(environment, &mut report);
    if let Some(path) = path {
        layers.read_file(path);
    }
    layers.read_variables();
    layers.read_sets(sets);
    let collected = layers.finish();
    let config = settings::resolve(&collected, environment, check_property, &mut report);
    report.finish(config).map(|(config, warnings)| Config { warnings, ..config })
}

#[cfg(test)]
mod tests;
