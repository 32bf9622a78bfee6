//! Positions of stores, for the benches of stores.

use ratchet::format::{ChangelogOffset, StoreMeta, Token};

/// A store's position with, or without, the token of a transaction.
pub fn meta(token: Option<Token>) -> StoreMeta {
    StoreMeta {
        changelog_id: [0; 16],
        partition: 0,
        changelog_offset: ChangelogOffset(0),
        token,
        synced_at: 0,
        position_offset: None,
    }
}

/// The position of a store that is the result of a transaction.
#[allow(dead_code, reason = "not every bench commits")]
pub fn current() -> StoreMeta {
    meta(Some(Token { lane: 1, transaction: 1, changelog_id: [0; 16], partition: 0 }))
}
