//! The clients of lanes on the wire, driven by the calling thread: a reader for a member of the consumer group, a
//! reader for a changelog, and a transactional producer. A lane is a thread that reads, judges and forwards records;
//! the wire is ratchet's own implementation of Kafka's protocol, as opposed to librdkafka.
//!
//! - `settings`: librdkafka's properties as the wire interprets them
//! - `client_settings`: how connections are made; `network`: sockets and clocks, or a simulation's
//! - `api_versions`: which requests brokers support
//! - `batch`: records, borrowed from brokers' responses
//! - `fetch_client`: a fetcher with its connections, which reads partitions; `reader`: reads one partition with it
//! - `producer`: a writer with its connections
//! - `stamp`: the last timestamp that a broker set in a partition
//! - `trouble`: trouble with connections, and when it is reported
//!
//! Invariant: all work is done within calls. While a lane is busy, brokers' responses wait in the sockets' buffers.
//!
//! **Failure**: see each module. No error and no log line contains a property's value.

mod api_versions;
mod batch;
mod client_settings;
mod fetch_client;
mod network;
mod producer;
mod reader;
mod settings;
mod stamp;
mod trouble;

pub(super) use api_versions::{Offer, Offers, query_api_versions};
pub use batch::Batch;
pub use client_settings::ClientSettings;
pub use fetch_client::FetchClient;
pub use network::{Network, Networks};
pub use producer::{Membership, Producer};
pub use reader::Reader;
pub(super) use settings::{WireSettings, known_properties, wire_settings};
pub use stamp::last_broker_timestamp;
pub use trouble::AcceptedLogins;
