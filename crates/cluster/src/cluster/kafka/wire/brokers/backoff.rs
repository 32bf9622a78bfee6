//! How long to wait before a retry.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::types::Settings;

/// A fifth less or more, so that clients that failed together do not retry together (KIP-580).
const JITTER: std::ops::RangeInclusive<f64> = 0.8..=1.2;

/// The wait after `failures` in succession: doubled with each, up to the maximum.
pub fn backoff(failures: u32, settings: &Settings, random: &mut StdRng) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let wait = settings.reconnect_backoff.saturating_mul(doubled).min(settings.reconnect_backoff_max);
    wait.mul_f64(random.random_range(JITTER))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let (settings, mut random) = (Settings::default(), StdRng::seed_from_u64(1));
        for (failures, ms) in [(0, 20), (1, 20), (2, 40), (3, 80), (6, 640), (7, 1000), (31, 1000), (40, 1000)] {
            let waits: Vec<u128> = (0..100).map(|_| backoff(failures, &settings, &mut random).as_micros()).collect();
            assert!(waits.iter().all(|us| (ms * 800..=ms * 1200).contains(us)), "{failures}: {waits:?}");
            let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
            assert!(most - least > ms * 200, "{failures} failures: {least} to {most} us");
        }
    }
}
