//! How fast long work goes, and when it will be done: a rate over the last seconds and what it makes of the
//! rest.
//!
//! Pure: it is told the time and the counts. The rate is what was done over the time that it took, both
//! forgetting exponentially, so that work which comes in gusts (read, then write) has a steady rate, and one
//! number of the past is never believed for long.

use std::time::Duration;

/// Counts are gathered for so long before they make a sample.
const SAMPLE: Duration = Duration::from_millis(500);
/// What lies so far back counts a third of what is new.
const MEMORY: Duration = Duration::from_secs(10);
/// When nothing was done for so long there is no rate to go by.
const STALL: Duration = Duration::from_secs(30);

/// How fast work goes. What it counts is the caller's: records, offsets, keys.
#[derive(Clone, Debug)]
pub struct Pace {
    began: Duration,
    now: Duration,
    done: u64,
    remaining: u64,
    /// When the last sample was taken, and what was done by then.
    sampled: (Duration, u64),
    /// When something was last done.
    moved: Duration,
    /// What was done, and in how many seconds: both fade.
    faded: (f64, f64),
}

impl Pace {
    /// Work that begins now.
    pub fn begin(now: Duration, remaining: u64) -> Self {
        Self { began: now, now, done: 0, remaining, sampled: (now, 0), moved: now, faded: (0.0, 0.0) }
    }

    /// So much was done since the beginning, and so much remains, which may be more than before.
    pub fn at(&mut self, now: Duration, done: u64, remaining: u64) {
        if done > self.done {
            self.moved = now;
        }
        (self.now, self.done, self.remaining) = (now, done, remaining);
        let (sampled_at, sampled_done) = self.sampled;
        let passed = now.saturating_sub(sampled_at);
        if passed < SAMPLE {
            return;
        }
        let fade = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.faded.0 = self.faded.0 * fade + done.saturating_sub(sampled_done) as f64;
        self.faded.1 = self.faded.1 * fade + passed.as_secs_f64();
        self.sampled = (now, done);
    }

    /// How much was done since the beginning.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// How much remains.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long it has taken so far.
    pub fn took(&self) -> Duration {
        self.now.saturating_sub(self.began)
    }

    /// How much is done in a second; `None` while that is not known yet. 0 where the work stands still.
    pub fn per_second(&self) -> Option<f64> {
        let (done, seconds) = self.faded;
        if seconds == 0.0 {
            return None;
        }
        let stands = self.now.saturating_sub(self.moved) >= STALL;
        Some(if stands { 0.0 } else { done / seconds })
    }

    /// How long the rest will take at this rate; `None` while that cannot be told: at the beginning, and
    /// where the work stands still.
    pub fn left(&self) -> Option<Duration> {
        if self.remaining == 0 {
            return Some(Duration::ZERO);
        }
        let seconds = self.remaining as f64 / self.per_second()?;
        // nothing done at all is a division by 0, and a number that no duration holds
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does `each` every 100 ms for so many seconds, of what remains.
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
    fn no_rate_is_known_at_the_beginning() {
        let mut pace = Pace::begin(Duration::from_secs(7), 1_000);
        assert_eq!((pace.per_second(), pace.left()), (None, None));
        pace.at(Duration::from_millis(7_100), 500, 500);
        assert_eq!((pace.per_second(), pace.left()), (None, None), "what comes at once says nothing");
        pace.at(Duration::from_millis(7_500), 500, 500);
        assert_eq!((pace.per_second(), pace.left()), (Some(1_000.0), Some(Duration::from_millis(500))));
        assert_eq!((pace.done(), pace.remaining(), pace.took()), (500, 500, Duration::from_millis(500)));
    }

    #[test]
    fn a_steady_rate_is_told_exactly() {
        let mut pace = Pace::begin(Duration::ZERO, 100_000);
        work(&mut pace, 40, 100);
        assert!(near(pace.per_second().unwrap(), 1_000.0), "{pace:?}");
        assert!(near(pace.left().unwrap().as_secs_f64(), 60.0), "{pace:?}");
    }

    #[test]
    fn gusts_do_not_shake_it() {
        let mut pace = Pace::begin(Duration::ZERO, 1_000_000);
        let mut told = Vec::new();
        for _ in 0..30 {
            // two seconds of reading, one of writing
            work(&mut pace, 2, 150);
            work(&mut pace, 1, 0);
            told.push(pace.per_second().unwrap());
        }
        let late = &told[10..];
        assert!(late.iter().all(|rate| (rate - 1_000.0).abs() < 150.0), "{told:?}");
    }

    #[test]
    fn it_follows_a_rate_that_changes() {
        let mut pace = Pace::begin(Duration::ZERO, 10_000_000);
        work(&mut pace, 60, 1_000);
        // twelve times its memory on, nothing is left of what was before
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
        assert!(pace.left().is_some(), "it goes on");
    }

    #[test]
    fn what_never_began_to_move_has_no_estimate() {
        let mut pace = Pace::begin(Duration::ZERO, 10_000);
        work(&mut pace, 5, 0);
        assert_eq!((pace.per_second(), pace.left()), (Some(0.0), None));
    }

    #[test]
    fn what_remains_may_grow() {
        let mut pace = Pace::begin(Duration::ZERO, 20_000);
        work(&mut pace, 10, 100);
        let before = pace.left().unwrap();
        pace.at(pace.now, pace.done, 100_000);
        let after = pace.left().unwrap();
        assert!(near(before.as_secs_f64(), 10.0) && near(after.as_secs_f64(), 100.0), "{before:?} {after:?}");
    }

    #[test]
    fn what_is_done_has_nothing_left() {
        let mut pace = Pace::begin(Duration::ZERO, 1_000);
        pace.at(Duration::from_millis(1), 1_000, 0);
        assert_eq!(pace.left(), Some(Duration::ZERO), "however short it was");
    }
}
