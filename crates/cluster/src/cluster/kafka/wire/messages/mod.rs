//! The bodies of the hot path's requests and responses, Fetch and Produce, encoded and decoded here without
//! kafka-protocol. The frame, the header and the correlation id belong to the connection.
//!
//! Responses are borrowed from the buffer in which they arrived; each is checked as a whole before any part is used.
//! Requests with batches are lists of byte segments, so that no batch is copied.
//!
//! **Failure**: a response that cannot be decoded is [`Malformed`]: the connection can no longer be trusted.

use thiserror::Error;

pub mod fetch;
pub mod produce;

/// A response that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the broker's response to {0} is malformed")]
pub struct Malformed(pub &'static str);

#[cfg(test)]
mod tests;
