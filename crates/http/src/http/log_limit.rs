//! Limits the log lines that clients can cause, which they could do as often as they like.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The shortest interval between two lines of the log.
const PAUSE: Duration = Duration::from_secs(30);

/// Counts one kind of event.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<(Option<Duration>, u64)>);

impl LogLimit {
    /// Counts one more event, at this time since a fixed moment. Returns how many there were since the last line, if it
    /// is time for another line.
    pub fn tell(&self, now: Duration) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.1 += 1;
        if known.0.is_some_and(|told| now.saturating_sub(told) < PAUSE) {
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
    fn frequent_events_are_logged_seldom_and_all_counted() {
        let (seldom, now) = (LogLimit::default(), Duration::from_secs(7));
        assert_eq!([(); 3].map(|()| seldom.tell(now)), [Some(1), None, None]);
        assert_eq!([(); 2].map(|()| seldom.tell(now + PAUSE)), [Some(3), None]);
    }
}
