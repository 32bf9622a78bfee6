//! Which topics a topology reads, and that it writes to none of them itself: its own output would come back as input,
//! endlessly.

use crate::cluster::{self, Cluster};
use crate::topology::{Input, Topology};

/// The current input topics: those that are named, or those that match the pattern.
pub fn inputs<C: Cluster>(cluster: &C, topology: &Topology) -> Result<Vec<String>, cluster::Error> {
    match &topology.input {
        Input::Topics(topics) => Ok(topics.clone()),
        Input::Pattern { .. } => {
            let mut names = cluster.list_topics()?;
            names.retain(|name| topology.reads(name));
            names.sort_unstable();
            Ok(names)
        }
    }
}

/// Why `topic` cannot be read along with the topics `inputs`, of which it may be one: the topology writes to it, or
/// would read what it writes for it.
pub fn problem_with(topology: &Topology, topic: &str, inputs: &[String]) -> Option<String> {
    let name = &topology.name;
    let is_written = |role: &str| {
        format!("topic {topic:?} is {role} of topology {name}, and its input at once: leave it out by input.exclude")
    };
    if topic == topology.dead_letter {
        return Some(is_written("the dead letter topic"));
    }
    if topology.audit.as_deref() == Some(topic) {
        return Some(is_written("the audit topic"));
    }
    if let Some(other) = inputs.iter().find(|other| topology.output_topic(other).as_deref() == Some(topic)) {
        return Some(is_written(&format!("the output of {other:?}")));
    }
    let problem = topology.problem_with(topic)?;
    Some(format!("topic {topic:?} cannot be read by topology {name}: {problem}; leave it out by input.exclude"))
}

#[cfg(test)]
mod tests;
