//! Brokers that do not respond: an instance without any response is not ready, and its metrics show the time of the
//! last response.
//!
//! Lanes notice only after the session timeout that they have lost their group, and the lag of their partitions then
//! remains unchanged. So silence has a check and metrics of its own.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Contact;
use crate::observe::{BrokersSeen, Health, Metrics};

use super::clock::Clock;

/// After this time without a response from any broker the instance is not ready. Heartbeats and the watch of topics
/// receive many responses in that time; a restart of a broker takes less.
pub const SILENT_MAX: Duration = Duration::from_secs(30);

/// Makes health and metrics report whether the brokers respond.
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
