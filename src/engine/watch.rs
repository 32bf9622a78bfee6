//! Watches the topics while the lanes work.
//!
//! A topic that is deleted and created again under its name goes on being read and written as if nothing had
//! happened. When another id is seen, the lanes are told to send their tasks through their restore, which knows
//! what to refuse and why.
//!
//! Where the input is a pattern, topics that it means come and go: one that has come is looked at as all were at
//! the start ([`super::preflight`]), and the lanes then read it too; one that was deleted is read no more. A topic
//! that is refused is logged and left alone, and looked at again, since a person may put it right.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::{self, Cluster, Kind};
use crate::topology::Input;

use super::context::Context;
use super::preflight::Preflight;
use super::{feeding, pause};

/// How often the cluster is asked whether its topics are the same.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// How often it is asked for new topics.
const PATTERN_INTERVAL: Duration = Duration::from_secs(2);

/// Asks until the run ends. What the cluster does not answer is asked again.
pub fn watch<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let by_pattern = matches!(context.topology.input, Input::Pattern { .. });
    let interval = if by_pattern { PATTERN_INTERVAL } else { WATCH_INTERVAL };
    let mut told = HashSet::new();
    loop {
        pause(&*context.clock, interval, stop);
        if stop.load(Ordering::Relaxed) {
            return;
        }
        check_ids(cluster, context, by_pattern, &mut told);
        if by_pattern {
            if let Err(error) = find_new(cluster, context) {
                tracing::debug!(topology = context.topology.name, reason = %error.message, "new topics not looked for");
            }
            context.metrics.refused_topics(&context.topology.name, context.topics.refused_count());
        }
    }
}

/// Whether the topics that are read are those that the lanes began with. `told` holds those that are not.
fn check_ids<C: Cluster>(cluster: &C, context: &Context, by_pattern: bool, told: &mut HashSet<String>) {
    for input in context.topics.names() {
        let Some(topics) = context.topics.get(&input) else { continue };
        let changelog = context.topology.changelog(&input);
        for (name, known) in [(&*input, topics.input_id), (&changelog, topics.changelog_id)] {
            match cluster.describe_topic(name) {
                Ok(Some(found)) if found.id != known && told.insert(name.to_owned()) => {
                    tracing::error!(topic = name, "the topic was recreated while it was in use");
                    context.recreated.fetch_add(1, Ordering::Relaxed);
                }
                Ok(None) if by_pattern && name == &*input => {
                    tracing::warn!(
                        topology = context.topology.name,
                        topic = name,
                        "the topic was deleted: read no more"
                    );
                    context.topics.remove(name);
                    context.metrics.topic_gone(&context.topology.name, name);
                }
                _ => {}
            }
        }
    }
}

/// Looks at the topics that have come.
fn find_new<C: Cluster>(cluster: &C, context: &Context) -> Result<(), cluster::Error> {
    let names = feeding::inputs(cluster, &context.topology)?;
    for gone in context.topics.forget_refused(|topic| names.iter().any(|name| name == topic)) {
        context.health.topic_refused(&context.topology.name, &gone, false);
    }
    let preflight = Preflight::new(cluster, &context.topology, &context.rules_digest, &context.topic_settings);
    let name = &context.topology.name;
    for topic in names.iter().filter(|topic| context.topics.get(topic).is_none()) {
        match preflight.admit(topic, &names) {
            Ok(topics) => {
                tracing::info!(topology = name, topic, partitions = topics.task_count, "a topic has come");
                context.health.topic_refused(name, topic, false);
                context.topics.add(topic, topics);
            }
            Err(error) if error.kind == Kind::Refused => refuse(context, topic, &error.message),
            Err(error) => {
                tracing::warn!(topology = name, topic, reason = %error.message, "the new topic not looked at")
            }
        }
    }
    Ok(())
}

/// Leaves a topic alone, and says so where that is news.
pub fn refuse(context: &Context, topic: &str, reason: &str) {
    if context.topics.refuse(topic, reason) {
        tracing::error!(topology = context.topology.name, topic, reason, "topic refused; the others go on");
    }
    context.health.topic_refused(&context.topology.name, topic, true);
    context.metrics.refused_topics(&context.topology.name, context.topics.refused_count());
}
