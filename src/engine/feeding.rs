//! Finds the topics that a topology reads, and checks that it does not write to any of them: it would read its own
//! output again, endlessly.

use crate::cluster::{self, Cluster};
use crate::topology::{Input, Topology};

/// The current input topics: the named topics, or the topics that match the pattern.
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

/// Why `topic` cannot be read together with the topics `inputs`, which may include it: the topology writes to it, or
/// would read the output that it writes for it.
pub fn problem_with(topology: &Topology, topic: &str, inputs: &[String]) -> Option<String> {
    let name = &topology.name;
    let is_written = |role: &str| {
        format!("topic {topic:?} is both {role} and an input of topology {name}: exclude it with input.exclude")
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
    Some(format!("topic {topic:?} cannot be read by topology {name}: {problem}; exclude it with input.exclude"))
}

#[cfg(test)]
mod tests;
