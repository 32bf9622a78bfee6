//! Kafka's protocol by the batch: what is done for each record, without librdkafka.
//!
//! librdkafka keeps what is rare and intricate: membership in the group, administration, the questions of a takeover.
//! The wire fetches, produces and ends transactions: a response is read where it lies, and a batch is built where it is
//! sent from.
//!
//! **Sans I/O**: everything here but [`edge`] is a state machine of bytes in, bytes out and a clock that is passed in.
//! So the simulation runs the client itself.
//!
//! - `primitives`: numbers, strings and arrays as Kafka writes them
//! - `records`: record batches: read in place, built in place, compressed within bounds
//! - `code`: the codes of errors that brokers answer with
//! - `messages`: the requests and responses of the hot path; those of control come from the crate kafka-protocol
//! - `connection`: one connection: frames, correlation, versions, and the login at its beginning (`login`)
//! - `brokers`: the connections of one client, who leads what, and which requests failed
//! - `fetcher`: reads partitions; `writer`: writes in transactions
//! - `edge`: sockets and TLS
//! - `mistakes`: deliberate ones, for the simulation (`tests/sim/wire`)
//!
//! **Failure**: bytes from a broker are not trusted: what does not fit is an error of the connection or of the
//! partition, never a panic. What became of a request whose connection was lost is not known, and said so.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, reason = "the clock is passed in"))]

pub mod brokers;
pub mod code;
pub mod connection;
pub mod edge;
pub mod fetcher;
pub mod headers;
pub mod login;
pub mod messages;
pub mod mistakes;
pub mod primitives;
pub mod records;
pub mod writer;

#[cfg(test)]
#[path = "../../../../../../tests/sim/wire/mod.rs"]
mod simulated;
