//! Lanes on the wire: what a member reads, a changelog's reader and a transactional producer, driven by the thread that
//! calls them.
//!
//! - `settings`, `tls`: librdkafka's properties as the wire understands them, and which of them it does not
//! - `batch`: records, borrowed from brokers' responses
//! - `reading`: what a member reads; `reader`: a changelog's; both are a fetcher and its connections
//! - `producer`: a writer and its connections
//! - `trouble`: with connections, and when it is reported
//!
//! Invariant: nothing happens but in a call. While a lane is busy, brokers answer into sockets' buffers.
//!
//! **Failure**: see each module. No error and no log line contains a property's value.

use std::sync::Arc;

use super::oauth::Source;
use super::wire::brokers::{Address, Brokers, Settings};
use super::wire::edge::{Edge, SocketSettings};
use crate::cluster::Contact;

mod batch;
mod producer;
mod reader;
mod reading;
mod settings;
mod tls;
mod trouble;

pub use batch::Batch;
pub use producer::Producer;
pub use reader::Reader;
pub(super) use reading::Reading;
pub(super) use settings::{Unsupported, Wired, known_properties, wire};
pub(super) use tls::{TlsProperties, config as tls_config};
pub(super) use trouble::Accepted;

/// How connections are made.
#[derive(Clone)]
pub(super) struct ClientSettings {
    /// How a client of brokers behaves.
    pub brokers: Arc<Settings>,
    /// The brokers to begin with.
    pub bootstrap: Vec<Address>,
    /// TLS, if it is spoken.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// How sockets are opened.
    pub sockets: SocketSettings,
    /// Who gets tokens for logins that need them.
    pub tokens: Option<Arc<Source>>,
    /// What is known of the brokers.
    pub contact: Arc<Contact>,
}

impl ClientSettings {
    /// A client that has not connected yet.
    pub fn open(&self) -> (Edge, Brokers) {
        if let Some(tokens) = &self.tokens {
            tokens.begin();
        }
        let edge = Edge::new(self.tls.clone(), self.sockets).sharing(&self.contact);
        (edge, Brokers::new(Arc::clone(&self.brokers), self.bootstrap.clone()))
    }
}
