//! What is at work in this process: counted for a graceful stop, and by id for those who wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::request::Id;

/// How many requests are at work; all clones count together.
#[derive(Clone, Debug)]
pub(super) struct AtWork(Arc<watch::Sender<usize>>);

impl AtWork {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// One more, until what is returned is dropped.
    pub fn begin(&self) -> OneAtWork {
        self.0.send_modify(|count| *count += 1);
        OneAtWork(self.clone())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until there is none.
    pub async fn none(&self) {
        // An error means that the sender is gone, which this holds.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// A request at work.
#[derive(Debug)]
pub(super) struct OneAtWork(AtWork);

impl Drop for OneAtWork {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
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
