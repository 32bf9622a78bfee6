//! Takes the digest of a record's contents: see [`Contents`] for what they are.
//!
//! The hash is XXH3 with 64 bits and a fixed seed, part after part: the seed of each is the hash so far, together with
//! what kind of value the part is, so that parts cannot run into each other. It is persisted and must not change. It need
//! not withstand forgery: a producer that could forge contents could also send them.

use memchr::memmem::Finder;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::dedup::fingerprint::{self, Except, fingerprint};
use crate::dedup::json::{Tape, members};
use crate::dedup::rules::{ADDED_PREFIX, Contents, ContentsPart};
use crate::dedup::vocabulary::Kind;
use crate::format::Digest;

use super::compile::{Compiler, Spot};
use super::view::{Value, View};

/// What the hash of a record's contents begins with.
const SEED: u64 = 0x7261_7463_6865_7401;

/// A rule for contents in the form that a reader needs.
#[derive(Debug)]
pub(super) struct ContentsPlan {
    parts: Vec<PartPlan>,
    tag: u16,
}

/// See [`ContentsPart`].
#[derive(Debug)]
enum PartPlan {
    Written(Spot),
    Fingerprint { of: Spot, except: Except },
    Rows(Vec<Spot>),
    Flattened { of: Spot, added: Box<Finder<'static>> },
    FirstOf(Vec<PartPlan>),
}

/// Scratch space for contents.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    tape: Tape,
    fingerprint: fingerprint::Scratch,
    closers: Vec<u8>,
    row: Vec<u8>,
}

impl<'r> Compiler<'r> {
    /// The plan of this rule.
    pub(super) fn contents(&mut self, contents: &'r Contents) -> ContentsPlan {
        let parts = contents.parts.iter().map(|part| self.contents_part(part)).collect();
        ContentsPlan { parts, tag: contents.tag() }
    }

    fn contents_part(&mut self, part: &'r ContentsPart) -> PartPlan {
        match part {
            ContentsPart::Written(path) => PartPlan::Written(self.spot(path)),
            ContentsPart::Fingerprint { of, except } => {
                let inside = except.iter().filter_map(|path| path.within(of));
                PartPlan::Fingerprint { of: self.document(of), except: Except::new(inside) }
            }
            ContentsPart::Rows(of) => PartPlan::Rows(of.iter().map(|path| self.document(path)).collect()),
            ContentsPart::Flattened(path) => {
                let added = Box::new(Finder::new(format!("\"{ADDED_PREFIX}").as_bytes()).into_owned());
                PartPlan::Flattened { of: self.document(path), added }
            }
            ContentsPart::FirstOf(parts) => {
                PartPlan::FirstOf(parts.iter().map(|part| self.contents_part(part)).collect())
            }
        }
    }
}

impl ContentsPlan {
    /// The digest of the contents of a record of this kind, or of its row of this number, from 0.
    #[inline]
    pub fn digest(&self, view: View<'_>, kind: Kind, row: usize, scratch: &mut Scratch) -> Digest {
        let mut hash = match kind {
            Kind::Change | Kind::Read | Kind::Tombstone => SEED,
            Kind::Message => SEED ^ 1 << 8,
            Kind::Delete => SEED ^ 2 << 8,
            Kind::Truncate => SEED ^ 3 << 8,
        };
        if !matches!(kind, Kind::Delete | Kind::Truncate) {
            for part in &self.parts {
                let reading = &mut Reading { view, row, scratch };
                hash = part.hash(hash, reading).unwrap_or_else(|| push(hash, Form::Missing, b""));
            }
        }
        Digest::new(hash, self.tag, kind == Kind::Read)
    }
}

/// What a part is read from.
struct Reading<'a, 's> {
    view: View<'a>,
    row: usize,
    scratch: &'s mut Scratch,
}

/// What kind of value a part is. Persisted: the numbers must not change.
#[derive(Clone, Copy)]
enum Form {
    Missing = 0,
    True = 1,
    False = 2,
    Number = 3,
    Integer = 4,
    Text = 5,
    Escaped = 6,
    Bytes = 7,
    Json = 8,
    Digest = 9,
}

/// The hash with another value.
#[inline]
fn push(hash: u64, form: Form, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, hash ^ form as u64)
}

fn push_value(hash: u64, value: Value<'_>) -> Option<u64> {
    Some(match value {
        Value::Missing => return None,
        Value::Bool(true) => push(hash, Form::True, b""),
        Value::Bool(false) => push(hash, Form::False, b""),
        Value::Number(text) => push(hash, Form::Number, text),
        Value::Integer(value) => push(hash, Form::Integer, &value.to_be_bytes()),
        Value::Text(text) => push(hash, Form::Text, text),
        Value::Escaped(raw) => push(hash, Form::Escaped, raw),
        Value::Bytes(bytes) => push(hash, Form::Bytes, bytes),
        Value::Composite(json) => push(hash, Form::Json, json),
    })
}

impl PartPlan {
    /// The hash with this part; `None` if it is missing.
    fn hash(&self, hash: u64, reading: &mut Reading<'_, '_>) -> Option<u64> {
        let view = reading.view;
        match self {
            Self::Written(spot) => {
                let value = view.look_up(&spot.target);
                let closers = &mut reading.scratch.closers;
                match value {
                    Value::Composite(json) if view.is_looking_through(&spot.target) => {
                        Some(push(hash, Form::Json, members::record_in_union(json, closers).unwrap_or(json)))
                    }
                    value => push_value(hash, value),
                }
            }
            Self::Fingerprint { of, except } => {
                let Some(document) = view.document(&of.target) else {
                    return push_value(hash, view.look_up(&of.target));
                };
                let Scratch { tape, fingerprint: scratch, .. } = &mut *reading.scratch;
                let digest = tape.read(document).ok().and_then(|()| fingerprint(tape, document, except, scratch).ok());
                // A number without a canonical form: what is written has to do.
                digest.map_or_else(
                    || push_value(hash, view.look_up(&of.target)),
                    |digest| Some(push(hash, Form::Digest, &digest)),
                )
            }
            Self::Rows(of) => {
                let value = of.iter().map(|spot| view.look_up(&spot.target)).find(|value| !value.is_missing())?;
                match value {
                    Value::Composite(json) if json.first() == Some(&b'[') => {
                        let row = members::element(json, reading.row, &mut reading.scratch.closers)?;
                        Some(push(hash, Form::Json, &json[row]))
                    }
                    value => push_value(hash, value),
                }
            }
            Self::Flattened { of, added } => {
                let Value::Composite(json) = view.look_up(&of.target) else { return None };
                added.find(json)?;
                let Scratch { closers, row, .. } = &mut *reading.scratch;
                own_fields(json, closers, row).then(|| push(hash, Form::Json, row))
            }
            Self::FirstOf(parts) => parts.iter().find_map(|part| part.hash(hash, reading)),
        }
    }
}

/// Writes the fields of a flattened row that were not added as an object of their own, which is that of an envelope's
/// `after`. Returns whether there were added ones.
fn own_fields(json: &[u8], closers: &mut Vec<u8>, row: &mut Vec<u8>) -> bool {
    row.clear();
    let mut is_flattened = false;
    members::fields(json, closers, |name, range| {
        if name.starts_with(ADDED_PREFIX.as_bytes()) {
            is_flattened = true;
        } else {
            row.push(if row.is_empty() { b'{' } else { b',' });
            row.extend_from_slice(&json[range]);
        }
        true
    });
    if row.is_empty() {
        row.push(b'{');
    }
    row.push(b'}');
    is_flattened
}

#[cfg(test)]
mod tests;
