//! Reads identities: one part after another into the arena, rows separately until all are read. What each part needs
//! from a record is settled once, as a plan.

use std::ops::Range;

use crate::dedup::fingerprint::{self, Except, fingerprint};
use crate::dedup::identity;
use crate::dedup::json::{self, Tape, TokenKind};
use crate::dedup::path::{Path, Source};
use crate::dedup::rules::{IdentityPart, Limits, Names};

use super::Rejection;
use super::compile::{Compiler, Spot};
use super::rejection;
use super::view::{Value, View};

/// Maximum number of fields that identify a row.
const NAMES_MAX: usize = 64;

/// See [`IdentityPart`].
#[derive(Debug)]
pub(super) enum PartPlan {
    Scalar(Spot),
    Content(Spot),
    Fingerprint { of: Spot, except: Except },
    Bucket { ms: i64, timestamp: Path },
    FirstOf(Vec<Vec<PartPlan>>),
    Rows { of: Vec<Spot>, named: NamesPlan },
}

/// See [`Names`].
#[derive(Debug)]
pub(super) enum NamesPlan {
    /// Sorted, each once.
    Given(Vec<Vec<u8>>),
    At(Spot),
}

impl<'r> Compiler<'r> {
    /// The plans of these parts.
    pub(super) fn parts(&mut self, parts: &'r [IdentityPart]) -> Vec<PartPlan> {
        parts.iter().map(|part| self.part(part)).collect()
    }

    fn part(&mut self, part: &'r IdentityPart) -> PartPlan {
        match part {
            IdentityPart::Scalar(path) => PartPlan::Scalar(self.spot(path)),
            IdentityPart::Content(path) => PartPlan::Content(self.document(path)),
            IdentityPart::Fingerprint { of, except } => {
                let inside = except.iter().filter_map(|path| path.within(of));
                PartPlan::Fingerprint { of: self.document(of), except: Except::new(inside) }
            }
            IdentityPart::Bucket { ms } => {
                let timestamp = Path { source: Source::Timestamp, steps: Vec::new() };
                PartPlan::Bucket { ms: (*ms).max(1), timestamp }
            }
            IdentityPart::FirstOf(alternatives) => {
                PartPlan::FirstOf(alternatives.iter().map(|parts| self.parts(parts)).collect())
            }
            IdentityPart::Rows { of, named } => {
                let of = of.iter().map(|path| self.document(path)).collect();
                let named = match named {
                    Names::Given(names) => {
                        let mut names: Vec<_> = names.iter().map(|name| name.clone().into_bytes()).collect();
                        names.sort_unstable();
                        names.dedup();
                        NamesPlan::Given(names)
                    }
                    Names::At(path) => NamesPlan::At(self.document(path)),
                };
                PartPlan::Rows { of, named }
            }
        }
    }
}

/// Scratch space for identities.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    tape: Tape,
    fields: Vec<(usize, usize)>,
    fingerprint: fingerprint::Scratch,
    rows: Rows,
}

/// The rows of a record, as identity bytes.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Where they belong in the arena; `None` if the identity has no rows.
    at: Option<usize>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// Why there is no identity.
pub(super) enum Error<'p> {
    /// The value at this path is missing or null.
    Missing(&'p Path),
    Rejected(Rejection),
}

impl From<Rejection> for Error<'_> {
    fn from(rejection: Rejection) -> Self {
        Error::Rejected(rejection)
    }
}

impl From<Error<'_>> for Rejection {
    fn from(trouble: Error<'_>) -> Self {
        match trouble {
            Error::Missing(path) => rejection::identity_missing(path),
            Error::Rejected(rejection) => rejection,
        }
    }
}

/// Appends an identity's parts to an arena.
pub(super) struct Parts<'a, 's> {
    pub view: View<'a>,
    pub limits: &'a Limits,
    pub scratch: &'s mut Scratch,
    pub arena: &'s mut Vec<u8>,
    /// Where in the arena the identity begins.
    pub from: usize,
}

impl<'a> Parts<'a, '_> {
    /// Appends the parts, including the first row's; returns the number of rows, 1 if the identity has none.
    pub fn read(&mut self, parts: &'a [PartPlan]) -> Result<usize, Error<'a>> {
        self.scratch.rows.at = None;
        self.parts(parts)?;
        let Rows { at: Some(at), bytes, ends } = &self.scratch.rows else { return Ok(1) };
        if let Some(&end) = ends.first() {
            self.arena.splice(*at..*at, bytes[..end].iter().copied());
        }
        let all = (self.arena.len() - self.from).saturating_mul(ends.len().saturating_sub(1));
        if all.saturating_add(bytes.len()) > self.limits.record_bytes_max {
            return Err(rejection::rows_too_long(self.limits.record_bytes_max).into());
        }
        Ok(ends.len())
    }

    /// Appends the identity for row `row`; the one for the first row has been read to `first`.
    pub fn append_row(&mut self, first: &Range<usize>, row: usize) {
        let Rows { at: Some(at), bytes, ends } = &self.scratch.rows else { return };
        let Some(&end) = ends.get(row) else { return };
        let from = if row == 0 { 0 } else { ends[row - 1] };
        let behind = *at + ends.first().copied().unwrap_or(0);
        self.arena.extend_from_within(first.start..*at);
        self.arena.extend_from_slice(&bytes[from..end]);
        self.arena.extend_from_within(behind..first.end);
    }

    fn parts(&mut self, parts: &'a [PartPlan]) -> Result<(), Error<'a>> {
        parts.iter().try_for_each(|part| self.part(part))
    }

    fn part(&mut self, part: &'a PartPlan) -> Result<(), Error<'a>> {
        let path = match part {
            PartPlan::Scalar(spot) => self.scalar(spot)?,
            PartPlan::Content(spot) => self.content(spot)?,
            PartPlan::Fingerprint { of, except } => match self.view.document(&of.target) {
                None => self.scalar(of)?,
                Some(document) => {
                    let Scratch { tape, fingerprint: scratch, .. } = &mut *self.scratch;
                    tape.read(document).map_err(|_| rejection::not_a_document(&of.path))?;
                    let digest = fingerprint(tape, document, except, scratch);
                    let digest = digest.map_err(|_| rejection::exponent_too_long(&of.path))?;
                    identity::push_digest(&digest, self.arena);
                    &of.path
                }
            },
            PartPlan::Bucket { ms, timestamp } => {
                let time = self.view.record.timestamp.ok_or(Error::Missing(timestamp))?;
                identity::push_i64(time.div_euclid(*ms).saturating_mul(*ms), self.arena);
                timestamp
            }
            PartPlan::FirstOf(alternatives) => return self.first_of(alternatives),
            PartPlan::Rows { of, named } => self.rows(of, named)?,
        };
        if self.arena.len() - self.from > self.limits.identity_bytes_max {
            return Err(rejection::identity_too_long(path, self.limits.identity_bytes_max).into());
        }
        Ok(())
    }

    fn scalar(&mut self, spot: &'a Spot) -> Result<&'a Path, Error<'a>> {
        let value = self.view.scalar(&spot.target);
        push_scalar(value, &spot.path, self.arena)?;
        Ok(&spot.path)
    }

    fn content(&mut self, spot: &'a Spot) -> Result<&'a Path, Error<'a>> {
        let value = self.view.look_up(&spot.target);
        let Value::Composite(document) = value else {
            push_scalar(value, &spot.path, self.arena)?;
            return Ok(&spot.path);
        };
        let Scratch { tape, fields, .. } = &mut *self.scratch;
        tape.read(document).map_err(|_| rejection::not_a_document(&spot.path))?;
        fields.clear();
        identity::push_content(tape, document, 0, fields, self.arena)
            .map_err(|_| rejection::exponent_too_long(&spot.path))?;
        Ok(&spot.path)
    }

    fn first_of(&mut self, alternatives: &'a [Vec<PartPlan>]) -> Result<(), Error<'a>> {
        let (from, rows_at) = (self.arena.len(), self.scratch.rows.at);
        let mut missing = None;
        for parts in alternatives {
            // An alternative of one part is encoded as if that part stood alone.
            if parts.len() != 1 {
                identity::push_list(parts.len(), self.arena);
            }
            match self.parts(parts) {
                Err(Error::Missing(path)) => missing = missing.or(Some(path)),
                done => return done,
            }
            self.arena.truncate(from);
            self.scratch.rows.at = rows_at;
        }
        match missing {
            Some(path) => Err(Error::Missing(path)),
            None => Err(rejection::no_alternative().into()),
        }
    }

    /// Reads the rows of an object or array.
    fn rows(&mut self, of: &'a [Spot], named: &'a NamesPlan) -> Result<&'a Path, Error<'a>> {
        let Some(first) = of.first() else { return Err(rejection::no_alternative().into()) };
        let found = of.iter().find(|spot| !self.view.look_up(&spot.target).is_missing());
        let spot = found.ok_or(Error::Missing(&first.path))?;
        let names_read;
        let names = match named {
            NamesPlan::Given(names) => names,
            NamesPlan::At(at) => {
                names_read = self.names(at)?;
                &names_read
            }
        };
        let document = match self.view.look_up(&spot.target) {
            Value::Composite(document) => document,
            _ => return Err(rejection::no_rows(&spot.path).into()),
        };
        let looking_through = self.view.is_looking_through(&spot.target);
        let Scratch { tape, rows, .. } = &mut *self.scratch;
        tape.read(document).map_err(|_| rejection::not_a_document(&spot.path))?;
        // A second list of rows is a contradiction that `Rules::problems` reports: only its first row counts.
        let is_second = rows.at.is_some();
        let row = Row { tape, document, names, looking_through, path: &spot.path };
        if tape.token(0).kind == TokenKind::Object {
            row.begin(is_second, self.arena.len(), rows);
            row.push(0, if is_second { self.arena } else { &mut rows.bytes })?;
            if !is_second {
                rows.ends.push(rows.bytes.len());
            }
            return Ok(&spot.path);
        }
        row.begin(is_second, self.arena.len(), rows);
        if tape.token(0).count == 0 {
            return Err(Error::Missing(&spot.path));
        }
        for element in tape.elements(0) {
            if tape.token(element).kind != TokenKind::Object {
                return Err(rejection::no_rows(&spot.path).into());
            }
            row.push(element, if is_second { self.arena } else { &mut rows.bytes })?;
            if is_second {
                break;
            }
            rows.ends.push(rows.bytes.len());
        }
        Ok(&spot.path)
    }

    /// The names in an array of strings, sorted, each once.
    fn names(&mut self, at: &'a Spot) -> Result<Vec<Vec<u8>>, Error<'a>> {
        let document = match self.view.look_up(&at.target) {
            Value::Missing => return Err(Error::Missing(&at.path)),
            Value::Composite(document) => document,
            _ => return Err(rejection::no_names(&at.path).into()),
        };
        let tape = &mut self.scratch.tape;
        tape.read(document).map_err(|_| rejection::not_a_document(&at.path))?;
        let token = tape.token(0);
        let is_text = |at: usize| matches!(tape.token(at).kind, TokenKind::Text | TokenKind::Escaped);
        if token.kind != TokenKind::Array || token.count > NAMES_MAX || !tape.elements(0).all(is_text) {
            return Err(rejection::no_names(&at.path).into());
        }
        if token.count == 0 {
            return Err(Error::Missing(&at.path));
        }
        let mut names: Vec<_> = tape.elements(0).map(|name| tape.bytes(name, document).to_vec()).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

/// Reads the identifying fields of objects.
struct Row<'a, 't> {
    tape: &'t Tape,
    document: &'t [u8],
    names: &'t [Vec<u8>],
    looking_through: bool,
    path: &'a Path,
}

impl<'a> Row<'a, '_> {
    fn begin(&self, is_second: bool, at: usize, rows: &mut Rows) {
        if !is_second {
            rows.at = Some(at);
            rows.bytes.clear();
            rows.ends.clear();
        }
    }

    /// Appends an object of the identifying fields of the object at `at`.
    fn push(&self, at: usize, out: &mut Vec<u8>) -> Result<(), Error<'a>> {
        if self.names.is_empty() {
            return Err(Error::Missing(self.path));
        }
        identity::push_object(self.names.len(), out);
        for name in self.names {
            let fields = self.tape.fields(at);
            let last = fields.filter(|&(field, _)| self.tape.bytes(field, self.document) == name.as_slice()).last();
            let (_, value) = last.ok_or(Error::Missing(self.path))?;
            identity::push_text(name, out);
            self.push_scalar(value, out)?;
        }
        Ok(())
    }

    fn push_scalar(&self, at: usize, out: &mut Vec<u8>) -> Result<(), Error<'a>> {
        let token = self.tape.token(at);
        match token.kind {
            TokenKind::Null => Err(Error::Missing(self.path)),
            TokenKind::Object if self.looking_through && token.count == 1 => {
                let name = self.tape.bytes(at + 1, self.document);
                if !json::is_scalar_type(name) {
                    return Err(rejection::identity_not_scalar(self.path).into());
                }
                // A union does not hold another union.
                Row { looking_through: false, ..*self }.push_scalar(at + 2, out)
            }
            TokenKind::Object | TokenKind::Array => Err(rejection::identity_not_scalar(self.path).into()),
            _ => identity::push_content(self.tape, self.document, at, &mut Vec::new(), out)
                .map_err(|_| rejection::exponent_too_long(self.path).into()),
        }
    }
}

/// Appends a scalar.
#[inline]
pub(super) fn push_scalar<'p>(value: Value<'_>, path: &'p Path, arena: &mut Vec<u8>) -> Result<(), Error<'p>> {
    match value {
        Value::Missing => return Err(Error::Missing(path)),
        Value::Composite(_) => return Err(rejection::identity_not_scalar(path).into()),
        Value::Bool(value) => identity::push_bool(value, arena),
        Value::Number(text) => identity::push_number(text, arena).map_err(|_| rejection::exponent_too_long(path))?,
        Value::Integer(value) => identity::push_i64(value, arena),
        Value::Text(text) => identity::push_text(text, arena),
        Value::Escaped(raw) => identity::push_escaped_text(raw, arena),
        Value::Bytes(bytes) => identity::push_bytes(bytes, arena),
    }
    Ok(())
}
