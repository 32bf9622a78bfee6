//! The wire: a client for Kafka's protocol that works batch by batch. It does all per-record work, without librdkafka.
//!
//! librdkafka still does the rare and intricate work: group membership, administration, and the queries when a
//! partition is taken over from another instance. The wire fetches, produces and ends transactions. Responses are read
//! in place, and batches are built in the buffer from which they are sent.
//!
//! **Sans I/O**: every module except [`edge`] is a state machine with bytes in, bytes out and a clock that is passed
//! in, so the simulation runs the real client.
//!
//! - `primitives`: numbers, strings and arrays as Kafka writes them
//! - `records`: record batches, read in place, built in place, unpacked within bounds
//! - `code`: the error codes in brokers' responses
//! - `headers`: a record's headers, and the number of records in a batch, for callers outside the wire
//! - `messages`: the requests and responses of the hot path, Fetch and Produce; most others come from the crate
//!   kafka-protocol
//! - `connection`: one connection: frames, correlation ids, versions, and the login at its beginning (`login`)
//! - `brokers`: one client's connections, the partitions' leaders, and the outcomes of requests
//! - `fetcher`: reads partitions; `writer`: writes in transactions
//! - `edge`: sockets and TLS
//! - `mistakes`: deliberate mistakes that the simulation has to detect (`tests/sim/wire`)
//!
//! **Failure**: bytes from a broker are not trusted: malformed input is an error of the connection or of the partition,
//! never a panic. A request whose connection is lost has an unknown outcome, and is reported as such.

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
