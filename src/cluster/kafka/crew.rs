//! A bounded number of threads that go from one question to the next: most questions wait most of the time, and while one
//! waits, its thread takes another.
//!
//! Invariants: there are as many threads as questions, and no more than [`THREADS_MAX`]; questions that had no answer last
//! time are never on more than half of these, so that a broker that is gone holds up nobody who asks another. Threads
//! without work end.
//!
//! **Failure**: a question that panics is dropped, by which whoever waits for it is told. Where no further thread can be
//! had, those that are there do the work; where there is none, the question is not taken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::threads::spawn;
use crate::cluster::Error;

/// Questions under way at the same time.
const THREADS_MAX: usize = 64;
/// Of these, such that had no answer last time.
const SLOW_MAX: usize = THREADS_MAX / 2;
/// For how long a thread waits for work.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// What a step of a question has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is over.
    Done,
    /// It goes on after so long.
    After(Duration),
    /// It had no answer, and is asked again after so long.
    Again(Duration),
}

/// Something that is asked step by step; a step waits for one answer.
pub(super) trait Question: Send {
    /// Asks what comes next.
    fn step(&mut self) -> Next;
}

/// The threads, and what they have to do.
#[derive(Default)]
pub(super) struct Crew {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    waiting: Vec<Waiting>,
    threads: usize,
    /// Of the threads, those that ask at this moment.
    busy: usize,
    /// Of these, those that had no answer last time.
    slow: usize,
}

struct Waiting {
    due: Instant,
    slow: bool,
    question: Box<dyn Question>,
}

impl Work {
    /// The one that is due first, of those that may be asked; and how long it is until then.
    fn next(&self) -> Option<(usize, Duration)> {
        let may = self.waiting.iter().enumerate().filter(|(_, waiting)| !waiting.slow || self.slow < SLOW_MAX);
        let first = may.min_by_key(|(_, waiting)| waiting.due);
        first.map(|(index, waiting)| (index, waiting.due.saturating_duration_since(Instant::now())))
    }

    /// Whether there are threads for all, or as many as there may be.
    fn is_manned(&self) -> bool {
        self.threads >= THREADS_MAX || self.threads >= self.waiting.len() + self.busy
    }
}

impl Crew {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a question, to be asked beside the others.
    pub fn ask(self: &Arc<Self>, question: Box<dyn Question>) -> Result<(), Error> {
        let mut work = self.work();
        work.waiting.push(Waiting { due: Instant::now(), slow: false, question });
        if work.is_manned() {
            self.changed.notify_one();
            return Ok(());
        }
        let crew = Arc::clone(self);
        match spawn("kafka-settle", move || crew.serve()) {
            Ok(()) => work.threads += 1,
            // It is asked by those that are there.
            Err(error) if work.threads > 0 => tracing::debug!("{error}"),
            Err(error) => {
                work.waiting.pop();
                return Err(error);
            }
        }
        Ok(())
    }

    /// A thread's work, until there is none.
    fn serve(&self) {
        while let Some(Waiting { slow, mut question, .. }) = self.take() {
            // A panic was told where it happened; whoever waits is told by the question's end.
            let next = catch_unwind(AssertUnwindSafe(|| question.step())).unwrap_or(Next::Done);
            let (after, again) = match next {
                Next::Done => (None, false),
                Next::After(pause) => (Some(pause), false),
                Next::Again(pause) => (Some(pause), true),
            };
            let mut work = self.work();
            work.busy -= 1;
            work.slow -= usize::from(slow);
            if let Some(pause) = after {
                work.waiting.push(Waiting { due: Instant::now() + pause, slow: again, question });
            }
            self.changed.notify_one();
        }
    }

    /// Waits until a question is due; `None` when there has been nothing to do for a while.
    fn take(&self) -> Option<Waiting> {
        let mut work = self.work();
        let since = Instant::now();
        loop {
            let pause = match work.next() {
                Some((index, until)) if until.is_zero() => {
                    let taken = work.waiting.swap_remove(index);
                    work.busy += 1;
                    work.slow += usize::from(taken.slow);
                    return Some(taken);
                }
                Some((_, until)) => until,
                None if work.waiting.is_empty() && since.elapsed() >= IDLE_MAX => {
                    work.threads -= 1;
                    return None;
                }
                None => IDLE_MAX,
            };
            work = self.changed.wait_timeout(work, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(30);

    /// Counts how many are asked at the same time.
    #[derive(Default)]
    struct Counts {
        now: AtomicUsize,
        most: AtomicUsize,
        done: AtomicUsize,
    }

    struct Asked {
        counts: Arc<Counts>,
        steps: usize,
        answered: bool,
        takes: Duration,
    }

    impl Question for Asked {
        fn step(&mut self) -> Next {
            let now = self.counts.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.counts.most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(self.takes);
            self.counts.now.fetch_sub(1, Ordering::SeqCst);
            if self.steps == 0 {
                self.counts.done.fetch_add(1, Ordering::SeqCst);
                return Next::Done;
            }
            self.steps -= 1;
            let pause = Duration::from_millis(1);
            if self.answered { Next::After(pause) } else { Next::Again(pause) }
        }
    }

    fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ask(crew: &Arc<Crew>, counts: &Arc<Counts>, count: usize, steps: usize, answered: bool, takes_ms: u64) {
        for _ in 0..count {
            let takes = Duration::from_millis(takes_ms);
            let question = Asked { counts: Arc::clone(counts), steps, answered, takes };
            crew.ask(Box::new(question)).unwrap();
        }
    }

    #[test]
    fn however_many_are_asked_there_are_so_many_threads_and_then_none() {
        let (crew, counts) = (Arc::new(Crew::default()), Arc::new(Counts::default()));
        ask(&crew, &counts, 300, 3, true, 5);
        wait("all have an answer", || counts.done.load(Ordering::SeqCst) == 300);
        let most = counts.most.load(Ordering::SeqCst);
        assert!((2..=THREADS_MAX).contains(&most), "{most} at the same time");
        wait("the threads end", || crew.work().threads == 0);
    }

    #[test]
    fn who_has_no_answer_holds_up_nobody_who_has() {
        let (crew, slow, quick) = (Arc::new(Crew::default()), Arc::new(Counts::default()), Arc::new(Counts::default()));
        ask(&crew, &slow, 100, usize::MAX, false, 50);
        wait("all have been asked once", || crew.work().slow == SLOW_MAX);
        ask(&crew, &quick, 100, 5, true, 1);
        wait("the others have their answers", || {
            assert!(crew.work().slow <= SLOW_MAX);
            quick.done.load(Ordering::SeqCst) == 100
        });
    }

    #[test]
    fn a_question_that_panics_takes_no_thread_with_it() {
        struct Panics;
        impl Question for Panics {
            fn step(&mut self) -> Next {
                panic!("on purpose");
            }
        }
        let (crew, counts) = (Arc::new(Crew::default()), Arc::new(Counts::default()));
        (0..2 * THREADS_MAX).for_each(|_| crew.ask(Box::new(Panics)).unwrap());
        ask(&crew, &counts, 10, 2, true, 1);
        wait("the others have their answers", || counts.done.load(Ordering::SeqCst) == 10);
    }
}
