//! `ratchet effects`: lists, from the changelogs, the calls that are not known to have succeeded.
//!
//! Each entry of a changelog holds what is stored of one identity. The listing reads committed records, whether or not
//! instances are running, and changes nothing. A call under a **grant**, which permits the calls of all records before
//! an offset, may have no entry until it is settled, and is not listed before.
//!
//! **Failure**: an entry that a later version of ratchet wrote ends the listing with an error, and so does a changelog
//! that cannot be read to its end. Effects of earlier partitions were passed on by then; `ratchet effects` prints none
//! of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{self, Cluster, Reader, RecordBatch, embedded::Embedded, kafka::Kafka};
use crate::config::{ClusterKind, Config};
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::feeding;
use crate::format::{self, How, KIND_IDENTITY, KIND_IDENTITY_DIGEST, NO_TIME, Remembered, ResultRef};
use crate::record::TopicPartition;
use crate::topology::Topology;

use super::settling::state_name;

/// How long one read waits.
const READ_WAIT: Duration = Duration::from_millis(20);
const READ_RECORDS_MAX: usize = 2_048;
/// The listing fails if a changelog returns no records for this long before its end is reached: records after the start
/// of an open transaction cannot be read.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Why the calls cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A cluster operation failed.
    #[error("{0}")]
    Cluster(#[from] cluster::Error),
    /// An entry cannot be read.
    #[error("{changelog}:{offset}: {error}")]
    Entry {
        /// The changelog's partition.
        changelog: TopicPartition,
        /// The record's offset.
        offset: i64,
        /// Why.
        error: format::Error,
    },
    /// A changelog cannot be read to its end.
    #[error(
        "{changelog} was read up to offset {position}, and its end is {end}: nothing more arrived within {} s. A \
         transaction may be open there, whose records, and those behind it, cannot be read before it ends",
        SILENCE_MAX.as_secs()
    )]
    Unfinished {
        /// The changelog's partition.
        changelog: TopicPartition,
        /// The next offset to read.
        position: i64,
        /// The changelog's end.
        end: i64,
    },
}

/// An identity whose call is not known to have succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The task.
    pub task: TopicPartition,
    /// The identity's key in the changelog.
    pub key: Vec<u8>,
    /// `under_way`, or how it was settled.
    pub state: &'static str,
    /// The number of attempts that its reservation counts; `None` if it is settled.
    pub attempts: Option<u32>,
    /// When its first attempt may have been made, if it is under way or given up; otherwise when the identity was last
    /// seen, by record time. In milliseconds since the epoch.
    pub since_ms: Option<i64>,
    /// The record's offset; `None` if it was settled manually.
    pub offset: Option<i64>,
    /// The remembered reason.
    pub reason: Option<String>,
    /// Whether the call may have happened, although it is no longer under way.
    pub is_in_doubt: bool,
}

/// Passes each effect to `visit`, partition by partition.
pub fn list(config: &Config, topology: &Topology, visit: impl FnMut(Effect)) -> Result<(), Error> {
    match &config.cluster {
        ClusterKind::Kafka => {
            let kafka = &config.kafka;
            let cluster = Kafka::new(&kafka.for_admin(), &kafka.for_consumer(), &kafka.for_producer())?;
            list_on(&cluster, topology, visit)
        }
        ClusterKind::Embedded { dir, partitions } => list_on(&Embedded::open(dir, *partitions)?, topology, visit),
    }
}

/// Like [`list`], on this cluster.
pub fn list_on<C: Cluster>(cluster: &C, topology: &Topology, mut visit: impl FnMut(Effect)) -> Result<(), Error> {
    for input in feeding::inputs(cluster, topology)? {
        let changelog = topology.changelog(&input);
        let count = cluster.describe_topic_briefly(&changelog)?.map_or(0, |topic| topic.partition_count);
        for number in 0..count {
            let task = TopicPartition::new(input.as_str(), number);
            effects_of_partition(cluster, &task, &TopicPartition::new(changelog.as_str(), number))?
                .into_values()
                .for_each(&mut visit);
        }
    }
    Ok(())
}

/// Effects, by their keys.
type Effects = BTreeMap<Vec<u8>, Effect>;

fn effects_of_partition<C: Cluster>(
    cluster: &C,
    task: &TopicPartition,
    changelog: &TopicPartition,
) -> Result<Effects, Error> {
    let (start, end) = cluster.bounds(changelog)?;
    let mut effects = Effects::new();
    if start >= end {
        return Ok(effects);
    }
    let clock = SystemClock::default();
    let (mut reader, mut batch) = (cluster.reader(changelog, start)?, C::Batch::default());
    let (mut progress_at, mut last_error) = (clock.monotonic(), None);
    while reader.position() < end {
        let before = reader.position();
        if clock.monotonic() - progress_at >= SILENCE_MAX {
            let unfinished = || Error::Unfinished { changelog: changelog.clone(), position: before, end };
            return Err(last_error.map_or_else(unfinished, Error::Cluster));
        }
        match reader.read(&mut batch, READ_RECORDS_MAX, READ_WAIT) {
            Err(error) if error.kind == cluster::ErrorKind::Retry => {
                last_error = Some(error);
                continue;
            }
            read => read?,
        }
        last_error = None;
        if reader.position() > before {
            progress_at = clock.monotonic();
        }
        for record in (0..batch.len()).map(|index| batch.record(index)) {
            let Some(key @ [KIND_IDENTITY | KIND_IDENTITY_DIGEST, ..]) = record.key else { continue };
            let found = record.value.map(Remembered::decode).transpose();
            let found = found.map_err(|error| {
                let changelog = changelog.clone();
                Error::Entry { changelog, offset: record.offset, error }
            })?;
            match found.and_then(|remembered| effect(task, key, &remembered)) {
                Some(effect) => _ = effects.insert(key.to_vec(), effect),
                None => _ = effects.remove(key),
            }
        }
    }
    Ok(effects)
}

/// The effect to list for an identity; `None` if its call is done.
fn effect(task: &TopicPartition, key: &[u8], remembered: &Remembered<'_>) -> Option<Effect> {
    let blank = Effect {
        task: task.clone(),
        key: key.to_vec(),
        state: state_name(remembered),
        attempts: None,
        since_ms: None,
        offset: None,
        reason: None,
        is_in_doubt: false,
    };
    if let Some(reservation) = &remembered.reservation {
        return Some(Effect {
            attempts: Some(reservation.attempts),
            since_ms: Some(reservation.first_attempt_at_ms),
            offset: Some(reservation.place.offset),
            ..blank
        });
    }
    let settled = remembered.settled.filter(|settled| settled.how != How::Done)?;
    let since_ms = match settled.how {
        How::GivenUp { first_attempt_at_ms } => first_attempt_at_ms,
        _ => settled.entry.last_seen,
    };
    let reason = match settled.result {
        Some(ResultRef::Reason(reason)) => Some(reason.to_owned()),
        _ => None,
    };
    Some(Effect {
        since_ms: Some(since_ms).filter(|since| *since != NO_TIME),
        offset: settled.place.map(|place| place.offset),
        reason,
        is_in_doubt: matches!(settled.how, How::InDoubt | How::GivenUp { .. }),
        ..blank
    })
}
