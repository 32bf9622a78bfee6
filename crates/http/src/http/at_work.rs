//! The work in progress in this process: counted for its bounds and for a graceful stop, and listed by id so that other
//! requests can wait for it.
//!
//! A request counts as at work from the arrival of its whole body until its response is ready to be sent. A [`Share`]
//! is the part of a bound that one request takes. A digest (SHA-256) is remembered in place of a response's body that
//! is a stream, or too large to be remembered whole: it is known only once the body has been sent.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::shares::{Limit, Peer, Share, Shares};
use crate::request::Id;

/// Counts the work in progress; all clones share one count.
#[derive(Clone, Debug, Default)]
pub(super) struct AtWork(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Requests that are being carried out or wait to be carried out.
    requests: Arc<Shares>,
    /// Bytes of the bodies that are held in memory.
    bodies: Arc<Shares>,
    /// The number of remembered responses whose digests are not remembered yet.
    digests: AtomicUsize,
    /// Notifies when no work is in progress.
    idle: Notify,
}

/// Counts a request at work, or a digest that has to be remembered, until it is dropped.
#[derive(Debug)]
pub(super) struct WorkGuard {
    /// The request's share; `None` for a digest.
    request: Option<Share>,
    at_work: AtWork,
}

impl AtWork {
    /// Counts one more request; `None` if there are already `max`, or if its client may not have another request at
    /// work ([`super::shares`]).
    pub fn begin(&self, peer: Option<Peer>, max: usize) -> Option<WorkGuard> {
        let mut share = self.0.requests.empty_share(peer);
        let fits = share.grow(1, Limit { total: max, guaranteed: 1 });
        fits.then(|| WorkGuard { request: Some(share), at_work: self.clone() })
    }

    /// Counts one more digest.
    pub fn begin_digest(&self) -> WorkGuard {
        self.0.digests.fetch_add(1, Ordering::SeqCst);
        WorkGuard { request: None, at_work: self.clone() }
    }

    /// Begins to count a body, with no bytes yet.
    pub fn begin_body(&self, peer: Option<Peer>) -> Share {
        self.0.bodies.empty_share(peer)
    }

    /// The number of requests at work.
    pub fn requests(&self) -> usize {
        self.0.requests.used()
    }

    /// What the clients have taken of the bound on requests, and of the bound on bodies.
    pub fn shares(&self) -> [&Arc<Shares>; 2] {
        [&self.0.requests, &self.0.bodies]
    }

    /// Waits until no work is in progress.
    pub async fn wait_until_idle(&self) {
        loop {
            // Enabled before the check, so that an end in between is not missed.
            let mut idle = pin!(self.0.idle.notified());
            idle.as_mut().enable();
            if self.is_idle() {
                return;
            }
            idle.await;
        }
    }

    fn is_idle(&self) -> bool {
        // Checked in this order: a request's digest is counted before the request ends.
        self.requests() == 0 && self.0.digests.load(Ordering::SeqCst) == 0
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        match self.request.take() {
            Some(request) => drop(request),
            None => drop(self.at_work.0.digests.fetch_sub(1, Ordering::SeqCst)),
        }
        if self.at_work.is_idle() {
            self.at_work.0.idle.notify_waiters();
        }
    }
}

/// The requests that the layer is carrying out, each with the notification of its end. A repeated request that waits
/// asks the store again as soon as it is notified, before its next poll is due.
#[derive(Debug, Default)]
pub(super) struct AwaitableRequests(Mutex<HashMap<Id, Arc<Notify>>>);

impl AwaitableRequests {
    fn lock(&self) -> MutexGuard<'_, HashMap<Id, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request: others can wait for it until the returned guard is dropped.
    pub fn begin(self: &Arc<Self>, id: Id) -> AwaitableRequest {
        let done = Arc::new(Notify::new());
        self.lock().insert(id, Arc::clone(&done));
        AwaitableRequest { requests: Arc::clone(self), id, done }
    }

    /// The notification of a request's end; `None` if the layer is not carrying the request out.
    pub fn end_notify(&self, id: Id) -> Option<Arc<Notify>> {
        self.lock().get(&id).cloned()
    }
}

/// A request that others can wait for.
#[derive(Debug)]
pub(super) struct AwaitableRequest {
    requests: Arc<AwaitableRequests>,
    id: Id,
    done: Arc<Notify>,
}

impl Drop for AwaitableRequest {
    fn drop(&mut self) {
        let mut all = self.requests.lock();
        // A request that took over from this one, after its lease had ended, has replaced the entry with its own.
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
        let idle = || futures_util::FutureExt::now_or_never(all.wait_until_idle());
        assert_eq!((all.requests(), idle()), (0, None));
        drop(digest);
        assert_eq!(idle(), Some(()));
    }

    #[test]
    fn bodies_share_one_bound() {
        let all = AtWork::default();
        let limit = Limit { total: 100, guaranteed: 0 };
        let (mut one, mut other) = (all.begin_body(None), all.begin_body(None));
        assert!(one.grow(60, limit) && other.grow(30, limit) && one.grow(10, limit));
        assert!(!other.grow(1, limit));
        drop(one);
        assert!(other.grow(70, limit) && !other.grow(1, limit));
        drop(other);
        assert_eq!(all.0.bodies.used(), 0);
    }
}
