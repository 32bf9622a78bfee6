//! `cluster::kafka` against a real Apache Kafka: what the traits of `cluster` promise, one behaviour a test. Records
//! are read back, and foreign transactions written, by rust-rdkafka's own clients, so that a bug in ratchet's
//! cannot hide itself.
#![expect(clippy::disallowed_methods, reason = "a real Kafka runs by the real clock")]

mod common;
mod failures;
mod members;
mod outages;
mod pass_through;
#[path = "../support/random.rs"]
mod random;
mod readers;
mod records;
mod settling;
#[path = "../support/kafka/mod.rs"]
mod support;
mod topics;
mod transactions;
