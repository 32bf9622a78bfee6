//! The bytes of an identity.
//!
//! An identity's parts follow one another. Each begins with a tag; text, bytes and numbers continue with their length
//! (LEB128: seven bits a byte, the lowest first, the high bit set on all but the last) and that many bytes. So parts
//! cannot run into each other, and a value of another kind is another identity: the string `"123"` is not the number
//! `123`.
//!
//! | tag | what follows |
//! |---|---|
//! | `01` | nothing: false |
//! | `02` | nothing: true |
//! | `03` | length, a number in canonical form: sign, significant digits, `e` and the power of ten unless it is 0; `1`, `1.0` and `1e0` are the same bytes, of any size. `-0.0` is `-0`, not `0`: for a source that has both they are keys of different rows |
//! | `04` | length, text in UTF-8, not normalized |
//! | `05` | length, bytes: a whole key, value or header |
//! | `06` | nothing: null, inside content and where a scope or a table's name has nothing |
//! | `07` | count, that many elements: an array |
//! | `08` | count, that many fields: an object. A field is its name, as a part of tag `04`, and its value; they are sorted by the names' bytes, with only the last of several with the same name |
//! | `09` | 32 bytes: the SHA-256 of canonical JSON |
//! | `0a` | count, that many parts: an alternative of several |
//! | `0b` | length, a version's bytes, see [`super::version`] |
//!
//! Counts are written like lengths. The topic's name is text; partition, offset, timestamp and the start of a bucket
//! are numbers; a row is an object of the fields that identify it.
//!
//! What is remembered for a table or a message begins with a tag that no part has, so that it is never taken for a
//! row's:
//!
//! | tag | what follows |
//! |---|---|
//! | `20` | the table's name: its parts |
//! | `21` | a message: the identity's parts, or the table's where those are missing, then its version |
//!
//! The key in the changelog and the store is the identity after [`format::KIND_IDENTITY`], or, if it is longer than
//! [`format::IDENTITY_BYTES_MAX`], its SHA-256 after [`format::KIND_IDENTITY_DIGEST`].

use sha2::{Digest, Sha256};

use crate::format::{self, IDENTITY_BYTES_MAX, KIND_IDENTITY, KIND_IDENTITY_DIGEST};

use super::json::{self, Tape, TokenKind};
use super::number::{self, TooLong};

pub mod typed;

const FALSE: u8 = 1;
const TRUE: u8 = 2;
const NUMBER: u8 = 3;
const TEXT: u8 = 4;
const BYTES: u8 = 5;
const NULL: u8 = 6;
const ARRAY: u8 = 7;
const OBJECT: u8 = 8;
const DIGEST: u8 = 9;
const LIST: u8 = 10;
const VERSION: u8 = 11;

/// The first byte of what is remembered for a table.
pub(super) const TABLE: u8 = 0x20;
/// The first byte of what is remembered for a message.
pub(super) const MESSAGE: u8 = 0x21;

/// Maximum nesting to describe: no identity is nested deeper than a document may be, so deeper bytes are not one.
const DESCRIBED_DEPTH_MAX: usize = 600;

pub(super) fn push_null(out: &mut Vec<u8>) {
    out.push(NULL);
}

/// Starts a list of `count` parts that count as one.
pub(super) fn push_list(count: usize, out: &mut Vec<u8>) {
    out.push(LIST);
    push_length(count, out);
}

/// Starts an object of `count` fields: that many names follow, sorted, each with its value.
pub(super) fn push_object(count: usize, out: &mut Vec<u8>) {
    out.push(OBJECT);
    push_length(count, out);
}

pub(super) fn push_digest(digest: &[u8; 32], out: &mut Vec<u8>) {
    out.push(DIGEST);
    out.extend_from_slice(digest);
}

pub(super) fn push_version(version: &[u8], out: &mut Vec<u8>) {
    out.push(VERSION);
    push_length(version.len(), out);
    out.extend_from_slice(version);
}

/// The value at `at` of the tape read from `document`. `fields` is scratch space.
pub(super) fn push_content(
    tape: &Tape,
    document: &[u8],
    at: usize,
    fields: &mut Vec<(usize, usize)>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    match tape.token(at).kind {
        TokenKind::Null => push_null(out),
        TokenKind::Bool(value) => push_bool(value, out),
        TokenKind::Number => push_number(tape.bytes(at, document), out)?,
        TokenKind::Text | TokenKind::Escaped => push_text(tape.bytes(at, document), out),
        TokenKind::Array => {
            out.push(ARRAY);
            push_length(tape.token(at).count, out);
            for element in tape.elements(at) {
                push_content(tape, document, element, fields, out)?;
            }
        }
        TokenKind::Object => {
            let from = fields.len();
            tape.push_fields(at, document, fields, |a, b| a.cmp(b));
            push_object(fields.len() - from, out);
            for i in from..fields.len() {
                let (name, value) = fields[i];
                push_text(tape.bytes(name, document), out);
                push_content(tape, document, value, fields, out)?;
            }
            fields.truncate(from);
        }
    }
    Ok(())
}

pub(super) fn push_bool(value: bool, out: &mut Vec<u8>) {
    out.push(if value { TRUE } else { FALSE });
}

/// `text` is a number by JSON's grammar.
pub(super) fn push_number(text: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
    push_counted(NUMBER, out, |out| {
        if number::is_negative_float_zero(text) {
            out.push(b'-');
        }
        number::write_canonical(text, out)
    })
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
    // Long ones are rare: the length is written after the part, then rotated in front of it.
    out.remove(from - 1);
    let end = out.len();
    push_length(length, out);
    let length_bytes = out.len() - end;
    out[from - 1..].rotate_right(length_bytes);
    Ok(())
}

/// Replaces the identity that begins at `from`, after its kind byte, by its digest if it is long.
pub(super) fn shorten(from: usize, arena: &mut Vec<u8>) {
    let identity = from + 1;
    if arena.len() - identity > IDENTITY_BYTES_MAX {
        let digest: [u8; 32] = Sha256::digest(&arena[identity..]).into();
        arena.truncate(identity);
        arena[from] = KIND_IDENTITY_DIGEST;
        arena.extend_from_slice(&digest);
    }
}

/// A store key in human-readable form: a JSON array of the identity's parts. Bytes that are UTF-8 are shown as text,
/// others as `{"hex":"…"}`; an identity known only by its digest is `[{"sha256":"…"}]`, and so is a part that is a
/// document's; a table is `[{"table":[…]}]`, a message `[{"message":[…]}]` with its version's bytes as
/// `{"version":"…"}`; a key that is not an identity's is `[{"key":"…"}]`.
pub fn describe(key: &[u8]) -> String {
    let parts = match key.split_first() {
        Some((&KIND_IDENTITY, identity)) => match identity.split_first() {
            Some((&TABLE, parts)) => describe_parts(parts).map(|parts| format!("{{\"table\":[{parts}]}}")),
            Some((&MESSAGE, parts)) => describe_parts(parts).map(|parts| format!("{{\"message\":[{parts}]}}")),
            _ => describe_parts(identity),
        },
        Some((&KIND_IDENTITY_DIGEST, digest)) => Some(tagged("sha256", digest)),
        _ => None,
    };
    format!("[{}]", parts.unwrap_or_else(|| tagged("key", key)))
}

/// A scope in human-readable form: a JSON array of its parts, like [`describe`]'s; malformed bytes as `[{"hex":"…"}]`.
pub fn describe_scope(scope: &[u8]) -> String {
    format!("[{}]", describe_parts(scope).unwrap_or_else(|| tagged("hex", scope)))
}

fn tagged(tag: &str, bytes: &[u8]) -> String {
    format!("{{\"{tag}\":\"{}\"}}", format::hex(bytes))
}

/// All parts, with commas between them.
fn describe_parts(mut rest: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        parts.push(describe_part(&mut rest, DESCRIBED_DEPTH_MAX)?);
    }
    Some(parts.join(","))
}

fn describe_part(rest: &mut &[u8], depth_left: usize) -> Option<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (&tag, after) = rest.split_first()?;
    *rest = after;
    let below = depth_left.checked_sub(1)?;
    Some(match tag {
        FALSE => "false".to_owned(),
        TRUE => "true".to_owned(),
        NULL => "null".to_owned(),
        NUMBER => number::humanize(std::str::from_utf8(take_counted(rest)?).ok()?),
        TEXT => quoted(std::str::from_utf8(take_counted(rest)?).ok()?),
        BYTES => {
            let bytes = take_counted(rest)?;
            std::str::from_utf8(bytes).map_or_else(|_| tagged("hex", bytes), quoted)
        }
        ARRAY | LIST => {
            let elements: Option<Vec<_>> = (0..take_length(rest)?).map(|_| describe_part(rest, below)).collect();
            format!("[{}]", elements?.join(","))
        }
        OBJECT => {
            let mut fields = Vec::new();
            for _ in 0..take_length(rest)? {
                let name = describe_part(rest, 1).filter(|name| name.starts_with('"'))?;
                fields.push(format!("{name}:{}", describe_part(rest, below)?));
            }
            format!("{{{}}}", fields.join(","))
        }
        DIGEST => {
            let (digest, after) = rest.split_at_checked(32)?;
            *rest = after;
            tagged("sha256", digest)
        }
        VERSION => tagged("version", take_counted(rest)?),
        _ => return None,
    })
}

fn take_counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(rest)?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

fn take_length(rest: &mut &[u8]) -> Option<usize> {
    let mut length = 0_usize;
    for shift in (0..usize::BITS).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        length |= usize::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(length);
        }
    }
    None
}

#[cfg(test)]
mod tests;
