//! The requests and responses of the hot path, Fetch and Produce, encoded and decoded by hand. Bodies only: the frame,
//! the header and the correlation id belong to the connection.
//!
//! Responses are borrowed from the buffer that they arrived in; they are checked as a whole before any part is used.
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
