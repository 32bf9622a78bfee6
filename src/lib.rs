//! ratchet, an idempotent receiver for Kafka.
//!
//! It reads a topic, drops what it has already seen and what is older than what it has seen, and
//! forwards the rest exactly once. These nouns mean the same in code, YAML, logs, metrics and docs:
//!
//! - **topology**: one YAML file: an input, how its records are identified and versioned, an output
//! - **record**: one Kafka record of the input
//! - **identity**: the bytes that say which thing a record is about
//! - **version**: bytes whose order says which record is newer
//! - **entry**: what is remembered of an identity
//! - **verdict**: forwarded, duplicate, stale or invalid, with its reason
//! - **task**: one input partition's work
//! - **lane**: one thread with its own consumer, transactional producer and tasks; lanes share nothing
//! - **store**: a task's RocksDB
//! - **overlay**: a transaction's writes, in memory until Kafka has committed
//! - **changelog**: the compacted topic that the store can be rebuilt from
//! - **stream time**: the highest record timestamp that a task has seen
//! - **cluster**: where topics live: `kafka` or `embedded`
//!
//! The rooms, from the outside in; each knows only those below it, and which is in docs/architecture.md:
//!
//! | room | what it is |
//! |---|---|
//! | [`cli`] | the commands |
//! | [`engine`] | lanes that take records through the rules, exactly once |
//! | [`infer`] | proposing a topology for captured records |
//! | [`rehearsal`] | judging without a cluster; a topology's own tests |
//! | [`topology`], [`config`] | what people write: YAML text, its spec, what is compiled of it; the worker's settings |
//! | [`capture`] | records that were captured into files |
//! | [`cluster`] | the traits that a lane speaks to; `cluster::kafka` and `cluster::embedded` |
//! | [`state`] | stores; the only room that knows RocksDB as one |
//! | [`observe`] | metrics, health, logs |
//! | [`dedup`] | pure: what a record means and whether it is new |
//! | [`format`], [`record`], [`yaml`], [`words`], [`lock`] | persisted bytes, records, YAML with places, numbers with their nouns, a lock on a file |
//! | [`sabotage`] | for the simulation alone |
#![deny(missing_docs)]
// What others write never ends a thread: an error is answered, or an invariant is named by `expect`. Indices are in
// bounds by the code beside them, which is what the fuzzers try.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::todo, clippy::unimplemented))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure by the machine's clocks"))]

#[cfg(test)]
extern crate self as ratchet;

pub mod capture;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod dedup;
pub mod engine;
pub mod format;
pub mod infer;
pub mod lock;
pub mod observe;
pub mod record;
pub mod rehearsal;
#[cfg(test)]
mod rooms;
pub mod sabotage;
pub mod state;
pub mod topology;
pub mod words;
pub mod yaml;
