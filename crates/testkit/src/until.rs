//! Waiting: for a condition, never for a fixed time, and never for ever.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// For what should take seconds at most, on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often a condition is checked.
const LOOK: Duration = Duration::from_millis(25);

/// Waits until `look` finds something.
///
/// # Panics
/// If it does not within `deadline`, naming `what`.
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
