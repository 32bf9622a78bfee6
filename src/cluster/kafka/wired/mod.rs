//! Lanes on the wire: what a member reads, a changelog's reader and a transactional producer, driven by the thread that
//! calls them.
//!
//! - `settings`, `tls`: librdkafka's properties as the wire understands them, and which of them it does not
//! - `network`: sockets and clocks, or a simulation's
//! - `asking`: which requests brokers know
//! - `batch`: records, borrowed from brokers' responses
//! - `reading`: what a member reads; `reader`: a changelog's; both are a fetcher and its connections
//! - `producer`: a writer and its connections
//! - `stamp`: when a broker last stamped what a partition holds
//! - `trouble`: with connections, and when it is reported
//!
//! Invariant: nothing happens but in a call. While a lane is busy, brokers answer into sockets' buffers.
//!
//! **Failure**: see each module. No error and no log line contains a property's value.

use std::sync::Arc;

use super::oauth::Source;
use super::wire::brokers::{Address, Brokers, Settings};
use super::wire::edge::Edge;

mod asking;
mod batch;
mod network;
mod producer;
mod reader;
mod reading;
mod settings;
mod stamp;
mod tls;
mod trouble;

pub(super) use asking::{Offer, Offers, ask};
pub use batch::Batch;
use network::Transport;
pub use network::{Network, Networks};
pub use producer::{Membership, Producer};
pub use reader::Reader;
pub use reading::Reading;
pub(super) use settings::{Unsupported, Wired, known_properties, wire};
pub(super) use stamp::last_stamp;
pub(super) use tls::{TlsProperties, config as tls_config};
pub use trouble::Accepted;

/// How connections are made.
#[derive(Clone)]
pub struct ClientSettings {
    /// How a client of brokers behaves.
    brokers: Arc<Settings>,
    /// The brokers to begin with.
    bootstrap: Vec<Address>,
    /// How clients reach them.
    transport: Transport,
    /// Who gets tokens for logins that need them.
    tokens: Option<Arc<Source>>,
}

impl ClientSettings {
    /// Settings of clients that run in a simulation.
    pub fn simulated(brokers: Settings, bootstrap: Vec<Address>, networks: Arc<dyn Networks>) -> Self {
        Self { brokers: Arc::new(brokers), bootstrap, transport: Transport::Simulated(networks), tokens: None }
    }

    /// A client that has not connected yet.
    fn open(&self) -> (Box<dyn Network>, Brokers) {
        if let Some(tokens) = &self.tokens {
            tokens.begin();
        }
        let (brokers, bootstrap) = (Arc::clone(&self.brokers), self.bootstrap.clone());
        match &self.transport {
            Transport::Sockets { tls, settings, contact } => {
                let edge = Edge::new(tls.clone(), *settings).sharing(contact);
                (Box::new(edge), Brokers::new(brokers, bootstrap))
            }
            Transport::Simulated(networks) => {
                let (network, seed) = networks.open();
                (network, Brokers::seeded(brokers, bootstrap, seed))
            }
        }
    }
}
