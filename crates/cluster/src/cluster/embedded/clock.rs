//! Two clocks: records get their times from the clock in the options, calls their deadlines from the machine's.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Returns the current time, in milliseconds since the epoch.
pub type NowMs = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The starting point for the deadlines of calls.
#[expect(clippy::disallowed_methods, reason = "how long a call may wait is a matter of the machine's clock")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The system's wall clock.
#[expect(clippy::disallowed_methods, reason = "the default of the clock that is handed in")]
pub(super) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
