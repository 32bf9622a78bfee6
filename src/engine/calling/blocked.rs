//! Watches the thread on which a lane's handlers run. A function that blocks it stops all handlers and their timeouts,
//! its own included, since timeouts run on the same thread. No timeout can end it, so it is reported.

use std::time::Duration;

use crate::effect::provider::CallNumber;
use crate::engine::context::Context;

use super::{Calling, Windows};

/// How long a function has to block its thread before that is reported: a shorter time may be a busy machine.
const BLOCKED_MIN: Duration = Duration::from_secs(5);
/// How often it is reported again.
const SAY_INTERVAL: Duration = Duration::from_secs(30);

/// The last report of a blocked thread.
#[derive(Debug, Default)]
pub struct Blocked {
    /// The call that blocks it, and when that was last reported, on the monotonic clock.
    said: Option<(CallNumber, Duration)>,
}

/// What there is to report.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Nothing,
    Blocks,
    Over,
}

impl Blocked {
    fn look(&mut self, blocked: Option<CallNumber>, now: Duration) -> Word {
        match (blocked, self.said) {
            (None, None) => Word::Nothing,
            (None, Some(_)) => {
                self.said = None;
                Word::Over
            }
            (Some(number), Some((said, at))) if said == number && now.saturating_sub(at) < SAY_INTERVAL => {
                Word::Nothing
            }
            (Some(number), _) => {
                self.said = Some((number, now));
                Word::Blocks
            }
        }
    }
}

impl Calling {
    /// Reports when a handler blocks the lane's handlers, and when that is over.
    pub(super) fn watch(&mut self, context: &Context, windows: &mut impl Windows) {
        let blocked = self.calls.blocked().filter(|(_, since)| *since >= BLOCKED_MIN);
        self.metrics.blocked(blocked.is_some());
        let word = self.blocked.look(blocked.map(|(number, _)| number), context.clock.monotonic());
        let topology = &context.topology.name;
        match (word, blocked) {
            (Word::Blocks, Some((number, since))) => {
                let owner = self.under_way.get(&number).copied();
                let place = owner.and_then(|(id, offset)| {
                    let window = windows.window(id)?;
                    Some(window.slot(window.find(offset)?).place())
                });
                tracing::warn!(
                    topology,
                    record = place,
                    blocked_s = since.as_secs(),
                    "a handler has kept its thread since without an await: the lane's other handlers wait, and no timeout \
                     ends it; move what blocks or computes for long into tokio::task::spawn_blocking"
                );
            }
            (Word::Over, _) => tracing::info!(topology, "the handler no longer blocks its thread"),
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
            (None, 0, Word::Nothing),
            (Some(7), 5, Word::Blocks),
            (Some(7), 34, Word::Nothing),
            (Some(7), 35, Word::Blocks),
            (Some(8), 36, Word::Blocks),
            (None, 37, Word::Over),
            (None, 38, Word::Nothing),
            (Some(8), 39, Word::Blocks),
        ];
        for (number, at, expected) in looks {
            assert_eq!(blocked.look(number, second(at)), expected, "{number:?} at {at}");
        }
    }
}
