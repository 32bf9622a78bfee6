//! The worker's settings as the other rooms read them: every value in its type and unit. [`super::keys`] says how each is
//! written.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::yaml::Mistake;

use super::kafka::KafkaProperties;
use super::registry::SchemaRegistry;

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
    /// The schema registry.
    pub schema_registry: SchemaRegistry,
    /// The folder of schema files, if one is set.
    pub schemas_dir: Option<PathBuf>,
    /// What to log, and how.
    pub log: Log,
    /// Warnings about the settings.
    pub warnings: Vec<Mistake>,
    /// Settings whose value was substituted and must not be shown.
    pub(super) secrets: BTreeSet<String>,
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

impl Create {
    /// Its name in the settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::All => "all",
            Self::None => "none",
        }
    }
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

impl LogFormat {
    /// Its name in the settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}
