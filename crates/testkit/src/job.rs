//! A job under test: a topology with its own topics, group and folders, so that all tests can share one Kafka.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::checker::Rules;
use crate::cluster::{Fresh, Kafka, Stored};
use crate::kafka;
use crate::until::within;

/// How long a member may be silent.
pub const SESSION_TIMEOUT: Duration = Duration::from_millis(2000);
/// How long a transaction may be open.
pub const TRANSACTION_TIMEOUT: Duration = Duration::from_millis(3000);
/// How often the test brokers look for transactions that have timed out.
pub const ABORT_SCAN: Duration = Duration::from_millis(500);

/// One topology from one input to one output.
pub struct Job {
    pub name: String,
    pub input: String,
    pub output: String,
    pub rules: Rules,
    pub kafka: Kafka,
    /// Whether the changelog is compacted, so that some transactions are no longer visible in it.
    pub compacted: bool,
    /// Whether the job may have started after the input's first record.
    pub starts_late: bool,
    /// Further lines of the topology.
    pub topology: Vec<String>,
    /// Lines in place of those from the rules; the checker's model does not apply then.
    pub instead: Option<String>,
    /// The worker's settings below `kafka:`; `consumer.x` and `producer.x` for one side only.
    pub properties: BTreeMap<String, String>,
    /// Further lines of the worker's settings.
    pub worker: Vec<String>,
    folder: PathBuf,
}

impl Job {
    /// A job on the Kafka that the tests share, its topics created.
    pub fn new(theme: &str, partitions: i32) -> Job {
        let job = Job::on(Kafka::shared(), theme);
        job.kafka.create(&job.input, partitions, &[]);
        job.kafka.create(&job.output, partitions, &[]);
        job
    }

    /// A job on any Kafka, without topics. It forwards newer versions of `value.id`, and remembers them for ever.
    pub fn on(kafka: Kafka, theme: &str) -> Job {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Another Kafka keeps the topics of earlier runs: names have to differ from run to run.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{theme}-{:x}-{number}", now.as_millis() & 0xffff_ffff);
        let folder = kafka::run_folder().join(&name);
        fs::create_dir_all(&folder).expect("the run's folder is writable");
        let properties = [
            ("bootstrap.servers", kafka.brokers().to_owned()),
            ("consumer.session.timeout.ms", SESSION_TIMEOUT.as_millis().to_string()),
            ("producer.transaction.timeout.ms", TRANSACTION_TIMEOUT.as_millis().to_string()),
        ];
        Job {
            input: format!("{name}.in"),
            output: format!("{name}.out"),
            rules: Rules::versioned(),
            kafka,
            compacted: false,
            starts_late: false,
            topology: Vec::new(),
            instead: None,
            properties: properties.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            worker: Vec::new(),
            folder,
            name,
        }
    }

    /// Remembers identities only this long.
    pub fn with_retention(mut self, retention: Duration) -> Job {
        self.rules.retention_ms = Some(retention.as_millis() as i64);
        self
    }

    pub fn group(&self) -> String {
        format!("ratchet.{}", self.name)
    }

    pub fn changelog(&self) -> String {
        format!("ratchet.{}.{}.changelog", self.name, self.input)
    }

    pub fn dead_letter(&self) -> String {
        format!("{}.dead_letter", self.name)
    }

    /// Whether survivors go to a topic, and not to a sink.
    fn has_output(&self) -> bool {
        !self.topology.iter().any(|lines| lines.starts_with("sink:"))
    }

    /// Whether its input is a pattern: then topics share everything but the output.
    pub fn reads_a_pattern(&self) -> bool {
        self.topology.iter().any(|line| line.starts_with("input: {pattern:"))
    }

    /// A path for one of this job's files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn partitions(&self) -> i32 {
        self.kafka.partitions(&self.input).unwrap_or_else(|| panic!("there is no topic {}", self.input))
    }

    /// Writes to the input.
    pub fn send(&self, records: impl IntoIterator<Item = Fresh>) {
        self.kafka.send(&self.input, records);
    }

    /// Writes the topology's file, as of now.
    pub fn write_topology(&self) -> PathBuf {
        let path = self.path("topology.yaml");
        let fields: Vec<String> = self.rules.identity.iter().map(|field| format!("value.{field}")).collect();
        let mut text = format!("name: {}\n", self.name);
        match &self.instead {
            Some(lines) => text.push_str(lines),
            None => text.push_str(&format!("identity: [{}]\n", fields.join(", "))),
        }
        if let (None, Some(field)) = (&self.instead, self.rules.version) {
            text.push_str(&format!("version: {{of: value.{field}, as: integer}}\n"));
        }
        if let Some(retention) = self.rules.retention_ms {
            text.push_str(&format!("retention: {retention}ms\n"));
        }
        if self.has_output() && !self.topology.iter().chain(&self.instead).any(|lines| lines.contains("output:")) {
            text.push_str(&format!("output: {{topic: {}}}\n", self.output));
        }
        if self.instead.is_none() && !self.topology.iter().any(|line| line.starts_with("input:")) {
            text.push_str(&format!("input: {{topics: [{}], value_format: json}}\n", self.input));
        }
        for line in &self.topology {
            text.push_str(line);
            text.push('\n');
        }
        self.replace(&path, &text);
        path
    }

    /// Replaces a file atomically: an operator that is starting may be reading it.
    fn replace(&self, path: &Path, text: &str) {
        let new = path.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, path)).expect("the job's folder is writable");
    }

    /// Writes a worker's settings, with this state folder.
    pub fn write_config(&self, label: &str, state_dir: &Path) -> PathBuf {
        let path = self.path(&format!("{label}.config.yaml"));
        let mut text = String::from("cluster: kafka\nkafka:\n");
        for (name, value) in &self.properties {
            match name.split_once('.') {
                Some((side @ ("consumer" | "producer"), property)) => {
                    text.push_str(&format!("  {side}.{property}: {}\n", quoted(value)));
                }
                _ => text.push_str(&format!("  {name}: {}\n", quoted(value))),
            }
        }
        text.push_str(&format!("state_dir: {}\n", quoted(state_dir.to_str().expect("the folder's name is text"))));
        for (setting, value) in [
            ("http", "\"127.0.0.1:0\""),
            ("topics", "{create: internal, replication_factor: 1, min_insync_replicas: 1}"),
            ("log", "{format: json, level: info}"),
            ("lanes", "1"),
            ("data_path", if kafka::is_on_the_wire() { "auto" } else { "librdkafka" }),
        ] {
            if !self.worker.iter().any(|line| line.starts_with(&format!("{setting}:"))) {
                text.push_str(&format!("{setting}: {value}\n"));
            }
        }
        for line in &self.worker {
            text.push_str(line);
            text.push('\n');
        }
        self.replace(&path, &text);
        path
    }

    /// Waits until the group has committed the end of every input partition and no transaction is open any more.
    #[track_caller]
    pub fn await_drained(&self, deadline: Duration) {
        let group = self.kafka.group(&self.group());
        let mut seen = String::new();
        for partition in 0..self.partitions() {
            let end = self.kafka.bounds(&self.input, partition).end;
            within(
                deadline,
                &format!("{}:{partition} to be drained to {end} by {} {seen}", self.input, self.name),
                || {
                    let committed = group.committed(&self.input, partition);
                    seen = format!("(committed: {committed:?})");
                    (end == 0 || committed.is_some_and(|(offset, _)| offset >= end)).then_some(())
                },
            );
        }
        if self.has_output() {
            self.kafka.await_settled(&self.output);
        }
        self.kafka.await_settled(&self.changelog());
    }

    /// The committed offsets, 0 where there is none.
    pub fn committed(&self) -> Vec<i64> {
        let group = self.kafka.group(&self.group());
        (0..self.partitions()).map(|p| group.committed(&self.input, p).map_or(0, |(offset, _)| offset)).collect()
    }

    /// The records that a read_committed reader sees in the output.
    pub fn output(&self) -> Vec<Stored> {
        self.kafka.read_visible(&self.output).into_values().flatten().collect()
    }

    /// Whether a transaction on the output has made no progress for a moment: its owner is frozen or dead.
    pub fn has_stuck_transaction(&self) -> bool {
        const MOMENT: Duration = Duration::from_millis(150);
        let look = || (0..self.partitions()).map(|p| self.kafka.bounds(&self.output, p));
        let before: Vec<_> = look().collect();
        std::thread::sleep(MOMENT);
        before.into_iter().zip(look()).any(|(before, now)| before.stable == now.stable && now.stable < before.end)
    }

    /// Waits until the group has committed beyond these offsets on every input partition.
    #[track_caller]
    pub fn await_progress(&self, beyond: &[i64], deadline: Duration) {
        let mut seen = Vec::new();
        within(deadline, &format!("{} to get beyond {beyond:?}", self.name), || {
            seen = self.committed();
            seen.iter().zip(beyond).all(|(now, before)| now > before).then_some(())
        });
    }

    /// The owner of each input partition, from the committed offset's metadata; `None` if nothing is committed, or the
    /// partition was released.
    pub fn owners(&self) -> Vec<Option<String>> {
        let group = self.kafka.group(&self.group());
        (0..self.partitions())
            .map(|p| {
                group.committed(&self.input, p).and_then(|(_, metadata)| Some(metadata.split(' ').nth(3)?.to_owned()))
            })
            .map(|owner| owner.filter(|owner| owner != "released"))
            .collect()
    }
}

/// A text as a YAML scalar.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
