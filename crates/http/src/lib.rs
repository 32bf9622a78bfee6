//! Idempotent HTTP requests, for ratchet: a tower layer, and a store of requests in a folder.
//!
//! Programs get it from the package `ratchet`, as `ratchet::http`. A program that needs nothing else may depend on this
//! crate alone: it compiles no Kafka client, and RocksDB only with the feature `folder`.
#![deny(missing_docs)]
// Foreign input never ends a thread: errors are returned, and `expect` names each invariant. Indices are in bounds by
// the code around them, which the fuzzers test.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::todo, clippy::unimplemented))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure by the machine's clocks"))]

pub mod http;
#[cfg(feature = "folder")]
pub mod requests;

// Every crate refers to a module by the same path.
pub use ratchet_core::{dedup, folder, format, lock, logs, request};
