//! Numbers of calls, and random numbers for their waits.

use crate::effect::provider::CallNumber;

/// Numbers a lane's calls.
#[derive(Debug, Default)]
pub struct Numbers(CallNumber);

impl Numbers {
    /// A number that no other call of the lane has.
    pub fn take(&mut self) -> CallNumber {
        self.0 += 1;
        self.0
    }
}

/// Random numbers for waits (SplitMix64): they only decide when calls that failed together are repeated.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number between 0 and `most`, both included.
    pub fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        match most.checked_add(1) {
            Some(count) => mixed % count,
            None => mixed,
        }
    }
}
