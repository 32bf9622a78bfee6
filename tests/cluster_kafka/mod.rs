//! `cluster::kafka` against a real Apache Kafka: what the traits of `cluster` promise, one behaviour a test. Records
//! are read back, and foreign transactions written, by rust-rdkafka's own clients, so that a bug in ratchet's
//! cannot hide itself.

mod common;
mod failures;
mod flips;
mod members;
mod outages;
mod pass_through;
mod readers;
mod records;
mod settling;
mod topics;
mod transactions;
mod wakers;
