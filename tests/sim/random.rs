//! Randomness from a seed (SplitMix64): the same everywhere.

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From `least` to `most`, both possible.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// So many times in a thousand.
    pub fn permille(&mut self, times: u64) -> bool {
        times > 0 && self.below(1000) < times
    }
}
