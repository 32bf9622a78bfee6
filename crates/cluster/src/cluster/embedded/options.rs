//! How an embedded cluster is opened.

use std::sync::Arc;

use super::clock::{NowMs, wall_ms};

/// How to open an embedded cluster.
#[derive(Clone)]
pub struct Options {
    /// The partition count of topics created by [`Embedded::append`](super::Embedded::append).
    pub partition_count: i32,
    /// The seed for a new folder's topic ids; random if `None`. An existing folder keeps its own.
    pub seed: Option<u64>,
    /// The clock: for records without a timestamp, and for how long tombstones are kept.
    pub now_ms: NowMs,
    /// A log with fewer records is not compacted automatically.
    pub compact_records_min: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { partition_count: 1, seed: None, now_ms: Arc::new(wall_ms), compact_records_min: 20_000 }
    }
}
