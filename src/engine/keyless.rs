//! Records without a key, in a topology that declares `partitioned_by_identity: true`. A producer that chooses
//! partitions by the key spreads such records over all partitions, and their repetitions are not recognised. They are
//! counted, and logged at most once per task and interval; the lines together count every committed record.

use std::time::Duration;

use crate::record::{Record, TopicPartition};

use super::context::Context;

/// The least time between two lines of a task.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

const HELP: &str = "unless the producer itself puts the records of one identity into one partition, repetitions of these are \
    forwarded from others: make it send the identity as the key, or remove `partitioned_by_identity`";

/// The keyless records of a transaction, or those of committed transactions that are not logged yet.
#[derive(Debug, Default, PartialEq)]
pub struct Keyless {
    records: u64,
    /// The offset of the first record.
    first_offset: Option<i64>,
}

impl Keyless {
    /// Counts a record of a topic with this many partitions, if it has no key and should have one.
    pub fn note(&mut self, context: &Context, partitions: u32, record: &Record<'_>) {
        if record.key.is_none() && context.topology.only_said_to_be_partitioned && partitions > 1 {
            self.add(1, Some(record.offset));
        }
    }

    fn add(&mut self, records: u64, first_offset: Option<i64>) {
        self.records += records;
        self.first_offset = self.first_offset.or(first_offset);
    }

    /// The number of records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Resets the count.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A task's keyless records that are committed and not logged yet.
#[derive(Debug, Default)]
pub struct KeylessLog {
    unlogged: Keyless,
    /// When the last line was logged, on the monotonic clock.
    logged_at: Option<Duration>,
}

impl KeylessLog {
    /// Adds the keyless records of a committed transaction.
    pub fn add(&mut self, committed: &mut Keyless) {
        self.unlogged.add(committed.records, committed.first_offset);
        committed.clear();
    }

    /// Logs the unlogged records, if a line is due.
    pub fn log_if_due(&mut self, task: &TopicPartition, now: Duration) {
        if self.logged_at.is_none_or(|logged_at| now.saturating_sub(logged_at) >= LOG_INTERVAL) {
            self.log(task, now);
        }
    }

    /// Logs the unlogged records, if there are any.
    pub fn log(&mut self, task: &TopicPartition, now: Duration) {
        let Some(offset) = self.unlogged.first_offset else { return };
        let (records, first) = (self.unlogged.records, format!("{task}:{offset}"));
        tracing::warn!(
            %task, records, first, help = HELP,
            "records without a key, but the topology declares `partitioned_by_identity`"
        );
        self.unlogged.clear();
        self.logged_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_committed_keyless_record_is_logged_exactly_once() {
        let (mut log, mut open, task) = (KeylessLog::default(), Keyless::default(), TopicPartition::new("t", 0));
        [7, 9].into_iter().for_each(|offset| open.add(1, Some(offset)));
        assert_eq!(log.unlogged, Keyless::default(), "nothing is committed yet");
        log.add(&mut open);
        assert_eq!((&log.unlogged, open.records()), (&Keyless { records: 2, first_offset: Some(7) }, 0));
        log.log_if_due(&task, Duration::ZERO);
        assert_eq!(log.unlogged, Keyless::default());
        open.add(1, Some(12));
        log.add(&mut open);
        log.log_if_due(&task, LOG_INTERVAL - Duration::from_millis(1));
        assert_eq!(log.unlogged, Keyless { records: 1, first_offset: Some(12) }, "the next line is not due yet");
        log.log_if_due(&task, LOG_INTERVAL);
        assert_eq!(log.unlogged, Keyless::default());
        open.add(1, Some(13));
        log.add(&mut open);
        log.log(&task, LOG_INTERVAL);
        assert_eq!(log.unlogged, Keyless::default(), "the task leaves");
    }
}
