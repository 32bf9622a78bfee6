//! Entries of identities, and how much work there is, for the benches of stores.

use ratchet::format::{ContentsList, Digest, EntryRef};

/// Writes the entry of record number `n` in place of what is there.
pub fn entry(n: u64, version: Option<&[u8]>, bytes: &mut Vec<u8>) {
    bytes.clear();
    let mut contents = ContentsList::default();
    contents.push(Digest::new(n, 0, false));
    let entry = EntryRef {
        last_seen: 1_700_000_000_000 + n as i64,
        version,
        scope: None,
        from_read: false,
        streamed: None,
        owes_tombstone: false,
        key_hash: Some(n as u32 & 0x7fff_ffff),
        contents: contents.as_contents(),
    };
    entry.encode(bytes);
}

/// A number from the environment.
pub fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}
