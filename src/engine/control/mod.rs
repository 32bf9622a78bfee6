//! Commands to a topology's tasks, given through its control topic (`ratchet settle`).
//!
//! - here: a separate thread looks up where the topic ends; nothing waits for it
//! - [`orders`]: a lane reads the commands that its tasks have not passed; [`super::lane`] carries them out
//! - [`settling`]: how a command changes an entry
//! - [`give`]: gives a command and waits for the tasks' acknowledgements; [`list`]: lists the calls that may need a
//!   decision
//!
//! **Every task works through every command once**, in the topic's order: it carries the command out, acknowledges it
//! and notes that in its position record, all in one transaction of its owner, which the group's generation fences. If
//! the owner dies, the next one skips the commands that were committed and carries out the others. A task that has
//! noted nothing yet begins with the topic's first record, and so does a task whose note is of another topic: a command
//! about an unknown identity changes nothing.
//!
//! **A command waits** for an open call of its identity, and for a reservation whose record is still to be read, since
//! that record will go on with its call. Commands behind it wait as well.
//!
//! **Failure**: a control topic that cannot be read or written holds up commands, and nothing else. A topic that is
//! deleted and created again is another topic: a command names the topic that it was given in, so that it is never
//! carried out from a copy of that topic, nor twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::Cluster;

use super::context::{Context, backoff};
use super::panics::caught;

pub mod give;
pub mod list;
pub mod orders;
pub mod settling;
pub mod view;

pub use view::{CommandProgress, Seen, View, partition_of};

/// How often the topic's end is looked up.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The control topic's thread: watches the topic, and restarts after a panic.
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

/// Keeps looking up where the topic ends, until the run ends.
fn watch<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let topic = context.topology.control();
    while !stop.load(Ordering::Relaxed) {
        // Read before the topic is looked up: what was given later may be missing from the view.
        let now = context.clock.monotonic();
        match View::look_up(cluster, &topic, now) {
            Ok(Some(view)) => context.commands.put(view),
            Ok(None) => tracing::debug!(topic, "the control topic does not exist, or has no id"),
            Err(error) => tracing::debug!(topic, reason = %error.message, "the control topic cannot be looked up"),
        }
        context.clock.wait(LOOK_INTERVAL, stop);
    }
}

#[cfg(test)]
mod tests;
