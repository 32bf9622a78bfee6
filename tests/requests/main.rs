//! Requests that are carried out once: what every store and every way to it must do, on real servers.
//!
//! `stores` has one suite for all stores, `fronts` one for the layer and the proxy on each of them.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

#[path = "../postgres/database.rs"]
mod database;
#[path = "../support/kafka/mod.rs"]
mod kafka;
#[path = "../support/program.rs"]
mod program;
#[path = "../support/random.rs"]
mod random;
#[path = "../gates/redis.rs"]
#[allow(dead_code, reason = "no gate is asked here")]
mod redis_server;
#[path = "../proxy/relay.rs"]
mod relay;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/until.rs"]
mod until;

mod fronts;
mod schedules;
mod stores;
mod transaction;
