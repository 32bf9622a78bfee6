//! A contender's settings, the same for all of them, as environment variables.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::failure::{Context as _, Outcome};

/// The kind of records, and so what there is to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Events of 160 bytes by their `event_id`, a random UUID.
    Ids,
    /// The same with numbers that rise.
    Numbers,
    /// The same by `account` and `version`.
    Versions,
    /// Debezium's change events of a PostgreSQL table, 1.5 KB each.
    Envelopes,
    /// Like `Ids`, after many other ids.
    Large,
    /// The same change events in Avro, by a column and their position in the log.
    Avro,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Ids => "ids",
            Work::Numbers => "numbers",
            Work::Versions => "versions",
            Work::Envelopes => "envelopes",
            Work::Large => "large",
            Work::Avro => "avro",
        })
    }
}

/// One run of a contender.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Bootstrap servers.
    pub brokers: String,
    /// The consumer group; [`crate::contender::Contender::spec`] chooses its form.
    pub group: String,
    /// The input topic, which exists.
    pub input: String,
    /// The output topic, which exists, with as many partitions as the input.
    pub output: String,
    /// The changelog topic of `floor-changelog` and `limit`, which exists; the others create their own.
    pub changelog: String,
    /// The contender's own folder for what it keeps between runs. It need not exist.
    pub state_dir: PathBuf,
    /// What there is to decide.
    pub work: Work,
    /// The longest transaction.
    pub commit_ms: u64,
    /// Threads or processes that do the work; not for ratchet, which has the setting `lanes`.
    pub threads: usize,
    /// Further settings: ratchet's `--set NAME=VALUE`, or properties of Kafka Streams.
    pub settings: Vec<(String, String)>,
    /// Further arguments, for ratchet only.
    pub arguments: Vec<String>,
}

impl Spec {
    /// As environment variables.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("BENCH_BROKERS", self.brokers.clone()),
            ("BENCH_GROUP", self.group.clone()),
            ("BENCH_INPUT", self.input.clone()),
            ("BENCH_OUTPUT", self.output.clone()),
            ("BENCH_CHANGELOG", self.changelog.clone()),
            ("BENCH_STATE_DIR", self.state_dir.display().to_string()),
            ("BENCH_PART", self.work.to_string()),
            ("BENCH_COMMIT_MS", self.commit_ms.to_string()),
            ("BENCH_THREADS", self.threads.to_string()),
        ]
    }

    /// From environment variables, for the contenders in this program.
    pub fn from_environment() -> Outcome<Spec> {
        let get = |name: &str| std::env::var(name).context(name);
        let number = |name: &str| get(name).and_then(|text| text.parse::<u64>().context(name));
        let part = get("BENCH_PART")?;
        Ok(Spec {
            brokers: get("BENCH_BROKERS")?,
            group: get("BENCH_GROUP")?,
            input: get("BENCH_INPUT")?,
            output: get("BENCH_OUTPUT")?,
            changelog: get("BENCH_CHANGELOG")?,
            state_dir: get("BENCH_STATE_DIR")?.into(),
            work: <Work as ValueEnum>::from_str(&part, false).context("BENCH_PART")?,
            commit_ms: number("BENCH_COMMIT_MS")?,
            threads: number("BENCH_THREADS")? as usize,
            settings: Vec::new(),
            arguments: Vec::new(),
        })
    }
}
