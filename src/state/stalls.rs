//! Disk calls in progress, so that one that does not return can be reported.
//!
//! Such a call cannot be given up: its caller waits, a lane with all of its partitions. It cannot report that
//! itself; an observer does, using [`longest`].
//!
//! Invariant: the list is for the whole process, and a call is removed from it when it ends, however it ends.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A disk stalls if it takes longer than this for a call.
pub const STALL_MIN: Duration = Duration::from_secs(5);

static IN_PROGRESS: Mutex<Vec<Call>> = Mutex::new(Vec::new());

struct Call {
    number: u64,
    path: PathBuf,
    what: &'static str,
    since: Instant,
}

/// A disk call that stalls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The store's folder.
    pub path: PathBuf,
    /// The operation.
    pub what: &'static str,
    /// How long it has been in progress.
    pub lasts: Duration,
}

fn in_progress() -> MutexGuard<'static, Vec<Call>> {
    IN_PROGRESS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "a disk takes real time")]
fn now() -> Instant {
    Instant::now()
}

/// The call that has been in progress longest, if longer than `STALL_MIN`.
pub fn longest() -> Option<Stall> {
    longest_of(&in_progress(), now())
}

fn longest_of(calls: &[Call], now: Instant) -> Option<Stall> {
    let first = calls.iter().min_by_key(|call| call.since)?;
    let lasts = now.saturating_duration_since(first.since);
    (lasts >= STALL_MIN).then(|| Stall { path: first.path.clone(), what: first.what, lasts })
}

/// A call in progress, until dropped.
pub(super) struct DiskCall {
    number: u64,
}

impl DiskCall {
    /// Records the start of a call.
    pub fn begin(path: &Path, what: &'static str) -> Self {
        let mut calls = in_progress();
        // Later calls come after it.
        let number = calls.last().map_or(0, |last| last.number + 1);
        calls.push(Call { number, path: path.to_owned(), what, since: now() });
        Self { number }
    }
}

impl Drop for DiskCall {
    fn drop(&mut self) {
        in_progress().retain(|call| call.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_call_is_reported_once_it_stalls() {
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
    fn call_is_listed_until_it_ends() {
        let (one, other) = (Path::new("stalls-one"), Path::new("stalls-other"));
        let noted = |path: &Path| in_progress().iter().filter(|call| call.path == path).count();
        let first = DiskCall::begin(one, "flush");
        let second = DiskCall::begin(one, "write");
        let third = DiskCall::begin(other, "open");
        drop(first);
        assert_eq!((noted(one), noted(other)), (1, 1));
        drop(third);
        drop(second);
        assert_eq!((noted(one), noted(other)), (0, 0));
    }
}
