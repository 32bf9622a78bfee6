//! The bytes of earlier releases: what each format's program wrote is kept in `tests/fixtures`, and stays readable for
//! ever; what a later release writes is refused by name.
//!
//! - `fixtures`: where they are, and rooms in which the program continues from one
//! - `decode`: each kind of bytes keeps its meaning
//! - `engine`: the whole program continues from a folder of topics, with its stores and without
//! - `later`: the program meets a later format number, in each place that has one
//! - `requests`: what is remembered of HTTP requests
//! - `write`: writes the fixtures of today's formats; ignored, for `make fixtures`

#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

use ratchet_testkit::{database, redis_server};

mod decode;
mod engine;
mod fixtures;
mod later;
mod requests;
mod write;
