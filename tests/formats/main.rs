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

#[path = "../postgres/database.rs"]
mod database;
mod decode;
mod engine;
mod fixtures;
#[path = "../support/kafka/mod.rs"]
mod kafka;
mod later;
#[path = "../gates/redis.rs"]
#[allow(dead_code, reason = "no gate is asked here")]
mod redis_server;
mod requests;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/until.rs"]
mod until;
mod write;
