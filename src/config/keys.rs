//! Every setting but librdkafka's properties: its name, its default, what it means, how it is read and how it is shown.
//! The reader, `Display` and the table in docs/operations.md are based on these.

use std::time::Duration;

use crate::yaml::keys::Omitted;
use crate::yaml::units;

use super::key::{Key, put};
use super::registry;
use super::worker::{ClusterKind, Create, DataPath, LogFormat};

/// Minimum `memory`.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Minimum `unpacked`: a record of the largest size has to fit.
const UNPACKED_BYTES_MIN: u64 = 20 << 20;
const LANES_MAX: usize = 64;
const COMMIT_RECORDS_MAX: usize = 10_000_000;
const COMMIT_BYTES_MAX: usize = 1 << 30;
const PARTITIONS_MAX: i32 = 1_000;
/// The limit of Kafka's own type.
const REPLICAS_MAX: i32 = i16::MAX as i32;

/// All settings, in the order in which they are shown. librdkafka's properties are shown after those of [`CLUSTER`].
pub fn all() -> impl Iterator<Item = &'static Key> {
    CLUSTER.iter().chain(WORKER).chain(registry::KEYS)
}

/// The names of all settings.
pub fn names() -> Vec<&'static str> {
    all().map(|key| key.name).collect()
}

/// The setting of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    all().find(|key| key.name == name)
}

/// Whether there are settings below this name.
pub fn is_section(name: &str) -> bool {
    let sides = ["kafka", "kafka.consumer", "kafka.producer"];
    sides.contains(&name) || all().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

/// Where topics live.
pub static CLUSTER: &[Key] = &[
    Key {
        name: "cluster",
        default: Omitted::Is("kafka"),
        about: "`kafka`, or `embedded`: topics in a folder, for `ratchet demo`, tests and programs that use ratchet as a \
                library. Only those fill it (`cluster::embedded`), one process at a time: `ratchet run` finds no input there \
                by itself. To try a topology without Kafka: `ratchet test`, `ratchet replay`",
        put: |draft, typed| draft.embedded = typed.choice(&[("kafka", false), ("embedded", true)]),
        show: |config| match config.cluster {
            ClusterKind::Kafka => Some("kafka".to_owned()),
            ClusterKind::Embedded { .. } => Some("embedded".to_owned()),
        },
    },
    Key {
        name: "embedded.dir",
        default: Omitted::Is("ratchet-topics"),
        about: "the embedded cluster's folder",
        put: |draft, typed| put(&mut draft.embedded_dir, typed.path("ratchet-topics")),
        show: |config| match &config.cluster {
            ClusterKind::Kafka => None,
            ClusterKind::Embedded { dir, .. } => Some(dir.display().to_string()),
        },
    },
    Key {
        name: "embedded.partitions",
        default: Omitted::Is("4"),
        about: "partitions of a topic that is created on first use; at most 1,000",
        put: |draft, typed| put(&mut draft.embedded_partitions, typed.integer(1, PARTITIONS_MAX, 4)),
        show: |config| match config.cluster {
            ClusterKind::Kafka => None,
            ClusterKind::Embedded { partitions, .. } => Some(partitions.to_string()),
        },
    },
    Key {
        name: "data_path",
        default: Omitted::Is("auto"),
        about: "who reads and writes records on Kafka: `auto`: ratchet's own client (the wire), which uses less CPU, or \
                librdkafka if a property below `kafka:` needs it · `wire`: such a property is refused · `librdkafka`. \
                Groups, topics and takeovers are librdkafka's in any case",
        put: |draft, typed| put(&mut draft.config.data_path, typed.choice(&DataPath::NAMED)),
        show: |config| match config.cluster {
            ClusterKind::Kafka => Some(config.data_path.as_str().to_owned()),
            ClusterKind::Embedded { .. } => None,
        },
    },
];

/// What resources this process may use, and how it works.
pub static WORKER: &[Key] = &[
    Key {
        name: "state_dir",
        default: Omitted::Is("ratchet-state"),
        about: "the folder of the stores; created if it does not exist, refused if it holds anything else",
        put: |draft, typed| put(&mut draft.config.state_dir, typed.path("/var/lib/ratchet")),
        show: |config| Some(config.state_dir.display().to_string()),
    },
    Key {
        name: "lanes",
        default: Omitted::Words("cores, at most 4"),
        about: "threads that read and write, for each topology; 1 to 64",
        put: |draft, typed| put(&mut draft.config.lanes, typed.integer(1, LANES_MAX, 2)),
        show: |config| Some(config.lanes.to_string()),
    },
    Key {
        name: "memory",
        default: Omitted::Words("half of what the cgroup or the machine has"),
        about: "for stores, restores, queues and open transactions together, see [Memory](#memory); at least `64MiB`",
        put: |draft, typed| put(&mut draft.config.memory_bytes, typed.size(MEMORY_BYTES_MIN, u64::MAX, "512MiB")),
        show: |config| Some(units::show_size_bytes(config.memory_bytes)),
    },
    Key {
        name: "unpacked",
        default: Omitted::Words("a quarter of `memory`, at least `128MiB`"),
        about: "what compressed batches may unpack to, all that are in memory at once; on top of `memory`, see \
                [Memory](#memory); at least `20MiB`",
        put: |draft, typed| {
            put(&mut draft.unpacked_bytes, typed.size(UNPACKED_BYTES_MIN, u64::MAX, "256MiB").map(Some));
        },
        show: |config| Some(units::show_size_bytes(config.unpacked_bytes)),
    },
    Key {
        name: "commit.interval",
        default: Omitted::Is("200ms"),
        about: "the longest transaction, and how long records of a lane's other partitions may wait while one catches up; at \
                most `5s`, and less than `transaction.timeout.ms`, better at most half of it",
        put: |draft, typed| put(&mut draft.config.commit.interval_ms, typed.interval_ms()),
        show: |config| Some(units::show_duration(Duration::from_millis(config.commit.interval_ms))),
    },
    Key {
        name: "commit.spacing",
        default: Omitted::Is("5ms"),
        about: "where the input is drained: the least time from the start of a lane's commit to that of the next one, but \
                not longer than `commit.interval`, see [Commits under low load](#commits-under-low-load); at most `5s`",
        put: |draft, typed| put(&mut draft.config.commit.spacing_ms, typed.spacing_ms()),
        show: |config| Some(units::show_duration(Duration::from_millis(config.commit.spacing_ms))),
    },
    Key {
        name: "commit.records",
        default: Omitted::Is("100000"),
        about: "the most records in a transaction; at most 10,000,000",
        put: |draft, typed| put(&mut draft.config.commit.records_max, typed.integer(1, COMMIT_RECORDS_MAX, 100_000)),
        show: |config| Some(config.commit.records_max.to_string()),
    },
    Key {
        name: "commit.bytes",
        default: Omitted::Is("64MiB"),
        about: "the most bytes of records in a transaction; at most 1 GiB",
        put: |draft, typed| {
            let size = typed.size(1 << 10, COMMIT_BYTES_MAX as u64, "64MiB");
            put(&mut draft.config.commit.bytes_max, size.and_then(|bytes| usize::try_from(bytes).ok()));
        },
        show: |config| Some(units::show_size_bytes(config.commit.bytes_max as u64)),
    },
    Key {
        name: "http",
        default: Omitted::Is("127.0.0.1:9464"),
        about: "address of metrics and health, or `off`",
        put: |draft, typed| put(&mut draft.config.http, typed.http()),
        show: |config| Some(config.http.map_or_else(|| "off".to_owned(), |address| address.to_string())),
    },
    Key {
        name: "topics.create",
        default: Omitted::Is("internal"),
        about: "what to create if it does not exist: `internal`: changelog, dead letter, audit and control topic · `all`: the \
                output and a sink's result topic too · `none`",
        put: |draft, typed| {
            let choices = [("internal", Create::Internal), ("all", Create::All), ("none", Create::None)];
            put(&mut draft.config.topics.create, typed.choice(&choices));
        },
        show: |config| Some(config.topics.create.as_str().to_owned()),
    },
    Key {
        name: "topics.replication_factor",
        default: Omitted::Is("3"),
        about: "replicas of a created topic; never lowered silently",
        put: |draft, typed| put(&mut draft.config.topics.replication_factor, typed.integer(1, REPLICAS_MAX, 3)),
        show: |config| Some(config.topics.replication_factor.to_string()),
    },
    Key {
        name: "topics.min_insync_replicas",
        default: Omitted::Is("2"),
        about: "`min.insync.replicas` of a created topic",
        put: |draft, typed| put(&mut draft.config.topics.min_insync_replicas, typed.integer(1, REPLICAS_MAX, 2)),
        show: |config| Some(config.topics.min_insync_replicas.to_string()),
    },
    Key {
        name: "tables.create",
        default: Omitted::Is("true"),
        about: "whether to create ratchet's own tables, and their schema, in the database of a \
                [sink](topologies.md#sinks) if they do not exist; with `false`, `check --online` prints what to create",
        put: |draft, typed| put(&mut draft.config.tables_create, typed.choice(&[("true", true), ("false", false)])),
        show: |config| Some(config.tables_create.to_string()),
    },
    Key {
        name: "log.format",
        default: Omitted::Is("text"),
        about: "`text` or `json`",
        put: |draft, typed| {
            put(&mut draft.config.log.format, typed.choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]));
        },
        show: |config| Some(config.log.format.as_str().to_owned()),
    },
    Key {
        name: "log.level",
        default: Omitted::Is("info"),
        about: "`error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,ratchet::engine=debug`",
        put: |draft, typed| put(&mut draft.config.log.level, typed.level()),
        show: |config| Some(config.log.level.clone()),
    },
];
