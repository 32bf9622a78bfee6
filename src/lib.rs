//! ratchet, an idempotent receiver for Kafka.
//!
//! It reads a topic, drops records that it has already seen or that are older than what it has seen, and takes the rest on
//! exactly once: to a topic, into a database, to a provider, or to a function of yours.
//!
//! ```no_run
//! use ratchet::{Record, StepError, Steps, Worker};
//!
//! async fn pay(record: &Record, steps: &mut Steps) -> Result<String, StepError> {
//!     let payment: serde_json::Value = record.json()?;
//!     let charge = steps.call("charge", async |key| charge(&payment, key).await).await?;
//!     steps.call("receipt", async |key| mail(&charge, key).await).await
//! }
//! # async fn charge(_: &serde_json::Value, _: ratchet::Key) -> Result<String, StepError> { Ok(String::new()) }
//! # async fn mail(_: &str, _: ratchet::Key) -> Result<String, StepError> { Ok(String::new()) }
//!
//! Worker::new().config("ratchet.yaml").handler("payments.yaml", pay).logs().signals().run()
//! # ; Ok::<(), ratchet::Error>(())
//! ```
//!
//! A function is run for each new record, and again after a crash; steps that are done give what they gave, without doing
//! anything. [`Worker`] runs topologies, [`Steps`] is what a function does its work by, [`StepError`] says how a step has
//! failed. What is promised, and how to write a function, is in the book of handlers, `docs/handlers.md`.
//!
//! As a dependency it needs no command line: `default-features = false`.
//!
//! # Nouns
//!
//! These mean the same in code, YAML, logs, metrics and docs:
//!
//! - **topology**: one YAML file: an input, how its records are identified and versioned, an output or a sink
//! - **record**: one Kafka record of the input
//! - **identity**: the bytes that say which thing a record is about
//! - **version**: bytes whose order says which record is newer
//! - **scope**: where versions can be compared, such as one server: all records with the same `epoch` parts
//! - **epoch**: the stretch of the input in which one scope is current, from its first record or its return until
//!   another scope's; a later epoch is newer, whatever the versions
//! - **entry**: what is remembered of an identity
//! - **verdict**: forwarded, duplicate, stale or invalid, with its reason
//! - **task**: one input partition's work
//! - **lane**: one thread with its own consumer, transactional producer and tasks; lanes share nothing
//! - **store**: a task's RocksDB
//! - **overlay**: a transaction's writes, in memory until Kafka has committed
//! - **changelog**: the compacted topic that the store can be rebuilt from
//! - **position record**: the last changelog record of each transaction: its token, its owner, and how far the task has
//!   got
//! - **owner**: the transactional id that may have written for a partition; it is named beside the committed offset
//! - **claim**: a transaction of offsets only that names a partition's new owner, before that writes for it
//! - **stream time**: the highest record timestamp that a task has seen
//! - **sink**: where survivors go when they do not go to a topic
//! - **effect**: what one survivor causes in a sink
//! - **row**: a committing sink's own word on how far a task has come
//! - **redo**: the Kafka half of a transaction, kept by the sink until Kafka has it
//! - **provider**: the system that a calling sink calls
//! - **reservation**: what is written before a call; **settlement**: what is written after it
//! - **attempt**: one call; **in doubt**: one that may or may not have happened
//! - **result**: what a call was answered, remembered for duplicates
//! - **gate**: who is asked whether an identity was passed on elsewhere; **mark**: what it keeps of the first one
//! - **handler**: a function that does a record's work
//! - **step**: a named part of that; **journal**: the outcomes of a record's steps
//! - **request**: an HTTP request that is carried out once; **key**: what its client names it by; **answer**: what the
//!   service said to it, remembered for those that repeat it
//! - **token**, **lease**: what a request's reservation is known by, and how long it is good for
//! - **cluster**: where topics are: `kafka` or `embedded`
//!
//! The rooms that the crate is made of are for those who work on it: `make docs` shows them, docs/dev/architecture.md says
//! which knows which.
#![deny(missing_docs)]
// Foreign input never ends a thread: errors are returned, and `expect` names each invariant. Indices are in bounds by
// the code around them, which the fuzzers test.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::todo, clippy::unimplemented))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure by the machine's clocks"))]

#[cfg(test)]
extern crate self as ratchet;

#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::capture;
#[cfg(feature = "program")]
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod cli;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_cluster::cluster;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod config;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::dedup;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod effect;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::encodings;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod engine;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::folder;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::format;
#[doc(inline)]
pub use ratchet_http::http;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod infer;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::lock;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::logs;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod observe;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod postgres;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod provider;
#[cfg(feature = "program")]
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod proxy;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::record;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod redis;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod registry;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod rehearsal;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod rendering;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::request;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_http::requests;
#[cfg(test)]
mod rooms;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::sabotage;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::schemas;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod state;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_cluster::tls;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod topology;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_cluster::web;
#[cfg(test)]
mod wording;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::words;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod worker;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub use ratchet_core::yaml;
#[cfg(test)]
#[path = "../crates/core/src/yaml/testing.rs"]
mod yaml_testing;

pub use postgres::steps::{Database, tokio_postgres};
pub use provider::handler::{Key, Record, Reply, StepError, Steps, Transaction};
pub use worker::{Error, Stop, Worker};
