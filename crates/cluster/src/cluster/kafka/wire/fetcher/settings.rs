//! How partitions are read.

use std::time::Duration;

/// How long a broker must keep returning nothing below its own last stable offset before it is believed: longer than
/// followers take to fetch (`replica.fetch.wait.max.ms`, 500).
pub const CONFIRMED_AFTER: Duration = Duration::from_secs(1);

/// How partitions are read. The names are those of Kafka's consumer, where it has them.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// How long a broker waits for `min_bytes` (`fetch.max.wait.ms`).
    pub max_wait: Duration,
    /// The bytes with which a broker responds at once (`fetch.min.bytes`).
    pub min_bytes: i32,
    /// The most bytes in a response (`fetch.max.bytes`); more only if the first batch is larger.
    pub max_bytes: i32,
    /// The most bytes of one partition in a response (`max.partition.fetch.bytes`); more only if the first batch is
    /// larger.
    pub partition_max_bytes: i32,
    /// The largest batch that is fetched: a larger one is [`super::Trouble::TooLarge`]. Must be less than the longest
    /// response that the connection allows.
    pub batch_max_bytes: i32,
    /// While this many bytes are buffered, nothing is fetched; nor is a partition that has used up its equal share of
    /// them.
    pub buffered_bytes_max: usize,
    /// Whether each batch's checksum is compared (`check.crcs`).
    pub check_crcs: bool,
    /// How long a broker may take for a response, in addition to `max_wait`.
    pub request_timeout: Duration,
    /// How long to wait after the first error of a partition or a broker; doubled with each further one.
    pub backoff: Duration,
    /// The longest wait after an error.
    pub backoff_max: Duration,
    /// How long a topic may be unknown: brokers learn about a new one at different times.
    pub missing_wait: Duration,
    /// How long leaders may respond that they do not know an epoch: a replaced leader that has not noticed yet does not
    /// know a newer one.
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
