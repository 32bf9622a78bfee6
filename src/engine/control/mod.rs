//! Commands to a topology's tasks, which somebody gives through its control topic (`ratchet settle`).
//!
//! - here: a thread of its own looks how far the topic reaches, and nobody waits for it
//! - [`orders`]: a lane reads the commands that its tasks have not passed; [`super::lane`] has them carried out
//! - [`settling`]: what a command makes of an entry
//! - [`give`]: gives a command and waits for what the tasks say to it; [`list`]: what there is to be decided
//!
//! **Every task passes every command, once**, in the topic's order: it carries it out, acknowledges it, and notes in its
//! position record that it has, all in one transaction of its owner, which the group's generation fences. What its owner
//! dies with is carried out by the heir, and what was committed is passed over by it. A task that has noted nothing yet
//! begins with the topic's first record, and so does one whose note is of another topic: where it knows nothing of an
//! identity, a command changes nothing.
//!
//! **A command waits** for a call of its identity that is open, and for a reservation whose record is still to be read:
//! that record goes on with its call. Commands behind it wait as well.
//!
//! **Failure**: a control topic that cannot be read or written holds up commands, and nothing else. One that is deleted
//! and created again is another topic; a command names the topic that it was given in, so that it is never carried out
//! from a copy of it, nor twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::{self, Cluster, TopicId};
use crate::format::Control;
use crate::record::TopicPartition;

use super::context::{Context, backoff};
use super::panics::caught;

pub mod give;
pub mod list;
pub mod orders;
pub mod settling;

/// How often the topic's end is looked up.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a task that would stop waits for commands that might settle why.
const HEED_MAX: Duration = Duration::from_secs(10);

/// The partition of a control topic that commands and acknowledgements are in.
pub fn partition_of(topic: &str) -> TopicPartition {
    TopicPartition::new(topic, 0)
}

/// The control topic, as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its id.
    pub id: TopicId,
    /// Its first retained offset.
    pub start: i64,
    /// Its end, open transactions included.
    pub end: i64,
    /// When that was asked, on the monotonic clock.
    pub asked_at: Duration,
}

impl View {
    /// Looks at it; `None` if it does not exist, or has no id.
    pub fn ask<C: Cluster>(cluster: &C, topic: &str, now: Duration) -> Result<Option<Self>, cluster::Error> {
        let Some(found) = cluster.outline_topic(topic)?.filter(|found| found.id.is_known()) else { return Ok(None) };
        let (start, end) = cluster.bounds(&partition_of(topic))?;
        Ok(Some(Self { id: found.id, start, end, asked_at: now }))
    }

    /// The next offset for whoever has come as far as this.
    pub fn next_after(&self, control: Option<Control>) -> i64 {
        let next = control.filter(|control| control.topic_id == self.id.0).map_or(0, |control| control.next);
        next.max(self.start)
    }
}

/// What the lanes are told about the control topic.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Option<View>>);

impl Seen {
    /// How it was last seen; `None` before that.
    pub fn view(&self) -> Option<View> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, view: View) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }
}

/// How far a task at work has come with commands, beside what it has noted in its position record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heeding {
    /// When it began to work, on the monotonic clock.
    pub began_at: Duration,
    /// Before this there is no command that it has not passed, by what was read.
    pub passed: Option<Control>,
}

impl Heeding {
    /// The next offset of the control topic for a task that has noted this.
    pub fn next(&self, view: &View, noted: Option<Control>) -> i64 {
        view.next_after(noted).max(view.next_after(self.passed))
    }

    /// Whether there may be a command that settles why the task would stop: then it looks first, for a while.
    pub fn may_be_told(&self, view: Option<&View>, noted: Option<Control>, now: Duration) -> bool {
        let knows_all = |view: &View| view.asked_at >= self.began_at && self.next(view, noted) >= view.end;
        now.saturating_sub(self.began_at) < HEED_MAX && !view.is_some_and(knows_all)
    }
}

/// The control topic's thread: restarts after a panic.
pub fn keep<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let mut attempt = 0;
    while let Err(panic) = caught(|| look(cluster, context, stop)) {
        tracing::error!(topology = context.topology.name, reason = %panic, "looking for commands panicked; going on");
        context.clock.wait(backoff(attempt), stop);
        attempt += 1;
    }
}

/// Looks how far the topic reaches, until the run ends.
fn look<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let topic = context.topology.control();
    while !stop.load(Ordering::Relaxed) {
        // As of before: what is given from then on may not be seen.
        let now = context.clock.monotonic();
        match View::ask(cluster, &topic, now) {
            Ok(Some(view)) => context.commands.put(view),
            Ok(None) => tracing::debug!(topic, "the control topic is not there"),
            Err(error) => tracing::debug!(topic, reason = %error.message, "the control topic cannot be seen"),
        }
        context.clock.wait(LOOK_INTERVAL, stop);
    }
}

#[cfg(test)]
mod tests;
