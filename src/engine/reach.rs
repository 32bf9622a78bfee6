//! The first query of a run. Without a broker the query fails only after a quarter of a minute, and a signal to stop does
//! not wait for it.
//!
//! **Failure**: an abandoned query ends on its own thread, and its answer is ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

use super::clock::Clock;
use super::spawn;
use crate::cluster::{self, Cluster, ErrorKind};
use crate::config::Config;

/// How often a wait checks whether to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// After this time the log says that there is no answer; the reason is known only when the query fails.
const SILENT_MAX: Duration = Duration::from_secs(2);

/// Sends a query that any cluster can answer, so that trouble with the whole cluster, a wrong password for example, is
/// reported once and not per topic. Returns soon after `stop` is set; says so if there is no answer for a while.
pub(super) fn reach<C: Cluster>(
    cluster: &C,
    config: &Config,
    clock: &dyn Clock,
    stop: &AtomicBool,
) -> Result<(), cluster::Error> {
    let began = clock.monotonic();
    let mut is_said = false;
    let later = |message: String| Err(cluster::Error::new(ErrorKind::Retry, message));
    let (done, answer) = crossbeam_channel::bounded(1);
    let asked = cluster.clone();
    let asking = move || {
        // The receiver is gone if the run was told to stop.
        let _ = done.send(asked.list_topics().map(drop));
    };
    if spawn("reach".to_owned(), asking).is_err() {
        // Without a thread, `stop` has to wait for the query.
        return cluster.list_topics().map(drop);
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
                tracing::info!(brokers = config.kafka.addresses(), "the cluster has not answered yet");
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
