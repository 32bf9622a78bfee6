//! Random ids that are the same in each run.

use std::fmt;

use crate::random::mix;

/// A random UUID of a number, version 4.
pub struct Uuid(pub u64);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (high, low) = (mix(self.0), mix(!self.0));
        let (time, middle, version) = (high >> 32, high >> 16 & 0xffff, high & 0xfff | 0x4000);
        let (variant, node) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
        write!(f, "{time:08x}-{middle:04x}-{version:04x}-{variant:04x}-{node:012x}")
    }
}
