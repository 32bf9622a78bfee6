//! The present time: the only place where a clock decides about a record.
//!
//! A record that is more than `future_max` ahead of this host's clock seems to be from the future. Its producer's clock
//! may be wrong, or this host's; and a host's clock must not set data aside. So Kafka is asked. The task stops before
//! the record, commits what comes before it, and in its restore learns the latest timestamp in its changelog. That is
//! Kafka's own time when the commit was written, or later: brokers stamp the marker that ends a transaction, whatever
//! the timestamps of its records. The record had been read by then, so its producer cannot have meant a later time.
//!
//! - If it is ahead of Kafka's time too, it is from the future, according to two clocks that are independent of each
//!   other.
//! - If not, one of the two is wrong. The task waits, asks again every [`WAIT`], and continues once they agree.
//!
//! What was learnt counts only for records that existed before Kafka was asked: nothing is assumed about how any clock
//! continues.
//!
//! **Failure**: after an abort nothing was asked, so the record is met and doubted again. If Kafka does not report a
//! time, the task waits.

use std::time::Duration;

use crate::record::TopicPartition;

/// How long a task waits before it checks again whether the clocks agree.
pub const WAIT: Duration = Duration::from_secs(5);
/// How often it logs that it is waiting.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A record that seems to be from the future: it cannot be decided on before Kafka was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, in milliseconds since the epoch.
    pub timestamp: i64,
    /// All records below this offset existed when it was doubted.
    pub there: i64,
}

impl Doubt {
    /// Notes that the partition reaches at least to `end`.
    pub fn reach(&mut self, end: i64) {
        self.there = self.there.max(end);
    }
}

/// What was learnt about Kafka's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Learnt {
    /// Milliseconds since the epoch; `None` if Kafka does not report it.
    ms: Option<i64>,
    /// All records below this offset had arrived before that time.
    there: i64,
}

/// The state of a task that waits for clocks to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    offset: i64,
    logged: Duration,
}

/// What a task knows about the present time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// The record before which the last transaction stopped: the next restore asks for Kafka's time.
    asks: Option<Doubt>,
    learnt: Option<Learnt>,
    waiting: Option<Waiting>,
}

/// Clocks that disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The record that cannot be decided on.
    pub offset: i64,
    /// How far its timestamp is beyond this host's clock, in milliseconds.
    pub record_ahead_ms: i64,
    /// How far Kafka's time is ahead of it; `None` if Kafka does not report one.
    pub kafka_ahead_ms: Option<i64>,
    /// Whether it is time to log it.
    pub is_due: bool,
}

impl Present {
    /// Whether a record that is from the future by this host's clock is so by Kafka's time, too.
    pub fn is_future(&self, offset: i64, timestamp: i64, future_max_ms: i64) -> bool {
        let known = self.learnt.filter(|learnt| offset < learnt.there).and_then(|learnt| learnt.ms);
        known.is_some_and(|ms| timestamp > ms.saturating_add(future_max_ms))
    }

    /// The transaction that stopped before a doubted record is committed. Returns how long to wait before asking Kafka,
    /// and how the clocks disagree if they are known to.
    pub fn doubt(&mut self, doubt: Doubt, now: Duration, wall_ms: i64) -> (Duration, Option<Disagreement>) {
        self.asks = Some(doubt);
        // Kafka was asked already, and did not confirm that the record is from the future.
        let Some(learnt) = self.learnt.filter(|learnt| doubt.offset < learnt.there) else {
            return (Duration::ZERO, None);
        };
        let logged = self.waiting.map(|waiting| waiting.logged);
        let is_due = logged.is_none_or(|logged| now.saturating_sub(logged) >= LOG_INTERVAL);
        let logged = logged.filter(|_| !is_due).unwrap_or(now);
        self.waiting = Some(Waiting { offset: doubt.offset, logged });
        let disagreement = Disagreement {
            offset: doubt.offset,
            record_ahead_ms: doubt.timestamp.saturating_sub(wall_ms),
            kafka_ahead_ms: learnt.ms.map(|ms| ms.saturating_sub(wall_ms)),
            is_due,
        };
        (WAIT, Some(disagreement))
    }

    /// Whether the next restore has to ask for Kafka's time.
    pub fn asks(&self) -> bool {
        self.asks.is_some()
    }

    /// Notes the time that a restore was to ask for.
    pub fn learn(&mut self, ms: Option<i64>) {
        if let Some(doubt) = self.asks.take() {
            self.learnt = Some(Learnt { ms, there: doubt.there });
        }
    }

    /// Notes that everything before `next` is committed. Returns whether that ends a wait.
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
                "a record's timestamp is in the future by this host's clock but not by Kafka's: correct the clock that is wrong; \
                 the task waits"
            ),
            None => tracing::warn!(
                task = %task, offset, record_ahead_ms,
                "a record's timestamp is in the future by this host's clock, and Kafka does not tell its own: check this host's \
                 clock, or raise `future_max`; the task waits"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: i64 = 60;

    /// The state once the record at `offset`, with all below `there` read, was doubted and Kafka asked.
    fn learnt(offset: i64, there: i64, ms: Option<i64>) -> Present {
        let mut present = Present::default();
        let asked = present.doubt(Doubt { offset, timestamp: 0, there }, Duration::ZERO, 0);
        assert_eq!(asked, (Duration::ZERO, None), "it is asked at once");
        assert!(present.asks());
        present.learn(ms);
        assert!(!present.asks());
        present
    }

    #[test]
    fn record_is_from_the_future_if_kafkas_time_confirms_it() {
        let present = learnt(5, 8, Some(1_000));
        for (timestamp, expected) in [(1_060, false), (1_061, true), (i64::MAX, true), (0, false)] {
            assert_eq!(present.is_future(5, timestamp, MAX), expected, "{timestamp}");
        }
    }

    #[test]
    fn learnt_time_does_not_apply_to_later_records() {
        let present = learnt(5, 8, Some(1_000));
        assert!(present.is_future(7, 2_000, MAX));
        assert!(!present.is_future(8, 2_000, MAX));
        let mut doubt = Doubt { offset: 5, timestamp: 2_000, there: 6 };
        doubt.reach(100);
        doubt.reach(50);
        let mut present = Present::default();
        present.doubt(doubt, Duration::ZERO, 0);
        present.learn(Some(1_000));
        assert!(present.is_future(99, 2_000, MAX) && !present.is_future(100, 2_000, MAX));
    }

    #[test]
    fn disagreeing_clocks_make_the_task_wait_and_log_at_intervals() {
        for ms in [Some(1_000), None] {
            let mut present = learnt(5, 6, ms);
            let mut again = |at: u64| {
                let doubt = Doubt { offset: 5, timestamp: 1_010, there: 6 };
                let (wait, found) = present.doubt(doubt, Duration::from_secs(at), 800);
                present.learn(ms);
                assert_eq!(wait, WAIT);
                found.expect("they disagree")
            };
            let expected =
                Disagreement { offset: 5, record_ahead_ms: 210, kafka_ahead_ms: ms.map(|ms| ms - 800), is_due: true };
            assert_eq!(again(10), expected);
            assert_eq!(again(15), Disagreement { is_due: false, ..expected });
            assert_eq!(again(70), expected);
            assert!(!present.pass(5) && present.pass(6) && !present.pass(7), "the wait ends after the record");
        }
    }
}
