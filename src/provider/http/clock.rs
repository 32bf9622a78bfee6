//! The wall clock by which a key's window is measured: the time for which a provider honours an idempotency key.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock, in milliseconds since the epoch.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The system's wall clock.
pub fn system_clock() -> WallClock {
    Arc::new(wall_ms)
}

#[expect(clippy::disallowed_methods, reason = "the key's window is measured by the wall clock, as it is at the socket")]
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
