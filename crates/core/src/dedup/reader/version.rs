//! Reads versions, and the scope in which they are comparable.

use crate::dedup::identity;
use crate::dedup::json::{self, Tape};
use crate::dedup::logical::text::Raw;
use crate::dedup::logical::{Schemas, Shape};
use crate::dedup::number;
use crate::dedup::rules::Limits;
use crate::dedup::timestamp::{self, Moment};
use crate::dedup::version::{self, MISSING_HIGHEST, MISSING_LOWEST, NotVersion, PRESENT};
use crate::dedup::vocabulary::{MissingPart, TimeUnit, VersionKind};
use crate::encodings;

use super::Rejection;
use super::compile::{EpochPlan, Plan, Spot, VersionPlan, Word};
use super::identity::push_scalar;
use super::rejection;
use super::view::{Value, View};

/// Scratch space for versions.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    limbs: Vec<u64>,
    /// A text without its escapes.
    text: Vec<u8>,
    digits: Vec<u8>,
    tape: Tape,
    /// Binlogs' base names, as parts of the scope; `None` if a binlog is missing.
    bases: Option<Vec<u8>>,
    /// The schemas that records carry.
    schemas: Schemas,
    /// A value of a logical type as what it is.
    decoded: Vec<u8>,
}

/// Reads versions and scopes.
pub(super) struct Versions<'a, 's> {
    pub view: View<'a>,
    pub limits: &'a Limits,
    pub scratch: &'s mut Scratch,
}

impl<'a> Versions<'a, '_> {
    /// Appends the version's bytes; returns whether there is one. If not, what was appended does not count.
    pub fn read(&mut self, parts: &'a [VersionPlan], arena: &mut Vec<u8>) -> Result<bool, Rejection> {
        let mut bases = self.scratch.bases.take().unwrap_or_default();
        bases.clear();
        self.scratch.bases = Some(bases);
        let (mut any, mut required) = (false, true);
        for part in parts {
            let from = arena.len();
            if parts.len() > 1 {
                arena.push(PRESENT);
            }
            let start = arena.len();
            let is_there = match self.part(part, start, arena) {
                Err(_) if part.lenient => false,
                read => read?,
            };
            if is_there {
                self.raise(part, start, arena)?;
                any = true;
                continue;
            }
            if part.missing == MissingPart::AtLeast {
                arena.truncate(start);
                if self.stand_in(part, start, arena)? {
                    any = true;
                    continue;
                }
            }
            required &= !part.required;
            arena.truncate(from);
            if parts.len() > 1 {
                arena.push(match part.missing {
                    MissingPart::Lowest | MissingPart::AtLeast => MISSING_LOWEST,
                    MissingPart::Highest => MISSING_HIGHEST,
                });
            }
            if part.kind == VersionKind::Binlog {
                self.scratch.bases = None;
            }
        }
        Ok(any && required)
    }

    /// Appends one part's bytes at `start`, the arena's end; returns whether the part is there.
    fn part(&mut self, part: &'a VersionPlan, start: usize, arena: &mut Vec<u8>) -> Result<bool, Rejection> {
        let Scratch { limbs, text, digits, tape, bases, schemas, decoded } = &mut *self.scratch;
        let Some((spot, value)) = find(self.view, &part.of, &part.none, text) else { return Ok(false) };
        let (limits, kind) = (self.limits, part.kind);
        let digits_max = limits.version_digits_max;
        let value = decode(self.view, spot, value, kind, schemas, decoded)?;
        // A connector's way of writing decimals that are not set to be texts.
        let is_base64 = || matches!(value, Value::Text(text) if encodings::base64(text).is_some());
        let reject = |error| rejection::not_version(&spot.path, kind, (error, is_base64()), digits_max);
        let mut number = [0; 20];
        let bytes = match value {
            Value::Missing => return Ok(false),
            Value::Integer(value) if kind == VersionKind::Integer => {
                version::push_i64(value, arena);
                return check_min(part, &arena[start..]).map(|()| true).map_err(reject);
            }
            Value::Integer(value) => number::format_i64(value, &mut number),
            Value::Number(text) | Value::Text(text) | Value::Bytes(text) => text,
            Value::Composite(document) if kind == VersionKind::Sequence => document,
            Value::Bool(_) | Value::Composite(_) => return Err(reject(NotVersion::Malformed)),
            Value::Escaped(raw) => {
                text.clear();
                json::unescape(raw, text);
                text
            }
        };
        let is_number = matches!(value, Value::Number(_) | Value::Integer(_));
        match kind {
            VersionKind::Integer => version::push_integer(bytes, digits_max, limbs, arena),
            VersionKind::Decimal => version::push_decimal(bytes, digits_max, digits, arena),
            VersionKind::Text | VersionKind::Hex | VersionKind::Binlog if is_number => Err(NotVersion::Malformed),
            VersionKind::Text => version::push_text(bytes, arena),
            VersionKind::Hex => version::push_hex(bytes, digits_max, arena),
            VersionKind::Sequence => version::push_sequence(bytes, digits_max, tape, limbs, arena),
            VersionKind::Binlog => version::push_binlog(bytes, digits_max, limbs, arena).map(|base| {
                if let Some(bases) = bases {
                    identity::push_text(base, bases);
                }
            }),
            VersionKind::Timestamp => match timestamp::parse(bytes) {
                Some(Moment { nanoseconds, finer }) if !is_number => {
                    version::push_moment(nanoseconds, finer, digits_max, arena)
                }
                _ => {
                    let unit = unit_of(self.view, spot).unwrap_or(part.unit);
                    version::push_moment_number(bytes, unit, digits_max, digits, limbs, arena)
                }
            },
        }
        .and_then(|()| check_min(part, &arena[start..]))
        .map_err(reject)?;
        Ok(true)
    }

    /// Appends what stands in for a missing part at `start`, the arena's end; returns whether something does. It must
    /// not be below the part's minimum, like a value of the part itself.
    fn stand_in(&mut self, part: &'a VersionPlan, start: usize, arena: &mut Vec<u8>) -> Result<bool, Rejection> {
        let Some(spot) = self.raise(part, start, arena)? else { return Ok(false) };
        // An integer's encoding is never empty.
        if arena.len() == start {
            return Ok(false);
        }
        match check_min(part, &arena[start..]) {
            Ok(()) => Ok(true),
            Err(_) if part.lenient => Ok(false),
            Err(error) => {
                let digits_max = self.limits.version_digits_max;
                Err(rejection::not_version(&spot.path, part.kind, (error, false), digits_max))
            }
        }
    }

    /// Raises the integer whose bytes begin at `start`, if it is there, to the greatest of those that it must be at
    /// least. Returns where these are, if they are there.
    fn raise(
        &mut self,
        part: &'a VersionPlan,
        start: usize,
        arena: &mut Vec<u8>,
    ) -> Result<Option<&'a Spot>, Rejection> {
        let Scratch { limbs, text, tape, .. } = &mut *self.scratch;
        let Some((spot, value)) = self.view.first(&part.at_least, |_| false) else { return Ok(None) };
        let digits_max = self.limits.version_digits_max;
        let mut number = [0; 20];
        let bytes = match value {
            Value::Missing => return Ok(None),
            Value::Bool(_) => &b"true"[..],
            Value::Integer(value) => number::format_i64(value, &mut number),
            Value::Number(bytes) | Value::Text(bytes) | Value::Bytes(bytes) | Value::Composite(bytes) => bytes,
            Value::Escaped(raw) => {
                text.clear();
                json::unescape(raw, text);
                text
            }
        };
        let raised = version::raise_integer(bytes, digits_max, tape, limbs, start, arena);
        raised.map_err(|error| rejection::not_at_least(&spot.path, error, digits_max))?;
        Ok(Some(spot))
    }

    /// Appends the scope's bytes, after the version was read; returns whether the record is in one. If not, what was
    /// appended does not count.
    pub fn read_scope(&mut self, plan: &'a Plan, arena: &mut Vec<u8>) -> Result<bool, Rejection> {
        let from = arena.len();
        for EpochPlan { of, none } in &plan.epoch {
            let Some((spot, value)) = self.view.first(of, |_| false) else {
                identity::push_null(arena);
                continue;
            };
            if none.iter().any(|word| value.is(word, &mut self.scratch.text)) {
                return Ok(false);
            }
            if matches!(value, Value::Composite(_)) {
                return Err(rejection::epoch_not_scalar(&spot.path));
            }
            push_scalar(value, &spot.path, arena).map_err(|_| rejection::exponent_too_long(&spot.path))?;
        }
        if plan.binlog {
            match &self.scratch.bases {
                Some(bases) => arena.extend_from_slice(bases),
                None => return Ok(false),
            }
        }
        let length_max = self.limits.identity_bytes_max;
        if arena.len() - from > length_max {
            return Err(rejection::epoch_too_long(length_max));
        }
        Ok(!plan.epoch.is_empty() || plan.binlog)
    }
}

/// The number that a decimal is, where the record carries a schema that says so; every other value as it is. Numbers
/// that count time stay numbers: a part's `unit` says what they count, and what is remembered was read by it.
#[inline]
fn decode<'v>(
    view: View<'v>,
    spot: &'v Spot,
    value: Value<'v>,
    kind: VersionKind,
    schemas: &mut Schemas,
    decoded: &'v mut Vec<u8>,
) -> Result<Value<'v>, Rejection> {
    let is_numeric = matches!(kind, VersionKind::Integer | VersionKind::Decimal | VersionKind::Timestamp);
    let raw = match value {
        Value::Text(text) | Value::Escaped(text) if is_numeric => Raw::Text(text),
        Value::Composite(object) if is_numeric => Raw::Composite(object),
        // A decimal that was read by a schema has all digits of its scale.
        Value::Number(number) if kind == VersionKind::Integer && view.shape(&spot.target).is_some() => {
            decoded.clear();
            decoded.extend_from_slice(number);
            trim_zeros(decoded);
            return Ok(Value::Number(decoded));
        }
        _ => return Ok(value),
    };
    let Some(schema) = view.schema(&spot.target) else { return Ok(value) };
    schemas.take(Some(schema));
    let Shape::Logical(logical) = schemas.shape().at(&spot.path.steps) else { return Ok(value) };
    if !logical.is_number() {
        return Ok(value);
    }
    let mut unescaped = Vec::new();
    let raw = match (value, raw) {
        (Value::Escaped(text), _) => {
            json::unescape(text, &mut unescaped);
            Raw::Text(&unescaped)
        }
        (_, raw) => raw,
    };
    decoded.clear();
    logical.write(raw, decoded).map_err(|_| rejection::unlike_schema(&spot.path))?;
    if kind == VersionKind::Integer {
        trim_zeros(decoded);
    }
    Ok(Value::Number(decoded))
}

/// The unit of a number, if a schema gives it.
#[inline]
fn unit_of(view: View<'_>, spot: &Spot) -> Option<TimeUnit> {
    match view.shape(&spot.target)?.at(&spot.path.steps) {
        Shape::Logical(logical) => logical.time_unit(),
        _ => None,
    }
}

/// Leaves out a fraction of nothing but zeros.
fn trim_zeros(number: &mut Vec<u8>) {
    if let Some(point) = number.iter().position(|&byte| byte == b'.')
        && number[point + 1..].iter().all(|&byte| byte == b'0')
    {
        number.truncate(point);
    }
}

/// Checks that these bytes of a part are not below its minimum.
fn check_min(part: &VersionPlan, bytes: &[u8]) -> Result<(), NotVersion> {
    match &part.min {
        Some((min, least)) if bytes < least.as_slice() => Err(NotVersion::TooLow(*min)),
        _ => Ok(()),
    }
}

/// The first of these that is there, not null, and not a value that counts as missing.
#[inline]
fn find<'a>(view: View<'a>, of: &'a [Spot], none: &'a [Word], scratch: &mut Vec<u8>) -> Option<(&'a Spot, Value<'a>)> {
    view.first(of, |value| none.iter().any(|word| value.is(word, scratch)))
}
