//! A task's lag behind its input, in records and in time.

use crate::observe::TaskMetrics;

/// The facts from which a task's lag in time is computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    /// The wall clock, milliseconds since the epoch, when all records were last known to be read.
    drained_at: Option<i64>,
    /// The timestamp of the last committed record that has one.
    last_timestamp: Option<i64>,
    /// The wall clock, milliseconds since the epoch, when the task was first known to be behind.
    behind_at: Option<i64>,
}

impl Lag {
    /// Records the last timestamp of a committed transaction, if it has one.
    pub fn committed(&mut self, last_timestamp: Option<i64>) {
        self.last_timestamp = last_timestamp.or(self.last_timestamp);
    }

    /// Updates the metrics of a task that has this many `records` left to read, according to a broker's response at
    /// `measured_ms`; `None` if the time of the response is not known.
    pub fn publish(&mut self, records: i64, (wall_ms, measured_ms): (i64, Option<i64>), metrics: &TaskMetrics) {
        if let Some(measured_ms) = measured_ms {
            metrics.lag_measured_at(measured_ms);
        }
        if records == 0 {
            // Records that have arrived since then are not known.
            self.drained_at = measured_ms.or(self.drained_at).or(Some(wall_ms));
            return metrics.lag(0, 0.0);
        }
        let first_seen_ms = *self.behind_at.get_or_insert(wall_ms);
        // The next record arrived after the last record that was read, and after all records were read. If no record
        // was read yet, its age counts from when it was first known.
        let since_ms = self.last_timestamp.max(self.drained_at).unwrap_or(first_seen_ms);
        metrics.lag(records, age_ms(since_ms, wall_ms) as f64 / 1000.0);
    }
}

/// The time since `since_ms`. Timestamps are chosen by producers and may have any value.
fn age_ms(since_ms: i64, wall_ms: i64) -> i64 {
    wall_ms.saturating_sub(since_ms).max(0)
}

#[cfg(test)]
mod tests {
    use super::{Lag, age_ms};
    use crate::observe::Metrics;
    use crate::record::TopicPartition;

    #[test]
    fn record_that_arrived_while_no_broker_responded_is_older_than_the_first_response() {
        let (metrics, mut lag) = (Metrics::new(), Lag::default());
        let task = metrics.task("shop", &TopicPartition::new("orders", 0));
        let shown = |name: &str| {
            let text = metrics.render();
            let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).map(str::to_owned);
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        };
        // All records were read at 40 s, and no broker has responded since.
        lag.publish(0, (100_000, Some(40_000)), &task);
        lag.publish(0, (101_000, None), &task);
        assert_eq!(shown("ratchet_lag_measured_timestamp_seconds"), Some(40.0));
        lag.publish(1, (102_000, Some(102_000)), &task);
        assert_eq!(shown("ratchet_lag_seconds"), Some(62.0));
        assert_eq!(shown("ratchet_lag_measured_timestamp_seconds"), Some(102.0));
    }

    #[test]
    fn extreme_timestamps_do_not_overflow_the_age() {
        let ages = [4_000, 6_000, i64::MAX, i64::MIN, -2];
        assert_eq!(ages.map(|since_ms| age_ms(since_ms, 5_000)), [1_000, 0, 0, i64::MAX, 5_002]);
    }
}
