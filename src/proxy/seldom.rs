//! Something that clients can make happen as often as they like, and that is logged once in a while.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The shortest interval between two lines of the log.
const PAUSE: Duration = Duration::from_secs(30);

/// Counts it.
#[derive(Default)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// It has happened once more. If it is time for a line: how often since the last one.
    pub fn tell(&self) -> Option<u64> {
        self.tell_at(Instant::now())
    }

    fn tell_at(&self, now: Instant) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.1 += 1;
        if known.0.is_some_and(|told| now.duration_since(told) < PAUSE) {
            return None;
        }
        known.0 = Some(now);
        Some(std::mem::take(&mut known.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_told_seldom_and_counted_whole() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        assert_eq!([(); 3].map(|()| seldom.tell_at(now)), [Some(1), None, None]);
        assert_eq!([(); 2].map(|()| seldom.tell_at(now + PAUSE)), [Some(3), None]);
    }
}
