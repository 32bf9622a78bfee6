//! Commands to a topology's tasks, sent through its control topic (`ratchet settle`).
//!
//! - this module: a separate thread looks up the topic's bounds; no lane waits for it
//! - [`commands`]: a lane reads the commands that its tasks have not handled yet; [`super::lane`] carries them out
//! - [`settling`]: how a command changes an entry, which is what is stored of an identity
//! - [`settle`]: sends a command and waits for the tasks' acknowledgements; [`list`]: lists the calls that may need a
//!   decision
//!
//! **Every task handles every command once**, in the topic's order: it carries the command out, acknowledges it and
//! notes its offset in the position record, all in one transaction of its owner. Kafka refuses such a transaction of a
//! former owner, by the group's generation. If the owner dies, the next one skips the commands that were committed and
//! carries out the others. A task without a noted offset begins with the topic's first record, and so does a task whose
//! noted offset belongs to another topic: a command about an unknown identity changes nothing.
//!
//! **A command waits** for an open call of its identity, and for a reservation whose record is not judged yet, since
//! that record will continue the call. Later commands wait as well.
//!
//! **Failure**: a control topic that cannot be read or written holds up commands, and nothing else. A topic that is
//! deleted and created again is another topic: a command names the topic that it was sent to, so that it is
//! carried out neither from a copy of that topic nor twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::Cluster;

use super::context::{Context, backoff};
use super::panics::caught;

pub mod bounds;
pub mod commands;
pub mod list;
pub mod settle;
pub mod settling;

pub use bounds::{CommandProgress, ControlTopicBounds, LatestBounds, control_partition};

/// How often the topic's bounds are looked up.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the control topic's thread: watches the topic, and restarts after a panic.
pub fn run_watch<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let mut attempt = 0;
    while let Err(panic) = caught(|| watch(cluster, context, stop)) {
        tracing::error!(
            topology = context.topology.name, reason = %panic,
            "the control topic's watcher panicked; restarting it"
        );
        context.clock.wait(backoff(attempt), stop);
        attempt += 1;
    }
}

/// Looks up the topic's bounds again and again, until the run ends.
fn watch<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let topic = context.topology.control();
    while !stop.load(Ordering::Relaxed) {
        // The clock is read before the topic: the bounds may not include commands that were sent after this time.
        let now = context.clock.monotonic();
        match ControlTopicBounds::look_up(cluster, &topic, now) {
            Ok(Some(bounds)) => context.control_topic.put(bounds),
            Ok(None) => tracing::debug!(topic, "the control topic does not exist, or has no id"),
            Err(error) => tracing::debug!(topic, reason = %error.message, "the control topic cannot be looked up"),
        }
        context.clock.wait(LOOK_INTERVAL, stop);
    }
}

#[cfg(test)]
mod tests;
