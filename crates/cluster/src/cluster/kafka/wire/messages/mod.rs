//! The requests and responses of the hot path, by hand: Fetch and Produce. Bodies only: the frame, the header and the
//! correlation are the connection's.
//!
//! Responses are borrowed from the buffer that they came in; they are checked as a whole before anything of them is
//! used. Requests with batches are runs of bytes, so that no batch is copied.
//!
//! **Failure**: a response that does not fit its form is [`Malformed`]: the connection cannot be trusted any more.

use thiserror::Error;

pub mod fetch;
pub mod produce;

/// A response that does not fit its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the broker's response to {0} is malformed")]
pub struct Malformed(pub &'static str);

#[cfg(test)]
mod tests;
