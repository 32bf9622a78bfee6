//! Requests that are carried out once: what every store and every way to it must do, on real servers.
//!
//! `stores` has one suite for all stores, `layer` one for the layer on each of them.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

#[path = "../support/random.rs"]
mod random;

mod stores;
