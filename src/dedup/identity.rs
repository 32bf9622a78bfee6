//! The bytes of an identity.
//!
//! An identity's parts stand one after the other. Each begins with a tag; text, bytes and numbers go on
//! with their length (LEB128: seven bits a byte, the lowest first, the high bit set on all but the last)
//! and that many bytes. So parts cannot run into each other, and what is of another kind is another
//! identity: the string `"123"` is not the number `123`.
//!
//! | tag | what follows |
//! |---|---|
//! | `01` | nothing: false |
//! | `02` | nothing: true |
//! | `03` | length, a number in canonical form: sign, significant digits, `e` and the power of ten unless it is 0; `1`, `1.0` and `1e0` are the same bytes, of any size |
//! | `04` | length, text in UTF-8, not normalized |
//! | `05` | length, bytes: a whole key, value or header |
//!
//! The topic's name is text; partition, offset and timestamp are numbers. The changelog's and the store's
//! key is the identity behind [`format::KIND_IDENTITY`], or the SHA-256 of one longer than
//! [`format::IDENTITY_BYTES_MAX`] behind [`format::KIND_IDENTITY_DIGEST`].

use sha2::{Digest, Sha256};

use crate::format::{self, IDENTITY_BYTES_MAX, KIND_IDENTITY, KIND_IDENTITY_DIGEST};

use super::json;
use super::number::{self, TooLong};

const FALSE: u8 = 1;
const TRUE: u8 = 2;
const NUMBER: u8 = 3;
const TEXT: u8 = 4;
const BYTES: u8 = 5;

pub(super) fn push_bool(value: bool, out: &mut Vec<u8>) {
    out.push(if value { TRUE } else { FALSE });
}

/// `text` is a number by JSON's grammar.
pub(super) fn push_number(text: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
    push_counted(NUMBER, out, |out| number::write_canonical(text, out))
}

pub(super) fn push_i64(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let _ = push_number(number::format_i64(value, &mut digits), out);
}

pub(super) fn push_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(TEXT);
    push_length(text.len(), out);
    out.extend_from_slice(text);
}

/// What is between a JSON string's quotes, with its escapes.
pub(super) fn push_escaped_text(raw: &[u8], out: &mut Vec<u8>) {
    let _ = push_counted(TEXT, out, |out| {
        json::unescape(raw, out);
        Ok(())
    });
}

pub(super) fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(BYTES);
    push_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

fn push_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(0x80 | (length & 0x7f) as u8);
        length >>= 7;
    }
    out.push(length as u8);
}

/// Appends a part whose length is known only once it is written.
fn push_counted(
    tag: u8,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), TooLong>,
) -> Result<(), TooLong> {
    out.extend_from_slice(&[tag, 0]);
    let from = out.len();
    write(out)?;
    let length = out.len() - from;
    if length < 0x80 {
        out[from - 1] = length as u8;
        return Ok(());
    }
    // Long ones are rare: the length is written behind the part, then brought in front of it.
    out.remove(from - 1);
    let end = out.len();
    push_length(length, out);
    let length_bytes = out.len() - end;
    out[from - 1..].rotate_right(length_bytes);
    Ok(())
}

/// Turns the identity that begins at `from`, behind its kind byte, into its digest if it is long.
pub(super) fn shorten(from: usize, arena: &mut Vec<u8>) {
    let identity = from + 1;
    if arena.len() - identity > IDENTITY_BYTES_MAX {
        let digest: [u8; 32] = Sha256::digest(&arena[identity..]).into();
        arena.truncate(identity);
        arena[from] = KIND_IDENTITY_DIGEST;
        arena.extend_from_slice(&digest);
    }
}

/// A store key in human-readable form: a JSON array of the identity's parts. Bytes that are UTF-8 stand as
/// text, others as `{"hex":"…"}`; an identity that is known by its digest only is `[{"sha256":"…"}]`; a
/// key that is not an identity's `[{"key":"…"}]`.
pub fn describe(key: &[u8]) -> String {
    let parts = match key.split_first() {
        Some((&KIND_IDENTITY, identity)) => describe_parts(identity),
        Some((&KIND_IDENTITY_DIGEST, digest)) => Some(vec![tagged("sha256", digest)]),
        _ => None,
    };
    format!("[{}]", parts.unwrap_or_else(|| vec![tagged("key", key)]).join(","))
}

fn tagged(tag: &str, bytes: &[u8]) -> String {
    format!("{{\"{tag}\":\"{}\"}}", format::hex(bytes))
}

fn describe_parts(mut rest: &[u8]) -> Option<Vec<String>> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut parts = Vec::new();
    while let Some((&tag, after)) = rest.split_first() {
        rest = after;
        parts.push(match tag {
            FALSE => "false".to_owned(),
            TRUE => "true".to_owned(),
            NUMBER => number::humanize(std::str::from_utf8(take_counted(&mut rest)?).ok()?),
            TEXT => quoted(std::str::from_utf8(take_counted(&mut rest)?).ok()?),
            BYTES => {
                let bytes = take_counted(&mut rest)?;
                std::str::from_utf8(bytes).map_or_else(|_| tagged("hex", bytes), quoted)
            }
            _ => return None,
        });
    }
    Some(parts)
}

fn take_counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut length = 0_usize;
    for shift in (0..usize::BITS).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        length |= usize::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            return Some(bytes);
        }
    }
    None
}

#[cfg(test)]
mod tests;
