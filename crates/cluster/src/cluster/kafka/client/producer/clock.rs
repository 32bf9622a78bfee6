//! A clock that is not read for each record: reading it would cost as much as writing a small record.

use std::time::{Duration, Instant};

use super::super::Network;

/// The most records between two readings of the clock.
const RECORDS_MAX: u32 = 64;
/// After two readings further apart than this, the clock is read with the next record; otherwise the number of records
/// between readings doubles. So if records are rare, the clock is read with each of them.
const READING_INTERVAL_MAX: Duration = Duration::from_micros(200);

/// The time of the last reading.
#[derive(Debug)]
pub(super) struct Clock {
    now: Instant,
    wall_ms: i64,
    /// The number of records between readings.
    records_per_reading: u32,
    /// The number of records until the next reading.
    records_left: u32,
}

impl Clock {
    /// Reads the clock for the first time.
    pub fn new(network: &dyn Network) -> Self {
        Self { now: network.now(), wall_ms: network.wall_ms(), records_per_reading: 1, records_left: 0 }
    }

    /// Reads the clock.
    pub fn read(&mut self, network: &dyn Network) -> Instant {
        (self.now, self.wall_ms) = (network.now(), network.wall_ms());
        self.now
    }

    /// Counts a record, and reads the clock if enough were counted since the last reading. Returns whether it was read.
    #[inline]
    pub fn read_if_due(&mut self, network: &dyn Network) -> bool {
        if self.records_left > 0 {
            self.records_left -= 1;
            return false;
        }
        let before = self.now;
        let passed = self.read(network).saturating_duration_since(before);
        self.records_per_reading = records_after(self.records_per_reading, passed);
        self.records_left = self.records_per_reading - 1;
        true
    }

    /// Makes the next record read the clock: the last record may have been a while ago.
    pub fn invalidate(&mut self) {
        self.records_left = 0;
    }

    /// The time of the last reading.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The wall-clock time of the last reading, in milliseconds since the epoch.
    pub fn wall_ms(&self) -> i64 {
        self.wall_ms
    }
}

/// The number of records until the next reading, if the last `records` records took the time `passed`.
fn records_after(records: u32, passed: Duration) -> u32 {
    if passed > READING_INTERVAL_MAX { 1 } else { (records * 2).min(RECORDS_MAX) }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::wire::edge::{Edge, SocketSettings};
    use super::*;

    #[test]
    fn clock_is_read_less_often_only_while_records_come_fast() {
        let quick = |records| records_after(records, READING_INTERVAL_MAX);
        assert_eq!([1, 2, 40, RECORDS_MAX].map(quick), [2, 4, RECORDS_MAX, RECORDS_MAX]);
        assert_eq!(records_after(RECORDS_MAX, READING_INTERVAL_MAX + Duration::from_micros(1)), 1);
    }

    #[test]
    fn clock_is_read_with_each_record_that_comes_late() {
        let network = Edge::new(None, SocketSettings::default());
        let mut clock = Clock::new(&network);
        for _ in 0..3 {
            std::thread::sleep(READING_INTERVAL_MAX * 2);
            let before = Instant::now();
            assert!(clock.read_if_due(&network) && clock.now() >= before);
        }
        assert!(clock.wall_ms() > 1_700_000_000_000);
    }
}
