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
//! The rooms, and who may call whom:
//!
//! ```text
//! cli ─► engine ─► dedup     pure: what a record means and whether it is new
//!        │  ├──► state      the only room that knows RocksDB as a store
//!        │  ├──► cluster    the trait a lane speaks to; cluster::kafka, cluster::embedded
//!        │  └──► observe    metrics, health, logs
//!        ├─► topology ─► dedup   YAML text -> spec -> compiled topology
//!        ├─► rehearsal ─► topology, capture, dedup   judging without a cluster; a topology's own tests
//!        ├─► capture         records that were captured into files
//!        └─► config          the worker's own settings
//! yaml: reading YAML with places, known to topology and config
//! lock: a lock on a file, for state and cluster::embedded
//! record: a record as it was read, known to all
//! words: numbers with their nouns, known to all
//! mistakes: deliberate ones for the simulation, made nowhere else
//! format: the bytes of everything that is persisted, known to dedup, state and engine; cluster::kafka reads
//!         from it whom a committed offset names
//! ```
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
pub mod lock;
pub mod mistakes;
pub mod observe;
pub mod record;
pub mod rehearsal;
pub mod state;
pub mod topology;
pub mod words;
pub mod yaml;
