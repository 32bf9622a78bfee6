//! Shared by the parts that measure a contender while records flow, not over a preloaded topic: a load at
//! a constant rate, a reader at the end, contenders started and stopped in between.

pub mod fill;
pub mod members;
pub mod pace;
pub mod reader;
pub mod stage;

use std::time::{Duration, Instant};

use crate::failure::{Outcome, fail};

/// Waits until `look` finds something; fails if it does not in time.
pub fn within<T>(
    wait: Duration,
    every: Duration,
    what: &str,
    mut look: impl FnMut() -> Outcome<Option<T>>,
) -> Outcome<T> {
    let deadline = Instant::now() + wait;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            fail!("waited {wait:?} in vain for {what}");
        }
        std::thread::sleep(every);
    }
}
