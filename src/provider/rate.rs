//! A limit of requests per second: a token bucket.

use std::time::Duration;

/// The time in which an empty bucket fills: its capacity is the rate times this, but at least one token.
const BURST_SECONDS: f64 = 0.1;

/// A token bucket that fills at a rate.
#[derive(Debug)]
pub(in crate::provider) struct Bucket {
    per_second: f64,
    capacity: f64,
    /// Below 0 if tokens were taken in advance.
    tokens: f64,
    updated_at: Duration,
}

impl Bucket {
    /// A full bucket. Times count from an arbitrary start.
    pub fn new(per_second: f64, now: Duration) -> Self {
        let capacity = (per_second * BURST_SECONDS).max(1.0);
        Self { per_second, capacity, tokens: capacity, updated_at: now }
    }

    /// Takes the next token, and returns how long to wait until it is available.
    pub fn take(&mut self, now: Duration) -> Duration {
        let elapsed = now.saturating_sub(self.updated_at).as_secs_f64();
        self.updated_at = now;
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.capacity) - 1.0;
        Duration::try_from_secs_f64(-self.tokens.min(0.0) / self.per_second).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: an interval has at most the requests that the rate allows in it, plus one full bucket. A pause fills the
    //! bucket at most to its capacity.

    use super::*;

    /// The send times, in seconds, of requests that all wait from the start on.
    fn send_times(per_second: f64, count: usize) -> Vec<f64> {
        let (mut bucket, mut now) = (Bucket::new(per_second, Duration::ZERO), Duration::ZERO);
        let send_time = || {
            now += bucket.take(now);
            now.as_secs_f64()
        };
        std::iter::repeat_with(send_time).take(count).collect()
    }

    #[test]
    fn sent_requests_never_exceed_the_rate_and_one_bucket() {
        for per_second in [0.5, 3.0, 100.0, 5_000.0] {
            let send_times = send_times(per_second, 1_000);
            for (number, sent_at) in send_times.iter().enumerate() {
                let max = (per_second * BURST_SECONDS).max(1.0) + sent_at * per_second + 1e-3;
                assert!((number + 1) as f64 <= max, "{per_second}/s: {number} at {sent_at} s");
            }
            let last = send_times[999];
            assert!((last - (1_000.0 - (per_second * BURST_SECONDS).max(1.0)) / per_second).abs() < 0.01, "{last}");
        }
    }

    #[test]
    fn pause_fills_the_bucket_up_to_its_capacity() {
        let mut bucket = Bucket::new(100.0, Duration::ZERO);
        let later = Duration::from_secs(3_600);
        let burst = (0..100).take_while(|_| bucket.take(later).is_zero()).count();
        assert_eq!(burst, 10);
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
