//! Numbers for calls, and random numbers for their waits.

use crate::effect::provider::CallNumber;

/// The generator of a lane's call numbers.
#[derive(Debug, Default)]
pub struct CallNumbers(CallNumber);

impl CallNumbers {
    /// Returns a number that no other call of the lane has.
    pub fn take(&mut self) -> CallNumber {
        self.0 += 1;
        self.0
    }
}

/// Random numbers for waits (SplitMix64). Their only use is to spread the retries of calls that failed together.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number between 0 and `max`, both included.
    pub fn up_to(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        match max.checked_add(1) {
            Some(count) => mixed % count,
            None => mixed,
        }
    }
}
