//! Decides which lookups in a store put the blocks that they read into the block cache. A block is the piece of a file
//! that RocksDB reads at once.
//!
//! If the stores are much larger than the cache, most lookups of known keys read a block from a file. To cache that
//! block, another one has to be evicted. The handles, lists and freed memory that this touches are cold in the
//! processor's cache, so caching takes a quarter of the lookup's time, for a block that is seldom read again before it
//! is evicted itself. Therefore, once the cache is full, only one lookup in [`LOOKUPS_PER_FILL`] fills it. Blocks that
//! are read often are cached soon nevertheless, and stay longer.
//!
//! **Failure**: none; caching a block changes only the time to read it. Blocks of filters and indexes are read by the
//! same lookups: those of a new file are cached when the file is opened, or by the next lookup that fills the cache.

use std::cell::Cell;

/// One lookup in this many puts its blocks into a full cache.
const LOOKUPS_PER_FILL: u64 = 8;
/// 2^64 divided by the golden ratio. Its multiples, modulo 2^64, are spread evenly, and so is every regular subsequence
/// of them.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The count of one store's lookups, and whether the cache is full.
#[derive(Default)]
pub(super) struct CacheFilling {
    lookups: Cell<u64>,
    /// Whether the cache was full when this was last checked.
    is_full: Cell<bool>,
}

impl CacheFilling {
    /// Whether the next lookup puts its blocks into the cache. `is_full` says whether another block needs an eviction;
    /// it is slow, and therefore called only now and then.
    pub fn fills_cache(&self, is_full: impl FnOnce() -> bool) -> bool {
        let number = self.lookups.get();
        self.lookups.set(number.wrapping_add(1));
        // Not simply every eighth lookup: in batches of eight, that would always be the same lookup of the batch.
        let is_selected = number.wrapping_mul(GOLDEN) < u64::MAX / LOOKUPS_PER_FILL;
        if is_selected {
            self.is_full.set(is_full());
        }
        is_selected || !self.is_full.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_with_room_is_filled_by_every_lookup() {
        let cache_filling = CacheFilling::default();
        assert!((0..1_000).all(|_| cache_filling.fills_cache(|| false)));
    }

    /// The share is the same for every regular subsequence of the lookups, such as those for the same keys.
    #[test]
    fn full_cache_is_filled_by_one_lookup_in_eight() {
        for stride in [1, 2, 3, 5, 7, 8, 13, 16, 21, 64, 512] {
            let cache_filling = CacheFilling::default();
            let choices = (0..800 * stride).map(|_| cache_filling.fills_cache(|| true)).step_by(stride);
            let filled = choices.filter(|fills| *fills).count();
            assert!((70..=130).contains(&filled), "{filled} of 800 lookups fill the cache, taking every {stride}th");
        }
    }

    #[test]
    fn cache_that_has_room_again_is_filled_by_every_lookup() {
        let cache_filling = CacheFilling::default();
        assert!(!(0..100).all(|_| cache_filling.fills_cache(|| true)));
        // One of these lookups checks whether the cache is full.
        assert!((0..16).any(|_| cache_filling.fills_cache(|| false)));
        assert!((0..100).all(|_| cache_filling.fills_cache(|| false)));
    }
}
