//! ratchet between a real Apache Kafka and a real Redis: the built binary is run from outside, and it and the server are
//! killed, frozen and refused, and then what came out is counted.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

#[path = "../support/checked.rs"]
mod checked;
#[path = "../support/checker/mod.rs"]
mod checker;
#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../postgres/database.rs"]
mod database;
#[path = "../support/job.rs"]
mod job;
#[path = "../support/kafka/mod.rs"]
mod kafka;
#[path = "../support/load.rs"]
mod load;
#[path = "../support/operator.rs"]
mod operator;
#[path = "../support/random.rs"]
mod random;
#[path = "../proxy/relay.rs"]
mod relay;
#[path = "../support/screen.rs"]
#[allow(dead_code, reason = "no operator draws here")]
mod screen;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/until.rs"]
mod until;

mod crashes;
mod gated;
mod redis;
mod refused;
mod suppressed;
mod unavailable;
