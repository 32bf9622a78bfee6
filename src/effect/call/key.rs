//! The key by which a provider recognises an effect: SHA-256, as 64 hex digits.
//!
//! It is made from the effect itself, never from an attempt or a record's coordinates: a record that is sent again, is
//! compacted, or comes from another topic causes the same effect under the same key.
//!
//! What is hashed, all numbers big-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 25 | `ratchet idempotency key 1`, so that no other digest is the same |
//! | 8 + n | the topology's name: its length, and its bytes |
//! | 8 + n | the identity: the store key (see [`crate::dedup::identity`]) |
//! | 1, 8 + n | `00`, or `01` and the epoch's parts, encoded like an identity |
//! | 1, 8 + n | `00`, or `01` and the version's bytes |
//! | 1, 8 + n | `00`, or `01` and the name of a handler's step, or `02` and the name of one that undoes steps |
//!
//! Each part is preceded by its length, so no two lists of parts give the same bytes. The bytes must never change: a
//! key that changes with a release means a second charge.

use std::fmt;

use sha2::{Digest, Sha256};

const DOMAIN: &[u8] = b"ratchet idempotency key 1";
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// What a key is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOf<'a> {
    /// The topology's name.
    pub topology: &'a str,
    /// The identity: its store key.
    pub identity: &'a [u8],
    /// The epoch's bytes; `None` if there is no epoch.
    pub epoch: Option<&'a [u8]>,
    /// The version's bytes; `None` if there is no version.
    pub version: Option<&'a [u8]>,
    /// A handler's step; `None` for the only call of a record.
    pub step: Option<StepOf<'a>>,
}

/// One of a handler's steps, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOf<'a> {
    /// A step that does something.
    Does(&'a str),
    /// A step that undoes what was done: it may have the same name as one that does something.
    Undoes(&'a str),
}

/// A key: 64 lower case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 64]);

impl Key {
    /// The key of an effect.
    pub fn of(of: KeyOf<'_>) -> Self {
        let KeyOf { topology, identity, epoch, version, step } = of;
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        for part in [topology.as_bytes(), identity] {
            add(&mut hasher, part);
        }
        let (tag, step) = match step {
            None => (0, None),
            Some(StepOf::Does(name)) => (1, Some(name.as_bytes())),
            Some(StepOf::Undoes(name)) => (2, Some(name.as_bytes())),
        };
        for (tag, part) in [(u8::from(epoch.is_some()), epoch), (u8::from(version.is_some()), version), (tag, step)] {
            hasher.update([tag]);
            part.into_iter().for_each(|part| add(&mut hasher, part));
        }
        let mut hex = [0; 64];
        for (two, byte) in hex.chunks_exact_mut(2).zip(hasher.finalize()) {
            two.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        Self(hex)
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hex digits are UTF-8")
    }
}

fn add(hasher: &mut Sha256, part: &[u8]) {
    hasher.update((part.len() as u64).to_be_bytes());
    hasher.update(part);
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the same effect has the same key for ever, and different effects have different keys.

    use std::collections::BTreeMap;

    use super::*;

    const PLAIN: KeyOf<'_> =
        KeyOf { topology: "charges", identity: b"\x10\x04\x01a", epoch: None, version: None, step: None };

    #[test]
    fn bytes_are_as_documented() {
        // Computed by another program: a key that changes means a second charge.
        let all = KeyOf { epoch: Some(b"e"), version: Some(b"\x00\x02"), step: Some(StepOf::Does("charge")), ..PLAIN };
        let undoes = KeyOf { step: Some(StepOf::Undoes("charge")), ..all };
        assert_eq!(Key::of(PLAIN).as_str(), "832ca527df291c21a3031a9868f573ea6d620114abf8bf361072b4e03c2e0c2f");
        assert_eq!(Key::of(all).to_string(), "738624ba21e345054e709dc0949ec1653f7e50becfbcee062cf19f886588631d");
        assert_eq!(Key::of(undoes).to_string(), "bc73da6308a6216f7846e8d9d1f437c4476398bf16dfb54c31293bf2a9bf6a1f");
    }

    #[test]
    fn parts_cannot_run_into_each_other() {
        let cases = [
            PLAIN,
            KeyOf { topology: "charge", identity: b"s\x10\x04\x01a", ..PLAIN },
            KeyOf { topology: "", identity: b"charges\x10\x04\x01a", ..PLAIN },
            KeyOf { identity: b"\x10\x04\x01b", ..PLAIN },
            KeyOf { identity: b"", ..PLAIN },
            KeyOf { epoch: Some(b""), ..PLAIN },
            KeyOf { version: Some(b""), ..PLAIN },
            KeyOf { step: Some(StepOf::Does("")), ..PLAIN },
            KeyOf { epoch: Some(b"1"), ..PLAIN },
            KeyOf { version: Some(b"1"), ..PLAIN },
            KeyOf { step: Some(StepOf::Does("1")), ..PLAIN },
            KeyOf { step: Some(StepOf::Undoes("1")), ..PLAIN },
            KeyOf { step: Some(StepOf::Undoes("")), ..PLAIN },
            KeyOf { epoch: Some(b"1"), version: Some(b"1"), ..PLAIN },
            KeyOf { epoch: Some(b"11"), version: Some(b""), ..PLAIN },
            KeyOf { version: Some(b"1"), step: Some(StepOf::Does("1")), ..PLAIN },
            KeyOf { epoch: Some(b"\x00\x00"), ..PLAIN },
            KeyOf { version: Some(b"1\x01\x00\x00\x00\x00\x00\x00\x00\x011"), ..PLAIN },
        ];
        let mut keys = BTreeMap::new();
        for case in cases {
            let same = keys.insert(Key::of(case).to_string(), case);
            assert_eq!(same, None, "{case:?}");
        }
    }

    #[test]
    fn key_is_hex_of_a_digest() {
        let key = Key::of(PLAIN);
        assert!(key.as_str().len() == 64 && key.as_str().bytes().all(|digit| DIGITS.contains(&digit)));
        assert_eq!(Key::of(PLAIN), key, "the same each time");
    }
}
