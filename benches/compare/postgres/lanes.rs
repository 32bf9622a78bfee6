//! What ratchet's lanes spend their time with, by its own metrics.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::{Context as _, Outcome};

/// How long an answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

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
        let metrics = get(address).context("ratchet's metrics")?;
        let sum = |name: &str| {
            let of = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
            of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
        };
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

fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WAIT)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.set_write_timeout(Some(ANSWER_WAIT))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
