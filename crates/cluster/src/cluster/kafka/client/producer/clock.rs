//! The time, looked at now and then: asking for it with each record would cost as much as writing small records does.

use std::time::{Duration, Instant};

use super::super::Network;

/// After how many records at most it is looked at.
const RECORDS_MAX: u32 = 64;
/// How old it may have become in between. Where records are rare, it is looked at with each of them, and with the first
/// one after a caller has asked for anything else.
const FRESH: Duration = Duration::from_micros(200);

/// The time as it was last looked at.
#[derive(Debug)]
pub(super) struct Clock {
    now: Instant,
    wall_ms: i64,
    /// After how many records it is looked at.
    records: u32,
    /// How many of them are left.
    left: u32,
}

impl Clock {
    /// The present.
    pub fn new(network: &dyn Network) -> Self {
        Self { now: network.now(), wall_ms: network.wall_ms(), records: 1, left: 0 }
    }

    /// Looks at it.
    pub fn look(&mut self, network: &dyn Network) -> Instant {
        (self.now, self.wall_ms) = (network.now(), network.wall_ms());
        self.now
    }

    /// Notes a record; whether the time was looked at.
    #[inline]
    pub fn count(&mut self, network: &dyn Network) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        let before = self.now;
        let passed = self.look(network).saturating_duration_since(before);
        self.records = records_after(self.records, passed);
        self.left = self.records - 1;
        true
    }

    /// Has it looked at with the next record: others may have been a while ago.
    pub fn doubt(&mut self) {
        self.left = 0;
    }

    /// When it was last looked at.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The same, in milliseconds since the epoch.
    pub fn wall_ms(&self) -> i64 {
        self.wall_ms
    }
}

/// After how many records to look next, where so much time has passed with `records`.
fn records_after(records: u32, passed: Duration) -> u32 {
    if passed > FRESH { 1 } else { (records * 2).min(RECORDS_MAX) }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::wire::edge::{Edge, SocketSettings};
    use super::*;

    #[test]
    fn time_is_looked_at_less_often_only_while_records_come_fast() {
        let quick = |records| records_after(records, FRESH);
        assert_eq!([1, 2, 40, RECORDS_MAX].map(quick), [2, 4, RECORDS_MAX, RECORDS_MAX]);
        assert_eq!(records_after(RECORDS_MAX, FRESH + Duration::from_micros(1)), 1);
    }

    #[test]
    fn time_is_looked_at_with_each_record_that_comes_late() {
        let network = Edge::new(None, SocketSettings::default());
        let mut clock = Clock::new(&network);
        for _ in 0..3 {
            std::thread::sleep(FRESH * 2);
            let before = Instant::now();
            assert!(clock.count(&network) && clock.now() >= before);
        }
        assert!(clock.wall_ms() > 1_700_000_000_000);
    }
}
