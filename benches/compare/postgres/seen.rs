//! A reader of the table: which rows are visible, and when it saw each of them first.
//!
//! It asks again a millisecond after each answer, so a row is seen up to that much, and a query, after its commit. The
//! rows' ids are the numbers of their records.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::server::Session;
use crate::failure::{Failure, Outcome, fail};
use crate::live::pace::Clock;

/// How long to wait after an answer.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a count is checked.
const LOOK: Duration = Duration::from_millis(20);
/// Rows from the first one that was not seen yet.
const QUERY: &str = "select id, due_us from accounts where id >= $1 order by id limit 10000";

/// A running reader. Dropping it stops it.
pub struct Seeing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Outcome<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    seen: AtomicU64,
    newest_due_us: AtomicU64,
}

impl Seeing {
    /// Reads a database's table; `sink` gets when each row was due and when it was seen.
    pub fn start(url: &str, clock: Clock, sink: impl FnMut(u64, u64) + Send + 'static) -> Outcome<Seeing> {
        let session = Session::open(url)?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || see(&session, clock, &theirs, sink));
        Ok(Seeing { shared, thread: Some(thread) })
    }

    /// When the latest record was due that is visible.
    pub fn newest_due_us(&self) -> u64 {
        self.shared.newest_due_us.load(Ordering::Relaxed)
    }

    /// Waits for `what`, while `alive` finds nothing wrong.
    pub fn wait(
        &self,
        what: &str,
        wait: Duration,
        mut alive: impl FnMut() -> Outcome<()>,
        is_there: impl Fn(&Seeing) -> bool,
    ) -> Outcome<()> {
        let deadline = Instant::now() + wait;
        while !is_there(self) {
            alive()?;
            if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                fail!("the reader of the table ended");
            }
            if Instant::now() > deadline {
                fail!("waited {wait:?} in vain for {what}; {} rows are visible", self.seen());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Rows seen so far.
    pub fn seen(&self) -> u64 {
        self.shared.seen.load(Ordering::Relaxed)
    }

    /// Stops it; returns how many rows it has seen.
    pub fn stop(mut self) -> Outcome<u64> {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| Failure("the reader of the table died".to_owned()))??;
        }
        Ok(self.seen())
    }
}

impl Drop for Seeing {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn see(session: &Session, clock: Clock, shared: &Shared, mut sink: impl FnMut(u64, u64)) -> Outcome<()> {
    let query = session.wait(session.client().prepare(QUERY))?;
    // The first id that was not seen, and which of those behind it were.
    let (mut first, mut behind) = (0_i64, VecDeque::new());
    while !shared.stop.load(Ordering::Relaxed) {
        let rows = session.wait(session.client().query(&query, &[&first]))?;
        let at_us = clock.now_us();
        let mut new = 0;
        for row in rows {
            let (id, due_us): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let place = (id - first) as usize;
            if behind.len() <= place {
                behind.resize(place + 1, false);
            }
            if !std::mem::replace(&mut behind[place], true) {
                new += 1;
                sink(due_us as u64, at_us);
                shared.newest_due_us.fetch_max(due_us as u64, Ordering::Relaxed);
            }
        }
        while behind.front() == Some(&true) {
            behind.pop_front();
            first += 1;
        }
        shared.seen.fetch_add(new, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
