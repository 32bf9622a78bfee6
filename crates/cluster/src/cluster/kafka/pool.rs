//! A thread pool that multiplexes queries: most queries wait most of the time, and while one
//! waits, its thread runs another.
//!
//! Invariants: there are as many threads as queries, but no more than [`THREADS_MAX`]; queries that got no response
//! last time never occupy more than half of these, so that a broker that is gone does not hold up queries to others.
//! Idle threads end.
//!
//! **Failure**: a query that panics is dropped, which its waiting caller notices. If no further thread can be
//! started, the existing ones do the work; if there are none, the query is rejected.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::threads::spawn;
use crate::cluster::Error;

/// Maximum number of queries in progress.
const THREADS_MAX: usize = 64;
/// How many of these may have got no response last time.
const SLOW_MAX: usize = THREADS_MAX / 2;
/// How long a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// The result of a query's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The query is finished.
    Done,
    /// It continues after this pause.
    After(Duration),
    /// It got no response, and is repeated after this pause.
    Retry(Duration),
}

/// Work that is done in steps; a step waits for one response.
pub(super) trait Query: Send {
    /// Makes the next step.
    fn step(&mut self) -> Next;
}

/// The threads and their work.
#[derive(Default)]
pub(super) struct Pool {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    waiting: Vec<Waiting>,
    threads: usize,
    /// How many threads are running a query.
    busy: usize,
    /// How many of these run one that got no response last time.
    slow: usize,
}

struct Waiting {
    due: Instant,
    slow: bool,
    query: Box<dyn Query>,
}

impl Work {
    /// The query that is due first, of those that may run, and how long until then.
    fn next(&self) -> Option<(usize, Duration)> {
        let may = self.waiting.iter().enumerate().filter(|(_, waiting)| !waiting.slow || self.slow < SLOW_MAX);
        let first = may.min_by_key(|(_, waiting)| waiting.due);
        first.map(|(index, waiting)| (index, waiting.due.saturating_duration_since(Instant::now())))
    }

    /// Whether there are threads for all queries, or as many as allowed.
    fn has_enough_threads(&self) -> bool {
        self.threads >= THREADS_MAX || self.threads >= self.waiting.len() + self.busy
    }
}

impl Pool {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a query, to run beside the others.
    pub fn submit(self: &Arc<Self>, query: Box<dyn Query>) -> Result<(), Error> {
        let mut work = self.work();
        work.waiting.push(Waiting { due: Instant::now(), slow: false, query });
        if work.has_enough_threads() {
            self.changed.notify_one();
            return Ok(());
        }
        let pool = Arc::clone(self);
        match spawn("kafka-settle", move || pool.serve()) {
            Ok(()) => work.threads += 1,
            // The existing threads will run it.
            Err(error) if work.threads > 0 => tracing::debug!("{error}"),
            Err(error) => {
                work.waiting.pop();
                return Err(error);
            }
        }
        Ok(())
    }

    /// A thread's loop, until there is no more work.
    fn serve(&self) {
        while let Some(Waiting { slow, mut query, .. }) = self.take() {
            // The panic was logged where it happened; the waiting caller notices that the query was dropped.
            let next = catch_unwind(AssertUnwindSafe(|| query.step())).unwrap_or(Next::Done);
            let (after, again) = match next {
                Next::Done => (None, false),
                Next::After(pause) => (Some(pause), false),
                Next::Retry(pause) => (Some(pause), true),
            };
            let mut work = self.work();
            work.busy -= 1;
            work.slow -= usize::from(slow);
            if let Some(pause) = after {
                work.waiting.push(Waiting { due: Instant::now() + pause, slow: again, query });
            }
            self.changed.notify_one();
        }
    }

    /// Waits until a query is due; `None` if there has been nothing to do for a while.
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

    /// Counts how many run at the same time.
    #[derive(Default)]
    struct Counts {
        now: AtomicUsize,
        most: AtomicUsize,
        done: AtomicUsize,
    }

    struct TestQuery {
        counts: Arc<Counts>,
        steps: usize,
        answered: bool,
        takes: Duration,
    }

    impl Query for TestQuery {
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
            if self.answered { Next::After(pause) } else { Next::Retry(pause) }
        }
    }

    fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn submit(pool: &Arc<Pool>, counts: &Arc<Counts>, count: usize, steps: usize, answered: bool, takes_ms: u64) {
        for _ in 0..count {
            let takes = Duration::from_millis(takes_ms);
            let query = TestQuery { counts: Arc::clone(counts), steps, answered, takes };
            pool.submit(Box::new(query)).unwrap();
        }
    }

    #[test]
    fn thread_count_is_bounded_and_drops_to_none_when_idle() {
        let (pool, counts) = (Arc::new(Pool::default()), Arc::new(Counts::default()));
        submit(&pool, &counts, 300, 3, true, 5);
        wait("all have an answer", || counts.done.load(Ordering::SeqCst) == 300);
        let most = counts.most.load(Ordering::SeqCst);
        assert!((2..=THREADS_MAX).contains(&most), "{most} at the same time");
        wait("the threads end", || pool.work().threads == 0);
    }

    #[test]
    fn queries_without_response_do_not_hold_up_others() {
        let (pool, slow, quick) = (Arc::new(Pool::default()), Arc::new(Counts::default()), Arc::new(Counts::default()));
        submit(&pool, &slow, 100, usize::MAX, false, 50);
        wait("all have run once", || pool.work().slow == SLOW_MAX);
        submit(&pool, &quick, 100, 5, true, 1);
        wait("the others have their answers", || {
            assert!(pool.work().slow <= SLOW_MAX);
            quick.done.load(Ordering::SeqCst) == 100
        });
    }

    #[test]
    fn panicking_query_does_not_end_its_thread() {
        struct Panics;
        impl Query for Panics {
            fn step(&mut self) -> Next {
                panic!("on purpose");
            }
        }
        let (pool, counts) = (Arc::new(Pool::default()), Arc::new(Counts::default()));
        (0..2 * THREADS_MAX).for_each(|_| pool.submit(Box::new(Panics)).unwrap());
        submit(&pool, &counts, 10, 2, true, 1);
        wait("the others have their answers", || counts.done.load(Ordering::SeqCst) == 10);
    }
}
