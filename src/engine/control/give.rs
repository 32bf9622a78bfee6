//! `ratchet settle`: gives a command, and waits for the tasks' acknowledgements.
//!
//! **Failure**: a command stays in its topic, whether a program waits for it or not: tasks that have not acknowledged
//! it carry it out once they are at work. If writing the command failed, it is unknown whether it was given, unless it
//! was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::{self, Cluster, Message, Reader, RecordBatch, embedded::Embedded, kafka::Kafka};
use crate::config::{ClusterKind, Config};
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::feeding;
use crate::format::{self, Acknowledgement, ByHand, Command, CommandId, Order};
use crate::record::{Headers, TopicPartition};
use crate::topology::Topology;

use super::{View, control_partition};

/// How long one read waits.
const READ_WAIT: Duration = Duration::from_millis(50);
const READ_RECORDS_MAX: usize = 1_000;

/// Why a command was not given, or its acknowledgements cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A cluster operation failed.
    #[error("{0}")]
    Cluster(#[from] cluster::Error),
    /// The command may have been given all the same.
    #[error("it is not known whether the command was given: {0}")]
    Unsure(cluster::Error),
    /// There is no topic through which it could be given.
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
    /// The acknowledgements by task; an error if a later release wrote one.
    pub by_task: BTreeMap<TopicPartition, Result<Acknowledgement, format::Error>>,
    /// The tasks that have not acknowledged the command yet.
    pub unanswered: BTreeSet<TopicPartition>,
    /// Whether tasks can acknowledge the command while this program has the cluster open.
    pub can_answer: bool,
}

/// Gives the command to settle the identity with this key, and waits at most `wait` for the acknowledgements.
pub fn settle(
    config: &Config,
    topology: &Topology,
    (identity, by_hand): (&[u8], ByHand),
    wait: Duration,
) -> Result<Acknowledgements, Error> {
    match &config.cluster {
        ClusterKind::Kafka => {
            let kafka = &config.kafka;
            let cluster = Kafka::new(&kafka.for_admin(), &kafka.for_consumer(), &kafka.for_producer())?;
            settle_on(&cluster, topology, (identity, by_hand), wait)
        }
        ClusterKind::Embedded { dir, partitions } => {
            settle_on(&Embedded::open(dir, *partitions)?, topology, (identity, by_hand), Duration::ZERO)
        }
    }
}

/// Like [`settle`], on this cluster.
pub fn settle_on<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    (identity, by_hand): (&[u8], ByHand),
    wait: Duration,
) -> Result<Acknowledgements, Error> {
    if topology.calls().is_none() {
        return Err(Error::NoCalls(topology.name.clone()));
    }
    let clock = SystemClock::default();
    let topic = topology.control();
    let view = View::look_up(cluster, &topic, clock.monotonic())?.ok_or_else(|| Error::NoTopic(topic.clone()))?;
    let id = CommandId(rand::random());
    let order = Order::Settle { identity: identity.to_vec(), by_hand };
    let command = Command { topic_id: view.id.0, at_ms: clock.wall_ms(), order };
    let (key, value) = (id.key(), command.encode());
    let partition = control_partition(&topic);
    let unanswered = tasks(cluster, topology)?;
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
    let mut answers = Acknowledgements { id, by_task: BTreeMap::new(), unanswered, can_answer: C::IS_SHARED };
    if wait > Duration::ZERO {
        let deadline = clock.monotonic() + wait;
        read_acknowledgements(cluster.reader(&partition, offset + 1)?, &mut answers, || clock.monotonic() < deadline)?;
    }
    Ok(answers)
}

/// The topology's tasks.
fn tasks<C: Cluster>(cluster: &C, topology: &Topology) -> Result<BTreeSet<TopicPartition>, cluster::Error> {
    let mut tasks = BTreeSet::new();
    for input in feeding::inputs(cluster, topology)? {
        let count = cluster.outline_topic(&input)?.map_or(0, |topic| topic.partition_count);
        tasks.extend((0..count).map(|partition| TopicPartition::new(input.as_str(), partition)));
    }
    Ok(tasks)
}

/// Reads acknowledgements until all tasks have acknowledged the command, or time is up.
fn read_acknowledgements<R: Reader>(
    mut reader: R,
    answers: &mut Acknowledgements,
    has_time: impl Fn() -> bool,
) -> Result<(), cluster::Error> {
    let mut batch = R::Batch::default();
    while !answers.unanswered.is_empty() && has_time() {
        match reader.read(&mut batch, READ_RECORDS_MAX, READ_WAIT) {
            Err(error) if error.kind == cluster::ErrorKind::Retry => continue,
            read => read?,
        }
        for record in (0..batch.len()).map(|index| batch.record(index)) {
            let Some((id, topic, partition)) = record.key.and_then(CommandId::of_acknowledgement) else { continue };
            if id == answers.id {
                let task = TopicPartition::new(topic, partition);
                answers.unanswered.remove(&task);
                answers.by_task.insert(task, Acknowledgement::decode(record.value.unwrap_or_default()));
            }
        }
    }
    Ok(())
}
