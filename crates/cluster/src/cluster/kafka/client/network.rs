//! The clock and the connections of a client: the machine's, or a simulation's.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::wire::brokers::Brokers;
use super::super::wire::edge::{Edge, SocketSettings};
use crate::cluster::Contact;
use crate::tls::Renewed;

/// The clock and the connections of one client.
pub trait Network: Send {
    /// The current time.
    fn now(&self) -> Instant;

    /// The current time of the wall clock, in milliseconds since the epoch.
    fn wall_ms(&self) -> i64;

    /// Does the work that needs no waiting, then waits up to `wait` for an event that the client can act upon. Returns
    /// whether the bell (see [`Network::wake_by`]) ended the wait. See [`Edge::drive`].
    fn drive(&mut self, brokers: &mut Brokers, wait: Duration) -> bool;

    /// Ends a wait whenever `bell` is readable: another thread rings it by writing to its other end.
    fn wake_by(&mut self, bell: UnixStream);
}

/// Opens a [`Network`] for each client.
pub trait Networks: Send + Sync {
    /// The network of a new client, and the seed of its random numbers.
    fn open(&self) -> (Box<dyn Network>, u64);
}

/// How clients reach brokers.
#[derive(Clone)]
pub(super) enum Transport {
    /// The machine's sockets and clocks.
    Sockets {
        /// TLS, if it is used.
        tls: Option<Arc<Renewed<rustls::ClientConfig>>>,
        /// How sockets are opened.
        settings: SocketSettings,
        /// What this process knows about the brokers' availability.
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
