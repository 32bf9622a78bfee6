//! Watches the thread on which a lane's handlers run. A function that blocks it stops all handlers and their timeouts,
//! its own included, since timeouts run on the same thread. No timeout can end it, so it is reported.

use std::time::Duration;

use crate::effect::provider::CallNumber;
use crate::engine::context::Context;

use super::{Calling, Windows};

/// How long a function has to block its thread before that is reported: a shorter time may be a busy machine.
const BLOCKED_MIN: Duration = Duration::from_secs(5);
/// How often it is reported again.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// The last report of a blocked thread.
#[derive(Debug, Default)]
pub struct Blocked {
    /// The call that blocks it, and when that was last reported, on the monotonic clock.
    last: Option<(CallNumber, Duration)>,
}

/// What there is to report.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    Nothing,
    Blocks,
    Over,
}

impl Blocked {
    /// What to report now that `blocked` is the call whose handler blocks the thread, if one does.
    fn next_report(&mut self, blocked: Option<CallNumber>, now: Duration) -> Report {
        match (blocked, self.last) {
            (None, None) => Report::Nothing,
            (None, Some(_)) => {
                self.last = None;
                Report::Over
            }
            (Some(number), Some((last, reported_at)))
                if last == number && now.saturating_sub(reported_at) < REPORT_INTERVAL =>
            {
                Report::Nothing
            }
            (Some(number), _) => {
                self.last = Some((number, now));
                Report::Blocks
            }
        }
    }
}

impl Calling {
    /// Reports when a handler blocks the lane's other handlers, and when that is over.
    pub(super) fn report_blocked(&mut self, context: &Context, windows: &mut impl Windows) {
        let blocked = self.calls.blocked().filter(|(_, since)| *since >= BLOCKED_MIN);
        self.metrics.blocked(blocked.is_some());
        let report = self.blocked.next_report(blocked.map(|(number, _)| number), context.clock.monotonic());
        let topology = &context.topology.name;
        match (report, blocked) {
            (Report::Blocks, Some((number, since))) => {
                let owner = self.under_way.get(&number).copied();
                let place = owner.and_then(|(id, offset)| {
                    let window = windows.window(id)?;
                    Some(window.slot(window.find(offset)?).place())
                });
                tracing::warn!(
                    topology,
                    record = place,
                    blocked_s = since.as_secs(),
                    "a handler keeps its thread without an await: the lane's other handlers wait, and no timeout ends \
                     it; move what blocks or computes for long into tokio::task::spawn_blocking"
                );
            }
            (Report::Over, _) => tracing::info!(topology, "the handler no longer blocks its thread"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_thread_is_reported_at_intervals_and_once_when_it_is_free_again() {
        let mut blocked = Blocked::default();
        let second = Duration::from_secs;
        let looks = [
            (None, 0, Report::Nothing),
            (Some(7), 5, Report::Blocks),
            (Some(7), 34, Report::Nothing),
            (Some(7), 35, Report::Blocks),
            (Some(8), 36, Report::Blocks),
            (None, 37, Report::Over),
            (None, 38, Report::Nothing),
            (Some(8), 39, Report::Blocks),
        ];
        for (number, at, expected) in looks {
            assert_eq!(blocked.next_report(number, second(at)), expected, "{number:?} at {at}");
        }
    }
}
