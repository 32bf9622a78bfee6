//! The clients of lanes on the wire: for what a member reads, a changelog's reader and a transactional producer, driven
//! by the calling thread.
//!
//! - `settings`: librdkafka's properties as the wire interprets them
//! - `connecting`: how connections are made; `network`: sockets and clocks, or a simulation's
//! - `api_versions`: which requests brokers know
//! - `batch`: records, borrowed from brokers' responses
//! - `reading`: reads a member's partitions; `reader`: reads a changelog; both are a fetcher and its connections
//! - `producer`: a writer and its connections
//! - `stamp`: the last timestamp that a broker gave in a partition
//! - `trouble`: trouble with connections, and when it is reported
//!
//! Invariant: all work is done within calls. While a lane is busy, brokers' answers wait in the sockets' buffers.
//!
//! **Failure**: see each module. No error and no log line contains a property's value.

mod api_versions;
mod batch;
mod connecting;
mod network;
mod producer;
mod reader;
mod reading;
mod settings;
mod stamp;
mod trouble;

pub(super) use api_versions::{Offer, Offers, ask};
pub use batch::Batch;
pub use connecting::ClientSettings;
pub use network::{Network, Networks};
pub use producer::{Membership, Producer};
pub use reader::Reader;
pub use reading::Reading;
pub(super) use settings::{Wired, known_properties, wire};
pub(super) use stamp::last_stamp;
pub use trouble::Accepted;
