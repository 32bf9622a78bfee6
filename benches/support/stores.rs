//! Keys of entries that come in no order, and where a store stands: for the benches of stores.

use ratchet::format::{KIND_IDENTITY, StoreMeta, Token};

use crate::mix::mix;

/// An identity's key.
pub fn key(n: u64) -> [u8; 17] {
    let mut key = [KIND_IDENTITY; 17];
    key[1..9].copy_from_slice(&mix(n).to_be_bytes());
    key[9..].copy_from_slice(&mix(!n).to_be_bytes());
    key
}

/// A store's position with, or without, the token of a transaction.
pub fn meta(token: Option<Token>) -> StoreMeta {
    StoreMeta { changelog_id: [0; 16], partition: 0, changelog_offset: 0, token, synced_at: 0 }
}

/// The position of a store that is the result of a transaction.
pub fn current() -> StoreMeta {
    meta(Some(Token { lane: 1, transaction: 1, changelog_id: [0; 16], partition: 0 }))
}
