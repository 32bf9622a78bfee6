//! Brokers that do not answer: an instance that hears of none is not ready, and its metrics show since when.
//!
//! Lanes notice that they have lost their group, but only after its session time-out, and the lag of what they had then is
//! whatever it was. So silence is reported in its own right.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::kafka::Contact;
use crate::observe::{BrokersSeen, Health, Metrics};

use super::clock::Clock;

/// After this time without an answer of any broker the instance is not ready. Members answer heartbeats, and topics are
/// looked at, many times in it; a broker that is restarted takes less.
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
