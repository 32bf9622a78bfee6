//! Identities as somebody types them on a command line.
//!
//! | written | is |
//! |---|---|
//! | `["o-7","charge"]` | the parts as JSON: texts, numbers, objects as a record has them |
//! | `{"bytes":"x"}`, `{"hex":"ff"}`, `{"sha256":"…"}` | parts that JSON cannot say: raw bytes, a document's digest |
//! | `digest:` and 64 hex digits | an identity that is stored as its digest |
//! | `hex:` and hex digits | the key in the changelog, byte for byte |
//! | anything else | an identity of one part: this text |
//!
//! A text where the rules read raw bytes (a whole key, value or header) is those bytes.
//!
//! **What is shown is read back as the same identity**: [`Typed::show`] falls back to `hex:` where it would not be.

use crate::dedup::json::{Tape, TokenKind};
use crate::dedup::path::Source;
use crate::dedup::rules::{Identity, IdentityPart};
use crate::format::{self, KIND_IDENTITY, KIND_IDENTITY_DIGEST, unhex};

use super::{BYTES, DESCRIBED_DEPTH_MAX, describe_part, push_bytes, push_content, push_digest, push_text, shorten};

const DIGEST_PREFIX: &str = "digest:";
const HEX_PREFIX: &str = "hex:";

/// How identities of a topology are typed.
#[derive(Clone, Debug)]
pub struct Typed {
    /// Which of its parts are raw bytes.
    are_bytes: Vec<bool>,
}

impl Typed {
    /// Those that are made like this.
    pub fn of(identity: &Identity) -> Self {
        let is_raw = |part: &IdentityPart| match part {
            IdentityPart::Scalar(path) => {
                matches!(path.source, Source::Key | Source::Value | Source::Header(_)) && !path.is_inside()
            }
            _ => false,
        };
        Self { are_bytes: identity.parts.iter().map(is_raw).collect() }
    }

    /// The identity with this key in the changelog.
    pub fn show(&self, key: &[u8]) -> String {
        let shown = match key.split_first() {
            Some((&KIND_IDENTITY, parts)) => self.show_parts(parts),
            Some((&KIND_IDENTITY_DIGEST, digest)) => Some(format!("{DIGEST_PREFIX}{}", format::hex(digest))),
            _ => None,
        };
        let is_it = |shown: &String| self.read(shown).is_ok_and(|read| read == key);
        shown.filter(is_it).unwrap_or_else(|| format!("{HEX_PREFIX}{}", format::hex(key)))
    }

    fn show_parts(&self, mut rest: &[u8]) -> Option<String> {
        let mut parts = Vec::new();
        while let Some(&tag) = rest.first() {
            let part = describe_part(&mut rest, DESCRIBED_DEPTH_MAX)?;
            let is_marked = tag == BYTES && part.starts_with('"') && !self.is_raw(parts.len());
            parts.push(if is_marked { format!("{{\"bytes\":{part}}}") } else { part });
        }
        Some(format!("[{}]", parts.join(",")))
    }

    fn is_raw(&self, part: usize) -> bool {
        self.are_bytes.get(part).copied().unwrap_or_default()
    }

    /// The key in the changelog of the identity that is written like this; or what is wrong with it.
    pub fn read(&self, text: &str) -> Result<Vec<u8>, String> {
        if let Some(digits) = text.strip_prefix(DIGEST_PREFIX) {
            let digest = unhex(digits).filter(|digest| digest.len() == 32);
            let digest = digest.ok_or("64 hex digits come after `digest:`")?;
            return Ok([&[KIND_IDENTITY_DIGEST], digest.as_slice()].concat());
        }
        if let Some(digits) = text.strip_prefix(HEX_PREFIX) {
            let key = unhex(digits).filter(|key| matches!(key.first(), Some(&KIND_IDENTITY | &KIND_IDENTITY_DIGEST)));
            return key.ok_or_else(|| "the key of an identity comes after `hex:`, in hex digits".to_owned());
        }
        let mut key = vec![KIND_IDENTITY];
        match text.starts_with('[') {
            true => self.read_parts(text, &mut key)?,
            false if self.is_raw(0) => push_bytes(text.as_bytes(), &mut key),
            false => push_text(text.as_bytes(), &mut key),
        }
        shorten(0, &mut key);
        Ok(key)
    }

    fn read_parts(&self, text: &str, key: &mut Vec<u8>) -> Result<(), String> {
        let document = text.as_bytes();
        let nested = document.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
        if nested > DESCRIBED_DEPTH_MAX {
            return Err("it is nested too deeply".to_owned());
        }
        let mut tape = Tape::default();
        tape.read(document).map_err(|error| format!("it is not JSON: {error}"))?;
        let (mut fields, mut number) = (Vec::new(), 0);
        for at in tape.elements(0) {
            let is_text = matches!(tape.token(at).kind, TokenKind::Text | TokenKind::Escaped);
            match raw_part(&tape, document, at) {
                Some(Raw::Bytes(bytes)) => push_bytes(&bytes, key),
                Some(Raw::Digest(digest)) => push_digest(&digest, key),
                None if is_text && self.is_raw(number) => push_bytes(tape.bytes(at, document), key),
                None => push_content(&tape, document, at, &mut fields, key)
                    .map_err(|_| "a number in it has an exponent that is too long".to_owned())?,
            }
            number += 1;
        }
        Ok(())
    }
}

/// A part that JSON cannot say.
enum Raw {
    Bytes(Vec<u8>),
    Digest([u8; 32]),
}

/// What the object at `at` stands for, if it stands for something else.
fn raw_part(tape: &Tape, document: &[u8], at: usize) -> Option<Raw> {
    let token = tape.token(at);
    let (name, value) = (token.kind == TokenKind::Object && token.count == 1).then(|| tape.fields(at).next())??;
    if !matches!(tape.token(value).kind, TokenKind::Text | TokenKind::Escaped) {
        return None;
    }
    let value = tape.bytes(value, document);
    let unhexed = || unhex(std::str::from_utf8(value).ok()?);
    match tape.bytes(name, document) {
        b"bytes" => Some(Raw::Bytes(value.to_vec())),
        b"hex" => unhexed().map(Raw::Bytes),
        b"sha256" => Some(Raw::Digest(unhexed()?.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Goal: whatever is shown is read back as the same identity, and what is typed is the identity that a record has.

    use proptest::prelude::*;

    use super::*;
    use crate::dedup::Path;

    fn typed(paths: &[&str]) -> Typed {
        Typed::of(&Identity::of_paths(paths.iter().map(|path| Path::parse(path).unwrap())))
    }

    fn key(parts: &[u8]) -> Vec<u8> {
        [&[KIND_IDENTITY], parts].concat()
    }

    #[test]
    fn identities_are_typed_as_records_have_them() {
        let typed = typed(&["value.a", "value.b"]);
        let both = key(b"\x04\x03o-7\x03\x011");
        for text in
            [r#"["o-7",1]"#, r#" ["o\u002d7", 1.0]"#.trim(), "hex:10 0403 6f2d37 030131".replace(' ', "").as_str()]
        {
            assert_eq!(typed.read(text), Ok(both.clone()), "{text}");
        }
        assert_eq!(typed.show(&both), r#"["o-7",1]"#);
        assert_eq!(typed.read("o-7"), Ok(key(b"\x04\x03o-7")));
        assert_eq!(typed.read("7"), Ok(key(b"\x04\x017")), "a text, as no quotes are needed for one");
        assert_eq!(typed.read("[7]"), Ok(key(b"\x03\x017")));
        assert_eq!(typed.read(r#"[{"b":true,"a":null}]"#), Ok(key(b"\x08\x02\x04\x01a\x06\x04\x01b\x02")));
        assert_eq!(typed.read("[]"), Ok(key(b"")));
    }

    #[test]
    fn raw_bytes_are_told_from_texts() {
        let (raw, text) = (key(b"\x05\x03o-7"), key(b"\x04\x03o-7"));
        for (path, shown) in [("key", r#"["o-7"]"#), ("value.id", r#"[{"bytes":"o-7"}]"#)] {
            assert_eq!(typed(&[path]).show(&raw), shown);
            assert_eq!(typed(&[path]).read(shown), Ok(raw.clone()));
        }
        assert_eq!(typed(&["header.id"]).read("o-7"), Ok(raw));
        // A text where bytes are read: of a former release of the rules, say.
        assert_eq!(typed(&["key"]).show(&text), "hex:1004036f2d37");
        assert_eq!(typed(&["key"]).show(&key(b"\x05\x01\xff")), r#"[{"hex":"ff"}]"#);
    }

    #[test]
    fn long_identities_are_shown_and_read_as_digests() {
        let typed = typed(&["value.id"]);
        let long = "x".repeat(200);
        let stored = typed.read(&long).unwrap();
        assert_eq!((stored[0], stored.len()), (KIND_IDENTITY_DIGEST, 33));
        assert_eq!(typed.read(&format!("[\"{long}\"]")), Ok(stored.clone()));
        let shown = typed.show(&stored);
        assert!(shown.starts_with("digest:") && shown.len() == 7 + 64, "{shown}");
        assert_eq!(typed.read(&shown), Ok(stored));
        // The digest of a document is another thing.
        let document = key(&[&[9], &[7; 32][..]].concat());
        assert_eq!(typed.show(&document), format!(r#"[{{"sha256":"{}"}}]"#, "07".repeat(32)));
    }

    #[test]
    fn what_would_be_misread_is_shown_byte_for_byte() {
        let typed = typed(&["value.id"]);
        // Content that looks like raw bytes, alternatives that look like an array, a table, a message, no identity.
        let cases: [&[u8]; 6] = [
            b"\x10\x08\x01\x04\x05bytes\x04\x01x",
            b"\x10\x0a\x01\x04\x01x",
            b"\x10\x20\x04\x01x",
            b"\x10\x21\x04\x01x\x0b\x01\x07",
            b"\x10\x04\x05x",
            b"\x00",
        ];
        for key in cases {
            assert_eq!(typed.show(key), format!("hex:{}", format::hex(key)));
        }
        for key in &cases[..5] {
            assert_eq!(typed.read(&typed.show(key)).as_deref(), Ok(*key));
        }
    }

    #[test]
    fn what_cannot_be_an_identity_is_refused() {
        let typed = typed(&["value.id"]);
        let deep = "[".repeat(DESCRIBED_DEPTH_MAX + 1);
        let cases = [
            ("[1", "it is not JSON"),
            ("[1] x", "it is not JSON"),
            ("digest:07", "64 hex digits"),
            ("hex:006d", "the key of an identity"),
            ("hex:1", "the key of an identity"),
            ("hex:", "the key of an identity"),
            (&deep, "nested too deeply"),
            ("[1e9999999999999999999]", "exponent"),
        ];
        for (text, reason) in cases {
            let refused = typed.read(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(parts in proptest::collection::vec(any::<u8>(), 0..100), is_raw in any::<bool>()) {
            let typed = typed(&[if is_raw { "key" } else { "value.id" }]);
            let key = key(&parts);
            prop_assert_eq!(typed.read(&typed.show(&key)), Ok(key));
        }

        #[test]
        fn texts_and_numbers_are_shown_as_json(text in any::<String>(), number in any::<i64>()) {
            let typed = typed(&["value.a", "value.b"]);
            let written = serde_json::json!([text, number]).to_string();
            let key = typed.read(&written).unwrap();
            prop_assume!(key[0] == KIND_IDENTITY);
            prop_assert_eq!(typed.show(&key), written);
        }
    }
}
