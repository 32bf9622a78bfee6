//! The backoff before a connection is attempted again, or metadata is requested again.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::types::Settings;

/// The backoff varies by a fifth, so that clients that failed together do not retry together (KIP-580).
const JITTER: std::ops::RangeInclusive<f64> = 0.8..=1.2;

/// The backoff after `failures` failures in succession: doubled with each failure, up to the maximum.
pub fn backoff(failures: u32, settings: &Settings, random: &mut StdRng) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let backoff = settings.reconnect_backoff.saturating_mul(doubled).min(settings.reconnect_backoff_max);
    backoff.mul_f64(random.random_range(JITTER))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_maximum() {
        let (settings, mut random) = (Settings::default(), StdRng::seed_from_u64(1));
        for (failures, ms) in [(0, 20), (1, 20), (2, 40), (3, 80), (6, 640), (7, 1000), (31, 1000), (40, 1000)] {
            let backoffs: Vec<u128> = (0..100).map(|_| backoff(failures, &settings, &mut random).as_micros()).collect();
            assert!(backoffs.iter().all(|us| (ms * 800..=ms * 1200).contains(us)), "{failures}: {backoffs:?}");
            let (shortest, longest) = (backoffs.iter().min().unwrap(), backoffs.iter().max().unwrap());
            assert!(longest - shortest > ms * 200, "{failures} failures: {shortest} to {longest} us");
        }
    }
}
