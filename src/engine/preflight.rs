//! What is looked at before a lane joins the group: topics, partition counts, policies, and whether what the
//! group has committed was committed under these rules. Whatever is wrong is refused here, with what to do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{self, Cluster, Kind, NewTopic, TopicDescription};
use crate::config::{self, Create};
use crate::format::OffsetMetadata;
use crate::record::TopicPartition;
use crate::topology::Topology;

use super::context::Topics;

/// How long to wait for committed offsets that a transaction is pending on; the restore waits for longer.
const COMMITTED_WAIT: Duration = Duration::from_secs(15);

/// `max.message.bytes` of a dead letter topic: whatever may be read has to fit, with headers that say why.
const DEAD_LETTER_BYTES_MAX: usize = 17 << 20;

/// What was learnt.
pub struct Preflight {
    /// By input topic.
    pub topics: HashMap<Arc<str>, Topics>,
    /// Partitions of the dead letter topic.
    pub dead_letter_partitions: i32,
}

fn refused(message: String) -> cluster::Error {
    cluster::Error::new(Kind::Refused, message)
}

/// Looks at, and creates where the configuration says so, all topics of a topology.
pub fn check<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    rules_digest: &[u8; 32],
    settings: &config::Topics,
) -> Result<Preflight, cluster::Error> {
    let mut topics = HashMap::new();
    let mut most_partitions = 0;
    for topic in topology.input.named() {
        let input = cluster.describe_topic(topic)?.ok_or_else(|| {
            refused(format!("input topic {topic:?} does not exist; create it, or name another in input.topics"))
        })?;
        check_output(cluster, topology, topic, input.partition_count, settings)?;
        let changelog = check_changelog(cluster, topology, topic, input.partition_count, settings)?;
        check_committed(cluster, topology, topic, input.partition_count, rules_digest)?;
        most_partitions = most_partitions.max(input.partition_count);
        let learnt = Topics {
            input_id: input.id,
            changelog_id: changelog.id,
            task_count: input.partition_count as u32,
            delete_retention_ms: changelog.delete_retention_ms,
        };
        topics.insert(Arc::from(topic.as_str()), learnt);
    }
    let roomy = [("max.message.bytes", DEAD_LETTER_BYTES_MAX.to_string())];
    let may_create = settings.create != Create::None;
    let dead_letter = ensure(cluster, &topology.dead_letter, most_partitions, settings, may_create, &roomy)?;
    Ok(Preflight { topics, dead_letter_partitions: dead_letter.partition_count.max(1) })
}

/// The topic, created if it is missing and may be.
fn ensure<C: Cluster>(
    cluster: &C,
    name: &str,
    partition_count: i32,
    settings: &config::Topics,
    may_create: bool,
    topic_settings: &[(&str, String)],
) -> Result<TopicDescription, cluster::Error> {
    if let Some(topic) = cluster.describe_topic(name)? {
        return Ok(topic);
    }
    if !may_create {
        return Err(refused(format!(
            "topic {name:?} does not exist; create it with {partition_count} partitions, or let ratchet create it \
             (topics.create: {})",
            if topic_settings.is_empty() { "all" } else { "internal" }
        )));
    }
    let mut all = vec![("min.insync.replicas", settings.min_insync_replicas.to_string())];
    all.extend_from_slice(topic_settings);
    let topic = NewTopic { name, partition_count, replication_factor: settings.replication_factor, settings: &all };
    cluster.create_topic(&topic).map_err(|error| match error.kind {
        Kind::Refused => refused(format!(
            "topic {name:?} cannot be created: {}; create it by hand, or see topics.replication_factor ({}), \
             topics.min_insync_replicas ({}) and topics.create",
            error.message, settings.replication_factor, settings.min_insync_replicas
        )),
        _ => error,
    })?;
    tracing::info!(topic = name, partitions = partition_count, "topic created");
    cluster.describe_topic(name)?.ok_or_else(|| {
        cluster::Error::new(Kind::Retry, format!("topic {name:?} was created and is not to be seen yet"))
    })
}

fn check_output<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    input: &str,
    partition_count: i32,
    settings: &config::Topics,
) -> Result<(), cluster::Error> {
    let name = topology.output_topic(input);
    let output = ensure(cluster, &name, partition_count, settings, settings.create == Create::All, &[])?;
    if output.partition_count < partition_count {
        return Err(refused(format!(
            "output topic {name:?} has {} partitions and its input {input:?} has {partition_count}: records are \
             forwarded to the partition they came from; add partitions to the output",
            output.partition_count
        )));
    }
    Ok(())
}

fn check_changelog<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    input: &str,
    partition_count: i32,
    settings: &config::Topics,
) -> Result<TopicDescription, cluster::Error> {
    let name = topology.changelog(input);
    let compact = [("cleanup.policy", "compact".to_owned())];
    let changelog = ensure(cluster, &name, partition_count, settings, settings.create != Create::None, &compact)?;
    if changelog.partition_count != partition_count {
        return Err(refused(format!(
            "changelog topic {name:?} has {} partitions and its input {input:?} has {partition_count}: they must be \
             equal; if partitions were added to the input, give the topology a new name to begin anew",
            changelog.partition_count
        )));
    }
    if changelog.cleanup_policy != "compact" {
        return Err(refused(format!(
            "changelog topic {name:?} has cleanup.policy={}, under which entries get lost; set it to compact",
            changelog.cleanup_policy
        )));
    }
    Ok(changelog)
}

/// Offsets that were committed under other rules, or by something else, are seen before subscribing, so that a
/// rolling upgrade with changed rules does not stall healthy instances.
fn check_committed<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    topic: &str,
    partition_count: i32,
    rules_digest: &[u8; 32],
) -> Result<(), cluster::Error> {
    let group = topology.group();
    let partitions: Vec<_> = (0..partition_count).map(|partition| TopicPartition::new(topic, partition)).collect();
    let committed = match cluster.committed(&group, &partitions, COMMITTED_WAIT) {
        Ok(committed) => committed,
        // Whatever is pending, the restore looks again.
        Err(error) if error.kind == Kind::Retry => return Ok(()),
        Err(error) => return Err(error),
    };
    let ours = OffsetMetadata::short_digest(rules_digest);
    for (partition, committed) in partitions.iter().zip(committed) {
        let Some(committed) = committed else { continue };
        let metadata = OffsetMetadata::parse(&committed.metadata).map_err(|error| {
            refused(format!(
                "group {group:?} has an offset for {partition} that is not ratchet's ({error}): another program uses \
                 the group; give the topology another name"
            ))
        })?;
        if let Some(metadata) = metadata
            && metadata.digest != ours
        {
            return Err(refused(format!(
                "the offset of {partition} was committed under other rules (digest {}, these rules' is {ours}): \
                 identities or versions have changed their meaning; give the topology a new name, or bring its \
                 former rules back",
                metadata.digest
            )));
        }
    }
    Ok(())
}
