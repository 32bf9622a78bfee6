//! Refuses to start a topology afresh if its output holds records: all records of the input would be added to them, for
//! example after a topology was merely renamed.
//!
//! A topology has been started before if its group has committed any offset for one of its inputs, or if there is a
//! changelog under its name: an instance creates the changelog before it writes. Such a topology is never refused for
//! the records in its output.

use crate::cluster::{self, Cluster, ErrorKind};
use crate::record::TopicPartition;
use crate::topology::Topology;

use super::facts::{Facts, TopicState};
use super::finding::Finding;

/// The finding for a topology with these inputs, if any.
pub fn problem_with<C: Cluster>(
    cluster: &C,
    topology: &Topology,
    inputs: &[Facts],
) -> Result<Option<Finding>, cluster::Error> {
    if topology.appends() || inputs.iter().any(has_begun) {
        return Ok(None);
    }
    let mut outputs: Vec<_> = inputs
        .iter()
        .filter_map(|facts| facts.output.as_ref())
        .filter_map(|output| Some((&output.name, output.description()?)))
        .collect();
    outputs.dedup_by_key(|(name, _)| *name);
    for (name, output) in outputs {
        if !holds_records(cluster, name, output.partition_count)? {
            continue;
        }
        // The changelogs are queried after the output: its records may come from an instance that has started
        // meanwhile.
        if cluster.list_topics()?.iter().any(|topic| topology.is_own_changelog(topic)) {
            return Ok(None);
        }
        if let Some(unknown) = inputs.iter().find(|facts| !is_committed_known(facts)) {
            let (group, input) = (topology.group(), &unknown.input.name);
            let message = format!("what the group {group} has committed for {input:?} is not known yet");
            return Err(cluster::Error::new(ErrorKind::Retry, message));
        }
        return Ok(Some(finding(topology, name)));
    }
    Ok(None)
}

/// Whether any of a topic's partitions holds records or transaction markers.
fn holds_records<C: Cluster>(cluster: &C, topic: &str, partition_count: i32) -> Result<bool, cluster::Error> {
    for partition in (0..partition_count).map(|number| TopicPartition::new(topic, number)) {
        let (start, end) = cluster.bounds(&partition)?;
        if start < end {
            return Ok(true);
        }
    }
    Ok(false)
}

fn finding(topology: &Topology, output: &str) -> Finding {
    let name = &topology.name;
    Finding::refused(
        format!(
            "output topic {output:?} holds records, and topology {name} starts afresh (its group has committed nothing, and \
             it has no changelog): all that is in the input would come out beside them"
        ),
        format!(
            "name a new output topic, or bring the former `name` back if it was renamed; if that is meant, write \
             `output: {{topic: {output}, existing: append}}`"
        ),
    )
}

/// Whether there is evidence that the topology has been active. A topic that cannot be seen is refused elsewhere.
fn has_begun(facts: &Facts) -> bool {
    let has_changelog = !matches!(facts.changelog.state, TopicState::Missing);
    has_changelog || facts.committed.as_ref().map_or(true, |committed| committed.iter().any(Option::is_some))
}

/// Whether the group's committed offsets are known: its coordinator may not have responded.
fn is_committed_known(facts: &Facts) -> bool {
    facts.input.description().is_none() || facts.committed.as_ref().is_ok_and(|committed| !committed.is_empty())
}
