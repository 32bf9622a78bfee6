//! Topics in memory: their ids, settings and partitions, and the meaning of the settings.

use std::sync::Weak;
use std::sync::atomic::AtomicI64;

use sha2::{Digest, Sha256};

use super::disk::StoredTopic;
use super::error::refused;
use super::layout::{FolderMeta, PartitionMeta, TopicMeta};
use crate::cluster::{Error, Rights, TopicDescription, TopicId};

/// Kafka's limit for a topic's name.
const NAME_BYTES_MAX: usize = 249;
/// More partitions of one topic in one folder would surely be a mistake.
const PARTITIONS_MAX: i32 = 10_000;
/// Kafka's default for `max.message.bytes`.
const MESSAGE_BYTES_DEFAULT: i64 = 1_048_588;
/// Kafka's default for `delete.retention.ms`: a day.
const DELETE_RETENTION_MS_DEFAULT: i64 = 86_400_000;

/// A topic.
#[derive(Debug)]
pub(super) struct Topic {
    pub id: TopicId,
    pub settings: Settings,
    partitions: Vec<Partition>,
}

/// A partition: its metadata, and its readers.
#[derive(Debug, Default)]
pub(super) struct Partition {
    pub meta: PartitionMeta,
    pub readers: Vec<Weak<AtomicI64>>,
    /// Whether a compaction is in progress.
    pub compacting: bool,
}

/// The settings that have an effect here; others are kept and ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub cleanup_policy: String,
    pub delete_retention_ms: i64,
    pub message_bytes_max: i64,
    /// How far a timestamp may lie in the past and in the future.
    pub timestamp_before_ms: i64,
    pub timestamp_after_ms: i64,
}

impl Topic {
    pub fn from_stored(stored: &StoredTopic) -> Result<Self, Error> {
        let settings = Settings::parse(stored.meta.settings.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
        let partitions =
            stored.partitions.iter().map(|meta| Partition { meta: *meta, ..Partition::default() }).collect();
        Ok(Self { id: TopicId(stored.meta.id), settings, partitions })
    }

    pub fn new(meta: &TopicMeta, settings: Settings) -> Self {
        let partitions = (0..meta.partition_count).map(|_| Partition::default()).collect();
        Self { id: TopicId(meta.id), settings, partitions }
    }

    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }

    pub fn partition(&self, number: i32) -> Option<&Partition> {
        self.partitions.get(usize::try_from(number).ok()?)
    }

    pub fn partition_mut(&mut self, number: i32) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::try_from(number).ok()?)
    }

    pub fn describe(&self) -> TopicDescription {
        TopicDescription {
            id: self.id,
            partition_count: self.partition_count(),
            cleanup_policy: self.settings.cleanup_policy.clone(),
            delete_retention_ms: self.settings.delete_retention_ms,
            // Nothing is deleted automatically, and no record that has a timestamp is stamped.
            retention_ms: i64::MAX,
            retention_bytes: i64::MAX,
            stamps: false,
            timestamp_before_max_ms: self.settings.timestamp_before_ms,
            timestamp_after_max_ms: self.settings.timestamp_after_ms,
            message_bytes_max: self.settings.message_bytes_max,
            replicas: None,
            min_insync_replicas: None,
            elects_uncleanly: None,
            rights: Some(Rights::ALL),
        }
    }
}

impl Settings {
    /// Parses settings by their Kafka names; an invalid value is rejected.
    pub fn parse<'a>(given: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        let mut settings = Self {
            cleanup_policy: "delete".to_owned(),
            delete_retention_ms: DELETE_RETENTION_MS_DEFAULT,
            message_bytes_max: MESSAGE_BYTES_DEFAULT,
            timestamp_before_ms: i64::MAX,
            timestamp_after_ms: i64::MAX,
        };
        for (name, value) in given {
            let number = || match value.trim().parse::<i64>() {
                Ok(number) if number >= 0 => Ok(number),
                _ => Err(refused(format!("the topic setting {name} must be a number from 0, not {value:?}"))),
            };
            match name {
                "cleanup.policy" => settings.cleanup_policy = cleanup_policy(value)?,
                "delete.retention.ms" => settings.delete_retention_ms = number()?,
                "max.message.bytes" => settings.message_bytes_max = number()?,
                "message.timestamp.before.max.ms" => settings.timestamp_before_ms = number()?,
                "message.timestamp.after.max.ms" => settings.timestamp_after_ms = number()?,
                _ => {}
            }
        }
        Ok(settings)
    }

    pub fn is_compacted(&self) -> bool {
        self.cleanup_policy.contains("compact")
    }

    /// Whether the topic accepts this timestamp in a record.
    pub fn accepts_timestamp(&self, timestamp: i64, now_ms: i64) -> bool {
        now_ms.saturating_sub(timestamp) <= self.timestamp_before_ms
            && timestamp.saturating_sub(now_ms) <= self.timestamp_after_ms
    }
}

fn cleanup_policy(value: &str) -> Result<String, Error> {
    let mut parts: Vec<&str> = value.split(',').map(str::trim).collect();
    parts.sort_unstable();
    parts.dedup();
    if parts.iter().any(|part| !matches!(*part, "compact" | "delete")) {
        return Err(refused(format!("cleanup.policy must be delete, compact or both, not {value:?}")));
    }
    Ok(parts.join(","))
}

/// Rejects names that Kafka would reject.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name != "." && name != "..";
    if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return Ok(());
    }
    Err(refused(format!("{name:?} cannot be a topic's name: 1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, dot, _ and -")))
}

/// Rejects group names that would not fit into a key.
pub(super) fn check_group(group: &str) -> Result<(), Error> {
    if group.is_empty() || group.len() > usize::from(u16::MAX) {
        return Err(refused("a group's name must have 1 to 65535 bytes"));
    }
    Ok(())
}

/// Rejects impossible partition counts.
pub(super) fn check_partition_count(count: i32) -> Result<(), Error> {
    if (1..=PARTITIONS_MAX).contains(&count) {
        return Ok(());
    }
    Err(refused(format!("a topic has 1 to {PARTITIONS_MAX} partitions, not {count}")))
}

/// The next topic's id: practically random between folders, never repeated within one.
pub(super) fn next_id(folder: &FolderMeta) -> [u8; 16] {
    let digest =
        Sha256::new().chain_update(folder.seed.to_be_bytes()).chain_update(folder.topics_created.to_be_bytes());
    let digest: [u8; 32] = digest.finalize().into();
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    id
}
