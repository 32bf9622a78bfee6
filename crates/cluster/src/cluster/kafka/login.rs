//! Remembers that a login was accepted, since it should then be accepted again.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the cluster has ever accepted a login from a client with the same properties. A later rejection is then
/// regarded as temporary: a broker that restarts may reject logins before it has loaded its users.
#[derive(Default)]
pub(super) struct Login(AtomicBool);

impl Login {
    /// Notes that a login was accepted.
    pub fn note_success(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a login was ever accepted.
    pub fn has_succeeded(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
