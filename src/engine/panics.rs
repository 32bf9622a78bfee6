//! Panics: bugs in ratchet, or in what it is built on. Each is treated like any other trouble of whatever was at work.
//!
//! - [`install_hook`] logs every panic of any thread, in one event with its location, and counts it
//! - [`caught`] ends one: around a task's part of the work, around a lane, around the watch
//!
//! **Why continuing is sound**: whatever a panic may have left half changed is dropped and recreated from what Kafka
//! has committed. A task's part of the work changes the task, the lane's memory for batches and its producer: the task
//! is recreated and restores, the memory is recreated, the producer is dropped with its transaction. Anything else in a
//! lane takes the whole lane down. Stores change only in whole batches, each after Kafka's commit; what lanes share is
//! behind locks, and each change of it is one call.
//!
//! **A record that makes its task panic** must not do so for ever, nor move on from instance to instance: the task
//! restores and tries again, and at the [`PANICS_MAX`]-th time in a row it processes what comes before the record, and
//! stops there. A task also stops if its sweeper panics that often before it has once got through all keys, however
//! long that takes and whatever is committed meanwhile.

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

/// How the threads are named on which functions of the user's run.
const HANDLERS: &str = "calls-";

/// From now on each panic of any thread of this process is one log event, and counted. If a backtrace is requested
/// (`RUST_BACKTRACE`), it is printed as well.
pub fn install_hook(metrics: Metrics) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
        let reason = words(info.payload()).unwrap_or_default();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        match thread.starts_with(HANDLERS) {
            true => tracing::error!(place, reason, thread, "a handler, or what calls, has panicked: it is tried again"),
            false => {
                tracing::error!(
                    place,
                    reason,
                    thread,
                    "panicked: this is a mistake in ratchet; report it with this line"
                );
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
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| match words(&*payload) {
        Some(words) => Panic(match LOCATION.take() {
            Some(location) => format!("{words} ({location})"),
            None => words,
        }),
        // Not raised by `panic!`: somebody unwinds this stack on purpose.
        None => panic::resume_unwind(payload),
    })
}

/// A panic's message, as one line.
fn words(payload: &(dyn Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    text.map(|text| text.replace(char::is_control, " "))
}

/// What a task was working on when it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InProgress {
    /// The record at this offset.
    Record(i64),
    /// A walk of the sweeper.
    Walk,
    /// Neither.
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

/// A task's panics since it last got past the record in question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panics {
    /// The record being worked on; `None` if there was none.
    at: Option<i64>,
    times: u32,
    /// How often since the sweeper last completed a walk.
    walks: u32,
    words: String,
}

impl Panics {
    /// Counts another panic while working on `at`. A record further on shows that the task got past the former one.
    pub fn note(&mut self, at: InProgress, panic: &Panic) {
        self.words.clone_from(&panic.0);
        if at == InProgress::Walk {
            self.walks += 1;
            return;
        }
        let at = at.record();
        let is_further = at.is_some_and(|at| self.at.is_some_and(|former| at > former));
        self.times = if is_further { 1 } else { self.times + 1 };
        self.at = at.or(self.at);
    }

    /// Everything before `next` is committed.
    pub fn pass(&mut self, next: i64) {
        if self.at.is_none_or(|at| next > at) {
            (self.at, self.times) = (None, 0);
        }
    }

    /// The sweeper has completed a walk.
    pub fn walk_ended(&mut self) {
        self.walks = 0;
    }

    /// How many times in a row.
    pub fn times(&self) -> u32 {
        self.times.max(self.walks)
    }

    /// Whether the task must not try again.
    pub fn are_too_many(&self) -> bool {
        self.times() >= PANICS_MAX
    }

    /// The offset before which the task stops.
    pub fn stop_before(&self) -> Option<i64> {
        self.at.filter(|_| self.times >= PANICS_MAX)
    }
}

/// Why the task stops.
impl std::fmt::Display for Panics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (times, words) = (self.times(), &self.words);
        write!(f, "panicked {times} times in a row: {words}; this is a mistake in ratchet: report it with this line")
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
            panics.note(InProgress::Record(7), &panic());
            assert_eq!(panics.stop_before(), None);
        }
        panics.pass(7);
        panics.note(InProgress::Record(7), &panic());
        assert_eq!(panics.stop_before(), Some(7), "what comes before it is no progress");
    }

    #[test]
    fn panics_are_forgotten_once_the_task_gets_past_them() {
        let mut panics = Panics::default();
        panics.note(InProgress::Record(7), &panic());
        panics.note(InProgress::Record(7), &panic());
        panics.note(InProgress::Record(8), &panic());
        assert_eq!(panics.times(), 1);
        panics.pass(9);
        assert_eq!(panics.times(), 0);
        assert!(!panics.are_too_many());
    }

    #[test]
    fn panics_in_restores_count_until_a_commit() {
        let mut panics = Panics::default();
        (0..PANICS_MAX).for_each(|_| panics.note(InProgress::Nothing, &panic()));
        assert!(panics.are_too_many());
        assert_eq!(panics.stop_before(), None);
        panics.pass(0);
        assert!(!panics.are_too_many());
    }

    #[test]
    fn panics_in_walks_count_across_commits() {
        let mut panics = Panics::default();
        for next in 1..i64::from(PANICS_MAX) {
            panics.note(InProgress::Walk, &panic());
            panics.pass(next * 1_000);
            assert!(!panics.are_too_many());
        }
        panics.note(InProgress::Walk, &panic());
        assert!(panics.are_too_many());
        assert_eq!(panics.stop_before(), None, "no record is to blame");
        assert!(panics.to_string().starts_with("panicked 3 times in a row: no"), "{panics}");
    }

    #[test]
    fn completed_walk_forgets_earlier_panics_in_walks() {
        let mut panics = Panics::default();
        (1..PANICS_MAX).for_each(|_| panics.note(InProgress::Walk, &panic()));
        panics.walk_ended();
        panics.note(InProgress::Walk, &panic());
        assert_eq!(panics.times(), 1);
        // It does not concern those of a record.
        panics.note(InProgress::Record(7), &panic());
        panics.note(InProgress::Record(7), &panic());
        panics.walk_ended();
        panics.note(InProgress::Record(7), &panic());
        assert_eq!(panics.stop_before(), Some(7));
    }
}
