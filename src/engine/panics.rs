//! Panics: bugs in ratchet or in its dependencies. Each panic is handled like any other failure of the code that was
//! running.
//!
//! - [`install_hook`] logs every panic of any thread, in one event with its location, and counts it
//! - [`caught`] catches panics: of a task's part of the work, of a lane, of the watch
//!
//! **Why it is sound to continue**: any state that a panic may have left inconsistent is dropped and recreated from the
//! state that Kafka has committed. A task's part of the work changes the task, the lane's memory for batches and its
//! producer: the task is recreated and restores, the memory is recreated, the producer is dropped with its transaction.
//! Any other panic in a lane ends the whole lane. Stores change only in whole batches, each after Kafka's commit. State
//! that lanes share is behind locks, and each change of it is a single call.
//!
//! **A record that makes its task panic** must not do so for ever, nor on one instance after another: the task
//! restores and retries. After [`PANICS_MAX`] panics in a row it processes the records before that record, and stops. A
//! task also stops if its sweeper panics that often before it has completed a walk through all keys, however long that
//! takes and whatever is committed meanwhile.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};

use crate::observe::Metrics;

/// How often in a row a task may panic at the same point before it stops.
pub const PANICS_MAX: u32 = 3;

thread_local! {
    /// Where this thread last panicked; set only once [`install_hook`] was called.
    static LOCATION: Cell<Option<String>> = const { Cell::new(None) };
}

/// A caught panic: its message, and its location if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic(String);

impl std::fmt::Display for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of the names of threads on which functions of the user run.
const HANDLER_THREADS_PREFIX: &str = "calls-";

/// Installs a hook that logs each panic of any thread of this process as one event, and counts it. If a backtrace is
/// requested (`RUST_BACKTRACE`), it is printed as well.
pub fn install_hook(metrics: Metrics) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
        let reason = message(info.payload()).unwrap_or_default();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        match thread.starts_with(HANDLER_THREADS_PREFIX) {
            true => tracing::error!(
                place,
                reason,
                thread,
                "a handler, or the code that makes calls, has panicked: the attempt has failed"
            ),
            false => {
                tracing::error!(place, reason, thread, "panicked: this is a bug in ratchet; report it with this line");
            }
        }
        metrics.panicked();
        print_backtrace(&print, info);
        LOCATION.set(Some(place));
    }));
}

fn print_backtrace(print: &dyn Fn(&PanicHookInfo<'_>), info: &PanicHookInfo<'_>) {
    if Backtrace::capture().status() == BacktraceStatus::Captured {
        print(info);
    }
}

/// Runs `work` and catches its panic. The caller has to drop whatever `work` may have left half changed.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| match message(&*payload) {
        Some(message) => Panic(match LOCATION.take() {
            Some(location) => format!("{message} ({location})"),
            None => message,
        }),
        // The panic was not raised by `panic!`: the stack is unwound on purpose.
        None => panic::resume_unwind(payload),
    })
}

/// A panic's message, as one line.
fn message(payload: &(dyn Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    text.map(|text| text.replace(char::is_control, " "))
}

/// The work during which a task panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InProgress {
    /// The record at this offset.
    Record(i64),
    /// A walk of the sweeper.
    Walk,
    /// Other work.
    Nothing,
}

impl InProgress {
    /// The record's offset.
    pub fn record(self) -> Option<i64> {
        match self {
            Self::Record(offset) => Some(offset),
            Self::Walk | Self::Nothing => None,
        }
    }
}

/// A task's panics since its last progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panics {
    /// The offset of the record in progress; `None` if no record was in progress.
    at: Option<i64>,
    /// How many times in a row the task has panicked there.
    times: u32,
    /// How many times the sweeper has panicked since it last completed a walk.
    walk_times: u32,
    /// The message of the last panic.
    message: String,
}

impl Panics {
    /// Counts another panic during the work `at`. A record at a higher offset shows that the task got past the former
    /// record.
    pub fn add(&mut self, at: InProgress, panic: &Panic) {
        self.message.clone_from(&panic.0);
        if at == InProgress::Walk {
            self.walk_times += 1;
            return;
        }
        let at = at.record();
        let is_further = at.is_some_and(|at| self.at.is_some_and(|former| at > former));
        self.times = if is_further { 1 } else { self.times + 1 };
        self.at = at.or(self.at);
    }

    /// Called when all records before `next` are committed.
    pub fn on_commit(&mut self, next: i64) {
        if self.at.is_none_or(|at| next > at) {
            (self.at, self.times) = (None, 0);
        }
    }

    /// Called when the sweeper has completed a walk.
    pub fn on_walk_end(&mut self) {
        self.walk_times = 0;
    }

    /// How many times in a row the task has panicked.
    pub fn times(&self) -> u32 {
        self.times.max(self.walk_times)
    }

    /// Whether the task must not retry.
    pub fn are_too_many(&self) -> bool {
        self.times() >= PANICS_MAX
    }

    /// The offset before which the task stops.
    pub fn stop_before(&self) -> Option<i64> {
        self.at.filter(|_| self.times >= PANICS_MAX)
    }
}

/// The reason why the task stops.
impl std::fmt::Display for Panics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (times, message) = (self.times(), &self.message);
        write!(f, "panicked {times} times in a row: {message}; this is a bug in ratchet: report it with this line")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panic() -> Panic {
        Panic("no".to_owned())
    }

    #[test]
    fn panic_is_caught_with_its_message_as_one_line() {
        assert_eq!(caught(|| 1), Ok(1));
        let caught = caught(|| -> u8 { panic!("first\nsecond {}", 2) }).unwrap_err();
        assert!(caught.to_string().starts_with("first second 2"), "{caught}");
    }

    #[test]
    fn unwinding_without_a_panic_passes_through() {
        struct Unwinding;
        let thrown = panic::catch_unwind(|| caught(|| -> u8 { panic::resume_unwind(Box::new(Unwinding)) }));
        assert!(thrown.unwrap_err().is::<Unwinding>());
    }

    #[test]
    fn task_stops_at_a_record_that_panics_three_times_in_a_row() {
        let mut panics = Panics::default();
        for _ in 1..PANICS_MAX {
            panics.add(InProgress::Record(7), &panic());
            assert_eq!(panics.stop_before(), None);
        }
        panics.on_commit(7);
        panics.add(InProgress::Record(7), &panic());
        assert_eq!(panics.stop_before(), Some(7), "a commit before the record is no progress");
    }

    #[test]
    fn panics_are_forgotten_once_the_task_gets_past_them() {
        let mut panics = Panics::default();
        panics.add(InProgress::Record(7), &panic());
        panics.add(InProgress::Record(7), &panic());
        panics.add(InProgress::Record(8), &panic());
        assert_eq!(panics.times(), 1);
        panics.on_commit(9);
        assert_eq!(panics.times(), 0);
        assert!(!panics.are_too_many());
    }

    #[test]
    fn panics_in_restores_count_until_a_commit() {
        let mut panics = Panics::default();
        (0..PANICS_MAX).for_each(|_| panics.add(InProgress::Nothing, &panic()));
        assert!(panics.are_too_many());
        assert_eq!(panics.stop_before(), None);
        panics.on_commit(0);
        assert!(!panics.are_too_many());
    }

    #[test]
    fn panics_in_walks_count_across_commits() {
        let mut panics = Panics::default();
        for next in 1..i64::from(PANICS_MAX) {
            panics.add(InProgress::Walk, &panic());
            panics.on_commit(next * 1_000);
            assert!(!panics.are_too_many());
        }
        panics.add(InProgress::Walk, &panic());
        assert!(panics.are_too_many());
        assert_eq!(panics.stop_before(), None, "no record is at fault");
        assert!(panics.to_string().starts_with("panicked 3 times in a row: no"), "{panics}");
    }

    #[test]
    fn completed_walk_forgets_earlier_panics_in_walks() {
        let mut panics = Panics::default();
        (1..PANICS_MAX).for_each(|_| panics.add(InProgress::Walk, &panic()));
        panics.on_walk_end();
        panics.add(InProgress::Walk, &panic());
        assert_eq!(panics.times(), 1);
        // A completed walk does not affect the panics at a record.
        panics.add(InProgress::Record(7), &panic());
        panics.add(InProgress::Record(7), &panic());
        panics.on_walk_end();
        panics.add(InProgress::Record(7), &panic());
        assert_eq!(panics.stop_before(), Some(7));
    }
}
