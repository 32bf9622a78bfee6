//! Ends the transactions that dead owners left open, so that no takeover has to wait for their timeout.
//!
//! Initialising a transactional id aborts the transaction that is open under it. The broker does so within some 60 ms,
//! but often responds half a second later: a takeover does not wait for the response, but checks for the effect.
//!
//! Invariant: correctness never depends on this. A live owner that is fenced creates a new producer and
//! restores its state, without any other effect.
//!
//! **Failure**: a failed fence is logged, and may be attempted again; otherwise the transaction ends
//! at its timeout.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::producer::Producer;
use super::properties::Properties;
use super::threads::spawn;

/// How many fenced ids are remembered. An id that was forgotten may be fenced again, which does no harm.
const REMEMBERED_MAX: usize = 1024;
/// How many fences may be in progress at once; each one has its own client.
const CONCURRENT_MAX: usize = 16;

/// The ids that this process has fenced, each once.
pub(super) struct Fences {
    properties: Properties,
    ids: Mutex<Ids>,
}

#[derive(Default)]
struct Ids {
    fenced: VecDeque<String>,
    in_progress: usize,
}

impl Ids {
    /// Whether to fence this id now: it was not fenced yet, and not too many are in progress.
    fn admit(&mut self, id: &str) -> bool {
        if self.in_progress >= CONCURRENT_MAX || self.fenced.iter().any(|fenced| fenced == id) {
            return false;
        }
        self.in_progress += 1;
        if self.fenced.len() >= REMEMBERED_MAX {
            self.fenced.pop_front();
        }
        self.fenced.push_back(id.to_owned());
        true
    }

    fn finish(&mut self, id: &str, ok: bool) {
        self.in_progress -= 1;
        if !ok {
            self.fenced.retain(|fenced| fenced != id);
        }
    }
}

impl Fences {
    /// Starts without fenced ids; `properties` are a producer's.
    pub fn new(properties: &Properties) -> Self {
        Self { properties: properties.clone(), ids: Mutex::default() }
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a producer under the id and drops it, on a thread of its own; only once for each id, however often this is
    /// called.
    pub fn fence(self: &Arc<Self>, id: &str) {
        if !self.ids().admit(id) {
            return;
        }
        tracing::info!(transactional_id = id, "fencing the former owner: aborting its open transaction");
        let (fences, owned) = (Arc::clone(self), id.to_owned());
        let fence_owner = move || {
            let began = Instant::now();
            let opened = Producer::open(&fences.properties, &owned).map(drop);
            fences.ids().finish(&owned, opened.is_ok());
            let took_ms = began.elapsed().as_millis() as u64;
            match opened {
                Ok(()) => tracing::debug!(transactional_id = owned, took_ms, "owner fenced"),
                Err(error) => tracing::warn!(
                    transactional_id = owned,
                    reason = %error.message,
                    "owner not fenced; what it left open ends when it times out"
                ),
            }
        };
        if let Err(error) = spawn("kafka-fence", fence_owner) {
            self.ids().finish(id, false);
            tracing::warn!(transactional_id = id, reason = %error.message, "owner not fenced");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_fenced_once_unless_that_failed() {
        let mut ids = Ids::default();
        assert!(ids.admit("a") && !ids.admit("a") && ids.admit("b"));
        ids.finish("a", false);
        ids.finish("b", true);
        assert!(ids.admit("a") && !ids.admit("b"));
    }

    #[test]
    fn remembered_and_running_fences_are_bounded() {
        let mut ids = Ids::default();
        let admitted = (0..2 * CONCURRENT_MAX).filter(|n| ids.admit(&n.to_string())).count();
        assert_eq!(admitted, CONCURRENT_MAX);
        (0..CONCURRENT_MAX).for_each(|n| ids.finish(&n.to_string(), true));
        for n in 0..2 * REMEMBERED_MAX {
            let id = format!("later-{n}");
            assert!(ids.admit(&id));
            ids.finish(&id, true);
        }
        assert_eq!((ids.fenced.len(), ids.in_progress), (REMEMBERED_MAX, 0));
    }
}
