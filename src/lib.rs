//! ratchet, an idempotent receiver for Kafka.
//!
//! It reads a topic, drops records that it has already seen or that are older than what it has seen, and forwards
//! the rest exactly once. These nouns mean the same in code, YAML, logs, metrics and docs:
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
//! - **cluster**: where topics are: `kafka` or `embedded`
//!
//! The rooms, from the outside in. Each knows only rooms below it; docs/architecture.md says which:
//!
//! | room | what it is |
//! |---|---|
//! | [`cli`] | the commands |
//! | [`engine`] | lanes that take records through the rules, exactly once |
//! | [`infer`] | proposing a topology for captured records |
//! | [`rehearsal`] | judging without a cluster; a topology's own tests |
//! | [`rendering`] | what a record causes in a sink: statements and their parameters |
//! | [`topology`], [`config`] | what users write: a topology's YAML, its spec and compiled form; the worker's settings |
//! | [`capture`] | records captured into files |
//! | [`cluster`] | the traits that a lane uses; `cluster::kafka` and `cluster::embedded` |
//! | [`effect`] | what a sink is, and its drivers |
//! | [`state`] | stores; the only room that uses RocksDB as one |
//! | [`observe`] | metrics, health, logs |
//! | [`dedup`] | pure: what a record means and whether it is new |
//! | [`mod@format`], [`record`], [`yaml`], [`words`], [`lock`] | persisted bytes, records, YAML with positions, numbers with their nouns, a file lock |
//! | [`sabotage`] | for the simulation only |
#![deny(missing_docs)]
// Foreign input never ends a thread: errors are returned, and `expect` names each invariant. Indices are in bounds by
// the code around them, which the fuzzers test.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::todo, clippy::unimplemented))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure by the machine's clocks"))]

#[cfg(test)]
extern crate self as ratchet;

pub mod capture;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod dedup;
pub mod effect;
pub mod engine;
pub mod format;
pub mod infer;
pub mod lock;
pub mod observe;
pub mod record;
pub mod rehearsal;
pub mod rendering;
#[cfg(test)]
mod rooms;
pub mod sabotage;
pub mod state;
pub mod topology;
pub mod words;
pub mod yaml;
