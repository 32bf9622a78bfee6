//! The present time: the only module in which a clock decides about a record.
//!
//! A record that is more than `future_max` ahead of this host's clock seems to be from the future. Its producer's clock
//! may be wrong, or this host's; and a host's clock alone must not reject data. So Kafka is asked. The task stops
//! before the record, commits the records before it, and in its restore learns the latest timestamp in its changelog.
//! That is Kafka's own time when the commit was written, or later: brokers stamp the marker that ends a transaction,
//! whatever the timestamps of its records. The record had been read by then, so its producer cannot have meant a later
//! time.
//!
//! - If it is ahead of Kafka's time too, it is from the future, according to two clocks that are independent of each
//!   other.
//! - If not, one of the two is wrong. The task waits, asks again every [`WAIT`], and continues once they agree.
//!
//! The learnt time applies only to records that existed before Kafka was asked: no assumption is made about how any
//! clock continues.
//!
//! **Failure**: after an abort Kafka was not asked, so the record is read and suspected again. If Kafka does not
//! report a time, the task waits.

use std::time::Duration;

use crate::record::TopicPartition;

/// How long a task waits before it checks again whether the clocks agree.
pub const WAIT: Duration = Duration::from_secs(5);
/// The interval between log lines about a waiting task.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A record that seems to be from the future: it cannot be judged before Kafka was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutureSuspicion {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, in milliseconds since the epoch.
    pub timestamp: i64,
    /// All records below this offset existed when the record was judged to be from the future by this host's clock.
    pub known_end: i64,
}

impl FutureSuspicion {
    /// Records that the partition reaches at least to `end`.
    pub fn extend_to(&mut self, end: i64) {
        self.known_end = self.known_end.max(end);
    }
}

/// Kafka's time, as learnt by a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KafkaTime {
    /// Milliseconds since the epoch; `None` if Kafka does not report it.
    ms: Option<i64>,
    /// All records below this offset had arrived before that time.
    known_end: i64,
}

/// The state of a task that waits for clocks to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    offset: i64,
    logged_at: Duration,
}

/// A task's knowledge of the present time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// The suspected record before which the last transaction stopped: the next restore asks for Kafka's time.
    suspicion: Option<FutureSuspicion>,
    kafka_time: Option<KafkaTime>,
    waiting: Option<Waiting>,
}

/// Clocks that disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The offset of the record that cannot be judged.
    pub offset: i64,
    /// How far its timestamp is beyond this host's clock, in milliseconds.
    pub record_ahead_ms: i64,
    /// How far Kafka's time is ahead of this host's clock, in milliseconds; `None` if Kafka does not report a time.
    pub kafka_ahead_ms: Option<i64>,
    /// Whether to log the disagreement now.
    pub is_due: bool,
}

impl Present {
    /// Whether a record that is from the future by this host's clock is so by Kafka's time, too.
    pub fn is_future(&self, offset: i64, timestamp: i64, future_max_ms: i64) -> bool {
        let known =
            self.kafka_time.filter(|kafka_time| offset < kafka_time.known_end).and_then(|kafka_time| kafka_time.ms);
        known.is_some_and(|ms| timestamp > ms.saturating_add(future_max_ms))
    }

    /// Called when the transaction that stopped before a suspected record is committed. Returns how long to wait before
    /// asking Kafka, and the disagreement of the clocks, if it is known.
    pub fn suspect_future(
        &mut self,
        suspicion: FutureSuspicion,
        now: Duration,
        wall_ms: i64,
    ) -> (Duration, Option<Disagreement>) {
        self.suspicion = Some(suspicion);
        // Kafka was asked already, and did not confirm that the record is from the future.
        let Some(kafka_time) = self.kafka_time.filter(|kafka_time| suspicion.offset < kafka_time.known_end) else {
            return (Duration::ZERO, None);
        };
        let logged_at = self.waiting.map(|waiting| waiting.logged_at);
        let is_due = logged_at.is_none_or(|logged_at| now.saturating_sub(logged_at) >= LOG_INTERVAL);
        let logged_at = logged_at.filter(|_| !is_due).unwrap_or(now);
        self.waiting = Some(Waiting { offset: suspicion.offset, logged_at });
        let disagreement = Disagreement {
            offset: suspicion.offset,
            record_ahead_ms: suspicion.timestamp.saturating_sub(wall_ms),
            kafka_ahead_ms: kafka_time.ms.map(|ms| ms.saturating_sub(wall_ms)),
            is_due,
        };
        (WAIT, Some(disagreement))
    }

    /// Whether the next restore has to ask for Kafka's time.
    pub fn needs_kafka_time(&self) -> bool {
        self.suspicion.is_some()
    }

    /// Records the time that a restore has asked for.
    pub fn learn(&mut self, ms: Option<i64>) {
        if let Some(suspicion) = self.suspicion.take() {
            self.kafka_time = Some(KafkaTime { ms, known_end: suspicion.known_end });
        }
    }

    /// Called when all records before `next` are committed. Returns whether that ends a wait.
    pub fn pass(&mut self, next: i64) -> bool {
        let is_over = self.waiting.is_some_and(|waiting| next > waiting.offset);
        if is_over {
            self.waiting = None;
        }
        is_over
    }
}

impl Disagreement {
    /// Logs that a task waits.
    pub fn log(&self, task: &TopicPartition) {
        let Self { offset, record_ahead_ms, kafka_ahead_ms, is_due } = *self;
        match kafka_ahead_ms {
            _ if !is_due => {}
            Some(kafka_ahead_ms) => tracing::warn!(
                task = %task, offset, record_ahead_ms, kafka_ahead_ms,
                "a record's timestamp is in the future by this host's clock but not by Kafka's: correct the wrong \
                 clock; the task waits"
            ),
            None => tracing::warn!(
                task = %task, offset, record_ahead_ms,
                "a record's timestamp is in the future by this host's clock, and Kafka does not report its own: check \
                 this host's clock, or raise `future_max`; the task waits"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: i64 = 60;

    /// The state after the record at `offset` was suspected, with all records below `known_end` read, and Kafka was
    /// asked.
    fn after_asking(offset: i64, known_end: i64, ms: Option<i64>) -> Present {
        let mut present = Present::default();
        let asked = present.suspect_future(FutureSuspicion { offset, timestamp: 0, known_end }, Duration::ZERO, 0);
        assert_eq!(asked, (Duration::ZERO, None), "Kafka is asked immediately");
        assert!(present.needs_kafka_time());
        present.learn(ms);
        assert!(!present.needs_kafka_time());
        present
    }

    #[test]
    fn record_is_from_the_future_if_kafkas_time_confirms_it() {
        let present = after_asking(5, 8, Some(1_000));
        for (timestamp, expected) in [(1_060, false), (1_061, true), (i64::MAX, true), (0, false)] {
            assert_eq!(present.is_future(5, timestamp, MAX), expected, "{timestamp}");
        }
    }

    #[test]
    fn learnt_time_does_not_apply_to_later_records() {
        let present = after_asking(5, 8, Some(1_000));
        assert!(present.is_future(7, 2_000, MAX));
        assert!(!present.is_future(8, 2_000, MAX));
        let mut suspicion = FutureSuspicion { offset: 5, timestamp: 2_000, known_end: 6 };
        suspicion.extend_to(100);
        suspicion.extend_to(50);
        let mut present = Present::default();
        present.suspect_future(suspicion, Duration::ZERO, 0);
        present.learn(Some(1_000));
        assert!(present.is_future(99, 2_000, MAX) && !present.is_future(100, 2_000, MAX));
    }

    #[test]
    fn disagreeing_clocks_make_the_task_wait_and_log_at_intervals() {
        for ms in [Some(1_000), None] {
            let mut present = after_asking(5, 6, ms);
            let mut suspect_again = |at: u64| {
                let suspicion = FutureSuspicion { offset: 5, timestamp: 1_010, known_end: 6 };
                let (wait, disagreement) = present.suspect_future(suspicion, Duration::from_secs(at), 800);
                present.learn(ms);
                assert_eq!(wait, WAIT);
                disagreement.expect("the clocks disagree")
            };
            let expected =
                Disagreement { offset: 5, record_ahead_ms: 210, kafka_ahead_ms: ms.map(|ms| ms - 800), is_due: true };
            assert_eq!(suspect_again(10), expected);
            assert_eq!(suspect_again(15), Disagreement { is_due: false, ..expected });
            assert_eq!(suspect_again(70), expected);
            assert!(!present.pass(5) && present.pass(6) && !present.pass(7), "the wait ends after the record");
        }
    }
}
