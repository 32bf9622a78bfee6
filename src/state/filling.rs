//! Which lookups leave in the cache what they have read.
//!
//! Where a state is much larger than the cache, most lookups of known keys read a block. To keep it, another has to be
//! evicted, and all that is touched for this, handles, lists and freed memory, is cold: a quarter of such a lookup's time,
//! for a block that is seldom read again before it is evicted itself. So once the cache is full, only one lookup in
//! [`ONE_IN`] fills it. What is read often is there soon nevertheless, and stays longer.
//!
//! **Failure**: none; whether a block is in the cache changes nothing but the time to read it. The blocks of filters and
//! indexes are read by the same lookups: those of a new file get into the cache when it is opened, or by the next lookup
//! that fills it.

use std::cell::Cell;

/// Of so many lookups, one fills a full cache.
const ONE_IN: u64 = 8;
/// 2^64 divided by the golden ratio: multiples of it, modulo 2^64, are spread evenly, and so is any part of them that
/// is taken at regular distances.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One store's lookups.
#[derive(Default)]
pub(super) struct Filling {
    lookups: Cell<u64>,
    /// Whether the cache was full when that was last asked.
    is_full: Cell<bool>,
}

impl Filling {
    /// Whether the next lookup fills the cache. `is_full`, whether there is no room without evicting, is asked now and
    /// then, as the answer takes a while.
    pub fn next(&self, is_full: impl FnOnce() -> bool) -> bool {
        let number = self.lookups.get();
        self.lookups.set(number.wrapping_add(1));
        // Not each eighth: a batch may take eight lookups, and always the same one of them would fill the cache.
        let is_its_turn = number.wrapping_mul(GOLDEN) < u64::MAX / ONE_IN;
        if is_its_turn {
            self.is_full.set(is_full());
        }
        is_its_turn || !self.is_full.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_with_room_is_filled_by_every_lookup() {
        let filling = Filling::default();
        assert!((0..1_000).all(|_| filling.next(|| false)));
    }

    /// Whatever regular part of the lookups is for the same keys.
    #[test]
    fn full_cache_is_filled_by_one_lookup_in_some() {
        for stride in [1, 2, 3, 5, 7, 8, 13, 16, 21, 64, 512] {
            let filling = Filling::default();
            let of_these = (0..800 * stride).map(|_| filling.next(|| true)).step_by(stride);
            let filled = of_these.filter(|fills| *fills).count();
            assert!((70..=130).contains(&filled), "{filled} of 800, each {stride}th lookup");
        }
    }

    #[test]
    fn room_is_noticed_again() {
        let filling = Filling::default();
        assert!(!(0..100).all(|_| filling.next(|| true)));
        // One of these asks.
        assert!((0..16).any(|_| filling.next(|| false)));
        assert!((0..100).all(|_| filling.next(|| false)));
    }
}
