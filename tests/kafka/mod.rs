//! ratchet against a real Apache Kafka: the built binary is run from outside, killed, frozen, crowded and misled,
//! and each run is then judged by an independent checker.
//!
//! All tests share one broker, each with its own topics; a test that has to harm a broker starts its own. Seeds are
//! printed; `RATCHET_TEST_SEED` repeats them. Logs are left in the target folder below `kafka-VERSION/runs`.

mod access;
mod audit;
mod bombs;
mod captures;
mod changes;
mod clocks;
mod data_paths;
mod faults;
mod idle;
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
mod silence;
mod stalls;
mod takeovers;
mod unreached;
