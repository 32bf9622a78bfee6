//! `ratchet proxy` from outside: the built program on free ports, a real service behind it, real clients before it.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running program from outside: they have a clock and may wait"
)]

#[path = "../provider/authority.rs"]
mod authority;
mod bounds;
mod client;
mod clients;
mod crashes;
mod crowd;
#[path = "../postgres/database.rs"]
mod database;
#[path = "../support/disk.rs"]
mod disk;
mod frozen;
#[path = "../support/kafka/mod.rs"]
mod kafka;
mod load;
mod outcomes;
mod passing;
#[path = "../support/program.rs"]
mod program;
#[path = "../gates/redis.rs"]
#[allow(dead_code, reason = "its server is all that is needed here")]
mod redis_server;
mod relay;
#[path = "../support/server.rs"]
mod server;
mod service;
mod settings;
mod shop;
mod stopping;
mod stores;
mod switching;
mod syncs;
mod tls;
mod troubled;
#[path = "../support/until.rs"]
mod until;
