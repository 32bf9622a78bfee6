//! Waiting: for a condition, never for a time, and never for ever.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// For what ought to take seconds at most, on a machine that has other things to do.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(25);

/// Waits until `look` finds something.
///
/// # Panics
/// If it does not within `deadline`, saying `what` was waited for.
#[track_caller]
pub fn within<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < deadline, "waited {deadline:?} in vain for {what}");
        sleep(LOOK);
    }
}
