//! Trouble with a topology's sink: the waits of its tasks, and the reasons that were logged.
//!
//! A lane retries every few seconds, for each of its tasks. So each reason is logged once, then again every minute
//! while it lasts, and the end of the trouble is logged once.

use std::time::Duration;

/// The interval between two log lines with the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long claims of a row may fail before that is logged, if the cause is transient: the row's former owner may be
/// committing, or may be gone.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);
/// How many reasons are remembered. A reason whose text differs each time is logged each time.
const REASONS_MAX: usize = 16;

/// A task's wait for the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When the wait began, on the monotonic clock.
    since: Duration,
    /// Whether a commit has failed. Then only a commit ends the wait: a claim does not show whether the statements
    /// succeed.
    at_commit: bool,
}

impl Wait {
    /// The wait of a task whose commit has failed.
    pub fn of_commit(former: Option<Self>, now: Duration) -> Self {
        Self { since: former.map_or(now, |wait| wait.since), at_commit: true }
    }

    /// The wait of a task whose row could not be claimed.
    pub fn of_claim(former: Option<Self>, now: Duration) -> Self {
        former.unwrap_or(Self { since: now, at_commit: false })
    }

    /// The wait that remains once the row is claimed, if any.
    pub fn claimed(self) -> Option<Self> {
        self.at_commit.then_some(self)
    }

    /// Whether the wait has lasted long enough for failed claims to be logged.
    pub fn is_long(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= CLAIM_PATIENCE
    }
}

/// The reasons that were logged since the sink last worked, and when each was logged last.
#[derive(Debug, Default)]
pub struct LoggedReasons(Vec<(String, Duration)>);

impl LoggedReasons {
    /// Whether to log this reason now. Assumes that the caller then logs it.
    pub fn is_due(&mut self, reason: &str, now: Duration) -> bool {
        if let Some((_, logged_at)) = self.0.iter_mut().find(|(known, _)| known == reason) {
            let is_due = now.saturating_sub(*logged_at) >= LOG_INTERVAL;
            if is_due {
                *logged_at = now;
            }
            return is_due;
        }
        if self.0.len() == REASONS_MAX {
            let oldest = (0..REASONS_MAX).min_by_key(|at| self.0[*at].1);
            oldest.into_iter().for_each(|at| drop(self.0.swap_remove(at)));
        }
        self.0.push((reason.to_owned(), now));
        true
    }

    /// Forgets all reasons. Returns whether any reason was logged.
    pub fn forget(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn reason_is_logged_once_and_then_each_minute() {
        let mut logged_reasons = LoggedReasons::default();
        let at: Vec<u32> = (0..150).filter(|at| logged_reasons.is_due("no table", SECOND * *at)).collect();
        assert_eq!(at, [0, 60, 120]);
        // Another reason in between does not cause the first to be repeated.
        assert!(logged_reasons.is_due("no right", SECOND * 150));
        assert!(!logged_reasons.is_due("no table", SECOND * 151) && !logged_reasons.is_due("no right", SECOND * 152));
        assert!(logged_reasons.forget() && !logged_reasons.forget());
        assert!(logged_reasons.is_due("no table", SECOND * 153), "the sink has worked in between");
    }

    #[test]
    fn number_of_remembered_reasons_is_bounded() {
        let mut logged_reasons = LoggedReasons::default();
        for number in 0..1_000 {
            assert!(logged_reasons.is_due(&number.to_string(), SECOND * number));
        }
        assert_eq!(logged_reasons.0.len(), REASONS_MAX);
        assert!(!logged_reasons.is_due("999", SECOND * 1_000), "the last reasons are remembered");
    }

    #[test]
    fn claim_ends_only_a_wait_that_began_with_a_claim() {
        let of_claim = Wait::of_claim(None, SECOND);
        assert!(!of_claim.is_long(SECOND * 5) && of_claim.is_long(SECOND * 6));
        assert_eq!(Wait::of_claim(Some(of_claim), SECOND * 9), of_claim, "the wait keeps its beginning");
        assert_eq!(of_claim.claimed(), None);
        let of_commit = Wait::of_commit(Some(of_claim), SECOND * 9);
        assert_eq!(of_commit.claimed(), Some(of_commit));
        assert_eq!(Wait::of_claim(Some(of_commit), SECOND * 9).claimed(), Some(of_commit));
        assert!(of_commit.is_long(SECOND * 6));
    }
}
