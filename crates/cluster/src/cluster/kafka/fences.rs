//! Ends the transactions that dead owners left open, so that nobody has to wait for their timeout.
//!
//! Initialising a transactional id aborts whatever is open under it. The broker does so within some 60 ms,
//! and often responds half a second later: nobody waits for the response here; a takeover checks for the effect.
//!
//! Invariant: correctness never depends on this. A live owner that is fenced creates a new producer and
//! restores; nothing else happens to it.
//!
//! **Failure**: a failed fence is logged, and may be tried again; otherwise the transaction ends
//! by its timeout.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::producer::Producer;
use super::properties::Properties;
use super::threads::spawn;

/// How many fenced ids are remembered. One beyond that may be fenced again, which does no harm.
const REMEMBERED_MAX: usize = 1024;
/// How many fences may be in progress at once; each has its own client.
const AT_ONCE_MAX: usize = 16;

/// The ids that this process has fenced, each once.
pub(super) struct Fences {
    properties: Properties,
    ids: Mutex<Ids>,
}

#[derive(Default)]
struct Ids {
    fenced: VecDeque<String>,
    under_way: usize,
}

impl Ids {
    /// Whether to fence this id now: it was not fenced yet, and not too many are in progress.
    fn admit(&mut self, id: &str) -> bool {
        if self.under_way >= AT_ONCE_MAX || self.fenced.iter().any(|fenced| fenced == id) {
            return false;
        }
        self.under_way += 1;
        if self.fenced.len() >= REMEMBERED_MAX {
            self.fenced.pop_front();
        }
        self.fenced.push_back(id.to_owned());
        true
    }

    fn done(&mut self, id: &str, ok: bool) {
        self.under_way -= 1;
        if !ok {
            self.fenced.retain(|fenced| fenced != id);
        }
    }
}

impl Fences {
    /// Nothing fenced yet; `properties` are a producer's.
    pub fn new(properties: &Properties) -> Self {
        Self { properties: properties.clone(), ids: Mutex::default() }
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Initialises the id on a producer that is then dropped, on a thread of its own; only once, however often it is
    /// called.
    pub fn fence(self: &Arc<Self>, id: &str) {
        if !self.ids().admit(id) {
            return;
        }
        tracing::info!(transactional_id = id, "fencing the former owner: aborting its open transaction");
        let (fences, owned) = (Arc::clone(self), id.to_owned());
        let put_up = move || {
            let began = Instant::now();
            let opened = Producer::open(&fences.properties, &owned).map(drop);
            fences.ids().done(&owned, opened.is_ok());
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
        if let Err(error) = spawn("kafka-fence", put_up) {
            self.ids().done(id, false);
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
        ids.done("a", false);
        ids.done("b", true);
        assert!(ids.admit("a") && !ids.admit("b"));
    }

    #[test]
    fn remembered_and_running_fences_are_bounded() {
        let mut ids = Ids::default();
        let admitted = (0..2 * AT_ONCE_MAX).filter(|n| ids.admit(&n.to_string())).count();
        assert_eq!(admitted, AT_ONCE_MAX);
        (0..AT_ONCE_MAX).for_each(|n| ids.done(&n.to_string(), true));
        for n in 0..2 * REMEMBERED_MAX {
            let id = format!("later-{n}");
            assert!(ids.admit(&id));
            ids.done(&id, true);
        }
        assert_eq!((ids.fenced.len(), ids.under_way), (REMEMBERED_MAX, 0));
    }
}
