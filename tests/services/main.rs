//! All that needs servers, in one test binary: real Apache Kafka, PostgreSQL and Redis, which its suites share, and
//! providers and services in this process. Each suite has a folder beside this one and says there what it is about.
//!
//! One binary, since each links RocksDB and librdkafka, and each would start its own broker. Tests of all suites run side
//! by side, in threads of one process, so none may change the process: a test that has to runs itself as another one.
//! `make test ARGS='--test services -- sinks::'` runs one suite.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe running systems from outside: they have a clock and may wait"
)]

#[path = "../support/alone.rs"]
mod alone;
#[path = "../support/checked.rs"]
mod checked;
#[path = "../support/checker/mod.rs"]
mod checker;
#[path = "../support/clock.rs"]
mod clock;
#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../postgres/database.rs"]
mod database;
#[path = "../support/disk.rs"]
mod disk;
#[path = "../support/flips.rs"]
mod flips;
#[path = "../support/hostile.rs"]
mod hostile;
#[path = "../support/issuer.rs"]
mod issuer;
#[path = "../support/job.rs"]
mod job;
#[path = "../support/kafka/mod.rs"]
mod kafka;
#[path = "../support/load.rs"]
mod load;
#[path = "../support/operator.rs"]
mod operator;
#[path = "../support/secrets.rs"]
mod planted;
#[path = "../support/program.rs"]
mod program;
#[path = "../provider/mod.rs"]
mod provider;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/rebuild.rs"]
mod rebuild;
#[path = "../gates/redis.rs"]
mod redis_server;
#[path = "../proxy/relay.rs"]
mod relay;
#[path = "../support/screen.rs"]
mod screen;
#[path = "../support/segment.rs"]
mod segment;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/until.rs"]
mod until;

#[path = "../bounds/mod.rs"]
mod bounds;
#[path = "../calls/mod.rs"]
mod calls;
#[path = "../cluster_kafka/mod.rs"]
mod cluster_kafka;
#[path = "../gates/mod.rs"]
mod gates;
#[path = "../handlers/mod.rs"]
mod handlers;
#[path = "../histories/mod.rs"]
mod histories;
#[path = "../http/mod.rs"]
mod http;
#[path = "../postgres/mod.rs"]
mod postgres;
#[path = "../proxy/mod.rs"]
mod proxy;
#[path = "../kafka/mod.rs"]
mod real_kafka;
#[path = "../requests/mod.rs"]
mod requests;
#[path = "../sinks/mod.rs"]
mod sinks;
