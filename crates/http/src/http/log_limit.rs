//! Limits log lines about events that clients can cause as often as they like.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The shortest interval between two lines of the log.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// Counts one kind of event, and says when to log it.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Events>);

#[derive(Debug, Default)]
struct Events {
    /// The time of the last line.
    logged: Option<Duration>,
    /// The number of events since that line.
    count: u64,
}

impl LogLimit {
    /// Counts an event; `now` is the time since a fixed moment. If it is time for another line, returns the number of
    /// events since the last line, including this event.
    pub fn count(&self, now: Duration) -> Option<u64> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.count += 1;
        if events.logged.is_some_and(|logged| now.saturating_sub(logged) < LINE_INTERVAL) {
            return None;
        }
        events.logged = Some(now);
        Some(std::mem::take(&mut events.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_events_are_all_counted_and_rarely_logged() {
        let (limit, now) = (LogLimit::default(), Duration::from_secs(7));
        assert_eq!([(); 3].map(|()| limit.count(now)), [Some(1), None, None]);
        assert_eq!([(); 2].map(|()| limit.count(now + LINE_INTERVAL)), [Some(3), None]);
    }
}
