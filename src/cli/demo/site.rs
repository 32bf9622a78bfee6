//! A folder in which the job runs, with its own embedded cluster, state folder, topology, configuration
//! and log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Error, sample};
use crate::cluster::embedded::Embedded;
use crate::cluster::{Cluster, Message, NewTopic};
use crate::record::{HeaderBuf, TopicPartition};

/// The demo's topology, as it ships.
const TOPOLOGY: &str = include_str!("../../../topologies/samples/orders.yaml");
/// That topology's group.
const GROUP: &str = "ratchet.orders";
/// How many records are written to a partition at once.
const CHUNK: usize = 2_000;

/// The folder.
#[derive(Debug)]
pub struct Site {
    dir: PathBuf,
}

/// A job's progress, read from the topics.
#[derive(Debug, PartialEq, Eq)]
pub struct JobState {
    /// Records of the input that are committed.
    pub processed: u64,
    /// Records of the output.
    pub forwarded: u64,
}

impl Site {
    /// Creates the folder and writes the files; a transaction ends after `commit_records`.
    pub fn make(dir: &Path, commit_records: u64) -> Result<Self, Error> {
        let site = Self { dir: dir.to_owned() };
        let write = |path: &Path, text: &str| {
            let done = fs::create_dir_all(dir).and_then(|()| fs::write(path, text));
            done.map_err(|source| Error::Folder { what: "cannot write", path: path.to_owned(), source })
        };
        write(&site.topology(), TOPOLOGY)?;
        write(&site.config(), &site.config_text(commit_records))?;
        Ok(site)
    }

    pub fn topology(&self) -> PathBuf {
        self.dir.join("orders.yaml")
    }

    pub fn config(&self) -> PathBuf {
        self.dir.join("ratchet.yaml")
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join("log.jsonl")
    }

    fn topics(&self) -> PathBuf {
        self.dir.join("topics")
    }

    /// The stores' folder.
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn config_text(&self, commit_records: u64) -> String {
        format!(
            "cluster: embedded\n\
             embedded: {{dir: {topics}, partitions: {partitions}}}\n\
             state_dir: {state}\n\
             lanes: 2\n\
             memory: 256MiB\n\
             commit: {{records: {commit_records}}}\n\
             http: 127.0.0.1:0\n\
             topics: {{create: all, replication_factor: 1, min_insync_replicas: 1}}\n\
             log: {{format: json, level: info}}\n",
            topics = quoted(&self.topics()),
            state = quoted(&self.state()),
            partitions = sample::PARTITIONS,
        )
    }

    /// Opens the cluster, which only one process can have open.
    pub fn open(&self) -> Result<Embedded, Error> {
        Ok(Embedded::open(&self.topics(), sample::PARTITIONS)?)
    }

    /// Writes `records` events to the input topic.
    pub fn load(&self, records: u64, mut loaded: impl FnMut(u64)) -> Result<(), Error> {
        let cluster = self.open()?;
        let (partition_count, settings) = (sample::PARTITIONS, &[]);
        cluster.create_topic(&NewTopic { name: sample::INPUT, partition_count, replication_factor: 1, settings })?;
        let mut waiting: Vec<Vec<sample::Event>> = (0..partition_count).map(|_| Vec::new()).collect();
        for (number, event) in (1..=records).zip(sample::events()?) {
            let partition = usize::try_from(event.partition).unwrap_or(0);
            waiting[partition].push(event);
            if waiting[partition].len() == CHUNK {
                append(&cluster, &mut waiting[partition])?;
                loaded(number);
            }
        }
        waiting.iter_mut().try_for_each(|events| append(&cluster, events))?;
        loaded(records);
        Ok(())
    }

    /// How far the job has got.
    pub fn progress(&self) -> Result<JobState, Error> {
        let cluster = self.open()?;
        let partitions: Vec<_> = (0..sample::PARTITIONS).map(|n| TopicPartition::new(sample::INPUT, n)).collect();
        let committed = cluster.committed(GROUP, &partitions, Duration::ZERO)?;
        let processed = committed.iter().flatten().map(|committed| committed.offset.unsigned_abs()).sum();
        let mut forwarded = 0;
        if cluster.describe_topic(sample::OUTPUT)?.is_some() {
            for partition in 0..sample::PARTITIONS {
                forwarded += cluster.end(sample::OUTPUT, partition)?.unsigned_abs();
            }
        }
        Ok(JobState { processed, forwarded })
    }

    /// Removes the state folder and returns its size in bytes.
    pub fn remove_state(&self) -> Result<u64, Error> {
        let path = self.state();
        let removed = byte_len(&path).and_then(|bytes| fs::remove_dir_all(&path).map(|()| bytes));
        removed.map_err(|source| Error::Folder { what: "cannot remove", path, source })
    }
}

/// Writes events of one partition, and clears the list.
fn append(cluster: &Embedded, events: &mut Vec<sample::Event>) -> Result<(), Error> {
    let Some(partition) = events.first().map(|event| event.partition) else { return Ok(()) };
    let headers: Vec<HeaderBuf> = events.iter().map(sample::Event::header_buf).collect();
    let messages: Vec<Message<'_>> = events
        .iter()
        .zip(&headers)
        .map(|(event, headers)| Message {
            topic: sample::INPUT,
            partition,
            key: Some(event.key.as_bytes()),
            value: Some(event.payload.as_bytes()),
            headers: headers.as_headers(),
            timestamp: Some(event.ts),
        })
        .collect();
    cluster.append(sample::INPUT, partition, &messages)?;
    events.clear();
    Ok(())
}

fn byte_len(dir: &Path) -> io::Result<u64> {
    fs::read_dir(dir)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let metadata = entry.metadata()?;
        Ok(sum + if metadata.is_dir() { byte_len(&entry.path())? } else { metadata.len() })
    })
}

/// A path as YAML: a JSON string is valid YAML. `$${` is how the configuration writes `${`.
fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy().as_ref()).to_string().replace("${", "$${")
}
