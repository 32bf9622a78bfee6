//! Lists the disk calls in progress, so that a call that does not return can be reported.
//!
//! Such a call cannot be abandoned: the lane (the thread) that made it waits, with all of its partitions. The lane
//! cannot report the stall itself; another thread does, using [`longest`].
//!
//! Invariant: the list is for the whole process, and each call is removed from it when it ends, even by a panic.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A disk call that takes at least this long counts as stalled.
pub const STALL_MIN: Duration = Duration::from_secs(5);

static IN_PROGRESS: Mutex<Vec<Call>> = Mutex::new(Vec::new());

/// A call in progress.
struct Call {
    number: u64,
    path: PathBuf,
    operation: &'static str,
    began: Instant,
}

/// A disk call that has stalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The store's folder, or the folder that the call syncs.
    pub path: PathBuf,
    /// The operation.
    pub operation: &'static str,
    /// How long the call has been in progress.
    pub duration: Duration,
}

fn in_progress() -> MutexGuard<'static, Vec<Call>> {
    IN_PROGRESS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "a disk takes real time")]
fn now() -> Instant {
    Instant::now()
}

/// The call that has been in progress longest, if for at least `STALL_MIN`.
pub fn longest() -> Option<Stall> {
    longest_of(&in_progress(), now())
}

fn longest_of(calls: &[Call], now: Instant) -> Option<Stall> {
    let longest = calls.iter().min_by_key(|call| call.began)?;
    let duration = now.saturating_duration_since(longest.began);
    (duration >= STALL_MIN).then(|| Stall { path: longest.path.clone(), operation: longest.operation, duration })
}

/// Lists a call as in progress until this is dropped.
pub(super) struct DiskCall {
    number: u64,
}

impl DiskCall {
    /// Lists a call that begins now: `operation` on the store or folder at `path`.
    pub fn begin(path: &Path, operation: &'static str) -> Self {
        let mut calls = in_progress();
        // Calls are listed in the order of their numbers, so the last one has the highest.
        let number = calls.last().map_or(0, |last| last.number + 1);
        calls.push(Call { number, path: path.to_owned(), operation, began: now() });
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
        let call = |number, operation, duration| Call {
            number,
            path: PathBuf::from("store"),
            operation,
            began: now - duration,
        };
        let second = Duration::from_secs(1);
        assert_eq!(longest_of(&[], now), None);
        assert_eq!(longest_of(&[call(0, "flush", STALL_MIN - second)], now), None);
        let calls = [call(1, "write", second), call(2, "flush", STALL_MIN + second), call(3, "open", STALL_MIN)];
        let duration = STALL_MIN + second;
        assert_eq!(longest_of(&calls, now), Some(Stall { path: PathBuf::from("store"), operation: "flush", duration }));
    }

    #[test]
    fn call_is_listed_until_it_ends() {
        let (one, other) = (Path::new("stalls-one"), Path::new("stalls-other"));
        let calls_on = |path: &Path| in_progress().iter().filter(|call| call.path == path).count();
        let first = DiskCall::begin(one, "flush");
        let second = DiskCall::begin(one, "write");
        let third = DiskCall::begin(other, "open");
        drop(first);
        assert_eq!((calls_on(one), calls_on(other)), (1, 1));
        drop(third);
        drop(second);
        assert_eq!((calls_on(one), calls_on(other)), (0, 0));
    }
}
