//! The rate of long work over the last seconds, and the time that the rest takes at this rate.
//!
//! Pure: the caller passes the time and the counts. The rate is the amount done divided by the time taken, both
//! decaying exponentially, so that bursty work (read, then write) has a steady rate and old
//! samples soon stop counting.

use std::time::Duration;

/// How long counts are gathered for one sample.
const SAMPLE: Duration = Duration::from_millis(500);
/// A sample of this age counts about a third of a new one.
const MEMORY: Duration = Duration::from_secs(10);
/// Work that did nothing for this long stands still.
const STALL: Duration = Duration::from_secs(30);

/// The rate of some work. The caller chooses the unit: records, offsets, keys.
#[derive(Clone, Debug)]
pub struct Pace {
    started: Duration,
    now: Duration,
    done: u64,
    remaining: u64,
    /// When the last sample was taken, and how much was done by then.
    sampled: (Duration, u64),
    /// When something was last done.
    last_progress: Duration,
    /// How much was done, and in how many seconds, both decaying.
    decayed: (f64, f64),
}

impl Pace {
    /// Work that starts now.
    pub fn begin(now: Duration, remaining: u64) -> Self {
        Self { started: now, now, done: 0, remaining, sampled: (now, 0), last_progress: now, decayed: (0.0, 0.0) }
    }

    /// Sets how much was done since the start, and how much remains, which may be more than before.
    pub fn at(&mut self, now: Duration, done: u64, remaining: u64) {
        if done > self.done {
            self.last_progress = now;
        }
        (self.now, self.done, self.remaining) = (now, done, remaining);
        let (sampled_at, sampled_done) = self.sampled;
        let passed = now.saturating_sub(sampled_at);
        if passed < SAMPLE {
            return;
        }
        let decay = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.decayed.0 = self.decayed.0 * decay + done.saturating_sub(sampled_done) as f64;
        self.decayed.1 = self.decayed.1 * decay + passed.as_secs_f64();
        self.sampled = (now, done);
    }

    /// How much was done since the start.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// How much remains.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long it has taken so far.
    pub fn took(&self) -> Duration {
        self.now.saturating_sub(self.started)
    }

    /// How much is done per second; `None` if that is not known yet. 0 if the work stands still.
    pub fn per_second(&self) -> Option<f64> {
        let (done, seconds) = self.decayed;
        if seconds == 0.0 {
            return None;
        }
        let stands_still = self.now.saturating_sub(self.last_progress) >= STALL;
        Some(if stands_still { 0.0 } else { done / seconds })
    }

    /// How long the rest takes at this rate; `None` if that is unknown: at the start, and when the work stands
    /// still.
    pub fn left(&self) -> Option<Duration> {
        if self.remaining == 0 {
            return Some(Duration::ZERO);
        }
        let seconds = self.remaining as f64 / self.per_second()?;
        // if nothing was done this is a division by 0, whose result no duration holds
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does `each` of the remaining work every 100 ms, for this many seconds.
    fn work(pace: &mut Pace, seconds: u64, each: u64) {
        for _ in 0..seconds * 10 {
            let now = pace.now + Duration::from_millis(100);
            pace.at(now, pace.done + each, pace.remaining.saturating_sub(each));
        }
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected * 0.02
    }

    #[test]
    fn no_rate_is_known_at_the_start() {
        let mut pace = Pace::begin(Duration::from_secs(7), 1_000);
        assert_eq!((pace.per_second(), pace.left()), (None, None));
        pace.at(Duration::from_millis(7_100), 500, 500);
        assert_eq!((pace.per_second(), pace.left()), (None, None), "it is too early");
        pace.at(Duration::from_millis(7_500), 500, 500);
        assert_eq!((pace.per_second(), pace.left()), (Some(1_000.0), Some(Duration::from_millis(500))));
        assert_eq!((pace.done(), pace.remaining(), pace.took()), (500, 500, Duration::from_millis(500)));
    }

    #[test]
    fn steady_rate_is_measured_exactly() {
        let mut pace = Pace::begin(Duration::ZERO, 100_000);
        work(&mut pace, 40, 100);
        assert!(near(pace.per_second().unwrap(), 1_000.0), "{pace:?}");
        assert!(near(pace.left().unwrap().as_secs_f64(), 60.0), "{pace:?}");
    }

    #[test]
    fn bursts_hardly_change_the_rate() {
        let mut pace = Pace::begin(Duration::ZERO, 1_000_000);
        let mut rates = Vec::new();
        for _ in 0..30 {
            // two seconds of reading, one of writing
            work(&mut pace, 2, 150);
            work(&mut pace, 1, 0);
            rates.push(pace.per_second().unwrap());
        }
        let late = &rates[10..];
        assert!(late.iter().all(|rate| (rate - 1_000.0).abs() < 150.0), "{rates:?}");
    }

    #[test]
    fn pace_follows_a_changing_rate() {
        let mut pace = Pace::begin(Duration::ZERO, 10_000_000);
        work(&mut pace, 60, 1_000);
        // after twelve times its memory, nothing is left of the old rate
        work(&mut pace, 120, 100);
        assert!(near(pace.per_second().unwrap(), 1_000.0), "{pace:?}");
    }

    #[test]
    fn work_that_stands_still_has_no_estimate() {
        let mut pace = Pace::begin(Duration::ZERO, 10_000);
        work(&mut pace, 5, 100);
        work(&mut pace, 10, 0);
        let slower = pace.per_second().unwrap();
        assert!(slower > 0.0 && slower < 500.0, "{slower}");
        work(&mut pace, 20, 0);
        assert_eq!((pace.per_second(), pace.left()), (Some(0.0), None));
        work(&mut pace, 1, 100);
        assert!(pace.left().is_some(), "it continues");
    }

    #[test]
    fn work_that_never_progressed_has_no_estimate() {
        let mut pace = Pace::begin(Duration::ZERO, 10_000);
        work(&mut pace, 5, 0);
        assert_eq!((pace.per_second(), pace.left()), (Some(0.0), None));
    }

    #[test]
    fn remaining_work_may_grow() {
        let mut pace = Pace::begin(Duration::ZERO, 20_000);
        work(&mut pace, 10, 100);
        let before = pace.left().unwrap();
        pace.at(pace.now, pace.done, 100_000);
        let after = pace.left().unwrap();
        assert!(near(before.as_secs_f64(), 10.0) && near(after.as_secs_f64(), 100.0), "{before:?} {after:?}");
    }

    #[test]
    fn finished_work_has_no_time_left() {
        let mut pace = Pace::begin(Duration::ZERO, 1_000);
        pace.at(Duration::from_millis(1), 1_000, 0);
        assert_eq!(pace.left(), Some(Duration::ZERO), "however short it was");
    }
}
