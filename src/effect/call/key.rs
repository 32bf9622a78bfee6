//! The key by which a provider recognises an effect: SHA-256, as 64 hex digits.
//!
//! The key depends on the effect, never on an attempt or a record's coordinates: a record that is sent again, is
//! compacted, or comes from another topic causes the same effect under the same key.
//!
//! The hashed bytes, with all numbers big-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 25 | `ratchet idempotency key 1`: no other hashed bytes begin with it |
//! | 8 + n | the topology's name: its length, and its bytes |
//! | 8 + n | the identity: the store key (see [`crate::dedup::identity`]) |
//! | 1, 8 + n | `00`, or `01` and the epoch's parts, encoded like an identity |
//! | 1, 8 + n | `00`, or `01` and the version's bytes |
//! | 1, 8 + n | `00`, or `01` and the name of a handler's step, or `02` and the name of a compensation |
//!
//! Each part is preceded by its length, so no two lists of parts give the same bytes. The bytes must never change: a
//! key that changes with a release means a second charge.

use std::fmt;

use sha2::{Digest, Sha256};

const DOMAIN: &[u8] = b"ratchet idempotency key 1";
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The parts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts<'a> {
    /// The topology's name.
    pub topology: &'a str,
    /// The identity: its store key.
    pub identity: &'a [u8],
    /// The epoch's bytes; `None` if there is no epoch.
    pub epoch: Option<&'a [u8]>,
    /// The version's bytes; `None` if there is no version.
    pub version: Option<&'a [u8]>,
    /// A handler's step; `None` for the only call of a record.
    pub step: Option<StepName<'a>>,
}

/// The name of one of a handler's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepName<'a> {
    /// The name of a step that acts.
    Action(&'a str),
    /// The name of a step that undoes other steps. A step that acts may have the same name.
    Compensation(&'a str),
}

/// A key: 64 lower case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 64]);

impl Key {
    /// The key of an effect.
    pub fn of(parts: KeyParts<'_>) -> Self {
        let KeyParts { topology, identity, epoch, version, step } = parts;
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        for part in [topology.as_bytes(), identity] {
            add(&mut hasher, part);
        }
        let (tag, step) = match step {
            None => (0, None),
            Some(StepName::Action(name)) => (1, Some(name.as_bytes())),
            Some(StepName::Compensation(name)) => (2, Some(name.as_bytes())),
        };
        for (tag, part) in [(u8::from(epoch.is_some()), epoch), (u8::from(version.is_some()), version), (tag, step)] {
            hasher.update([tag]);
            part.into_iter().for_each(|part| add(&mut hasher, part));
        }
        let mut hex = [0; 64];
        for (digits, byte) in hex.chunks_exact_mut(2).zip(hasher.finalize()) {
            digits.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
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
    //! Goal: the same effect always has the same key, and different effects have different keys.

    use std::collections::BTreeMap;

    use super::*;

    const PLAIN: KeyParts<'_> =
        KeyParts { topology: "charges", identity: b"\x10\x04\x01a", epoch: None, version: None, step: None };

    #[test]
    fn bytes_are_as_documented() {
        // Computed by an independent program: a key that changes means a second charge.
        let all =
            KeyParts { epoch: Some(b"e"), version: Some(b"\x00\x02"), step: Some(StepName::Action("charge")), ..PLAIN };
        let compensation = KeyParts { step: Some(StepName::Compensation("charge")), ..all };
        assert_eq!(Key::of(PLAIN).as_str(), "832ca527df291c21a3031a9868f573ea6d620114abf8bf361072b4e03c2e0c2f");
        assert_eq!(Key::of(all).to_string(), "738624ba21e345054e709dc0949ec1653f7e50becfbcee062cf19f886588631d");
        assert_eq!(
            Key::of(compensation).to_string(),
            "bc73da6308a6216f7846e8d9d1f437c4476398bf16dfb54c31293bf2a9bf6a1f"
        );
    }

    #[test]
    fn different_parts_have_different_keys() {
        let cases = [
            PLAIN,
            KeyParts { topology: "charge", identity: b"s\x10\x04\x01a", ..PLAIN },
            KeyParts { topology: "", identity: b"charges\x10\x04\x01a", ..PLAIN },
            KeyParts { identity: b"\x10\x04\x01b", ..PLAIN },
            KeyParts { identity: b"", ..PLAIN },
            KeyParts { epoch: Some(b""), ..PLAIN },
            KeyParts { version: Some(b""), ..PLAIN },
            KeyParts { step: Some(StepName::Action("")), ..PLAIN },
            KeyParts { epoch: Some(b"1"), ..PLAIN },
            KeyParts { version: Some(b"1"), ..PLAIN },
            KeyParts { step: Some(StepName::Action("1")), ..PLAIN },
            KeyParts { step: Some(StepName::Compensation("1")), ..PLAIN },
            KeyParts { step: Some(StepName::Compensation("")), ..PLAIN },
            KeyParts { epoch: Some(b"1"), version: Some(b"1"), ..PLAIN },
            KeyParts { epoch: Some(b"11"), version: Some(b""), ..PLAIN },
            KeyParts { version: Some(b"1"), step: Some(StepName::Action("1")), ..PLAIN },
            KeyParts { epoch: Some(b"\x00\x00"), ..PLAIN },
            KeyParts { version: Some(b"1\x01\x00\x00\x00\x00\x00\x00\x00\x011"), ..PLAIN },
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
