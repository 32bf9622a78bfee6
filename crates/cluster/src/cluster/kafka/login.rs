//! Remembers that a login was accepted: it will be accepted again.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the cluster has ever accepted a login from a client with the same properties. A login that was accepted once
/// will be accepted again, at the latest when it is put right: a broker that restarts may reject it before it knows who
/// may log in.
#[derive(Default)]
pub(super) struct Login(AtomicBool);

impl Login {
    /// Notes that a login was accepted.
    pub fn succeeded(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a login was ever accepted.
    pub fn has_succeeded(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
