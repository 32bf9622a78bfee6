//! Work in progress in this process: counted for its bounds and for a graceful stop, and found by id to be waited for.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::shares::{Limit, Peer, Share, Shares};
use crate::request::Id;

/// How much is at work; all clones share one count.
#[derive(Clone, Debug, Default)]
pub(super) struct AtWork(Arc<All>);

#[derive(Debug, Default)]
struct All {
    /// Requests that are being carried out, or wait to be.
    requests: Arc<Shares>,
    /// Bytes of bodies.
    bodies: Arc<Shares>,
    /// The number of answers that are remembered as given, but not yet with their digest.
    digests: AtomicUsize,
    /// Notifies when nothing is at work.
    none: Notify,
}

/// Counts a request at work, or a digest that is to be remembered, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    /// The request's share; `None` for a digest.
    request: Option<Share>,
    all: AtWork,
}

impl AtWork {
    /// Counts one more request; `None` if there are already `max`, or its client has its share of them.
    pub fn begin(&self, peer: Option<Peer>, max: usize) -> Option<Counted> {
        let mut share = self.0.requests.begin(peer);
        let fits = share.grow(1, Limit { all: max, least: 1 });
        fits.then(|| Counted { request: Some(share), all: self.clone() })
    }

    /// Counts one more digest.
    pub fn begin_digest(&self) -> Counted {
        self.0.digests.fetch_add(1, Ordering::SeqCst);
        Counted { request: None, all: self.clone() }
    }

    /// Begins to count a body, with no bytes yet.
    pub fn begin_body(&self, peer: Option<Peer>) -> Share {
        self.0.bodies.begin(peer)
    }

    /// How many requests are at work.
    pub fn requests(&self) -> usize {
        self.0.requests.used()
    }

    /// The shares of requests, and of bodies.
    pub fn shares(&self) -> [&Arc<Shares>; 2] {
        [&self.0.requests, &self.0.bodies]
    }

    /// Waits until nothing is at work.
    pub async fn none(&self) {
        loop {
            // Enabled before the check, so that an end in between is not missed.
            let mut none = pin!(self.0.none.notified());
            none.as_mut().enable();
            if self.is_none() {
                return;
            }
            none.await;
        }
    }

    fn is_none(&self) -> bool {
        // Checked in this order: a request's digest is counted before the request ends.
        self.requests() == 0 && self.0.digests.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        match self.request.take() {
            Some(request) => drop(request),
            None => drop(self.all.0.digests.fetch_sub(1, Ordering::SeqCst)),
        }
        if self.all.is_none() {
            self.all.0.none.notify_waiters();
        }
    }
}

/// Notifies those who wait for a request at work in this process, so that they need not keep asking the store.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<HashMap<Id, Arc<Notify>>>);

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request: others can wait for it until the returned guard is dropped.
    pub fn begin(self: &Arc<Self>, id: Id) -> Waited {
        let done = Arc::new(Notify::new());
        self.lock().insert(id, Arc::clone(&done));
        Waited { waiters: Arc::clone(self), id, done }
    }

    /// Notifies of the end of a request; `None` if it is not at work here.
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
        // A request that has taken over has its own entry.
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
    fn requests_at_work_are_bounded_and_counted_until_they_end() {
        let all = AtWork::default();
        let one = all.begin(None, 2).unwrap();
        let other = all.clone().begin(None, 2).unwrap();
        assert!(all.begin(None, 2).is_none());
        drop(one);
        assert_eq!(all.requests(), 1);
        let digest = all.begin_digest();
        assert!(all.begin(None, 2).is_some(), "a digest does not count as a request");
        drop(other);
        let none = || futures_util::FutureExt::now_or_never(all.none());
        assert_eq!((all.requests(), none()), (0, None));
        drop(digest);
        assert_eq!(none(), Some(()));
    }

    #[test]
    fn bodies_share_one_bound() {
        let all = AtWork::default();
        let limit = Limit { all: 100, least: 0 };
        let (mut one, mut other) = (all.begin_body(None), all.begin_body(None));
        assert!(one.grow(60, limit) && other.grow(30, limit) && one.grow(10, limit));
        assert!(!other.grow(1, limit));
        drop(one);
        assert!(other.grow(70, limit) && !other.grow(1, limit));
        drop(other);
        assert_eq!(all.0.bodies.used(), 0);
    }
}
