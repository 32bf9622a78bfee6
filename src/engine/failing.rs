//! Whether a task gets no further: it fails again and again, and has committed nothing since.
//!
//! A task that has failed, is at work again and fails no more is not failing, though it may have nothing to commit: it may
//! wait behind somebody's open transaction, or read a long changelog.

use std::time::Duration;

/// How long a task may fail without a commit before the instance is not ready: a restart of a broker takes less.
const LASTING: Duration = Duration::from_secs(30);

/// What is known of a task's failures since its last commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failing {
    /// Since when it fails, though there is something to commit.
    since: Option<Duration>,
    /// How many times it had failed when this was noted last, and since when there are that many.
    known: (u32, Duration),
}

impl Failing {
    /// Notes how many times a task has failed since its last commit, whether it is at work again, and whether there is
    /// something to commit. Whether its failures have lasted for too long.
    pub fn note(&mut self, failures: u32, is_at_work: bool, has_more: bool, now: Duration) -> bool {
        if failures != self.known.0 {
            self.known = (failures, now);
        }
        let has_recovered = is_at_work && now.saturating_sub(self.known.1) >= LASTING;
        let fails = failures > 0 && has_more && !has_recovered;
        self.since = fails.then(|| self.since.unwrap_or(now));
        self.since.is_some_and(|since| now.saturating_sub(since) >= LASTING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first second, of two minutes, in which a task is said to be failing.
    fn said(failures: impl Fn(u32) -> u32, is_at_work: bool, has_more: bool) -> Option<u32> {
        let mut failing = Failing::default();
        (0..120).find(|at| failing.note(failures(*at), is_at_work, has_more, Duration::from_secs((*at).into())))
    }

    #[test]
    fn task_that_fails_again_and_again_is_said_to_be_failing() {
        for is_at_work in [false, true] {
            assert_eq!(said(|at| 1 + at / 10, is_at_work, true), Some(30));
        }
    }

    #[test]
    fn task_that_is_still_on_its_way_back_is_said_to_be_failing() {
        assert_eq!(said(|_| 1, false, true), Some(30));
    }

    /// Behind an open transaction of a producer, or while it reads a long changelog.
    #[test]
    fn task_that_is_at_work_again_is_not() {
        assert_eq!(said(|_| 1, true, true), None);
        assert_eq!(said(|at| (at / 100).min(1), true, true), None);
    }

    #[test]
    fn task_that_has_committed_or_has_nothing_to_commit_is_not() {
        assert_eq!(said(|_| 0, false, true), None);
        assert_eq!(said(|at| 1 + at / 10, false, false), None);
        assert_eq!(said(|at| if at % 20 < 15 { 1 } else { 0 }, false, true), None);
    }
}
