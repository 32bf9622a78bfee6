//! The activity on a client's connection: when the client has been silent for too long, and since when the connection
//! has been idle.
//!
//! A request is at work from its head to the end of its response. Each connection has one of a bounded number of places
//! (`places`), and an idle one is closed when another connection needs its place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The activity on a connection.
pub struct Activity {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// How many requests are at work.
    at_work: usize,
    /// Since when the head of the first request has been awaited, or the head of a later request has been arriving;
    /// otherwise `None`.
    head_since: Option<Instant>,
    idle_since: Instant,
    is_http2: bool,
    /// Whether the connection is being closed to make room for another.
    is_closing: bool,
    /// Whether the connection no longer speaks HTTP: it has ended, or has become a web socket.
    http_has_ended: bool,
}

impl Activity {
    /// The activity on a new connection: its first request's head is awaited.
    pub fn new() -> Self {
        let now = Instant::now();
        let head_since = Some(now);
        let state = State {
            at_work: 0,
            head_since,
            idle_since: now,
            is_http2: false,
            is_closing: false,
            http_has_ended: false,
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that TLS has negotiated HTTP/2.
    pub fn set_http2(&self) {
        self.state().is_http2 = true;
    }

    /// Notes that a request is at work until the returned guard is dropped.
    pub fn begin(self: &Arc<Self>, is_http2: bool) -> Busy {
        let mut state = self.state();
        state.at_work += 1;
        state.is_http2 = is_http2;
        state.head_since = None;
        drop(state);
        Busy(Arc::clone(self))
    }

    /// Notes that the client has sent something.
    pub fn note_received(&self) {
        let mut state = self.state();
        if state.at_work == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
            self.changed.notify_one();
        }
    }

    /// Since when the connection has been idle; `None` while a request is at work, and once the connection is being
    /// closed or no longer speaks HTTP.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        let is_idle = state.at_work == 0 && !state.is_closing && !state.http_has_ended;
        is_idle.then(|| state.head_since.map_or(state.idle_since, |head| head.max(state.idle_since)))
    }

    /// Closes the connection unless a request is at work by now; returns whether this call closes it.
    pub fn close_if_idle(&self) -> bool {
        let mut state = self.state();
        if state.at_work > 0 || state.is_closing || state.http_has_ended {
            return false;
        }
        state.is_closing = true;
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Whether the connection is being closed to make room for another.
    pub fn is_closing(&self) -> bool {
        self.state().is_closing
    }

    /// Notes that the connection no longer speaks HTTP.
    pub fn end_http(&self) {
        self.state().http_has_ended = true;
    }

    /// The client's deadline for sending something; `None` while a request is at work.
    fn deadline(&self, head_wait: Duration, idle_wait: Duration) -> Option<Instant> {
        let state = self.state();
        if state.at_work > 0 {
            return None;
        }
        if state.is_closing {
            // In the past: the connection closes at once.
            return Some(state.idle_since);
        }
        // Over HTTP/2 a client sends more than heads, so what it sends is not timed as a head.
        let head_since = state.head_since.filter(|_| !state.is_http2);
        Some(head_since.map_or(state.idle_since + idle_wait, |since| since + head_wait))
    }

    /// Returns when the client has been silent for too long, or another connection needs the place.
    pub async fn wait_until_silent(&self, head_wait: Duration, idle_wait: Duration) {
        loop {
            match self.deadline(head_wait, idle_wait) {
                None => self.changed.notified().await,
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => drop(tokio::time::timeout_at(deadline, self.changed.notified()).await),
            }
        }
    }
}

/// A request at work on a connection.
pub struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.at_work -= 1;
        state.idle_since = Instant::now();
        drop(state);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connection_closes_when_another_needs_its_place() {
        let activity = Arc::new(Activity::new());
        let long = Duration::from_secs(60);
        let busy = activity.begin(false);
        assert_eq!((activity.idle_since(), activity.close_if_idle()), (None, false), "a request is at work");
        drop(busy);
        assert!(activity.idle_since().is_some());
        assert!(activity.close_if_idle() && !activity.close_if_idle(), "it closes only once");
        let closes = tokio::time::timeout(long / 2, activity.wait_until_silent(long, long)).await;
        assert_eq!((closes.is_ok(), activity.idle_since()), (true, None));
    }

    #[tokio::test]
    async fn connection_is_idle_since_its_last_use() {
        let activity = Arc::new(Activity::new());
        let at_first = activity.idle_since();
        let pause = || tokio::time::sleep(Duration::from_millis(5));
        pause().await;
        assert_eq!(activity.idle_since(), at_first);
        drop(activity.begin(false));
        let used = activity.idle_since();
        assert!(used > at_first);
        pause().await;
        activity.note_received();
        assert!(activity.idle_since() > used, "another request begins");
        activity.end_http();
        assert_eq!((activity.idle_since(), activity.close_if_idle()), (None, false), "it is a web socket by now");
    }
}
