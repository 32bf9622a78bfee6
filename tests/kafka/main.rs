//! ratchet against a real Apache Kafka: the built binary is run from outside, killed, frozen, crowded and misled,
//! and each run is then judged by an independent checker.
//!
//! All tests share one broker, each with its own topics; a test that has to harm a broker starts its own. Seeds are
//! printed; `RATCHET_TEST_SEED` repeats them. Logs are left in the target folder below `kafka-VERSION/runs`.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

#[path = "../provider/authority.rs"]
mod authority;
#[path = "../support/checked.rs"]
mod checked;
#[path = "../support/checker/mod.rs"]
mod checker;
#[path = "../support/clock.rs"]
mod clock;
#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../support/disk.rs"]
mod disk;
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
#[path = "../support/random.rs"]
mod random;
#[path = "../support/rebuild.rs"]
mod rebuild;
#[path = "../support/screen.rs"]
mod screen;
#[path = "../support/segment.rs"]
mod segment;
#[path = "../support/until.rs"]
mod until;

mod access;
mod audit;
mod bombs;
mod changes;
mod clocks;
mod data_paths;
mod faults;
mod inputs;
mod kills;
mod last_copy;
mod lookalikes;
mod memory;
mod oauth;
mod online;
mod owners;
mod panics;
mod patterns;
mod progress;
mod rebalances;
mod restores;
mod rights;
mod secrets;
mod stalls;
mod takeovers;
mod unreached;
