//! What a client of brokers runs on: the time, and connections.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::wire::brokers::Brokers;
use super::super::wire::edge::{Edge, SocketSettings};
use crate::cluster::Contact;

/// What one client runs on.
pub trait Network: Send {
    /// The present.
    fn now(&self) -> Instant;

    /// The present by the wall clock, milliseconds since the epoch.
    fn wall_ms(&self) -> i64;

    /// Does what can be done without blocking, and waits up to `wait` for something that the client can act upon.
    /// Whether the bell ended the wait. See [`Edge::drive`].
    fn drive(&mut self, brokers: &mut Brokers, wait: Duration) -> bool;

    /// Ends a wait whenever something can be read from `bell`.
    fn wake_by(&mut self, bell: UnixStream);
}

/// Gives each client what it runs on, and a seed for what it draws.
pub trait Networks: Send + Sync {
    /// For one client.
    fn open(&self) -> (Box<dyn Network>, u64);
}

/// What clients run on.
#[derive(Clone)]
pub(super) enum Ground {
    /// The machine's sockets and clocks.
    Sockets {
        /// TLS, if it is spoken.
        tls: Option<Arc<rustls::ClientConfig>>,
        /// How sockets are opened.
        settings: SocketSettings,
        /// What is known of the brokers.
        contact: Arc<Contact>,
    },
    /// A simulation.
    Simulated(Arc<dyn Networks>),
}

impl Network for Edge {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn drive(&mut self, brokers: &mut Brokers, wait: Duration) -> bool {
        Self::drive(self, brokers, wait)
    }

    fn wake_by(&mut self, bell: UnixStream) {
        Self::wake_by(self, bell);
    }
}
