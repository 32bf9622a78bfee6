//! Random numbers from a seed (SplitMix64): the same in each run and on every machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Added to the state for each number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The random number of `n`.
pub fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An integer type of random numbers. Only the bounds of [`Random::between`] may be negative.
pub trait Integer: Copy {
    fn of(number: u64) -> Self;
    /// The number, in two's complement if it is negative.
    fn number(self) -> u64;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Integer for $integer {
            fn of(number: u64) -> Self {
                number as Self
            }

            fn number(self) -> u64 {
                self as u64
            }
        }
    )*};
}

integers!(i32 i64 u64 usize);

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From `RATCHET_TEST_SEED`, else from the clock; printed, so that a run can be repeated.
    #[allow(clippy::disallowed_methods, reason = "without a given seed the clock provides one")]
    pub fn seeded(theme: &str) -> Self {
        let seed = match std::env::var("RATCHET_TEST_SEED") {
            Ok(text) => text.parse().expect("RATCHET_TEST_SEED is a number"),
            Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as u64,
        };
        println!("{theme}: RATCHET_TEST_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        let next = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        next
    }

    /// A number below `end`, which is above 0.
    pub fn below<N: Integer>(&mut self, end: N) -> N {
        N::of(self.next() % end.number())
    }

    /// A number from `least` to `most`, both included.
    pub fn between<N: Integer>(&mut self, least: N, most: N) -> N {
        let numbers = most.number().wrapping_sub(least.number()) + 1;
        N::of(least.number().wrapping_add(self.below(numbers)))
    }

    /// An element of `all`, which is not empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A duration from `least` to `most`, in milliseconds.
    pub fn duration(&mut self, least: Duration, most: Duration) -> Duration {
        least + Duration::from_millis(self.below((most - least).as_millis() as u64 + 1))
    }

    /// True once in `count` times, on average.
    pub fn once_in<N: Integer>(&mut self, count: N) -> bool {
        self.below(count.number()) == 0
    }

    /// True this many times in a thousand, on average.
    pub fn permille(&mut self, times: u64) -> bool {
        times > 0 && self.below(1000) < times
    }
}
