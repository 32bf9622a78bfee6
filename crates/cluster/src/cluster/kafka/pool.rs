//! A thread pool that multiplexes queries: most queries wait most of the time, and while a query
//! waits, its thread runs another one.
//!
//! Invariants: there are as many threads as queries, but no more than [`THREADS_MAX`]; queries whose last step got no
//! response never occupy more than half of the threads, so that a broker that is down does not delay queries to others.
//! Idle threads end.
//!
//! **Failure**: a query that panics is dropped, which its waiting caller notices. If no further thread can be
//! started, the existing threads run the query; if no thread exists, the query is rejected.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::threads::spawn;
use crate::cluster::Error;

/// Maximum number of queries in progress.
const THREADS_MAX: usize = 64;
/// The most of these whose last step got no response.
const SLOW_MAX: usize = THREADS_MAX / 2;
/// How long a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// The result of a query's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    /// The query is finished.
    Done,
    /// The query continues after this pause.
    After(Duration),
    /// The step got no response, and is repeated after this pause.
    Retry(Duration),
}

/// A query that is made in steps; a step waits for one response.
pub(super) trait Query: Send {
    /// Runs the next step.
    fn step(&mut self) -> StepResult;
}

/// The threads and their queries.
#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<WaitingQuery>,
    threads: usize,
    /// The number of threads that are running a query.
    busy: usize,
    /// The number of these whose query got no response to its last step.
    slow: usize,
}

struct WaitingQuery {
    next_step_at: Instant,
    slow: bool,
    query: Box<dyn Query>,
}

impl State {
    /// The index of the query to run next, of those that may run, and the time until then.
    fn next(&self) -> Option<(usize, Duration)> {
        let runnable = self.waiting.iter().enumerate().filter(|(_, waiting)| !waiting.slow || self.slow < SLOW_MAX);
        let first = runnable.min_by_key(|(_, waiting)| waiting.next_step_at);
        first.map(|(index, waiting)| (index, waiting.next_step_at.saturating_duration_since(Instant::now())))
    }

    /// Whether there is a thread for each query, or the maximum number of threads.
    fn has_enough_threads(&self) -> bool {
        self.threads >= THREADS_MAX || self.threads >= self.waiting.len() + self.busy
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a query, which runs beside the others.
    pub fn submit(self: &Arc<Self>, query: Box<dyn Query>) -> Result<(), Error> {
        let mut state = self.lock();
        state.waiting.push(WaitingQuery { next_step_at: Instant::now(), slow: false, query });
        if state.has_enough_threads() {
            self.changed.notify_one();
            return Ok(());
        }
        let pool = Arc::clone(self);
        match spawn("kafka-settle", move || pool.serve()) {
            Ok(()) => state.threads += 1,
            // The existing threads will run the query.
            Err(error) if state.threads > 0 => tracing::debug!("{error}"),
            Err(error) => {
                state.waiting.pop();
                return Err(error);
            }
        }
        Ok(())
    }

    /// A thread's loop, until there is no more work.
    fn serve(&self) {
        while let Some(WaitingQuery { slow, mut query, .. }) = self.take() {
            // The panic was logged where it happened; the waiting caller notices that the query was dropped.
            let next = catch_unwind(AssertUnwindSafe(|| query.step())).unwrap_or(StepResult::Done);
            let (after, again) = match next {
                StepResult::Done => (None, false),
                StepResult::After(pause) => (Some(pause), false),
                StepResult::Retry(pause) => (Some(pause), true),
            };
            let mut state = self.lock();
            state.busy -= 1;
            state.slow -= usize::from(slow);
            if let Some(pause) = after {
                state.waiting.push(WaitingQuery { next_step_at: Instant::now() + pause, slow: again, query });
            }
            self.changed.notify_one();
        }
    }

    /// Waits until a query is due; `None` if there has been no query for [`IDLE_MAX`].
    fn take(&self) -> Option<WaitingQuery> {
        let mut state = self.lock();
        let since = Instant::now();
        loop {
            let pause = match state.next() {
                Some((index, until)) if until.is_zero() => {
                    let taken = state.waiting.swap_remove(index);
                    state.busy += 1;
                    state.slow += usize::from(taken.slow);
                    return Some(taken);
                }
                Some((_, until)) => until,
                None if state.waiting.is_empty() && since.elapsed() >= IDLE_MAX => {
                    state.threads -= 1;
                    return None;
                }
                None => IDLE_MAX,
            };
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(30);

    /// Counts the queries that run at the same time.
    #[derive(Default)]
    struct Counts {
        now: AtomicUsize,
        peak: AtomicUsize,
        done: AtomicUsize,
    }

    struct TestQuery {
        counts: Arc<Counts>,
        steps: usize,
        gets_response: bool,
        duration: Duration,
    }

    impl Query for TestQuery {
        fn step(&mut self) -> StepResult {
            let now = self.counts.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.counts.peak.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(self.duration);
            self.counts.now.fetch_sub(1, Ordering::SeqCst);
            if self.steps == 0 {
                self.counts.done.fetch_add(1, Ordering::SeqCst);
                return StepResult::Done;
            }
            self.steps -= 1;
            let pause = Duration::from_millis(1);
            if self.gets_response { StepResult::After(pause) } else { StepResult::Retry(pause) }
        }
    }

    fn wait(what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !condition() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn submit(
        pool: &Arc<Pool>,
        counts: &Arc<Counts>,
        count: usize,
        steps: usize,
        gets_response: bool,
        duration_ms: u64,
    ) {
        for _ in 0..count {
            let duration = Duration::from_millis(duration_ms);
            let query = TestQuery { counts: Arc::clone(counts), steps, gets_response, duration };
            pool.submit(Box::new(query)).unwrap();
        }
    }

    #[test]
    fn thread_count_is_bounded_and_drops_to_none_when_idle() {
        let (pool, counts) = (Arc::new(Pool::default()), Arc::new(Counts::default()));
        submit(&pool, &counts, 300, 3, true, 5);
        wait("all queries have finished", || counts.done.load(Ordering::SeqCst) == 300);
        let peak = counts.peak.load(Ordering::SeqCst);
        assert!((2..=THREADS_MAX).contains(&peak), "{peak} at the same time");
        wait("the threads end", || pool.lock().threads == 0);
    }

    #[test]
    fn queries_without_response_do_not_hold_up_others() {
        let (pool, slow, quick) = (Arc::new(Pool::default()), Arc::new(Counts::default()), Arc::new(Counts::default()));
        submit(&pool, &slow, 100, usize::MAX, false, 50);
        wait("all slow queries have run once", || pool.lock().slow == SLOW_MAX);
        submit(&pool, &quick, 100, 5, true, 1);
        wait("the other queries have finished", || {
            assert!(pool.lock().slow <= SLOW_MAX);
            quick.done.load(Ordering::SeqCst) == 100
        });
    }

    #[test]
    fn panicking_query_does_not_end_its_thread() {
        struct Panics;
        impl Query for Panics {
            fn step(&mut self) -> StepResult {
                panic!("on purpose");
            }
        }
        let (pool, counts) = (Arc::new(Pool::default()), Arc::new(Counts::default()));
        (0..2 * THREADS_MAX).for_each(|_| pool.submit(Box::new(Panics)).unwrap());
        submit(&pool, &counts, 10, 2, true, 1);
        wait("the other queries have finished", || counts.done.load(Ordering::SeqCst) == 10);
    }
}
