//! Kafka's wire under simulation: brokers that speak bytes, and the client itself.
//!
//! - `batch`: record batches as brokers keep them, encoded and decoded apart from the client's own code
//! - `log`: a partition: batches, markers, aborted transactions, leaders' epochs, compaction, retention, truncation
//! - `cluster`: brokers, who leads what and who still believes it does
//! - `frames`, `answers`: requests and responses as bytes, which the engine's simulation shares
//! - `broker`: what becomes of requests; `sessions`: fetch sessions; `fetching`: what a fetch reads
//! - `links`: between clients and brokers: delays, cuts at any byte, late copies of requests; `net`: one client on them;
//!   `throttles`: how long brokers want to be left alone
//! - `scenarios`: single situations of the fetcher, on a `rig`
//! - `reading`: seeds of the fetcher; `writing`: what is written meanwhile; `judge`: whether what is handed on is right
//! - `coordinator`, `transactions`, `producing`: transactions, groups' offsets, and what a leader checks before it
//!   appends
//! - `writers`: seeds of the writer, and their judge
//!
//! Every rule names its source: a KIP, or a class of Apache Kafka (4.1).
//!
//! It is part of the wire's unit tests. `SIM_WIRE_SEEDS` says how many seeds are run, `SIM_WIRE_FIRST` from which on.

use std::ops::Range;

/// The client under test.
pub use crate::cluster::kafka::wire as client;

pub mod answers;
pub mod batch;
pub mod broker;
pub mod cluster;
pub mod coordinator;
pub mod fetching;
pub mod frames;
pub mod judge;
pub mod links;
pub mod log;
pub mod net;
pub mod producing;
pub mod random;
pub mod reading;
mod rig;
mod scenarios;
pub mod sessions;
mod throttles;
pub mod transactions;
pub mod writers;
pub mod writing;

/// Within how many seeds a deliberate mistake has to be noticed.
const MISTAKE_SEEDS: u64 = 2_000;

/// The seeds to run: `few`, always the same, or those that the environment names; and whether they are so many that
/// together they have to reach every situation.
fn seeds(few: u64) -> (Range<u64>, bool) {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse().unwrap());
    let (first, count) = (number("SIM_WIRE_FIRST").unwrap_or(0), number("SIM_WIRE_SEEDS").unwrap_or(few));
    (first..first + count, count >= few)
}
