//! The fingerprint of a document: SHA-256 over its canonical JSON (RFC 8785), with some places left out.
//!
//! In canonical JSON there is no whitespace, an object's fields are sorted by the UTF-16 units of their names, with
//! only the last of several with the same name, strings have as few escapes as possible, and numbers are written as by
//! JavaScript.
//!
//! **Deviation from RFC 8785.** The RFC takes every number for a double, so that `9007199254740993` and
//! `9007199254740992` would be the same. Here a number whose value is not exactly that of the text JavaScript writes
//! for it (an integer beyond 2^53, more than 17 digits, an exponent beyond a double's) is written with its exact digits
//! instead: see [`super::number`]. So two documents never have the same fingerprint because of rounding. Anything that
//! JavaScript itself wrote is written the same here.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use super::json::{Scanner, Tape, TokenKind};
use super::number::{self, TooLong};
use super::steps::array_index;

/// The places to leave out, as a tree of steps.
#[derive(Debug, Default)]
pub(super) struct Except {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    name: Box<[u8]>,
    /// The name as an array index, if it is one.
    index: Option<usize>,
    /// Whether everything here is left out, rather than only something inside it.
    whole: bool,
    below: Except,
}

impl Except {
    /// The places that these paths lead to. A path without steps would leave out everything, and is ignored.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a [String]>) -> Self {
        let mut except = Self::default();
        paths.into_iter().for_each(|path| except.insert(path));
        except
    }

    fn insert(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else { return };
        let known = self.steps.iter().position(|step| *step.name == *first.as_bytes());
        let at = known.unwrap_or_else(|| {
            let (name, index) = (first.as_bytes().into(), array_index(first));
            self.steps.push(Step { name, index, whole: false, below: Except::default() });
            self.steps.len() - 1
        });
        let step = &mut self.steps[at];
        step.whole |= rest.is_empty();
        step.below.insert(rest);
    }

    fn field(&self, name: &[u8]) -> Option<&Step> {
        self.steps.iter().find(|step| *step.name == *name)
    }

    fn element(&self, index: usize) -> Option<&Step> {
        self.steps.iter().find(|step| step.index == Some(index))
    }
}

/// Scratch space for fingerprints.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    fields: Vec<(usize, usize)>,
    text: Vec<u8>,
    canonical: Vec<u8>,
}

/// The fingerprint of `document`, which has been read into `tape`.
pub(super) fn fingerprint(
    tape: &Tape,
    document: &[u8],
    except: &Except,
    scratch: &mut Scratch,
) -> Result<[u8; 32], TooLong> {
    scratch.text.clear();
    scratch.fields.clear();
    let Scratch { fields, text, canonical } = scratch;
    Writer { tape, document, fields, text, canonical }.value(0, except)?;
    Ok(Sha256::digest(&scratch.text).into())
}

/// Takes fingerprints of documents that come from elsewhere than a record.
#[derive(Debug)]
pub struct Fingerprinter {
    except: Except,
    scanner: Scanner,
    tape: Tape,
    scratch: Scratch,
}

impl Fingerprinter {
    /// Leaves out the places that these steps lead to. Documents nest at most so deep.
    pub fn new<'a>(except: impl IntoIterator<Item = &'a [String]>, depth_max: usize) -> Self {
        let scanner = Scanner::new(&[], depth_max, false);
        Self { except: Except::new(except), scanner, tape: Tape::default(), scratch: Scratch::default() }
    }

    /// The document's fingerprint; `None` for what is not JSON, nests too deep or has a number without end.
    pub fn of(&mut self, document: &[u8]) -> Option<[u8; 32]> {
        self.scanner.scan(document).ok()?;
        self.tape.read(document).ok()?;
        fingerprint(&self.tape, document, &self.except, &mut self.scratch).ok()
    }
}

struct Writer<'a> {
    tape: &'a Tape,
    document: &'a [u8],
    fields: &'a mut Vec<(usize, usize)>,
    text: &'a mut Vec<u8>,
    /// Numbers' canonical forms.
    canonical: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn value(&mut self, at: usize, except: &Except) -> Result<(), TooLong> {
        let tape = self.tape;
        match tape.token(at).kind {
            TokenKind::Null => self.text.extend_from_slice(b"null"),
            TokenKind::Bool(true) => self.text.extend_from_slice(b"true"),
            TokenKind::Bool(false) => self.text.extend_from_slice(b"false"),
            TokenKind::Number => write_number(tape.bytes(at, self.document), self.canonical, self.text)?,
            TokenKind::Text | TokenKind::Escaped => write_string(tape.bytes(at, self.document), self.text),
            TokenKind::Array => self.array(at, except)?,
            TokenKind::Object => self.object(at, except)?,
        }
        Ok(())
    }

    fn array(&mut self, at: usize, except: &Except) -> Result<(), TooLong> {
        let tape = self.tape;
        self.text.push(b'[');
        let mut separator: &[u8] = b"";
        for (index, element) in tape.elements(at).enumerate() {
            let step = except.element(index);
            if step.is_none_or(|step| !step.whole) {
                self.text.extend_from_slice(separator);
                separator = b",";
                self.value(element, step.map_or(&NOTHING, |step| &step.below))?;
            }
        }
        self.text.push(b']');
        Ok(())
    }

    fn object(&mut self, at: usize, except: &Except) -> Result<(), TooLong> {
        self.text.push(b'{');
        let from = self.fields.len();
        self.tape.push_fields(at, self.document, self.fields, compare_names);
        let mut separator: &[u8] = b"";
        for i in from..self.fields.len() {
            let (name, value) = self.fields[i];
            let name = self.tape.bytes(name, self.document);
            let step = except.field(name);
            if step.is_none_or(|step| !step.whole) {
                self.text.extend_from_slice(separator);
                separator = b",";
                write_string(name, self.text);
                self.text.push(b':');
                self.value(value, step.map_or(&NOTHING, |step| &step.below))?;
            }
        }
        self.fields.truncate(from);
        self.text.push(b'}');
        Ok(())
    }
}

static NOTHING: Except = Except { steps: Vec::new() };

/// The order of names by their UTF-16 units. It differs from that of UTF-8 only where one name continues with a
/// character beyond U+FFFF and the other with one from U+E000 to U+FFFF.
fn compare_names(a: &[u8], b: &[u8]) -> Ordering {
    let (first_a, first_b) = match a.iter().zip(b).position(|(a, b)| a != b) {
        Some(at) => (a[at], b[at]),
        None => return a.len().cmp(&b.len()),
    };
    // Decided by the first bytes of the differing characters; within a character both orders are the same.
    let is_beyond = |byte: u8| byte >= 0xf0;
    match (is_beyond(first_a), is_beyond(first_b)) {
        (true, false) if first_b >= 0xee => Ordering::Less,
        (false, true) if first_a >= 0xee => Ordering::Greater,
        _ => first_a.cmp(&first_b),
    }
}

fn write_string(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let short = match rest[at] {
            8 => b'b',
            9 => b't',
            10 => b'n',
            12 => b'f',
            13 => b'r',
            byte @ (b'"' | b'\\') => byte,
            byte => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                HEX[usize::from(byte & 15)]
            }
        };
        if rest[at] >= 0x20 || matches!(rest[at], 8 | 9 | 10 | 12 | 13) {
            out.push(b'\\');
        }
        out.push(short);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn write_number(text: &[u8], canonical: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), TooLong> {
    // Nearly every number is an integer that JavaScript writes as is.
    if let [b'1'..=b'9', rest @ ..] = text
        && rest.len() < 15
        && rest.iter().all(u8::is_ascii_digit)
    {
        out.extend_from_slice(text);
        return Ok(());
    }
    canonical.clear();
    number::write_canonical(text, canonical)?;
    let exact = canonical.len();
    let double = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    if let Some(double) = double.filter(|double| double.is_finite()) {
        let mut buffer = ryu_js::Buffer::new();
        let written = buffer.format_finite(double).as_bytes();
        number::write_canonical(written, canonical)?;
        if canonical[..exact] == canonical[exact..] {
            out.extend_from_slice(written);
            return Ok(());
        }
    }
    match std::str::from_utf8(&canonical[..exact]) {
        Ok(exact) => out.extend_from_slice(number::humanize(exact).as_bytes()),
        Err(_) => out.extend_from_slice(&canonical[..exact]),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
