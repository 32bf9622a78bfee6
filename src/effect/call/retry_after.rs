//! `Retry-After` (RFC 9110, section 10.2.3): when a provider wants the next request, in seconds or as a date.

use std::time::Duration;

use super::http_date;

/// When a provider wants the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// After this many seconds.
    Seconds(u64),
    /// At this time, in seconds since the epoch.
    At(i64),
}

impl RetryAfter {
    /// Reads the header's value; `None` if it is neither digits nor a date. `now_ms` is the wall clock, in milliseconds
    /// since the epoch.
    pub fn parse(value: &str, now_ms: i64) -> Option<Self> {
        let value = value.trim_matches([' ', '\t']);
        if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
            // A number that is too large counts as the longest wait.
            return Some(Self::Seconds(value.parse().unwrap_or(u64::MAX)));
        }
        http_date::parse(value, now_ms.div_euclid(1_000)).map(Self::At)
    }

    /// The wait from now on: at most `max`, and zero if the time has passed.
    pub fn wait(self, now_ms: i64, max: Duration) -> Duration {
        let wait = match self {
            Self::Seconds(seconds) => Duration::from_secs(seconds),
            Self::At(seconds) => {
                let wait_ms = seconds.saturating_mul(1_000).saturating_sub(now_ms);
                Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0))
            }
        };
        wait.min(max)
    }
}

#[cfg(test)]
mod tests {
    //! Goal: both forms are understood, and no wait is longer than the cap.

    use super::*;

    /// 6 November 1994, 08:49:37.5.
    const NOW_MS: i64 = 784_111_777_500;
    const MAX: Duration = Duration::from_secs(300);

    #[test]
    fn seconds_and_dates_are_converted_to_waits_up_to_the_cap() {
        let cases = [
            ("0", 0),
            ("120", 120_000),
            (" 7\t", 7_000),
            ("0120", 120_000),
            ("300", 300_000),
            ("301", 300_000),
            ("99999999999999999999999999", 300_000),
            ("Sun, 06 Nov 1994 08:49:40 GMT", 2_500),
            ("Sunday, 06-Nov-94 08:49:40 GMT", 2_500),
            ("Sun Nov  6 08:49:40 1994", 2_500),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Mon, 07 Nov 1994 08:49:37 GMT", 300_000),
        ];
        for (value, expected_ms) in cases {
            let wait = RetryAfter::parse(value, NOW_MS).unwrap().wait(NOW_MS, MAX);
            assert_eq!(wait, Duration::from_millis(expected_ms), "{value}");
        }
    }

    #[test]
    fn other_values_are_ignored() {
        for value in ["", " ", "-1", "+1", "1.5", "1 s", "soon", "Sun, 06 Nov 1994", "1,2"] {
            assert_eq!(RetryAfter::parse(value, NOW_MS), None, "{value}");
        }
    }

    #[test]
    fn extreme_clocks_do_not_overflow() {
        assert_eq!(RetryAfter::At(i64::MAX).wait(i64::MIN, MAX), MAX);
        assert_eq!(RetryAfter::At(i64::MIN).wait(i64::MAX, MAX), Duration::ZERO);
    }
}
