//! How far a task is behind its input, in records and in time.

use crate::observe::TaskMetrics;

/// What a task's lag in time is computed from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    /// The wall clock, milliseconds since the epoch, when everything was last found to be read.
    drained_at: Option<i64>,
    /// The timestamp of the last committed record that has one.
    last_timestamp: Option<i64>,
    /// The wall clock, milliseconds since the epoch, when something was first found to be left to read.
    behind_at: Option<i64>,
}

impl Lag {
    /// Notes the last timestamp of a committed transaction, if it has any.
    pub fn committed(&mut self, last_timestamp: Option<i64>) {
        self.last_timestamp = last_timestamp.or(self.last_timestamp);
    }

    /// Updates the metrics of a task with so many records still to be read, by what a broker said at `heard_ms`; `None`
    /// if it is not known when that was.
    pub fn publish(&mut self, records: i64, (wall_ms, heard_ms): (i64, Option<i64>), metrics: &TaskMetrics) {
        if let Some(heard_ms) = heard_ms {
            metrics.lag_measured_at(heard_ms);
        }
        if records == 0 {
            // What has come in since then nobody has said.
            self.drained_at = heard_ms.or(self.drained_at).or(Some(wall_ms));
            return metrics.lag(0, 0.0);
        }
        let seen = *self.behind_at.get_or_insert(wall_ms);
        // The next record arrived after the last one read, and after everything was read. Where nothing was read yet, it
        // was there when it was first seen.
        let since = self.last_timestamp.max(self.drained_at).unwrap_or(seen);
        metrics.lag(records, age_ms(since, wall_ms) as f64 / 1000.0);
    }
}

/// How long something has been there. Timestamps are chosen by producers and may be anything.
fn age_ms(since: i64, wall_ms: i64) -> i64 {
    wall_ms.saturating_sub(since).max(0)
}

#[cfg(test)]
mod tests {
    use super::{Lag, age_ms};
    use crate::observe::Metrics;
    use crate::record::TopicPartition;

    #[test]
    fn what_came_in_while_no_broker_answered_is_older_than_the_first_answer() {
        let (metrics, mut lag) = (Metrics::new(), Lag::default());
        let task = metrics.task("shop", &TopicPartition::new("orders", 0));
        let shown = |name: &str| {
            let text = metrics.render();
            let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).map(str::to_owned);
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        };
        // Everything was read by 40 s, and nobody has said anything since.
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
        assert_eq!(ages.map(|since| age_ms(since, 5_000)), [1_000, 0, 0, i64::MAX, 5_002]);
    }
}
