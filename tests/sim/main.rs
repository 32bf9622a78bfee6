//! Goal: the engine as it ships, on a simulated cluster, under schedules that come from a seed alone.
//!
//! - `kafka`: a Kafka cluster as a state machine, knowing nothing of ratchet

mod kafka;
