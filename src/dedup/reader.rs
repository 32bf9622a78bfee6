//! Reads out of a record what it is to be judged by: its identity and its version.
//!
//! Only what the rules name is read. A key or value in which they name nothing is not looked into, so it
//! may hold anything; one in which they do is checked as a whole, so that a record is refused for what is
//! wrong with it and not for what the rules happen to want. A null value is always left to `on_null_value`.

use std::ops::Range;
use std::sync::Arc;

use crate::format::KIND_IDENTITY;
use crate::record::Record;

use super::identity;
use super::json::{Found, Place, Scanner};
use super::path::{Path, Scalar, Source};
use super::rules::{Part, Rules};
use super::version::{self, NotInteger};
use super::vocabulary::{Kind, Reason};

/// What a record is to be judged by; ranges point into the arena that it was read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The store's key: kind byte and identity, see [`super::identity`].
    pub key: Range<usize>,
    /// The version's bytes, see [`super::version`]; `None` where the rules have none, or where it is
    /// missing or null in the record.
    pub version: Option<Range<usize>>,
    /// The scope's bytes: parts as of an identity, a missing one as null; `None` where the rules have no epoch,
    /// or where the record is in no scope.
    pub scope: Option<Range<usize>>,
    /// What kind of change it is.
    pub kind: Kind,
    /// The store's key of its table's truncates, where the rules tell these apart.
    pub table: Option<Range<usize>>,
}

/// Why a record cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for counting and for what to do.
    pub reason: Reason,
    /// What exactly is wrong, for people; holds nothing of the record's content.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What came of reading a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It can be judged.
    Candidate(Candidate),
    /// It can be judged row by row; never fewer than two.
    Rows(Vec<Candidate>),
    /// It cannot.
    Refused(Refusal),
}

/// Where a path leads, with everything resolved.
#[derive(Debug)]
enum Target {
    Key,
    Value,
    InKey(Place),
    InValue(Place),
    Header(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Timestamp,
    Const(Scalar),
}

/// What stands where a path leads.
#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    /// Nothing, or null.
    Missing,
    Bool(bool),
    /// By JSON's grammar.
    Number(&'a [u8]),
    Integer(i64),
    Text(&'a [u8]),
    /// With JSON's escapes in it.
    Escaped(&'a [u8]),
    Bytes(&'a [u8]),
    /// An object or an array.
    Composite,
}

/// Reads records by rules. One reader serves one thread; it keeps its scratch memory.
#[derive(Debug)]
pub struct Reader {
    rules: Arc<Rules>,
    /// Read inside the key and the value; `None` where the rules name nothing there.
    key: Option<Scanner>,
    value: Option<Scanner>,
    identity: Vec<Target>,
    version: Option<Target>,
    limbs: Vec<u64>,
    text: Vec<u8>,
}

impl Reader {
    /// A reader by these rules; see [`Rules::problems`] for rules that contradict themselves.
    pub fn new(rules: Arc<Rules>) -> Self {
        let (key, in_key) = scanner(&rules, Source::Key);
        let (value, in_value) = scanner(&rules, Source::Value);
        let (mut in_key, mut in_value) = (in_key.into_iter(), in_value.into_iter());
        let mut target = |path: &Path| {
            let place = match path.source {
                Source::Key if path.is_inside() => in_key.next().map(Target::InKey),
                Source::Value if path.is_inside() => in_value.next().map(Target::InValue),
                _ => None,
            };
            place.unwrap_or_else(|| whole(&path.source))
        };
        // In the order of `Rules::paths`, like the scanners' places.
        let identity = scalars(&rules).into_iter().map(&mut target).collect();
        let version = rules.version.as_ref().map(|version| target(&version.parts[0].of[0]));
        Self { key, value, identity, version, limbs: Vec::new(), text: Vec::new(), rules }
    }

    /// The rules that it reads by.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Appends the store's key (kind byte and identity, or its digest) and the version's bytes to `arena`;
    /// the candidate's ranges point into it. A refused record leaves it as it was.
    pub fn read(&mut self, record: &Record<'_>, arena: &mut Vec<u8>) -> Reading {
        let from = arena.len();
        match self.try_read(record, arena) {
            Ok(candidate) => Reading::Candidate(candidate),
            Err(refusal) => {
                arena.truncate(from);
                Reading::Refused(refusal)
            }
        }
    }

    /// A store key in human-readable form: see [`identity::describe`].
    pub fn describe_identity(&self, key: &[u8]) -> String {
        identity::describe(key)
    }

    /// A version's bytes in human-readable form: see [`version::describe`].
    pub fn describe_version(&self, bytes: &[u8]) -> String {
        version::describe(bytes)
    }

    fn try_read(&mut self, record: &Record<'_>, arena: &mut Vec<u8>) -> Result<Candidate, Refusal> {
        let limits = &self.rules.limits;
        let bytes = [record.key, record.value, Some(record.headers.as_bytes())].into_iter().flatten().map(<[u8]>::len);
        let bytes: usize = bytes.sum();
        if bytes > limits.record_bytes_max {
            return Err(too_large(bytes, limits.record_bytes_max));
        }
        let Some(value) = record.value else {
            return Err(Refusal::new(Reason::NullValue, "the value is null"));
        };
        if let (Some(scanner), Some(key)) = (&mut self.key, record.key) {
            scanner.scan(key).map_err(|e| malformed(Reason::KeyMalformed, &e))?;
        }
        if let Some(scanner) = &mut self.value {
            scanner.scan(value).map_err(|e| malformed(Reason::ValueMalformed, &e))?;
        }
        let key = self.read_identity(record, arena)?;
        let version = self.read_version(record, arena)?;
        Ok(Candidate { key, version, scope: None, kind: Kind::Change, table: None })
    }

    fn read_identity(&self, record: &Record<'_>, arena: &mut Vec<u8>) -> Result<Range<usize>, Refusal> {
        let from = arena.len();
        arena.push(KIND_IDENTITY);
        let bytes_max = self.rules.limits.identity_bytes_max;
        for (target, path) in self.identity.iter().zip(scalars(&self.rules)) {
            match self.look_up(target, record) {
                Content::Missing => return Err(identity_missing(path)),
                Content::Composite => return Err(identity_not_scalar(path)),
                Content::Bool(value) => identity::push_bool(value, arena),
                Content::Number(text) => {
                    identity::push_number(text, arena).map_err(|_| exponent_too_long(path))?;
                }
                Content::Integer(value) => identity::push_i64(value, arena),
                Content::Text(text) => identity::push_text(text, arena),
                Content::Escaped(raw) => identity::push_escaped_text(raw, arena),
                Content::Bytes(bytes) => identity::push_bytes(bytes, arena),
            }
            if arena.len() - from - 1 > bytes_max {
                return Err(identity_too_long(path, bytes_max));
            }
        }
        identity::shorten(from, arena);
        Ok(from..arena.len())
    }

    fn read_version(&mut self, record: &Record<'_>, arena: &mut Vec<u8>) -> Result<Option<Range<usize>>, Refusal> {
        let (Some(target), Some(rule)) = (&self.version, &self.rules.version) else { return Ok(None) };
        let found = self.look_up(target, record);
        let from = arena.len();
        let digits_max = self.rules.limits.version_digits_max;
        let text = match found {
            Content::Missing => return Ok(None),
            Content::Integer(value) => {
                version::push_i64(value, arena);
                return Ok(Some(from..arena.len()));
            }
            Content::Bool(_) | Content::Composite => {
                return Err(not_integer(&rule.parts[0].of[0], NotInteger::NotDecimal, 0));
            }
            Content::Number(text) | Content::Text(text) | Content::Bytes(text) => text,
            Content::Escaped(raw) => {
                self.text.clear();
                super::json::unescape(raw, &mut self.text);
                &self.text
            }
        };
        version::push_decimal(text, digits_max, &mut self.limbs, arena)
            .map_err(|e| not_integer(&rule.parts[0].of[0], e, digits_max))?;
        Ok(Some(from..arena.len()))
    }

    /// What stands where `target` leads; the documents were scanned before.
    #[inline]
    fn look_up<'a>(&self, target: &'a Target, record: &Record<'a>) -> Content<'a> {
        let bytes = |bytes: Option<&'a [u8]>| bytes.map_or(Content::Missing, Content::Bytes);
        match target {
            Target::InKey(place) => inside(&self.key, *place, record.key),
            Target::InValue(place) => inside(&self.value, *place, record.value),
            Target::Key => bytes(record.key),
            Target::Value => bytes(record.value),
            Target::Header(name) => bytes(record.headers.last(name).and_then(|header| header.value)),
            Target::Topic => Content::Text(record.topic.as_bytes()),
            Target::Partition => Content::Integer(record.partition.into()),
            Target::Offset => Content::Integer(record.offset),
            Target::Timestamp => record.timestamp.map_or(Content::Missing, Content::Integer),
            Target::Const(Scalar::Text(text)) => Content::Text(text.as_bytes()),
            Target::Const(Scalar::Number(number)) => Content::Number(number.as_str().as_bytes()),
            Target::Const(Scalar::Bool(value)) => Content::Bool(*value),
        }
    }
}

/// The identity's scalars.
fn scalars(rules: &Rules) -> Vec<&Path> {
    let scalar = |part: &'_ Part| matches!(part, Part::Scalar(_));
    rules
        .identity
        .parts
        .iter()
        .filter(|part| scalar(part))
        .filter_map(|part| match part {
            Part::Scalar(path) => Some(path),
            _ => None,
        })
        .collect()
}

/// A scanner for the paths inside `source`, in the order of [`Rules::paths`].
fn scanner(rules: &Rules, source: Source) -> (Option<Scanner>, Vec<Place>) {
    let inside = rules.paths().into_iter().filter(|path| path.is_inside() && path.source == source);
    let ways: Vec<&[String]> = inside.map(|path| path.steps.as_slice()).collect();
    if ways.is_empty() {
        return (None, Vec::new());
    }
    let (scanner, places) = Scanner::new(&ways, rules.limits.json_depth_max);
    (Some(scanner), places)
}

fn whole(source: &Source) -> Target {
    match source {
        Source::Key => Target::Key,
        Source::Value => Target::Value,
        Source::Header(name) => Target::Header(name.as_bytes().to_vec()),
        Source::Topic => Target::Topic,
        Source::Partition => Target::Partition,
        Source::Offset => Target::Offset,
        Source::Timestamp => Target::Timestamp,
        Source::Const(scalar) => Target::Const(scalar.clone()),
    }
}

/// What a scanned document has in `place`. A null key has nothing anywhere.
#[inline]
fn inside<'a>(scanner: &Option<Scanner>, place: Place, document: Option<&'a [u8]>) -> Content<'a> {
    let (Some(scanner), Some(document)) = (scanner, document) else { return Content::Missing };
    let bytes = |from: usize, to: usize| document.get(from..to).unwrap_or_default();
    match scanner.found(place) {
        Found::Missing | Found::Null => Content::Missing,
        Found::Bool(value) => Content::Bool(value),
        Found::Number { from, to } => Content::Number(bytes(from, to)),
        Found::Text { from, to, escaped: false } => Content::Text(bytes(from, to)),
        Found::Text { from, to, escaped: true } => Content::Escaped(bytes(from, to)),
        Found::Composite => Content::Composite,
    }
}

#[cold]
fn too_large(bytes: usize, bytes_max: usize) -> Refusal {
    let message = format!("the record takes {bytes} bytes, more than the limit of {bytes_max}");
    Refusal::new(Reason::RecordTooLarge, message)
}

#[cold]
fn malformed(reason: Reason, error: &super::json::Malformed) -> Refusal {
    let what = if reason == Reason::KeyMalformed { "key" } else { "value" };
    Refusal::new(reason, format!("the {what} cannot be read as JSON: {error}"))
}

#[cold]
fn identity_missing(path: &Path) -> Refusal {
    Refusal::new(Reason::IdentityMissing, format!("`{path}`, a part of the identity, is missing or null"))
}

#[cold]
fn identity_not_scalar(path: &Path) -> Refusal {
    let message = format!("`{path}`, a part of the identity, is an object or an array");
    Refusal::new(Reason::IdentityNotScalar, message)
}

#[cold]
fn identity_too_long(path: &Path, bytes_max: usize) -> Refusal {
    let message = format!("the identity up to `{path}` takes more bytes than the limit of {bytes_max}");
    Refusal::new(Reason::IdentityTooLong, message)
}

#[cold]
fn exponent_too_long(path: &Path) -> Refusal {
    let message = format!("`{path}`, a part of the identity, is a number with an exponent of more than 18 digits");
    Refusal::new(Reason::IdentityTooLong, message)
}

#[cold]
fn not_integer(path: &Path, error: NotInteger, digits_max: usize) -> Refusal {
    let message = match error {
        NotInteger::NotDecimal => {
            format!("`{path}`, the version, is neither a JSON integer nor a decimal integer as text")
        }
        NotInteger::TooLong(digits) => {
            let digits_max = digits_max.min(version::DIGITS_MAX);
            format!("`{path}`, the version, has {digits} digits, more than the limit of {digits_max}")
        }
    };
    Refusal::new(Reason::VersionMalformed, message)
}

#[cfg(test)]
mod tests;
