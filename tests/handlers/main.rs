//! Handlers between a real Apache Kafka, a real provider and a real PostgreSQL: the programs in `examples` are run from
//! outside and killed, and then what the provider and the database have done is counted.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

#[path = "../support/checker/mod.rs"]
mod checker;
#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../postgres/database.rs"]
mod database;
#[path = "../support/disk.rs"]
mod disk;
#[path = "../support/job.rs"]
mod job;
#[path = "../support/kafka/mod.rs"]
mod kafka;
#[path = "../support/load.rs"]
mod load;
#[path = "../support/operator.rs"]
mod operator;
#[path = "../provider/mod.rs"]
mod provider;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/screen.rs"]
#[allow(dead_code, reason = "no operator draws here")]
mod screen;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/until.rs"]
mod until;

mod crashes;
mod frozen;
mod journal;
mod leaving;
mod saga;
mod sessions;
mod settled;
mod work;
