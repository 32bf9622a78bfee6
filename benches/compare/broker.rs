//! The broker that all contenders of a run share, and what the harness queries: topics, committed offsets,
//! log ends, and sizes on disk.
//!
//! It is the tests' Kafka with ordinary settings: the cleaner, retention and the scan for transactions to
//! abort run as rarely as by Kafka's defaults.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use crate::failure::{Context as _, Outcome, fail};
use crate::kafka;
use crate::segments;

/// How long a request to the broker may take.
const ASK: Duration = Duration::from_secs(20);
/// How long to wait for a deleted topic's files to go, well above the delay in [`PROPERTIES`].
const GONE_WAIT: Duration = Duration::from_secs(30);
/// Java's options for the broker: those of Kafka's own start script.
pub const JAVA: &[&str] = &[
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
];
/// Differences from the tests' broker: Kafka's defaults, except for retention, the deletion of topics, and a group's
/// first rebalance, which does not wait for more members.
pub const PROPERTIES: &[(&str, &str)] = &[
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "10000"),
    ("log.retention.check.interval.ms", "300000"),
    ("log.retention.ms", "-1"),
    ("log.cleaner.backoff.ms", "15000"),
    ("log.cleaner.dedupe.buffer.size", "134217728"),
    // Nothing is deleted before this.
    ("log.initial.task.delay.ms", "2000"),
    ("log.segment.delete.delay.ms", "200"),
    ("num.network.threads", "3"),
    ("num.io.threads", "8"),
    ("group.initial.rebalance.delay.ms", "0"),
];

/// A running broker. Dropping this kills it and removes its data.
pub struct Broker {
    process: kafka::Broker,
    bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
    reader: BaseConsumer,
    tokio: tokio::runtime::Runtime,
}

impl Broker {
    /// Starts one with an empty data folder.
    pub fn start() -> Outcome<Broker> {
        let process = kafka::Broker::start_tuned(PROPERTIES, JAVA);
        let bootstrap = process.bootstrap();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let admin = client(&bootstrap).create()?;
        let reader = client(&bootstrap).set("group.id", "bench-asks").create()?;
        Ok(Broker { process, bootstrap, admin, reader, tokio })
    }

    /// The address that clients connect to.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// ratchet's settings for connections over TLS, with a login, whose password is put into `folder`.
    pub fn tls(&self, folder: &Path) -> Outcome<Vec<(String, String)>> {
        let password = folder.join("sasl-password");
        fs::write(&password, "ratchet-secret").context(password.display())?;
        let properties = self.process.login("ratchet", &format!("${{file:{}}}", password.display()));
        Ok(properties.map(|(name, value)| (format!("kafka.{name}"), value)).to_vec())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid().expect("it runs until it is dropped")
    }

    /// The folder of its logs.
    pub fn data(&self) -> PathBuf {
        self.process.data()
    }

    /// Creates a topic; `settings` are the topic's.
    pub fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) -> Outcome<()> {
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(ASK));
        for result in self.tokio.block_on(self.admin.create_topics(&[new], &options))? {
            if let Err((name, code)) = result {
                fail!("creating topic {name}: {code}");
            }
        }
        Ok(())
    }

    /// Deletes topics that exist, and waits until their files are gone.
    pub fn delete(&self, topics: &[&str]) -> Outcome<()> {
        if topics.is_empty() {
            return Ok(());
        }
        let options = AdminOptions::new().operation_timeout(Some(ASK));
        for result in self.tokio.block_on(self.admin.delete_topics(topics, &options))? {
            match result {
                Err((name, code)) if code != RDKafkaErrorCode::UnknownTopicOrPartition => {
                    fail!("deleting topic {name}: {code}")
                }
                _ => {}
            }
        }
        let deadline = Instant::now() + GONE_WAIT;
        // First their folders have their own names, then they are renamed to `….-delete`.
        let there = |topic: &str| !self.folders(topic).is_empty();
        while topics.iter().any(|topic| there(topic)) || !self.deleted_folders().is_empty() {
            if Instant::now() > deadline {
                fail!("the files of {} are still there", topics.join(", "));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Deletes all topics but those that `keep` wants and Kafka's own.
    pub fn delete_others(&self, keep: impl Fn(&str) -> bool) -> Outcome<()> {
        let topics: Vec<String> = self.topics()?.into_iter().filter(|name| !keep(name)).collect();
        self.delete(&topics.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// All topics but Kafka's own.
    pub fn topics(&self) -> Outcome<Vec<String>> {
        let metadata = self.reader.fetch_metadata(None, ASK)?;
        Ok(metadata.topics().iter().map(|topic| topic.name().to_owned()).filter(|n| !n.starts_with("__")).collect())
    }

    /// The high watermark of each of a topic's partitions.
    pub fn ends(&self, topic: &str) -> Outcome<Vec<i64>> {
        let metadata = self.reader.fetch_metadata(Some(topic), ASK)?;
        let partitions = metadata.topics().first().map_or(0, |topic| topic.partitions().len()) as i32;
        if partitions == 0 {
            fail!("there is no topic {topic}");
        }
        (0..partitions).map(|partition| Ok(self.reader.fetch_watermarks(topic, partition, ASK)?.1)).collect()
    }

    /// How many records were committed into a topic, counted in its logs on disk.
    pub fn committed_records(&self, topic: &str) -> Outcome<u64> {
        let mut sum = 0;
        for folder in self.folders(topic) {
            sum += segments::committed_records(&folder)?;
        }
        Ok(sum)
    }

    /// Watches the offsets that `group` has committed for `topic`.
    pub fn watch(&self, group: &str, topic: &str, partitions: i32) -> Outcome<Watch> {
        let client = client(&self.bootstrap)
            .set("group.id", group)
            // Otherwise the response waits for open transactions.
            .set("isolation.level", "read_uncommitted")
            .create()?;
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition(topic, partition);
        }
        Ok(Watch { client, list })
    }

    /// The size of a topic's logs on disk.
    pub fn log_bytes(&self, topic: &str) -> u64 {
        self.folders(topic).iter().map(|folder| log_bytes(folder)).sum()
    }

    /// The size of every topic's logs, including Kafka's own topics.
    pub fn all_log_bytes(&self) -> BTreeMap<String, u64> {
        let mut sizes = BTreeMap::new();
        for folder in read_folder(&self.data()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some((topic, partition)) = name.rsplit_once('-') else { continue };
            if partition.parse::<u32>().is_ok() {
                *sizes.entry(topic.to_owned()).or_default() += log_bytes(&folder);
            }
        }
        sizes
    }

    fn folders(&self, topic: &str) -> Vec<PathBuf> {
        let is_partition = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.rsplit_once('-').is_some_and(|(of, number)| of == topic && number.parse::<u32>().is_ok())
        };
        read_folder(&self.data()).into_iter().filter(is_partition).collect()
    }

    fn deleted_folders(&self) -> Vec<PathBuf> {
        read_folder(&self.data()).into_iter().filter(|path| path.to_string_lossy().ends_with("-delete")).collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.kill();
        // Gigabytes. The broker's log stays for inspection.
        let _ = fs::remove_dir_all(self.process.data());
    }
}

/// A group's committed offsets, seen from outside.
pub struct Watch {
    client: BaseConsumer,
    list: TopicPartitionList,
}

impl Watch {
    /// The committed offset of each partition, 0 if there is none.
    pub fn offsets(&self) -> Outcome<Vec<i64>> {
        let answer = self.client.committed_offsets(self.list.clone(), ASK).context("asking for committed offsets")?;
        let offset = |offset: Offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
        Ok(answer.elements().iter().map(|element| offset(element.offset())).collect())
    }

    /// The sum of the committed offsets: the number of records, if the log starts at 0 and holds no transactions.
    pub fn sum(&self) -> Outcome<u64> {
        Ok(self.offsets()?.iter().sum::<i64>() as u64)
    }

    /// Commits offsets for the group, which must have no members, so that a contender starts there.
    pub fn set(&self, offsets: &[i64]) -> Outcome<()> {
        let mut list = TopicPartitionList::new();
        for (element, &offset) in self.list.elements().iter().zip(offsets) {
            list.add_partition_offset(element.topic(), element.partition(), Offset::Offset(offset))?;
        }
        self.client.commit(&list, CommitMode::Sync).context("committing offsets")
    }
}

/// The common settings of the harness's clients.
pub fn client(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("log_level", "3");
    config
}

fn read_folder(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn log_bytes(partition: &Path) -> u64 {
    let is_log = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "log");
    read_folder(partition).iter().filter(is_log).filter_map(|path| path.metadata().ok()).map(|file| file.len()).sum()
}
