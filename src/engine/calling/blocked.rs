//! Watches the thread on which a lane's handlers (the user's functions that carry out calls) run. A handler that blocks
//! the thread stops all handlers and all timeouts, its own included, since timeouts run on the same thread. No timeout
//! can end it, so it is reported.

use std::time::Duration;

use crate::effect::provider::CallNumber;
use crate::engine::context::Context;

use super::{Calling, Windows};

/// How long a handler has to block its thread before that is reported: a shorter time may be a busy machine.
const BLOCKED_MIN: Duration = Duration::from_secs(5);
/// The interval between reports of a thread that stays blocked.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// The last report of a blocked thread.
#[derive(Debug, Default)]
pub struct Blocked {
    /// The call that blocks the thread, and when that was last reported, on the monotonic clock.
    last: Option<(CallNumber, Duration)>,
}

/// What to report after a check.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    Nothing,
    Blocked,
    Released,
}

impl Blocked {
    /// What to report now; `blocking_call` is the call whose handler blocks the thread, if any.
    fn next_report(&mut self, blocking_call: Option<CallNumber>, now: Duration) -> Report {
        match (blocking_call, self.last) {
            (None, None) => Report::Nothing,
            (None, Some(_)) => {
                self.last = None;
                Report::Released
            }
            (Some(number), Some((last, reported_at)))
                if last == number && now.saturating_sub(reported_at) < REPORT_INTERVAL =>
            {
                Report::Nothing
            }
            (Some(number), _) => {
                self.last = Some((number, now));
                Report::Blocked
            }
        }
    }
}

impl Calling {
    /// Reports when a handler blocks the lane's other handlers, and when that is over.
    pub(super) fn report_blocked(&mut self, context: &Context, windows: &mut impl Windows) {
        let blocked = self.calls.blocked().filter(|(_, blocked_for)| *blocked_for >= BLOCKED_MIN);
        self.metrics.blocked(blocked.is_some());
        let report = self.blocked.next_report(blocked.map(|(number, _)| number), context.clock.monotonic());
        let topology = &context.topology.name;
        match (report, blocked) {
            (Report::Blocked, Some((number, blocked_for))) => {
                let owner = self.under_way.get(&number).copied();
                let place = owner.and_then(|(id, offset)| {
                    let window = windows.window(id)?;
                    Some(window.slot(window.find(offset)?).place())
                });
                tracing::warn!(
                    topology,
                    record = place,
                    blocked_s = blocked_for.as_secs(),
                    "a handler blocks its thread: the lane's other handlers wait, and no timeout can end it; move \
                     blocking calls and long computations into tokio::task::spawn_blocking"
                );
            }
            (Report::Released, _) => tracing::info!(topology, "the handler no longer blocks its thread"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_thread_is_reported_at_intervals_and_its_release_once() {
        let mut blocked = Blocked::default();
        let second = Duration::from_secs;
        let checks = [
            (None, 0, Report::Nothing),
            (Some(7), 5, Report::Blocked),
            (Some(7), 34, Report::Nothing),
            (Some(7), 35, Report::Blocked),
            (Some(8), 36, Report::Blocked),
            (None, 37, Report::Released),
            (None, 38, Report::Nothing),
            (Some(8), 39, Report::Blocked),
        ];
        for (number, at, expected) in checks {
            assert_eq!(blocked.next_report(number, second(at)), expected, "{number:?} at {at}");
        }
    }
}
