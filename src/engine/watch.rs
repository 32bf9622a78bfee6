//! Watches whether the topics are still those that the lanes began with.
//!
//! A topic that is deleted and created again under its name goes on being read and written as if nothing had
//! happened. When another id is seen, the lanes are told to send their tasks through their restore, which knows
//! what to refuse and why.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::Cluster;

use super::context::Context;
use super::pause;

/// How often the cluster is asked.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Asks until the run ends or a topic was recreated. What the cluster does not answer is asked again.
pub fn watch<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        pause(&*context.clock, WATCH_INTERVAL, stop);
        for (input, topics) in &context.topics {
            let changelog = context.topology.changelog(input);
            for (name, known) in [(&**input, topics.input_id), (&changelog, topics.changelog_id)] {
                if let Ok(Some(found)) = cluster.describe_topic(name)
                    && found.id != known
                {
                    tracing::error!(topic = name, "the topic was recreated while it was in use");
                    context.recreated.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}
