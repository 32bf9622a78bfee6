//! Keys of entries in random order, for the benches of stores.

use ratchet::format::KIND_IDENTITY;

use crate::random::mix;

/// An identity's key.
pub fn key(n: u64) -> [u8; 17] {
    let mut key = [KIND_IDENTITY; 17];
    key[1..9].copy_from_slice(&mix(n).to_be_bytes());
    key[9..].copy_from_slice(&mix(!n).to_be_bytes());
    key
}
