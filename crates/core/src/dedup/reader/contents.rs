//! Takes the digest of a record's contents: see [`Contents`] for what they are.
//!
//! The hash is XXH3 with 64 bits and a fixed seed, part after part: the seed of each is the hash so far, together with
//! what kind of value the part is, so that parts cannot run into each other. It is persisted and must not change. It need
//! not withstand forgery: a producer that could forge contents could also send them.

use std::ops::{Range, RangeFrom};

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
    /// How many of these come before the first that differs from row to row.
    shared: usize,
    tag: u16,
}

/// See [`ContentsPart`].
#[derive(Debug)]
enum PartPlan {
    Written(Spot),
    Fingerprint {
        of: Spot,
        except: Except,
    },
    /// `number`: which of the plan's parts of this kind it is, from 0.
    Rows {
        of: Vec<Spot>,
        number: usize,
    },
    Flattened {
        of: Spot,
        added: Box<Finder<'static>>,
    },
    FirstOf(Vec<PartPlan>),
}

/// Scratch space for contents.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    tape: Tape,
    fingerprint: fingerprint::Scratch,
    closers: Vec<u8>,
    row: Vec<u8>,
    /// Where the rows are in the current record's array, by [`PartPlan::Rows`]'s number, if it has several.
    rows: Vec<Vec<Range<usize>>>,
}

impl<'r> Compiler<'r> {
    /// The plan of this rule.
    pub(super) fn contents(&mut self, contents: &'r Contents) -> ContentsPlan {
        let mut numbers = 0..;
        // What all rows share comes first, so that it is hashed once.
        let (own, shared): (Vec<_>, Vec<_>) = contents.parts.iter().partition(|part| part.has_rows());
        let parts = shared.iter().chain(&own).map(|part| self.contents_part(part, &mut numbers)).collect();
        let shared = shared.len();
        ContentsPlan { parts, shared, tag: contents.tag() }
    }

    fn contents_part(&mut self, part: &'r ContentsPart, numbers: &mut RangeFrom<usize>) -> PartPlan {
        match part {
            ContentsPart::Written(path) => PartPlan::Written(self.spot(path)),
            ContentsPart::Fingerprint { of, except } => {
                let inside = except.iter().filter_map(|path| path.within(of));
                PartPlan::Fingerprint { of: self.document(of), except: Except::new(inside) }
            }
            ContentsPart::Rows(of) => {
                let of = of.iter().map(|path| self.document(path)).collect();
                PartPlan::Rows { of, number: numbers.next().unwrap_or_default() }
            }
            ContentsPart::Flattened(path) => {
                let added = Box::new(Finder::new(format!("\"{ADDED_PREFIX}").as_bytes()).into_owned());
                PartPlan::Flattened { of: self.flattened(path), added }
            }
            ContentsPart::FirstOf(parts) => {
                PartPlan::FirstOf(parts.iter().map(|part| self.contents_part(part, numbers)).collect())
            }
        }
    }
}

impl ContentsPlan {
    /// The digest of the contents of a record of this kind that has one row.
    #[inline]
    pub fn digest(&self, view: View<'_>, kind: Kind, scratch: &mut Scratch) -> Digest {
        let reading = &mut Reading { view, row: 0, rows: 1, scratch };
        Digest::new(self.hash(seed(kind), kind, &self.parts, reading), self.tag, kind == Kind::Read)
    }

    /// The digests of the contents of a record's rows. What all rows share is hashed once, and the rows are found in one
    /// walk: a record of `rows` rows takes time that is linear in its length.
    pub fn digests(&self, view: View<'_>, kind: Kind, rows: usize, scratch: &mut Scratch) -> Vec<Digest> {
        scratch.rows.iter_mut().for_each(Vec::clear);
        let (shared, own) = self.parts.split_at(self.shared);
        let reading = &mut Reading { view, row: 0, rows, scratch };
        let first = self.hash(seed(kind), kind, shared, reading);
        let digest = |row| {
            reading.row = row;
            Digest::new(self.hash(first, kind, own, reading), self.tag, kind == Kind::Read)
        };
        (0..rows).map(digest).collect()
    }

    /// The hash with these parts.
    fn hash(&self, hash: u64, kind: Kind, parts: &[PartPlan], reading: &mut Reading<'_, '_>) -> u64 {
        if matches!(kind, Kind::Delete | Kind::Truncate) {
            return hash;
        }
        let with = |hash, part: &PartPlan| part.hash(hash, reading).unwrap_or_else(|| push(hash, Form::Missing, b""));
        parts.iter().fold(hash, with)
    }
}

/// What the hash of the contents of such a record begins with.
fn seed(kind: Kind) -> u64 {
    match kind {
        Kind::Change | Kind::Read | Kind::Tombstone => SEED,
        Kind::Message => SEED ^ 1 << 8,
        Kind::Delete => SEED ^ 2 << 8,
        Kind::Truncate => SEED ^ 3 << 8,
    }
}

/// What a part is read from.
struct Reading<'a, 's> {
    view: View<'a>,
    /// The row's number, from 0, and how many there are.
    row: usize,
    rows: usize,
    scratch: &'s mut Scratch,
}

impl Reading<'_, '_> {
    /// Where the row is in this array, which is that of the part [`PartPlan::Rows`] with this number.
    fn row_of(&mut self, array: &[u8], number: usize) -> Option<Range<usize>> {
        let Scratch { closers, rows, .. } = &mut *self.scratch;
        if self.rows == 1 {
            return members::element(array, 0, closers);
        }
        if rows.len() <= number {
            rows.resize_with(number + 1, Vec::new);
        }
        let rows = &mut rows[number];
        if rows.is_empty() {
            members::elements(array, closers, |range| {
                rows.push(range);
                true
            });
        }
        rows.get(self.row).cloned()
    }
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
            Self::Rows { of, number } => {
                let value = of.iter().map(|spot| view.look_up(&spot.target)).find(|value| !value.is_missing())?;
                match value {
                    Value::Composite(json) if json.first() == Some(&b'[') => {
                        Some(push(hash, Form::Json, &json[reading.row_of(json, *number)?]))
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
