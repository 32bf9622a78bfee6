//! ratchet side by side with pass-throughs and with what else there is for the job, on one real Kafka.
//!
//! `make bench` runs everything and writes docs/benchmarks.md; `make bench ARGS='--parts ids --rounds 1'` a
//! part. Contenders are processes of their own, take turns on the same broker and the same preloaded topics,
//! and a run counts only if its output has as many records as the generator's own model says.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures with the machine's clocks")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "it is a program")]

mod broker;
mod contender;
mod failure;
#[path = "../../tests/support/kafka/mod.rs"]
mod kafka;
mod part;
mod progress;
mod results;
mod segments;
mod spec;
mod stats;
mod throughput;
mod usage;

fn main() {
    let progress = progress::Progress::new();
    progress.say("not yet");
    let _ = (part::ALL, results::versions(), results::Machine::this());
}
