//! Trouble with a topology's sink: which tasks wait for it, and what was said about it.
//!
//! A lane tries again every few seconds, for each of its tasks. So each reason is logged once, again every
//! minute while it lasts, and the end of it all once.

use std::time::Duration;

/// How often a reason that lasts is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long a row cannot be claimed before that is logged, if it passes by itself: its former owner may be committing,
/// or may be gone.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);
/// How many reasons are kept. A reason that names something new each time is logged each time.
const REASONS_MAX: usize = 16;

/// A task's wait for the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Since when, on the monotonic clock.
    since: Duration,
    /// Whether a commit has failed. Then only a commit ends it: a claim says nothing about the statements.
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

    /// What is left of it once the row is claimed.
    pub fn claimed(self) -> Option<Self> {
        self.at_commit.then_some(self)
    }

    /// Whether it has lasted long enough for claims in vain to be logged.
    pub fn is_long(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= CLAIM_PATIENCE
    }
}

/// The reasons that were logged since the sink last worked, and when each was logged last.
#[derive(Debug, Default)]
pub struct Said(Vec<(String, Duration)>);

impl Said {
    /// Whether this reason is to be logged now.
    pub fn is_due(&mut self, reason: &str, now: Duration) -> bool {
        if let Some((_, logged)) = self.0.iter_mut().find(|(said, _)| said == reason) {
            let is_due = now.saturating_sub(*logged) >= LOG_INTERVAL;
            if is_due {
                *logged = now;
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

    /// Forgets everything. Returns whether anything was logged.
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
        let mut said = Said::default();
        let at: Vec<u32> = (0..150).filter(|at| said.is_due("no table", SECOND * *at)).collect();
        assert_eq!(at, [0, 60, 120]);
        // Another one in between is no reason to repeat the first.
        assert!(said.is_due("no right", SECOND * 150));
        assert!(!said.is_due("no table", SECOND * 151) && !said.is_due("no right", SECOND * 152));
        assert!(said.forget() && !said.forget());
        assert!(said.is_due("no table", SECOND * 153), "it has worked in between");
    }

    #[test]
    fn reasons_are_bounded() {
        let mut said = Said::default();
        for number in 0..1_000 {
            assert!(said.is_due(&number.to_string(), SECOND * number));
        }
        assert_eq!(said.0.len(), REASONS_MAX);
        assert!(!said.is_due("999", SECOND * 1_000), "the last ones are kept");
    }

    #[test]
    fn claim_ends_only_a_wait_that_began_with_one() {
        let of_claim = Wait::of_claim(None, SECOND);
        assert!(!of_claim.is_long(SECOND * 5) && of_claim.is_long(SECOND * 6));
        assert_eq!(Wait::of_claim(Some(of_claim), SECOND * 9), of_claim, "it lasts since its beginning");
        assert_eq!(of_claim.claimed(), None);
        let of_commit = Wait::of_commit(Some(of_claim), SECOND * 9);
        assert_eq!(of_commit.claimed(), Some(of_commit));
        assert_eq!(Wait::of_claim(Some(of_commit), SECOND * 9).claimed(), Some(of_commit));
        assert!(of_commit.is_long(SECOND * 6));
    }
}
