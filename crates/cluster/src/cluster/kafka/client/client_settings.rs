//! Settings of the clients on the wire (ratchet's own client), and whether they use sockets or a simulation's network.

use std::sync::Arc;

use super::super::oauth::Source;
use super::super::wire::brokers::{Address, Brokers, Settings};
use super::super::wire::edge::Edge;
use super::network::{Network, Networks, Transport};

/// How connections are made.
#[derive(Clone)]
pub struct ClientSettings {
    /// The settings of [`Brokers`].
    pub(super) brokers: Arc<Settings>,
    /// The bootstrap addresses.
    pub(super) bootstrap: Vec<Address>,
    /// How clients reach the brokers.
    pub(super) transport: Transport,
    /// The source of tokens for logins that need them.
    pub(super) token_source: Option<Arc<Source>>,
}

impl ClientSettings {
    /// Settings of clients that run in a simulation.
    pub fn simulated(brokers: Settings, bootstrap: Vec<Address>, networks: Arc<dyn Networks>) -> Self {
        Self { brokers: Arc::new(brokers), bootstrap, transport: Transport::Simulated(networks), token_source: None }
    }

    /// Creates a client: its network, and its view of the brokers. It has not connected yet.
    pub(super) fn open(&self) -> (Box<dyn Network>, Brokers) {
        if let Some(source) = &self.token_source {
            // Has no effect if the source obtains tokens already.
            source.start_obtaining_tokens();
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
