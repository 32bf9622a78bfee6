//! The window of a key: it begins with the first attempt, and ends when the provider no longer honours the key.
//!
//! It is measured by the wall clocks of successive owners, since it has to outlive them; records' timestamps play no
//! part. A request must end within the window even if it takes as long as it may: a request that is written at the last
//! moment may arrive a whole timeout later.

use std::time::Duration;

use crate::sabotage::{self, Sabotage};

/// How long the provider honours a key, and the times that have to fit into the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyWindow {
    honoured_for_ms: i64,
    /// How long one attempt may take.
    timeout_ms: i64,
    /// By how much the clocks of owners and of the provider may differ.
    margin_ms: i64,
    /// Whether the window is checked when each step of an attempt begins, and not when the attempt begins.
    is_per_step: bool,
}

impl KeyWindow {
    /// A window in which the provider honours a key for `honoured_for`, one attempt takes `timeout` at most, and clocks
    /// differ by `margin` at most. `None` if the window is too short: two attempts, one after the other, have to fit
    /// in.
    pub fn new(honoured_for: Duration, timeout: Duration, margin: Duration) -> Option<Self> {
        let [honoured_for_ms, timeout_ms, margin_ms] = [honoured_for, timeout, margin].map(as_ms);
        let attempt_ms = timeout_ms.saturating_add(margin_ms);
        let is_per_step = false;
        let window = Self { honoured_for_ms, timeout_ms, margin_ms, is_per_step };
        (honoured_for_ms >= attempt_ms.saturating_mul(2)).then_some(window)
    }

    /// The same window, for attempts that consist of steps, each with its own key. Such an attempt may begin at any
    /// time: perhaps its next step needs no key, or no step is left.
    pub fn per_step(self) -> Self {
        Self { is_per_step: true, ..self }
    }

    /// How long the provider honours a key.
    pub fn honoured_for(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.honoured_for_ms).unwrap_or(0))
    }

    /// Whether a request may be written now, if the first one may have been written at `first_attempt_at_ms`; both
    /// times are by the wall clock, in milliseconds since the epoch. Must be checked when the request is written to the
    /// socket, even by owners that have lost their task: a written request cannot be stopped.
    pub fn allows(&self, first_attempt_at_ms: i64, now_ms: i64) -> bool {
        self.is_per_step || self.allows_step(first_attempt_at_ms, now_ms)
    }

    /// Whether a step of an attempt may begin now, if its first attempt may have begun at `first_attempt_at_ms`.
    pub fn allows_step(&self, first_attempt_at_ms: i64, now_ms: i64) -> bool {
        let window_end_ms = first_attempt_at_ms.saturating_add(self.honoured_for_ms);
        let attempt_end_ms = now_ms.saturating_add(self.timeout_ms).saturating_add(self.margin_ms);
        let is_within = !self.is_ahead(first_attempt_at_ms, now_ms) && attempt_end_ms < window_end_ms;
        is_within || sabotage::is_on(Sabotage::WindowNotLookedAt)
    }

    /// Whether a grant of `since_ms` permits calls to begin without their own reservation. It does for half of the
    /// window, so that the other half is left for later attempts.
    pub fn grants(&self, since_ms: i64, now_ms: i64) -> bool {
        !self.is_ahead(since_ms, now_ms) && now_ms.saturating_sub(since_ms) < self.honoured_for_ms / 2
    }

    /// Whether a time is in the future, because the clock has gone back or another owner's clock was ahead: then it is
    /// unknown how long ago that time was.
    fn is_ahead(&self, then_ms: i64, now_ms: i64) -> bool {
        then_ms > now_ms.saturating_add(self.margin_ms)
    }
}

fn as_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    //! Goal: no request is written that could arrive after the provider has stopped honouring its key.

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn window() -> KeyWindow {
        KeyWindow::new(SECOND * 100, SECOND * 10, SECOND * 5).unwrap()
    }

    #[test]
    fn request_is_allowed_while_it_ends_within_the_window() {
        let first = 1_000_000;
        let cases = [
            ("at once", 0, true),
            ("ending just within the window", 84_999, true),
            ("ending with the window", 85_000, false),
            ("when the window has passed", 100_000, false),
            ("long after the window", i64::MAX / 2, false),
            ("by a clock that is a little behind", -5_000, true),
            ("by a clock that has gone back", -5_001, false),
        ];
        for (case, after_ms, expected) in cases {
            assert_eq!(window().allows(first, first.saturating_add(after_ms)), expected, "{case}");
        }
        assert!(!window().allows(i64::MIN, i64::MAX) && !window().allows(i64::MAX, i64::MIN));
    }

    #[test]
    fn grant_permits_calls_for_half_of_the_window() {
        for (after_ms, expected) in [(0, true), (49_999, true), (50_000, false), (-5_000, true), (-5_001, false)] {
            assert_eq!(window().grants(7_000, 7_000 + after_ms), expected, "{after_ms}");
        }
    }

    #[test]
    fn window_allows_every_call_that_a_grant_permits() {
        for honoured in [30, 31, 60, 3_600] {
            let window = KeyWindow::new(SECOND * honoured, SECOND * 10, SECOND * 5).unwrap();
            for now_ms in (-10_000..i64::from(honoured) * 1_000).step_by(100) {
                assert!(!window.grants(0, now_ms) || window.allows(0, now_ms), "{honoured} s, {now_ms} ms");
            }
        }
    }

    #[test]
    fn attempt_of_steps_may_begin_at_any_time() {
        let per_step = window().per_step();
        for after_ms in [0, 84_999, 85_000, -5_001] {
            assert!(per_step.allows(1_000_000, 1_000_000 + after_ms), "{after_ms}");
            let (step, attempt) = (per_step.allows_step(0, after_ms), window().allows(0, after_ms));
            assert_eq!(step, attempt, "{after_ms}");
        }
    }

    #[test]
    fn window_that_is_too_short_is_refused() {
        for (honoured, expected) in [(29, false), (30, true)] {
            let window = KeyWindow::new(SECOND * honoured, SECOND * 10, SECOND * 5);
            assert_eq!(window.is_some(), expected, "{honoured} s");
        }
        assert!(KeyWindow::new(SECOND, Duration::MAX, Duration::MAX).is_none());
    }
}
