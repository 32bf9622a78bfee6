//! What ratchet's lanes spend their time with, by its own metrics.

use std::net::SocketAddr;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::failure::Outcome;
use crate::metrics::Metrics;

/// Shares of the lanes' time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Shares {
    /// Waiting for the database: the statements of a transaction, and its commit.
    pub database: f64,
    /// Waiting for Kafka to commit.
    pub kafka: f64,
    /// Judging, rendering, sending to Kafka, writing the store.
    pub work: f64,
    /// Reading, and everything else.
    pub rest: f64,
    /// How many records a transaction has.
    pub records: f64,
}

/// The metrics at a point in time.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    at: Instant,
    database: f64,
    kafka: f64,
    processing: f64,
    transactions: f64,
}

impl Look {
    /// Asks ratchet.
    pub fn at(address: SocketAddr) -> Outcome<Look> {
        let metrics = Metrics::of(address)?;
        let sum = |name: &str| metrics.sum(name);
        Ok(Look {
            at: Instant::now(),
            database: sum("ratchet_effect_duration_seconds_sum"),
            kafka: sum("ratchet_commit_duration_seconds_sum"),
            processing: sum("ratchet_processing_duration_seconds_sum"),
            transactions: sum("ratchet_effect_duration_seconds_count"),
        })
    }

    /// What `lanes` lanes have spent their time with until `end`, in which they took `records`.
    pub fn until(&self, end: &Look, lanes: usize, records: u64) -> Shares {
        let whole = (end.at - self.at).as_secs_f64() * lanes as f64;
        let share = |of: fn(&Look) -> f64| (of(end) - of(self)) / whole;
        let (database, kafka, processing) =
            (share(|look| look.database), share(|look| look.kafka), share(|look| look.processing));
        Shares {
            database,
            kafka,
            work: processing - database - kafka,
            rest: 1.0 - processing,
            records: records as f64 / (end.transactions - self.transactions).max(1.0),
        }
    }
}
