//! Detects tasks that make no progress: they fail repeatedly, without a commit in between.
//!
//! A task that has failed, is active again and fails no more is not failing, even if it does not commit: it may wait
//! behind another producer's open transaction, or read a long changelog.

use std::time::Duration;

/// How long a task may fail without a commit before the instance is not ready: a restart of a broker takes less.
const TOLERATED: Duration = Duration::from_secs(30);

/// A task's failures since its last commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failing {
    /// When it began to fail while there was something to commit.
    since: Option<Duration>,
    /// The number of failures at the last update, and when that number was reached.
    last_count: (u32, Duration),
}

impl Failing {
    /// Updates the number of the task's failures since its last commit, whether it is active again, and whether there
    /// is something to commit. Returns whether the failures have lasted for too long.
    pub fn update(&mut self, failures: u32, is_at_work: bool, has_more: bool, now: Duration) -> bool {
        if failures != self.last_count.0 {
            self.last_count = (failures, now);
        }
        let has_recovered = is_at_work && now.saturating_sub(self.last_count.1) >= TOLERATED;
        let fails = failures > 0 && has_more && !has_recovered;
        self.since = fails.then(|| self.since.unwrap_or(now));
        self.since.is_some_and(|since| now.saturating_sub(since) >= TOLERATED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first second, of two minutes, in which a task is reported as failing.
    fn first_failing_second(failures: impl Fn(u32) -> u32, is_at_work: bool, has_more: bool) -> Option<u32> {
        let mut failing = Failing::default();
        (0..120).find(|at| failing.update(failures(*at), is_at_work, has_more, Duration::from_secs((*at).into())))
    }

    #[test]
    fn task_that_fails_repeatedly_is_reported_as_failing() {
        for is_at_work in [false, true] {
            assert_eq!(first_failing_second(|at| 1 + at / 10, is_at_work, true), Some(30));
        }
    }

    #[test]
    fn task_that_is_still_restoring_is_reported_as_failing() {
        assert_eq!(first_failing_second(|_| 1, false, true), Some(30));
    }

    /// Behind an open transaction of a producer, or while it reads a long changelog.
    #[test]
    fn task_that_is_active_again_is_not_failing() {
        assert_eq!(first_failing_second(|_| 1, true, true), None);
        assert_eq!(first_failing_second(|at| (at / 100).min(1), true, true), None);
    }

    #[test]
    fn task_that_has_committed_or_has_nothing_to_commit_is_not_failing() {
        assert_eq!(first_failing_second(|_| 0, false, true), None);
        assert_eq!(first_failing_second(|at| 1 + at / 10, false, false), None);
        assert_eq!(first_failing_second(|at| if at % 20 < 15 { 1 } else { 0 }, false, true), None);
    }
}
