//! Compares ratchet with pass-throughs and with the alternatives, on one real Kafka.
//!
//! `make bench` runs everything and writes docs/benchmarks.md; `make bench ARGS='--parts ids --rounds 1'` runs a
//! part. Contenders are separate processes, and take turns on the same broker and the same preloaded topics. A run
//! only counts if its output has as many records as the generator's own model says.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures with the machine's clocks")]

use ratchet_testkit::{kafka, random, redis_server, server};

mod alone;
mod broker;
mod calls;
mod collector;
mod command;
mod contender;
mod failure;
mod figures;
mod floor;
mod formats;
mod gate;
mod generate;
mod growth;
mod guard;
mod latency;
mod limit;
mod live;
mod load;
mod measure;
mod metrics;
mod moves;
mod native;
mod part;
mod plain;
mod postgres;
mod progress;
mod redis;
mod report;
mod requests;
mod restore;
mod results;
mod runner;
mod segments;
mod spec;
mod stats;
mod steady;
mod throughput;
mod transport;
mod usage;
#[path = "../support/uuid.rs"]
mod uuid;
mod warm;

use std::process::ExitCode;

fn main() -> ExitCode {
    match command::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
