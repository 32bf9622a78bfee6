//! Random numbers from a seed that can be given again.
#![allow(dead_code, reason = "each test binary uses its own part of the support")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// SplitMix64: small, seeded, the same everywhere.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// From `RATCHET_TEST_SEED`, else from the clock; printed, so that a run can be had again.
    pub fn seeded(theme: &str) -> Random {
        let seed = match std::env::var("RATCHET_TEST_SEED") {
            Ok(text) => text.parse().expect("RATCHET_TEST_SEED is a number"),
            Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as u64,
        };
        println!("{theme}: RATCHET_TEST_SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Once in `count` times.
    pub fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// A duration between the two.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + Duration::from_millis(self.below((most - least).as_millis() as u64 + 1))
    }
}
