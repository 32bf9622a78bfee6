//! Kafka's wire under simulation: brokers that speak bytes, and the client itself.
//!
//! - `cluster`: the brokers: those of the engine's simulation, `kafka`, and what they say, `speech`
//! - `links`: between clients and brokers: delays, cuts at any byte, late copies of requests; `net`: one client on them;
//!   `throttles`: how long brokers want to be left alone
//! - `scenarios`: single situations of the fetcher, on a `rig`
//! - `reading`: seeds of the fetcher; `writing`: what is written meanwhile; `judge`: whether what is handed on is right
//! - `writers`: seeds of the writer, and their judge
//! - `noticing`: tests the judges with deliberate mistakes
//!
//! It is part of the wire's unit tests. `SIM_WIRE_SEEDS` says how many seeds are run, `SIM_WIRE_FIRST` from which on.

use std::ops::Range;

use kafka::Partition;

use crate::record::TopicPartition;

/// The client under test.
pub use crate::cluster::kafka::wire as client;

pub mod cluster;
pub mod judge;
#[allow(dead_code, unused_imports, reason = "shared with the engine's simulation")]
#[path = "../kafka/mod.rs"]
pub mod kafka;
pub mod links;
pub mod net;
mod noticing;
pub mod reading;
mod rig;
mod scenarios;
#[allow(dead_code, unused_imports, reason = "shared with the engine's simulation")]
#[path = "../speech/mod.rs"]
pub mod speech;
mod throttles;
pub mod writers;
pub mod writing;

/// A partition as the brokers name it.
fn theirs(partition: &TopicPartition) -> Partition {
    Partition::new(&*partition.topic, partition.partition)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// The seeds to run: `few`, always the same, or those that the environment names; and whether they are so many that
/// together they have to reach every situation.
fn seeds(few: u64) -> (Range<u64>, bool) {
    let (first, count) = (number("SIM_WIRE_FIRST").unwrap_or(0), number("SIM_WIRE_SEEDS").unwrap_or(few));
    (first..first + count, count >= few)
}
