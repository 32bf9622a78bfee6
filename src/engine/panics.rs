//! Panics: mistakes in ratchet, or in what it is built upon. Each is trouble like any other, of whoever was at work.
//!
//! - [`tell`] has every panic of any thread logged, in one event with its place, and counted
//! - [`caught`] ends one: around a task's share of work, around a lane, around the watch
//!
//! **Why going on is sound**: whatever a panic may have left half changed is dropped, and made anew from what Kafka has
//! committed. A task's share changes the task, the lane's memory for batches and its producer: the task is made anew and
//! restores, the memory is made anew, the producer is given up with its transaction. Anything else in a lane takes the
//! lane along. Stores are changed by whole batches only, each after Kafka's commit; what lanes share is behind
//! locks, each change of it one call.
//!
//! **A record that makes its task panic** must not do so for ever, nor walk through all instances: the task restores and
//! tries again, and at the [`PANICS_MAX`]-th time in a row it processes what comes before the record, and stops there. So
//! does a task that the sweeper panics in so often, before it has once come through all keys; however long that takes,
//! and whatever is committed meanwhile.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};

use crate::observe::Metrics;

/// How often in a row a task may panic at the same place, before it stops.
pub const PANICS_MAX: u32 = 3;

thread_local! {
    /// Where this thread has panicked last; only where [`tell`] was called.
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// A panic that was caught: its words, and its place where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic(String);

impl std::fmt::Display for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// From now on each panic of any thread of this process is one event of the log, and counted. Where a backtrace is
/// asked for (`RUST_BACKTRACE`), it is printed beside.
pub fn tell(metrics: Metrics) {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
        let reason = words(info.payload()).unwrap_or_default();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        tracing::error!(place, reason, thread, "panicked: this is a mistake in ratchet; report it with this line");
        metrics.panicked();
        print_backtrace(&print, info);
        PLACE.set(Some(place));
    }));
}

fn print_backtrace(print: &dyn Fn(&PanicHookInfo<'_>), info: &PanicHookInfo<'_>) {
    if Backtrace::capture().status() == BacktraceStatus::Captured {
        print(info);
    }
}

/// Does `work`, and catches its panic. What `work` may have left half changed is the caller's to drop.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| match words(&*payload) {
        Some(words) => Panic(match PLACE.take() {
            Some(place) => format!("{words} ({place})"),
            None => words,
        }),
        // Not a panic of `panic!`: somebody takes this stack down on purpose.
        None => panic::resume_unwind(payload),
    })
}

/// What somebody panicked with, as one line.
fn words(payload: &(dyn Any + Send)) -> Option<String> {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    text.map(|text| text.replace(char::is_control, " "))
}

/// What a task was at when it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtHand {
    /// The record at this offset.
    Record(i64),
    /// A walk of the sweeper's.
    Walk,
    /// Neither.
    Nothing,
}

impl AtHand {
    /// The record's offset.
    pub fn record(self) -> Option<i64> {
        match self {
            Self::Record(offset) => Some(offset),
            Self::Walk | Self::Nothing => None,
        }
    }
}

/// How a task has panicked since it last came past the place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panics {
    /// The record that was at hand; `None` where none was.
    at: Option<i64>,
    times: u32,
    /// How often since a walk of the sweeper's has come to its end.
    walks: u32,
    words: String,
}

impl Panics {
    /// The task has panicked once more, with this at hand. A record further on shows that the former place was passed.
    pub fn note(&mut self, at: AtHand, panic: &Panic) {
        self.words.clone_from(&panic.0);
        if at == AtHand::Walk {
            self.walks += 1;
            return;
        }
        let at = at.record();
        let is_further = at.is_some_and(|at| self.at.is_some_and(|former| at > former));
        self.times = if is_further { 1 } else { self.times + 1 };
        self.at = at.or(self.at);
    }

    /// All before `next` is committed.
    pub fn pass(&mut self, next: i64) {
        if self.at.is_none_or(|at| next > at) {
            (self.at, self.times) = (None, 0);
        }
    }

    /// A walk of the sweeper's has come to its end.
    pub fn walk_ended(&mut self) {
        self.walks = 0;
    }

    /// How often in a row.
    pub fn times(&self) -> u32 {
        self.times.max(self.walks)
    }

    /// Whether the task is not to try again.
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
    fn a_panic_is_caught_with_its_words_as_one_line() {
        assert_eq!(caught(|| 1), Ok(1));
        let caught = caught(|| -> u8 { panic!("first\nsecond {}", 2) }).unwrap_err();
        assert!(caught.to_string().starts_with("first second 2"), "{caught}");
    }

    #[test]
    fn what_is_no_panic_passes_through() {
        struct Unwinding;
        let thrown = panic::catch_unwind(|| caught(|| -> u8 { panic::resume_unwind(Box::new(Unwinding)) }));
        assert!(thrown.unwrap_err().is::<Unwinding>());
    }

    #[test]
    fn a_task_stops_where_it_panics_three_times_in_a_row() {
        let mut panics = Panics::default();
        for _ in 1..PANICS_MAX {
            panics.note(AtHand::Record(7), &panic());
            assert_eq!(panics.stop_before(), None);
        }
        panics.pass(7);
        panics.note(AtHand::Record(7), &panic());
        assert_eq!(panics.stop_before(), Some(7), "what comes before it is no progress");
    }

    #[test]
    fn panics_that_the_task_has_come_past_are_forgotten() {
        let mut panics = Panics::default();
        panics.note(AtHand::Record(7), &panic());
        panics.note(AtHand::Record(7), &panic());
        panics.note(AtHand::Record(8), &panic());
        assert_eq!(panics.times(), 1);
        panics.pass(9);
        assert_eq!(panics.times(), 0);
        assert!(!panics.are_too_many());
    }

    #[test]
    fn restores_that_panic_count_until_something_is_committed() {
        let mut panics = Panics::default();
        (0..PANICS_MAX).for_each(|_| panics.note(AtHand::Nothing, &panic()));
        assert!(panics.are_too_many());
        assert_eq!(panics.stop_before(), None);
        panics.pass(0);
        assert!(!panics.are_too_many());
    }

    #[test]
    fn walks_that_panic_count_however_rarely_they_come() {
        let mut panics = Panics::default();
        for next in 1..i64::from(PANICS_MAX) {
            panics.note(AtHand::Walk, &panic());
            panics.pass(next * 1_000);
            assert!(!panics.are_too_many());
        }
        panics.note(AtHand::Walk, &panic());
        assert!(panics.are_too_many());
        assert_eq!(panics.stop_before(), None, "no record is to blame");
        assert!(panics.to_string().starts_with("panicked 3 times in a row: no"), "{panics}");
    }

    #[test]
    fn a_walk_that_comes_to_its_end_forgives_those_before() {
        let mut panics = Panics::default();
        (1..PANICS_MAX).for_each(|_| panics.note(AtHand::Walk, &panic()));
        panics.walk_ended();
        panics.note(AtHand::Walk, &panic());
        assert_eq!(panics.times(), 1);
        // A record's are none of its business.
        panics.note(AtHand::Record(7), &panic());
        panics.note(AtHand::Record(7), &panic());
        panics.walk_ended();
        panics.note(AtHand::Record(7), &panic());
        assert_eq!(panics.stop_before(), Some(7));
    }
}
