//! The clock and the source of unique tokens that the layer uses.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::request::Token;

/// Time and randomness, injected so that a simulation can control both.
pub trait Surroundings: Send + Sync {
    /// Time since some fixed moment; it never goes back.
    fn now(&self) -> Duration;
    /// Completes after `length`.
    fn sleep(&self, length: Duration) -> BoxFuture<'static, ()>;
    /// A token that was never used before.
    fn token(&self) -> Token;
}

/// The machine's clock and random numbers.
#[derive(Debug)]
pub(super) struct SystemSurroundings(Instant);

impl SystemSurroundings {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the machine's clock for the layer")]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Surroundings for SystemSurroundings {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, length: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(length))
    }

    fn token(&self) -> Token {
        Token(rand::random())
    }
}
