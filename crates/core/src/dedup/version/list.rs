//! Versions that are lists of integers: hex groups, binlog positions, sequences.

use crate::dedup::json::{Tape, TokenKind};

use super::{NotVersion, push_head, push_integer};

const END: u8 = 0;
const NULL: u8 = 1;
const INTEGER: u8 = 2;

/// Appends the encoding of groups of hexadecimal digits. A group without digits is an error: whether it stands for zero
/// or for something that is not known would decide which of two positions is greater.
pub(in crate::dedup) fn push_hex(text: &[u8], digits_max: usize, out: &mut Vec<u8>) -> Result<(), NotVersion> {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"0x").or(text.strip_prefix(b"0X")).unwrap_or(text);
    let mut digits_left = digits_max.min(super::DIGITS_MAX);
    let groups = || text.split(|byte| matches!(byte, b':' | b'-' | b'.' | b'/'));
    for group in groups() {
        if group.trim_ascii().is_empty() {
            return Err(empty_group(groups()));
        }
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotVersion::Malformed);
        }
        let zeros = group.iter().take_while(|&&digit| digit == b'0').count();
        let digits = &group[zeros..];
        // A group of zeros counts too, so that the number of groups is bounded.
        digits_left = digits_left.checked_sub(digits.len().max(1)).ok_or(NotVersion::TooLong(text.len()))?;
        out.push(INTEGER);
        push_head(digits.len().div_ceil(2), out);
        let (first, rest) = digits.split_at(digits.len() % 2);
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
        out.extend(first.iter().map(|&digit| value(digit)));
        out.extend(rest.chunks_exact(2).map(|pair| 16 * value(pair[0]) + value(pair[1])));
    }
    out.push(END);
    Ok(())
}

/// The error for a position with an empty group; if another group has something other than digits, that is the error.
#[cold]
fn empty_group<'t>(groups: impl Iterator<Item = &'t [u8]> + Clone) -> NotVersion {
    let is_hex = |group: &[u8]| group.trim_ascii().iter().all(u8::is_ascii_hexdigit);
    match groups.clone().position(|group| group.trim_ascii().is_empty()) {
        Some(at) if groups.clone().all(is_hex) => NotVersion::EmptyGroup { group: at + 1, groups: groups.count() },
        _ => NotVersion::Malformed,
    }
}

/// Appends the encoding of a binlog's file and its position, if any; returns the file's base name.
pub(in crate::dedup) fn push_binlog<'t>(
    text: &'t [u8],
    digits_max: usize,
    limbs: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<&'t [u8], NotVersion> {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let last = |text: &'t [u8], separator: u8| {
        let at = text.iter().rposition(|&byte| byte == separator)?;
        Some((&text[..at], &text[at + 1..]))
    };
    let (file, position) = match last(text, b':').filter(|(_, position)| digits(position)) {
        Some((file, position)) => (file, Some(position)),
        None => (text, None),
    };
    let (base, suffix) = last(file, b'.').ok_or(NotVersion::Malformed)?;
    if base.is_empty() || !digits(suffix) {
        return Err(NotVersion::Malformed);
    }
    if base.len() > super::TEXT_BYTES_MAX {
        return Err(NotVersion::TextTooLong(base.len()));
    }
    for number in [Some(suffix), position].into_iter().flatten() {
        out.push(INTEGER);
        push_integer(number, digits_max, limbs, out)?;
    }
    out.push(END);
    Ok(base)
}

/// Appends the encoding of a JSON array of integers, decimal strings and nulls. `tape` is scratch space.
pub(in crate::dedup) fn push_sequence(
    document: &[u8],
    digits_max: usize,
    tape: &mut Tape,
    limbs: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<(), NotVersion> {
    if !is_array(document, tape) {
        return Err(NotVersion::Malformed);
    }
    elements(document, digits_max, tape, |element| match element {
        None => {
            out.push(NULL);
            Ok(())
        }
        Some(text) => {
            out.push(INTEGER);
            push_integer(text, digits_max, limbs, out)
        }
    })?;
    out.push(END);
    Ok(())
}

/// Replaces the integer whose encoding is `out` from `from` on by the greatest in `document`, if that is greater.
/// `document` is an integer or a JSON array as for [`push_sequence`]; `tape` is scratch space.
pub(in crate::dedup) fn raise_integer(
    document: &[u8],
    digits_max: usize,
    tape: &mut Tape,
    limbs: &mut Vec<u64>,
    from: usize,
    out: &mut Vec<u8>,
) -> Result<(), NotVersion> {
    let mut raise = |text: &[u8]| {
        let other = out.len();
        push_integer(text, digits_max, limbs, out)?;
        if out[from..other] < out[other..] {
            out.drain(from..other);
        } else {
            out.truncate(other);
        }
        Ok(())
    };
    if !is_array(document, tape) {
        return raise(document);
    }
    elements(document, digits_max, tape, |element| element.map_or(Ok(()), &mut raise))
}

/// Reads `document` into `tape`; returns whether it is a JSON array.
fn is_array(document: &[u8], tape: &mut Tape) -> bool {
    tape.read(document).is_ok() && tape.token(0).kind == TokenKind::Array
}

/// Calls `each` with the elements of the array that `tape` holds: integers and decimal strings, nulls as `None`.
fn elements(
    document: &[u8],
    digits_max: usize,
    tape: &Tape,
    mut each: impl FnMut(Option<&[u8]>) -> Result<(), NotVersion>,
) -> Result<(), NotVersion> {
    let mut digits_left = digits_max.min(super::DIGITS_MAX);
    for element in tape.elements(0) {
        let length = match tape.token(element).kind {
            TokenKind::Null => {
                each(None)?;
                1
            }
            TokenKind::Number | TokenKind::Text | TokenKind::Escaped => {
                let text = tape.bytes(element, document);
                each(Some(text))?;
                let zeros = text.iter().take_while(|byte| matches!(byte, b'0' | b'-')).count();
                (text.len() - zeros).max(1)
            }
            _ => return Err(NotVersion::Malformed),
        };
        digits_left = digits_left.checked_sub(length).ok_or(NotVersion::TooLong(document.len()))?;
    }
    Ok(())
}

/// Takes a list off the front of `rest`: each element as `integer` formats it, null as `null`.
pub(super) fn take(rest: &mut &[u8], integer: impl Fn(&mut &[u8]) -> Option<String>) -> Option<Vec<String>> {
    let mut elements = Vec::new();
    loop {
        let (&tag, after) = rest.split_first()?;
        *rest = after;
        match tag {
            END => return Some(elements),
            NULL => elements.push("null".to_owned()),
            INTEGER => elements.push(integer(rest)?),
            _ => return None,
        }
    }
}
