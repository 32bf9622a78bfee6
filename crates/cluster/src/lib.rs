//! Where topics are: the traits that ratchet's lanes use, the clients of Kafka behind them, and topics in a folder.
//! Also TLS, and requests by HTTP.
//!
//! For ratchet itself: the package `ratchet` has the public interface.
#![deny(missing_docs)]
// Foreign input never ends a thread: errors are returned, and `expect` names each invariant. Indices are in bounds by
// the code around them, which the fuzzers test.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::todo, clippy::unimplemented))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure by the machine's clocks"))]

/// The simulation's brokers refer to this crate as `ratchet`.
#[cfg(test)]
extern crate self as ratchet;

pub mod cluster;
pub mod tls;
pub mod web;

// Every crate knows a room by the same path.
pub use ratchet_core::{format, lock, logs, record, words, yaml};
