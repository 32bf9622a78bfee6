//! Watches the topics while the lanes work.
//!
//! A topic that is deleted and recreated under its name would otherwise continue to be read and written. When a
//! different id is observed, the lanes restore their tasks, and the restore refuses those that must not continue, with
//! the reason.
//!
//! An input that is given more partitions would also continue to be read, while its producers send to one partition
//! the records that they used to send to another. When more partitions are observed, all tasks of the topic stop, on
//! every instance: because of this check, which runs immediately when the group rebalances, or because a lane is
//! assigned the first of the new partitions.
//!
//! The same applies to a changelog that is manually given more partitions.
//!
//! A broker with outdated metadata may report fewer partitions, no topic or no id: such reports have no consequence.
//!
//! If the input is a pattern, matching topics may be created and deleted. A new topic is checked like the others at the
//! start ([`super::preflight`]), and then read by the lanes; a deleted topic is no longer read. A refused topic is
//! logged and not read, but checked again, since it may be corrected.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::{self, Cluster, ErrorKind};
use crate::state::Survey;
use crate::topology::Input;

use super::catalog::Growth;
use super::context::Context;
use super::preflight::Preflight;
use super::preflight::warned::Warnings;
use super::threads::SUPERVISE_INTERVAL;
use super::{feeding, held_up};

/// How often the cluster is queried about the topics, from the start of one check to the start of the next.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// The observations of the checks so far.
#[derive(Debug, Default)]
pub struct Observations {
    /// Topics that were recreated.
    recreated: HashSet<String>,
    /// Topics that were missing at the last check.
    missing: HashSet<String>,
    /// The warnings of the checks of new topics.
    warned: Arc<Warnings>,
}

/// Checks until the run ends. Queries that fail are repeated.
pub fn watch<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let mut observations = Observations::default();
    let mut checked_at = context.clock.monotonic();
    loop {
        let until = checked_at + WATCH_INTERVAL;
        while context.clock.monotonic() < until && !context.check_topics_now.swap(false, Ordering::Relaxed) {
            context.clock.wait(SUPERVISE_INTERVAL, stop);
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        checked_at = context.clock.monotonic();
        check(cluster, context, &mut observations, stop);
        // Lanes check for changes of topics only between their waits.
        context.wakers.wake();
        context.health.watch_panicked(&context.topology.name, false);
    }
}

/// Checks the topics that are read and the new topics, once; returns early if the run is stopped.
fn check<C: Cluster>(cluster: &C, context: &Context, observations: &mut Observations, stop: &AtomicBool) {
    let is_by_pattern = matches!(context.topology.input, Input::Pattern { .. });
    check_topics(cluster, context, is_by_pattern, observations, stop);
    let must_stop = || stop.load(Ordering::Relaxed);
    if !must_stop() {
        held_up::check(cluster, &context.held_up, context.clock.monotonic());
    }
    if is_by_pattern && !must_stop() {
        if let Err(error) = admit_new(cluster, context, &observations.warned) {
            tracing::debug!(topology = context.topology.name, reason = %error.message, "new topics not checked");
        }
        context.metrics.refused_topics(&context.topology.name, context.topics.refused_count());
    }
}

/// Checks whether the topics are still the same as when the lanes started.
fn check_topics<C: Cluster>(
    cluster: &C,
    context: &Context,
    is_by_pattern: bool,
    observations: &mut Observations,
    stop: &AtomicBool,
) {
    for input in context.topics.names() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Some(topic) = context.topics.get(&input) else { continue };
        let changelog = context.topology.changelog(&input);
        for (name, known) in [(&*input, topic.input_id), (&changelog, topic.changelog_id)] {
            let found = match cluster.describe_topic_briefly(name) {
                Ok(found) => found,
                Err(error) => {
                    tracing::debug!(topic = name, reason = %error.message, "topic not checked");
                    continue;
                }
            };
            let is_input = name == &*input;
            match found {
                None => {
                    if is_by_pattern && is_input {
                        forget(context, name, observations);
                    }
                    continue;
                }
                Some(found) if found.id != known && found.id.is_known() => {
                    if observations.recreated.insert(name.to_owned()) {
                        tracing::error!(topic = name, "the topic was recreated while it was in use");
                        context.recreated_count.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Some(found) => {
                    let count = found.partition_count.unsigned_abs();
                    let growth = if is_input { Growth::Input(count) } else { Growth::Changelog(count) };
                    if context.topics.grow(&input, growth) {
                        let known = topic.task_count;
                        tracing::error!(topic = name, known, found = count, "the topic was given more partitions");
                    }
                }
            }
            observations.missing.remove(name);
        }
    }
}

/// Stops reading a topic that was missing twice in a row: a single miss proves nothing, since a broker's metadata may
/// be outdated.
fn forget(context: &Context, name: &str, observations: &mut Observations) {
    if observations.missing.insert(name.to_owned()) {
        return;
    }
    observations.missing.remove(name);
    tracing::warn!(topology = context.topology.name, topic = name, "the topic was deleted and is no longer read");
    context.topics.remove(name);
    context.metrics.topic_gone(&context.topology.name, name);
}

/// Checks the new topics.
fn admit_new<C: Cluster>(cluster: &C, context: &Context, warned: &Arc<Warnings>) -> Result<(), cluster::Error> {
    let names = feeding::inputs(cluster, &context.topology)?;
    for gone in context.topics.forget_refused(|topic| names.iter().any(|name| name == topic)) {
        context.health.topic_refused(&context.topology.name, &gone, false);
    }
    let survey = Survey::of(&context.state_slot, &context.memory);
    let preflight = Preflight::new(cluster, &context.topology, &context.rules_digest, &context.topic_settings, survey);
    let preflight = preflight.after(warned);
    let name = &context.topology.name;
    let new: Vec<String> = names.iter().filter(|topic| context.topics.get(topic).is_none()).cloned().collect();
    if !new.is_empty() && context.topics.names().is_empty() {
        match preflight.may_begin(&new) {
            Err(error) if error.kind == ErrorKind::Refused => {
                new.iter().for_each(|topic| refuse(context, topic, &error.message));
                return Ok(());
            }
            allowed => allowed?,
        }
    }
    for topic in &new {
        match preflight.admit(topic, &names) {
            Ok(admitted) => {
                tracing::info!(topology = name, topic, partitions = admitted.task_count, "new topic found");
                context.health.topic_refused(name, topic, false);
                context.topics.add(topic, admitted);
            }
            Err(error) if error.kind == ErrorKind::Refused => refuse(context, topic, &error.message),
            Err(error) => {
                tracing::warn!(topology = name, topic, reason = %error.message, "new topic not checked")
            }
        }
    }
    Ok(())
}

/// Marks a topic as refused, and logs that if the reason is new.
pub fn refuse(context: &Context, topic: &str, reason: &str) {
    if context.topics.refuse(topic, reason) {
        tracing::error!(topology = context.topology.name, topic, reason, "topic refused; the others continue");
    }
    context.health.topic_refused(&context.topology.name, topic, true);
    context.metrics.refused_topics(&context.topology.name, context.topics.refused_count());
}
