//! The driver for PostgreSQL against a real one: what commits, what is refused, and what is left after every failure.
//!
//! The server is started by the tests, in its own folder and on a free port; each test has its own database.
#![allow(clippy::disallowed_methods, reason = "the tests observe a running server: they have a clock and may wait")]

#[path = "../support/kafka/mod.rs"]
mod kafka;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/until.rs"]
mod until;

mod bundles;
mod commit;
mod database;
mod decimals;
mod inbox;
mod inspect;
mod own_tables;
mod proxy;
mod rejected;
mod speed;
mod tables;
mod task;
mod trouble;
mod ways_in;
