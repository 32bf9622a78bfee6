//! Calls to a disk that are under way, so that somebody can tell of one that does not answer.
//!
//! Such a call cannot be given up: whoever made it waits with it, a lane with all of its partitions. It cannot say so
//! either; whoever watches does, by [`longest`].
//!
//! Invariant: what is noted is of the whole process, and gone when its call has ended, however it ends.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A disk that takes longer than this for a call stalls.
pub const STALL_MIN: Duration = Duration::from_secs(5);

static UNDER_WAY: Mutex<Vec<Call>> = Mutex::new(Vec::new());

struct Call {
    number: u64,
    path: PathBuf,
    what: &'static str,
    since: Instant,
}

/// A call to a disk that stalls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The store's folder.
    pub path: PathBuf,
    /// What it was asked to do.
    pub what: &'static str,
    /// For how long the answer has been waited for.
    pub lasts: Duration,
}

fn under_way() -> MutexGuard<'static, Vec<Call>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "a disk takes real time")]
fn now() -> Instant {
    Instant::now()
}

/// The call that has been under way for longest, if that is longer than `STALL_MIN`.
pub fn longest() -> Option<Stall> {
    longest_of(&under_way(), now())
}

fn longest_of(calls: &[Call], now: Instant) -> Option<Stall> {
    let first = calls.iter().min_by_key(|call| call.since)?;
    let lasts = now.saturating_duration_since(first.since);
    (lasts >= STALL_MIN).then(|| Stall { path: first.path.clone(), what: first.what, lasts })
}

/// A call under way, until it is dropped.
pub(super) struct Waiting {
    number: u64,
}

impl Waiting {
    /// Notes a call that begins.
    pub fn for_disk(path: &Path, what: &'static str) -> Self {
        let mut calls = under_way();
        // Those that begin later are behind it.
        let number = calls.last().map_or(0, |last| last.number + 1);
        calls.push(Call { number, path: path.to_owned(), what, since: now() });
        Self { number }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        under_way().retain(|call| call.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_that_lasts_longest_is_told_once_it_lasts_for_long() {
        let now = now() + 2 * STALL_MIN;
        let call = |number, what, lasts| Call { number, path: PathBuf::from("store"), what, since: now - lasts };
        let second = Duration::from_secs(1);
        assert_eq!(longest_of(&[], now), None);
        assert_eq!(longest_of(&[call(0, "flush", STALL_MIN - second)], now), None);
        let calls = [call(1, "write", second), call(2, "flush", STALL_MIN + second), call(3, "open", STALL_MIN)];
        let lasts = STALL_MIN + second;
        assert_eq!(longest_of(&calls, now), Some(Stall { path: PathBuf::from("store"), what: "flush", lasts }));
    }

    #[test]
    fn a_call_is_noted_until_it_ends() {
        let (one, other) = (Path::new("stalls-one"), Path::new("stalls-other"));
        let noted = |path: &Path| under_way().iter().filter(|call| call.path == path).count();
        let first = Waiting::for_disk(one, "flush");
        let second = Waiting::for_disk(one, "write");
        let third = Waiting::for_disk(other, "open");
        drop(first);
        assert_eq!((noted(one), noted(other)), (1, 1));
        drop(third);
        drop(second);
        assert_eq!((noted(one), noted(other)), (0, 0));
    }
}
