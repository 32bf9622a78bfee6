//! How partitions are read.

use std::time::Duration;

/// How long a broker has to insist that there is nothing where it says that something could be: longer than followers
/// take to fetch (`replica.fetch.wait.max.ms`, 500).
pub const CONFIRMED_AFTER: Duration = Duration::from_secs(1);

/// How partitions are read. The names are those of Kafka's consumer, where it has them.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// How long a broker waits for `min_bytes` (`fetch.max.wait.ms`).
    pub max_wait: Duration,
    /// With how much a broker answers at once (`fetch.min.bytes`).
    pub min_bytes: i32,
    /// How much a response holds (`fetch.max.bytes`); more only if the first batch is larger.
    pub max_bytes: i32,
    /// How much of a partition (`max.partition.fetch.bytes`); more only if the first batch is larger.
    pub partition_max_bytes: i32,
    /// The largest batch that is asked for: beyond it a partition is in trouble. Less than the longest response that
    /// the connection allows.
    pub batch_max_bytes: i32,
    /// While more than this is buffered, nothing is fetched; and nothing of a partition which has more than its share.
    pub buffered_bytes_max: usize,
    /// Whether each batch's checksum is compared (`check.crcs`).
    pub check_crcs: bool,
    /// How long a broker may take for a response, besides `max_wait`.
    pub request_timeout: Duration,
    /// How long to wait after the first error of a partition or a broker; doubled with each further one.
    pub backoff: Duration,
    /// The longest such wait.
    pub backoff_max: Duration,
    /// For how long a topic may be unknown, as brokers learn of a new one after the other.
    pub missing_wait: Duration,
    /// For how long leaders may not know the epoch that they are asked for, as one that was replaced and does not know
    /// it yet does not.
    pub unknown_epoch_wait: Duration,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            max_bytes: 2 << 20,
            partition_max_bytes: 1 << 20,
            batch_max_bytes: 64 << 20,
            buffered_bytes_max: 64 << 20,
            check_crcs: true,
            request_timeout: Duration::from_secs(30),
            backoff: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            missing_wait: Duration::from_secs(10),
            unknown_epoch_wait: Duration::from_secs(2),
        }
    }
}

impl FetchSettings {
    /// How long to wait after this many errors in a row.
    pub(super) fn backoff_after(&self, failures: u32) -> Duration {
        let doubled = self.backoff.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(self.backoff_max)
    }
}
