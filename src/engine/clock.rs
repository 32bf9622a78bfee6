//! Time, injected: the engine never reads the machine's clocks itself, so that a simulation can set the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a wait checks whether to stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Milliseconds since the epoch by the wall clock; may jump.
    fn wall_ms(&self) -> i64;
    /// Waits for `length`, or until soon after `stop` is set.
    fn wait(&self, length: Duration, stop: &AtomicBool);
}

/// The machine's clocks.
#[derive(Clone, Debug)]
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine's clocks for the engine")]
    fn default() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine's clocks for the engine")]
    fn wall_ms(&self) -> i64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    }

    fn wait(&self, length: Duration, stop: &AtomicBool) {
        let deadline = self.monotonic() + length;
        while !stop.load(Ordering::Relaxed) {
            let remaining = deadline.saturating_sub(self.monotonic());
            if remaining.is_zero() {
                return;
            }
            std::thread::park_timeout(remaining.min(CHECK_INTERVAL));
        }
    }
}
