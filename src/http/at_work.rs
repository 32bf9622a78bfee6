//! What is at work in this process: counted for a graceful stop and for its bounds, and by id for those who wait for it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::request::Id;

/// How much is at work; all clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct AtWork(Arc<All>);

#[derive(Debug, Default)]
struct All {
    counts: Mutex<Counts>,
    /// Tells those who wait for it that nothing is at work.
    none: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Requests that are carried out, or wait to be.
    requests: usize,
    /// Answers whose digest is still to be remembered; that they were given is.
    digests: usize,
    /// Bytes of requests' bodies.
    body_bytes: usize,
}

/// What is counted until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    all: AtWork,
    one: Counts,
}

impl AtWork {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One request more, unless there are so many.
    pub fn begin(&self, max: usize) -> Option<Counted> {
        self.add(Counts { requests: 1, ..Counts::default() }, |all| all.requests <= max)
    }

    /// One digest more.
    pub fn begin_digest(&self) -> Option<Counted> {
        self.add(Counts { digests: 1, ..Counts::default() }, |_| true)
    }

    /// Nothing of a body yet.
    pub fn begin_body(&self) -> Counted {
        Counted { all: self.clone(), one: Counts::default() }
    }

    fn add(&self, one: Counts, fits: impl FnOnce(&Counts) -> bool) -> Option<Counted> {
        let mut all = self.counts();
        let sum = Counts {
            requests: all.requests + one.requests,
            digests: all.digests + one.digests,
            body_bytes: all.body_bytes.saturating_add(one.body_bytes),
        };
        if !fits(&sum) {
            return None;
        }
        *all = sum;
        drop(all);
        Some(Counted { all: self.clone(), one })
    }

    /// How many requests there are.
    pub fn requests(&self) -> usize {
        self.counts().requests
    }

    /// Waits until there is nothing.
    pub async fn none(&self) {
        loop {
            // Before it is looked at: an end in between is not missed.
            let mut none = pin!(self.0.none.notified());
            none.as_mut().enable();
            if self.counts().is_none() {
                return;
            }
            none.await;
        }
    }
}

impl Counts {
    fn is_none(&self) -> bool {
        self.requests == 0 && self.digests == 0
    }
}

impl Counted {
    /// So much of a body more; says whether that fits into this.
    pub fn grow(&mut self, bytes: usize, max: usize) -> bool {
        let more = Counts { body_bytes: bytes, ..Counts::default() };
        let Some(mut more) = self.all.add(more, |all| all.body_bytes <= max) else { return false };
        self.one.body_bytes += std::mem::take(&mut more.one.body_bytes);
        true
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.all.counts();
        all.requests -= self.one.requests;
        all.digests -= self.one.digests;
        all.body_bytes -= self.one.body_bytes;
        if all.is_none() {
            drop(all);
            self.all.0.none.notify_waiters();
        }
    }
}

/// Those who wait for a request that is at work in this very process: they need not ask the store again and again.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<Id, Arc<Notify>>>);

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins; until what is returned is dropped, others can wait for it.
    pub fn begin(self: &Arc<Self>, id: Id) -> Waited {
        let done = Arc::new(Notify::new());
        self.lock().insert(id, Arc::clone(&done));
        Waited { waiters: Arc::clone(self), id, done }
    }

    /// The end of a request, if it is at work here.
    pub fn end_of(&self, id: Id) -> Option<Arc<Notify>> {
        self.lock().get(&id).cloned()
    }
}

/// A request that others can wait for.
#[derive(Debug)]
pub(super) struct Waited {
    waiters: Arc<Waiters>,
    id: Id,
    done: Arc<Notify>,
}

impl Drop for Waited {
    fn drop(&mut self) {
        let mut all = self.waiters.lock();
        // One that has taken over has its own.
        if all.get(&self.id).is_some_and(|done| Arc::ptr_eq(done, &self.done)) {
            all.remove(&self.id);
        }
        drop(all);
        self.done.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_work_is_bounded_and_counted_until_it_ends() {
        let all = AtWork::default();
        let one = all.begin(2).unwrap();
        let other = all.clone().begin(2).unwrap();
        assert!(all.begin(2).is_none());
        drop(one);
        assert_eq!(all.requests(), 1);
        let digest = all.begin_digest().unwrap();
        assert!(all.begin(2).is_some(), "a digest takes nobody's place");
        drop(other);
        let none = || futures_util::FutureExt::now_or_never(all.none());
        assert_eq!((all.requests(), none()), (0, None));
        drop(digest);
        assert_eq!(none(), Some(()));
    }

    #[test]
    fn bodies_are_bounded_together() {
        let all = AtWork::default();
        let (mut one, mut other) = (all.begin_body(), all.begin_body());
        assert!(one.grow(60, 100) && other.grow(30, 100) && one.grow(10, 100));
        assert!(!other.grow(1, 100));
        drop(one);
        assert!(other.grow(70, 100) && !other.grow(1, 100));
        drop(other);
        assert_eq!(all.counts().body_bytes, 0);
    }
}
