//! A limit of requests per second: a token bucket.

use std::time::Duration;

/// The bucket's capacity, in seconds' worth of tokens; at least one token.
const AT_ONCE: f64 = 0.1;

/// A token bucket that fills at a rate.
#[derive(Debug)]
pub(in crate::effect) struct Bucket {
    per_second: f64,
    most: f64,
    /// Below 0 if tokens were taken in advance.
    tokens: f64,
    at: Duration,
}

impl Bucket {
    /// A full bucket. Times count from an arbitrary start.
    pub fn new(per_second: f64, now: Duration) -> Self {
        let most = (per_second * AT_ONCE).max(1.0);
        Self { per_second, most, tokens: most, at: now }
    }

    /// Takes the next token, and returns how long to wait until it is available.
    pub fn take(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = now;
        self.tokens = (self.tokens + passed * self.per_second).min(self.most) - 1.0;
        Duration::try_from_secs_f64(-self.tokens.min(0.0) / self.per_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: no interval has more requests than the rate allows, and a pause saves up at most a tenth of a second's
    //! tokens.

    use super::*;

    /// The times at which requests that are all waiting from the start are sent.
    fn gone(per_second: f64, count: usize) -> Vec<f64> {
        let (mut bucket, mut now) = (Bucket::new(per_second, Duration::ZERO), Duration::ZERO);
        let next = || {
            now += bucket.take(now);
            now.as_secs_f64()
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn rate_is_kept_from_the_start() {
        for per_second in [0.5, 3.0, 100.0, 5_000.0] {
            let gone = gone(per_second, 1_000);
            for (number, at) in gone.iter().enumerate() {
                let most = (per_second * AT_ONCE).max(1.0) + at * per_second + 1e-3;
                assert!((number + 1) as f64 <= most, "{per_second}/s: {number} at {at} s");
            }
            let last = gone[999];
            assert!((last - (1_000.0 - (per_second * AT_ONCE).max(1.0)) / per_second).abs() < 0.01, "{last}");
        }
    }

    #[test]
    fn pause_fills_the_bucket_up_to_its_capacity() {
        let mut bucket = Bucket::new(100.0, Duration::ZERO);
        let later = Duration::from_secs(3_600);
        let at_once = (0..100).take_while(|_| bucket.take(later).is_zero()).count();
        assert_eq!(at_once, 10);
    }

    #[test]
    fn waking_up_late_loses_no_tokens() {
        let mut bucket = Bucket::new(1_000.0, Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..2_000 {
            let wait = bucket.take(now);
            // A timer of whole milliseconds.
            now += if wait.is_zero() { wait } else { Duration::from_millis(wait.as_millis() as u64 + 1) };
        }
        assert!((1.85..2.0).contains(&now.as_secs_f64()), "{now:?}");
    }

    #[test]
    fn clock_that_goes_back_does_not_panic() {
        let mut bucket = Bucket::new(1.0, Duration::from_secs(9));
        assert_eq!(bucket.take(Duration::ZERO), Duration::ZERO);
        assert!(bucket.take(Duration::ZERO) > Duration::ZERO);
    }
}
