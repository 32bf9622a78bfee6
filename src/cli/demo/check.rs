//! The comparison of two outputs, record by record, byte for byte.

use std::fmt;

use super::screen::{count, size};
use crate::cluster::embedded::{Embedded, StoredRecord};
use crate::cluster::{Cluster, Error};

/// The result for one partition.
#[derive(Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Keys, values, headers, timestamps and offsets are the same.
    Equal { records: u64, bytes: u64 },
    /// They differ from record `at` on, counted from 0; and how many there should be, and are.
    Different { at: usize, expected: usize, found: usize },
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal { records, bytes } => {
                write!(f, "{} records, {}, equal byte for byte", count(*records), size(*bytes))
            }
            Self::Different { at, expected, found } => {
                write!(f, "DIFFERENT from record {at} on ({found} records, {expected} expected)")
            }
        }
    }
}

/// Compares a partition of `topic` on two clusters; a missing topic counts as empty.
pub fn compare(expected: &Embedded, found: &Embedded, topic: &str, partition: i32) -> Result<Comparison, Error> {
    let read = |cluster: &Embedded| match cluster.describe_topic(topic)? {
        Some(_) => cluster.read_all(topic, partition),
        None => Ok(Vec::new()),
    };
    let (expected, found) = (read(expected)?, read(found)?);
    let at = expected.iter().zip(&found).take_while(|(expected, found)| expected == found).count();
    if at < expected.len() || at < found.len() {
        return Ok(Comparison::Different { at, expected: expected.len(), found: found.len() });
    }
    Ok(Comparison::Equal { records: found.len() as u64, bytes: found.iter().map(byte_len).sum() })
}

fn byte_len(record: &StoredRecord) -> u64 {
    let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    (length(&record.key) + length(&record.value) + record.headers.byte_len()) as u64
}
