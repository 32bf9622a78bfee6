//! The first queries of a run: what the brokers can do, and whether they answer. Without a broker a query fails only
//! after a quarter of a minute, and a signal to stop does not wait for it.
//!
//! Brokers that lack what is needed are refused before anything else is asked: a client may wait for ever for what they do
//! not offer.
//!
//! **Failure**: an abandoned query ends on its own thread, and its answer is ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

use super::clock::Clock;
use super::threads::spawn;
use crate::cluster::{self, Abilities, Cluster, ErrorKind};
use crate::config::Config;

/// How often a wait checks whether to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// After this time the log says that there is no answer; the reason is known only when the query fails.
const SILENT_MAX: Duration = Duration::from_secs(2);

/// Asks the brokers what they can do, then sends a query that any cluster can answer, so that trouble with the whole
/// cluster, a wrong password for example, is reported once and not per topic.
pub(super) fn ask<C: Cluster>(cluster: &C) -> Result<Option<Abilities>, cluster::Error> {
    let abilities = sufficient(cluster)?;
    cluster.list_topics()?;
    // A cluster that has come up meanwhile could not say so before.
    if abilities.is_some() { Ok(abilities) } else { sufficient(cluster) }
}

/// What the brokers can do, if they say so; brokers that lack what is needed are an error.
fn sufficient<C: Cluster>(cluster: &C) -> Result<Option<Abilities>, cluster::Error> {
    let abilities = cluster.abilities();
    abilities.as_ref().and_then(Abilities::problem).map_or(Ok(()), Err)?;
    Ok(abilities)
}

/// The same, returning soon after `stop` is set; says so if there is no answer for a while.
pub(super) fn reach<C: Cluster>(
    cluster: &C,
    config: &Config,
    clock: &dyn Clock,
    stop: &AtomicBool,
) -> Result<Option<Abilities>, cluster::Error> {
    let began = clock.monotonic();
    let mut is_said = false;
    let later = |message: String| Err(cluster::Error::new(ErrorKind::Retry, message));
    let (done, answer) = crossbeam_channel::bounded(1);
    let asked = cluster.clone();
    let asking = move || {
        // The receiver is gone if the run was told to stop.
        let _ = done.send(ask(&asked));
    };
    if spawn("reach".to_owned(), asking).is_err() {
        // Without a thread, `stop` has to wait for the query.
        return ask(cluster);
    }
    loop {
        match answer.recv_timeout(LOOK_INTERVAL) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => return later("the first query has panicked".to_owned()),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return later("the run is to end before the cluster has answered".to_owned());
            }
            Err(RecvTimeoutError::Timeout) if !is_said && clock.monotonic().saturating_sub(began) > SILENT_MAX => {
                is_said = true;
                tracing::info!(
                    brokers = config.kafka.addresses(),
                    "the cluster, or one of its brokers, has not answered yet"
                );
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Logs what the brokers can do.
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
