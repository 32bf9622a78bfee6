//! The wait before a call is made again: exponential backoff with full jitter. The caller provides the random numbers.
//!
//! Full jitter draws the whole wait between zero and a growing ceiling, so that calls which have failed together are
//! not made again together (Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).

use std::time::Duration;

/// The longest `Retry-After` that is honoured: a provider must not be able to stop a partition for a day.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Draws a uniformly distributed random number between 0 and the given maximum, both included.
pub type Draw<'a> = &'a mut dyn FnMut(u64) -> u64;

/// How often a call is made again, and after which waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The ceiling of the first wait.
    pub first: Duration,
    /// The factor by which the ceiling grows after each attempt; at least 1.
    pub factor: u32,
    /// The highest ceiling.
    pub max: Duration,
    /// Which part of a wait is random.
    pub jitter: Jitter,
    /// The most attempts of a call, including the first one; at least 1.
    pub attempts: u32,
}

/// Which part of a wait is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// The whole wait: it is between zero and the ceiling.
    Full,
    /// No part: the wait is the ceiling.
    None,
}

impl Retry {
    /// The ceiling of the wait after this many attempts, the first one being number 1.
    pub fn ceiling(&self, attempts: u32) -> Duration {
        let factor = self.factor.max(1).checked_pow(attempts.saturating_sub(1));
        factor.and_then(|factor| self.first.checked_mul(factor)).map_or(self.max, |ceiling| ceiling.min(self.max))
    }

    /// The wait after this many attempts, to the millisecond.
    pub fn wait(&self, attempts: u32, draw: Draw<'_>) -> Duration {
        let ceiling = self.ceiling(attempts);
        match self.jitter {
            Jitter::None => ceiling,
            Jitter::Full => {
                let ceiling_ms = u64::try_from(ceiling.as_millis()).unwrap_or(u64::MAX);
                Duration::from_millis(draw(ceiling_ms).min(ceiling_ms))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: waits grow up to their bound, are drawn from the whole range, and never overflow.

    use super::*;

    fn retry(factor: u32) -> Retry {
        let (first, max) = (Duration::from_millis(200), Duration::from_secs(30));
        Retry { first, factor, max, jitter: Jitter::Full, attempts: 8 }
    }

    #[test]
    fn ceiling_grows_up_to_its_bound() {
        let cases = [
            (2, 0, 200),
            (2, 1, 200),
            (2, 2, 400),
            (2, 3, 800),
            (2, 8, 25_600),
            (2, 9, 30_000),
            (2, u32::MAX, 30_000),
            (1, 1_000, 200),
            (0, 5, 200),
            (10, 3, 20_000),
            (u32::MAX, 2, 30_000),
        ];
        for (factor, attempts, expected_ms) in cases {
            let ceiling = retry(factor).ceiling(attempts);
            assert_eq!(ceiling.as_millis(), expected_ms, "factor {factor}, after attempt {attempts}");
        }
    }

    #[test]
    fn wait_is_drawn_between_zero_and_the_ceiling() {
        let mut ceilings = Vec::new();
        for part in [0, 1, 2] {
            let wait = retry(2).wait(3, &mut |max| {
                ceilings.push(max);
                max * part / 2
            });
            assert_eq!(wait, Duration::from_millis(400 * part));
        }
        assert_eq!(ceilings, [800; 3]);
        assert_eq!(retry(2).wait(3, &mut |_| u64::MAX), Duration::from_millis(800), "a source that exceeds its bound");
    }

    #[test]
    fn wait_without_jitter_is_the_ceiling() {
        let retry = Retry { jitter: Jitter::None, ..retry(2) };
        assert_eq!(retry.wait(2, &mut |_| unreachable!("nothing is drawn")), Duration::from_millis(400));
    }

    #[test]
    fn longest_wait_does_not_overflow() {
        let endless = Retry { first: Duration::MAX, max: Duration::MAX, ..retry(2) };
        assert_eq!(endless.wait(9, &mut |max| max), Duration::from_millis(u64::MAX));
    }
}
