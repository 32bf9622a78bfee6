//! SIGINT and SIGTERM: the first asks the run to end cleanly, the second ends it at once.
//!
//! A clean end finishes the transaction, leaves the group and flushes the stores. It may take up to
//! `CLEAN_END_MAX`: SIGTERM is commonly followed by SIGKILL after 30 s, and it is better to end
//! with a line in the log than without one. Ending early loses nothing: what is not committed is not in
//! the store, and the partitions' next owner processes it again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit;

/// How long a clean end may take.
const CLEAN_END_MAX: Duration = Duration::from_secs(25);

/// Signals within this time are one request: `timeout` of coreutils signals the process and then its
/// whole group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// The exit code of an end that was not clean: the run failed.
const FORCED: u8 = 1;

/// Sets `stop` at the first SIGINT or SIGTERM, and ends the process at the second (not within
/// `ONE_REQUEST` of the first) or after `CLEAN_END_MAX`. This replaces the signals' default actions.
pub fn watch(stop: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (interrupt, terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let signals = Signals { interrupt, terminate };
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(signals.serve(&stop)))?;
    Ok(())
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    async fn serve(mut self, stop: &AtomicBool) {
        let name = self.next().await;
        tracing::info!(
            signal = name,
            "stopping: finishing the open transactions; send the signal again to end at once"
        );
        stop.store(true, Ordering::SeqCst);
        let mut again = async || loop {
            self.next().await;
        };
        let Err(_) = tokio::time::timeout(ONE_REQUEST, again()).await;
        match tokio::time::timeout(CLEAN_END_MAX - ONE_REQUEST, self.next()).await {
            Ok(name) => tracing::warn!(signal = name, "ending at once; what is not committed will be done again"),
            Err(_) => tracing::error!(
                seconds = CLEAN_END_MAX.as_secs(),
                "not stopped in time, ending at once; what is not committed will be done again"
            ),
        }
        // without waiting for anything: some wait is what holds up the clean end
        exit::at_once(FORCED);
    }

    /// The next signal's name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
