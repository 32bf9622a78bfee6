//! The first queries of a run: the abilities of the brokers, and whether they respond. Without a broker, a query fails
//! only after a quarter of a minute, and a signal to stop does not wait for it.
//!
//! Brokers that lack required abilities are refused before any other query: a client may wait for ever for an ability
//! that they do not have.
//!
//! **Failure**: an abandoned query ends on its own thread, and its result is ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

use super::clock::Clock;
use super::threads::spawn;
use crate::cluster::{self, Abilities, Cluster, ErrorKind};
use crate::config::Config;

/// How often a wait checks whether to stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// After this time without a response, a line is logged; the reason is known only when the query fails.
const UNANSWERED_MAX: Duration = Duration::from_secs(2);

/// Queries the brokers' abilities, then sends a query that any cluster can answer, so that trouble with the whole
/// cluster, a wrong password for example, is reported once and not per topic.
pub(super) fn query<C: Cluster>(cluster: &C) -> Result<Option<Abilities>, cluster::Error> {
    let abilities = checked_abilities(cluster)?;
    cluster.list_topics()?;
    // A cluster that has started meanwhile could not report its abilities before.
    if abilities.is_some() { Ok(abilities) } else { checked_abilities(cluster) }
}

/// The brokers' abilities, if they report them. Fails if brokers lack required abilities.
fn checked_abilities<C: Cluster>(cluster: &C) -> Result<Option<Abilities>, cluster::Error> {
    let abilities = cluster.abilities();
    abilities.as_ref().and_then(Abilities::problem).map_or(Ok(()), Err)?;
    Ok(abilities)
}

/// Like [`query`], but returns soon after `stop` is set, and logs a line if there is no response for a while.
pub(super) fn reach<C: Cluster>(
    cluster: &C,
    config: &Config,
    clock: &dyn Clock,
    stop: &AtomicBool,
) -> Result<Option<Abilities>, cluster::Error> {
    let began_at = clock.monotonic();
    let mut is_logged = false;
    let retry_error = |message: String| Err(cluster::Error::new(ErrorKind::Retry, message));
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let queried = cluster.clone();
    let run_query = move || {
        // The receiver is gone if the run was told to stop.
        let _ = sender.send(query(&queried));
    };
    if spawn("reach".to_owned(), run_query).is_err() {
        // Without a thread, `stop` has to wait for the query.
        return query(cluster);
    }
    loop {
        match receiver.recv_timeout(CHECK_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return retry_error("the first query has panicked".to_owned()),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return retry_error("the run was stopped before the cluster responded".to_owned());
            }
            Err(RecvTimeoutError::Timeout)
                if !is_logged && clock.monotonic().saturating_sub(began_at) > UNANSWERED_MAX =>
            {
                is_logged = true;
                tracing::info!(
                    brokers = config.kafka.addresses(),
                    "the cluster, or one of its brokers, has not answered yet"
                );
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Logs the brokers' abilities.
pub(super) fn report(abilities: &Abilities) {
    let Abilities { asked, silent, data_path, can, without, .. } = abilities;
    let can = can.join(", ");
    tracing::info!(brokers = asked, can, "records are read and written {data_path}");
    if !silent.is_empty() {
        tracing::warn!(brokers = silent.join(", "), "some brokers have not said what they can do");
    }
    for without in without {
        tracing::warn!("{}: {}", without.what, without.so);
    }
}
