//! Brokers that do not answer: an instance without any answer is not ready, and its metrics show since when.
//!
//! Lanes notice only after the session time-out that they have lost their group, and the lag of their partitions then stays
//! as it was. So silence has a check and metrics of its own.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Contact;
use crate::observe::{BrokersSeen, Health, Metrics};

use super::clock::Clock;

/// After this time without an answer of any broker the instance is not ready. Heartbeats and the watch of topics get many
/// answers in it; a restart of a broker takes less.
pub const SILENT_MAX: Duration = Duration::from_secs(30);

/// Has health and metrics tell of the brokers.
pub fn watch(contact: &Arc<Contact>, clock: &Arc<dyn Clock>, metrics: &Metrics, health: &Health) {
    let (heard, wall) = (Arc::clone(contact), Arc::clone(clock));
    metrics.brokers(move || {
        let ago_ms = i64::try_from(heard.silent_for().as_millis()).unwrap_or(i64::MAX);
        BrokersSeen { heard_ms: wall.wall_ms().saturating_sub(ago_ms), attempts: heard.attempts() }
    });
    let heard = Arc::clone(contact);
    health.probe("brokers", move || {
        let silent = heard.silent_for();
        match silent >= SILENT_MAX {
            false => (true, "answer".into()),
            true => (false, format!("none has answered for {} s; the log says why", silent.as_secs()).into()),
        }
    });
}
