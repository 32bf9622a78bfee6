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

use ratchet_testkit::{
    alone, built, checked, checker, clock, cluster, database, disk, flips, hostile, issuer, job, kafka, load, operator,
    program, provider, random, rebuild, redis_server, schema_registry, screen, secrets as planted, segment, until,
};

#[path = "../proxy/relay.rs"]
mod relay;

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
#[path = "../schemas/mod.rs"]
mod schemas;
#[path = "../sinks/mod.rs"]
mod sinks;
