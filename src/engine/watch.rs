//! Watches the topics while the lanes work.
//!
//! A topic that is deleted and created again under its name goes on being read and written as if nothing had
//! happened. When another id is seen, the lanes are told to send their tasks through their restore, which knows
//! what to refuse and why.
//!
//! An input that is given more partitions goes on being read alike, while its producers send what they sent to one
//! partition to another. When more are seen, all tasks of the topic stop, on every instance: by this look, which comes
//! at once where the group rebalances, or by the first of the new partitions that a lane is given.
//!
//! Likewise where its changelog is given more, by hand.
//!
//! A broker may be behind, and tell of fewer partitions, of no topic or of no id: nothing follows from that.
//!
//! Where the input is a pattern, topics that it means come and go: one that has come is looked at as all were at
//! the start ([`super::preflight`]), and the lanes then read it too; one that was deleted is read no more. A topic
//! that is refused is logged and left alone, and looked at again, since a person may put it right.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::{self, Cluster, Kind};
use crate::state::Survey;
use crate::topology::Input;

use super::catalog::Growth;
use super::context::Context;
use super::preflight::Preflight;
use super::{SUPERVISE_INTERVAL, feeding, held_up};

/// How often the cluster is asked about the topics, from one look's beginning to the next one's.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// What looks have come to notice.
#[derive(Debug, Default)]
pub struct Noticed {
    /// Topics that were recreated.
    recreated: HashSet<String>,
    /// Topics that were not there when it was looked last.
    missing: HashSet<String>,
}

/// Asks until the run ends. What the cluster does not answer is asked again.
pub fn watch<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let mut noticed = Noticed::default();
    let mut looked_at = context.clock.monotonic();
    loop {
        let until = looked_at + WATCH_INTERVAL;
        while context.clock.monotonic() < until && !context.look_now.swap(false, Ordering::Relaxed) {
            context.clock.wait(SUPERVISE_INTERVAL, stop);
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        looked_at = context.clock.monotonic();
        look(cluster, context, &mut noticed, stop);
        context.health.watch_panicked(&context.topology.name, false);
    }
}

/// Looks once at what is read, and at what has come; no further where the run is to end.
fn look<C: Cluster>(cluster: &C, context: &Context, noticed: &mut Noticed, stop: &AtomicBool) {
    let by_pattern = matches!(context.topology.input, Input::Pattern { .. });
    check_topics(cluster, context, by_pattern, noticed, stop);
    let ends = || stop.load(Ordering::Relaxed);
    if !ends() {
        held_up::look(cluster, context);
    }
    if by_pattern && !ends() {
        if let Err(error) = find_new(cluster, context) {
            tracing::debug!(topology = context.topology.name, reason = %error.message, "new topics not looked for");
        }
        context.metrics.refused_topics(&context.topology.name, context.topics.refused_count());
    }
}

/// Whether the topics that are read are those that the lanes began with.
fn check_topics<C: Cluster>(
    cluster: &C,
    context: &Context,
    by_pattern: bool,
    noticed: &mut Noticed,
    stop: &AtomicBool,
) {
    for input in context.topics.names() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Some(topics) = context.topics.get(&input) else { continue };
        let changelog = context.topology.changelog(&input);
        for (name, known) in [(&*input, topics.input_id), (&changelog, topics.changelog_id)] {
            let found = match cluster.outline_topic(name) {
                Ok(found) => found,
                Err(error) => {
                    tracing::debug!(topic = name, reason = %error.message, "topic not looked at");
                    continue;
                }
            };
            let is_input = name == &*input;
            match found {
                None => {
                    if by_pattern && is_input {
                        forget(context, name, noticed);
                    }
                    continue;
                }
                Some(found) if found.id != known && found.id.is_told() => {
                    if noticed.recreated.insert(name.to_owned()) {
                        tracing::error!(topic = name, "the topic was recreated while it was in use");
                        context.recreated.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Some(found) => {
                    let count = found.partition_count.unsigned_abs();
                    let growth = if is_input { Growth::Input(count) } else { Growth::Changelog(count) };
                    if context.topics.grow(&input, growth) {
                        let known = topics.task_count;
                        tracing::error!(topic = name, known, found = count, "the topic was given more partitions");
                    }
                }
            }
            noticed.missing.remove(name);
        }
    }
}

/// Reads a topic no more that was not there twice in a row: of a broker that is behind, once says nothing.
fn forget(context: &Context, name: &str, noticed: &mut Noticed) {
    if noticed.missing.insert(name.to_owned()) {
        return;
    }
    noticed.missing.remove(name);
    tracing::warn!(topology = context.topology.name, topic = name, "the topic was deleted: read no more");
    context.topics.remove(name);
    context.metrics.topic_gone(&context.topology.name, name);
}

/// Looks at the topics that have come.
fn find_new<C: Cluster>(cluster: &C, context: &Context) -> Result<(), cluster::Error> {
    let names = feeding::inputs(cluster, &context.topology)?;
    for gone in context.topics.forget_refused(|topic| names.iter().any(|name| name == topic)) {
        context.health.topic_refused(&context.topology.name, &gone, false);
    }
    let survey = Survey::of(&context.state_dir, &context.memory);
    let preflight = Preflight::new(cluster, &context.topology, &context.rules_digest, &context.topic_settings, survey);
    let name = &context.topology.name;
    let new: Vec<String> = names.iter().filter(|topic| context.topics.get(topic).is_none()).cloned().collect();
    if !new.is_empty() && context.topics.names().is_empty() {
        match preflight.may_begin(&new) {
            Err(error) if error.kind == Kind::Refused => {
                new.iter().for_each(|topic| refuse(context, topic, &error.message));
                return Ok(());
            }
            looked => looked?,
        }
    }
    for topic in &new {
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
