//! `ratchet settle`: sends a control command, and waits for the tasks' acknowledgements.
//!
//! **Failure**: a command stays in its topic, whether a program waits for it or not: tasks that have not acknowledged
//! it carry it out once they are at work. If writing the command failed, it is unknown whether it was sent, unless it
//! was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::{self, Cluster, Message, Reader, RecordBatch, embedded::Embedded, kafka::Kafka};
use crate::config::{ClusterKind, Config};
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::feeding;
use crate::format::{self, Acknowledgement, Command, CommandId, Instruction, ManualDecision};
use crate::record::{Headers, TopicPartition};
use crate::topology::Topology;

use super::{ControlTopicBounds, control_partition};

/// How long one read waits.
const READ_WAIT: Duration = Duration::from_millis(50);
const READ_RECORDS_MAX: usize = 1_000;

/// Why a command was not sent, or its acknowledgements cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A cluster operation failed.
    #[error("{0}")]
    Cluster(#[from] cluster::Error),
    /// The command may have been sent all the same.
    #[error("it is not known whether the command was sent: {0}")]
    Unsure(cluster::Error),
    /// The control topic does not exist.
    #[error("topic {0:?} does not exist: no instance that supports commands has run for this topology yet")]
    NoTopic(String),
    /// The topology makes no calls.
    #[error("topology {0} makes no calls: there is nothing to settle")]
    NoCalls(String),
}

/// The tasks' acknowledgements of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgements {
    /// The command's id.
    pub id: CommandId,
    /// The acknowledgements by task; an error if a later version of ratchet wrote the acknowledgement.
    pub by_task: BTreeMap<TopicPartition, Result<Acknowledgement, format::Error>>,
    /// The tasks that have not acknowledged the command yet.
    pub unacknowledged: BTreeSet<TopicPartition>,
    /// Whether tasks can acknowledge the command now. On an embedded cluster they cannot: only one program at a time
    /// has the cluster's folder open, and this program runs no tasks.
    pub can_acknowledge: bool,
}

/// Sends the command to settle a call, usually a call in doubt, whose identity has this key in the changelog. Waits at
/// most `wait` for the acknowledgements; not at all on an embedded cluster.
pub fn settle(
    config: &Config,
    topology: &Topology,
    (identity_key, decision): (&[u8], ManualDecision),
    wait: Duration,
) -> Result<Acknowledgements, Error> {
    match &config.cluster {
        ClusterKind::Kafka => {
            let kafka = &config.kafka;
            let cluster = Kafka::new(&kafka.for_admin(), &kafka.for_consumer(), &kafka.for_producer())?;
            settle_on(&cluster, topology, (identity_key, decision), wait)
        }
        ClusterKind::Embedded { dir, partitions } => {
            // No task can acknowledge the command before this program has closed the folder, so it does not wait.
            settle_on(&Embedded::open(dir, *partitions)?, topology, (identity_key, decision), Duration::ZERO)
        }
    }
}

/// Like [`settle`], on this cluster.
pub fn settle_on<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    (identity_key, decision): (&[u8], ManualDecision),
    wait: Duration,
) -> Result<Acknowledgements, Error> {
    if topology.calls().is_none() {
        return Err(Error::NoCalls(topology.name.clone()));
    }
    let clock = SystemClock::default();
    let topic = topology.control();
    let bounds = ControlTopicBounds::look_up(cluster, &topic, clock.monotonic())?;
    let bounds = bounds.ok_or_else(|| Error::NoTopic(topic.clone()))?;
    let id = CommandId(rand::random());
    let instruction = Instruction::Settle { identity_key: identity_key.to_vec(), decision };
    let command = Command { topic_id: bounds.id.0, at_ms: clock.wall_ms(), instruction };
    let (key, value) = (id.key(), command.encode());
    let partition = control_partition(&topic);
    let unacknowledged = tasks(cluster, topology)?;
    let message = Message {
        topic: &topic,
        partition: partition.partition,
        key: Some(key.as_bytes()),
        value: Some(&value),
        headers: Headers::default(),
        timestamp: None,
    };
    let offset = cluster.append_one(&message).map_err(|error| match error.kind {
        cluster::ErrorKind::Refused => Error::Cluster(error),
        _ => Error::Unsure(error),
    })?;
    let can_acknowledge = C::IS_SHARED;
    let mut acknowledgements = Acknowledgements { id, by_task: BTreeMap::new(), unacknowledged, can_acknowledge };
    if wait > Duration::ZERO {
        let deadline = clock.monotonic() + wait;
        let reader = cluster.reader(&partition, offset + 1)?;
        read_acknowledgements(reader, &mut acknowledgements, || clock.monotonic() < deadline)?;
    }
    Ok(acknowledgements)
}

/// The topology's tasks.
fn tasks<C: Cluster>(cluster: &C, topology: &Topology) -> Result<BTreeSet<TopicPartition>, cluster::Error> {
    let mut tasks = BTreeSet::new();
    for input in feeding::inputs(cluster, topology)? {
        let count = cluster.describe_topic_briefly(&input)?.map_or(0, |topic| topic.partition_count);
        tasks.extend((0..count).map(|partition| TopicPartition::new(input.as_str(), partition)));
    }
    Ok(tasks)
}

/// Reads acknowledgements while `has_time`, until all tasks have acknowledged the command.
fn read_acknowledgements<R: Reader>(
    mut reader: R,
    acknowledgements: &mut Acknowledgements,
    has_time: impl Fn() -> bool,
) -> Result<(), cluster::Error> {
    let mut batch = R::Batch::default();
    while !acknowledgements.unacknowledged.is_empty() && has_time() {
        match reader.read(&mut batch, READ_RECORDS_MAX, READ_WAIT) {
            Err(error) if error.kind == cluster::ErrorKind::Retry => continue,
            result => result?,
        }
        for record in (0..batch.len()).map(|index| batch.record(index)) {
            let Some((id, topic, partition)) = record.key.and_then(CommandId::of_acknowledgement) else { continue };
            if id == acknowledgements.id {
                let task = TopicPartition::new(topic, partition);
                acknowledgements.unacknowledged.remove(&task);
                let acknowledgement = Acknowledgement::decode(record.value.unwrap_or_default());
                acknowledgements.by_task.insert(task, acknowledgement);
            }
        }
    }
    Ok(())
}
