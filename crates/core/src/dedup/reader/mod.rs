//! Reads from a record what it is judged by: identity, version, scope, kind, contents.
//!
//! Only what the rules name is read. A key or value in which they name nothing is not parsed and may hold anything; one
//! in which they do is checked as a whole, so that a record is rejected for what is wrong with it and not for what the
//! rules happen to need.
//!
//! **A null value** is left to `on_null_value`. If that follows deletes, the identity is read from what such a record
//! still has (key, headers, its place), and there is neither version nor scope. If it says that a null is a delete, the
//! version and the scope are read from there, too.
//!
//! **A record about no row** (`kinds.none`) has no identity. Its key is not looked at: sources write anything there.
//!
//! **Missing** means absent or null. A `first_of` then continues with the next place; for a version, so do the values
//! in `none`. A record is in no scope if a part of its epoch is one of that part's `none`, or if a binlog position is
//! missing.
//!
//! **Tables and messages.** A truncate's identity is its table; a message's is its own identity, or the table if that
//! is missing, together with its version. Both begin with their own tag: see [`super::identity`].

use std::ops::Range;
use std::sync::Arc;

use crate::format::{Digest, KIND_IDENTITY};
use crate::record::Record;
use crate::schemas::{Id, Sources, framing};

use super::document::Document;
use super::rules::{OnNull, Rules};
use super::vocabulary::{Format, Kind, Reason};
use super::{explain, identity as bytes};

mod compile;
mod contents;
mod decoder;
mod fields;
mod identity;
mod rejection;
mod version;
mod view;

pub use decoder::{Decoded, Decoder};
pub use fields::{Field, Fields, Wanted};
pub use rejection::Rejection;
use rejection::Unreadable;

use compile::{Compiled, KindsPlan, Plan};
use identity::Parts;
use version::Versions;
use view::View;

/// What was read from a record, or for one of its rows; ranges point into the arena that it was read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The store key: kind byte and identity, see [`super::identity`].
    pub key: Range<usize>,
    /// The version's bytes, see [`super::version`]; `None` if the rules have none, or if it is missing or null in the
    /// record.
    pub version: Option<Range<usize>>,
    /// The scope's bytes: parts encoded like an identity's, a missing one as null; `None` if the rules have no epoch,
    /// or if the record is in no scope.
    pub scope: Option<Range<usize>>,
    /// The kind of change.
    pub kind: Kind,
    /// The store key of its table's truncates, if the rules distinguish these.
    pub table: Option<Range<usize>>,
    /// The digest of its contents; `None` if the rules do not compare contents, or if the record is a tombstone.
    pub contents: Option<Digest>,
}

/// The result of reading a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It can be judged.
    Row(Row),
    /// It can be judged row by row; there are at least two.
    Rows(Vec<Row>),
    /// It cannot be judged.
    Rejected(Rejection),
    /// It cannot be judged yet: the schema with this id is not known, and is being fetched.
    Pending(Id),
}

impl Reading {
    /// The rows to judge: none if the record was rejected.
    pub fn rows(&self) -> &[Row] {
        match self {
            Reading::Row(row) => std::slice::from_ref(row),
            Reading::Rows(rows) => rows,
            Reading::Rejected(_) | Reading::Pending(_) => &[],
        }
    }
}

/// Reads records by rules. A reader serves one thread and reuses its buffers.
#[derive(Debug)]
pub struct Reader {
    rules: Arc<Rules>,
    plan: Plan,
    /// Readers of the key and the value; `None` if the rules name no place inside.
    key: Option<Document>,
    pub(super) value: Option<Document>,
    identity: identity::Scratch,
    version: version::Scratch,
    contents: contents::Scratch,
    word: Vec<u8>,
    /// The schemas of keys and of values that only a destination reads.
    awaited: [Option<Sources>; 2],
}

impl Reader {
    /// A reader with these rules; see [`Rules::problems`] for rules that contradict themselves. It knows no schemas.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self::with_schemas(rules, &Sources::default())
    }

    /// A reader with these rules, and with schemas from these sources.
    pub fn with_schemas(rules: Arc<Rules>, sources: &Sources) -> Self {
        let Compiled { plan, key, value } = compile::compile(&rules, sources);
        let (identity, version) = (identity::Scratch::default(), version::Scratch::default());
        let (contents, word, awaited) = (contents::Scratch::default(), Vec::new(), [None, None]);
        Self { rules, plan, key, value, identity, version, contents, word, awaited }
    }

    /// The same, for a destination that reads keys or values itself: a record whose schema is not known yet is pending,
    /// although the rules may not need that schema.
    pub fn awaiting(self, reads_key: bool, reads_value: bool, sources: &Sources) -> Self {
        let awaited = |is_read: bool, own: &Option<Document>, format: Format| {
            (is_read && own.is_none() && format.has_schemas()).then(|| sources.clone())
        };
        let key = awaited(reads_key, &self.key, self.rules.key_format);
        let value = awaited(reads_value, &self.value, self.rules.value_format);
        Self { awaited: [key, value], ..self }
    }

    /// Its rules.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Appends store keys (kind byte and identity, or its digest), the version's bytes and the scope's to `arena`; the
    /// rows' ranges point into it. A rejected record leaves the arena as it was.
    pub fn read(&mut self, record: &Record<'_>, arena: &mut Vec<u8>) -> Reading {
        let from = arena.len();
        match self.try_read(record, arena) {
            Ok(reading) => reading,
            Err(unreadable) => {
                arena.truncate(from);
                match unreadable {
                    Unreadable::Rejected(rejection) => Reading::Rejected(rejection),
                    Unreadable::Pending(schema) => Reading::Pending(schema),
                }
            }
        }
    }

    /// A store key in human-readable form: see [`bytes::describe`].
    pub fn describe_identity(&self, key: &[u8]) -> String {
        bytes::describe(key)
    }

    /// A version's bytes in human-readable form: see [`explain::version`].
    pub fn describe_version(&self, bytes: &[u8]) -> String {
        explain::version(bytes, &self.rules)
    }

    /// A scope's bytes in human-readable form: see [`bytes::describe_scope`].
    pub fn describe_scope(&self, scope: &[u8]) -> String {
        bytes::describe_scope(scope)
    }

    fn try_read(&mut self, record: &Record<'_>, arena: &mut Vec<u8>) -> Result<Reading, Unreadable> {
        self.scan(record)?;
        let Self { rules, plan, key, value, identity, version, contents: scratch, word, .. } = self;
        let view = View { record, key: key.as_ref(), value: value.as_ref() };
        let kind = match (&plan.kinds, record.value) {
            (_, None) if rules.actions.null_value == OnNull::Delete => Kind::Delete,
            (_, None) => Kind::Tombstone,
            (Some(kinds), _) => kind_of(kinds, view, word),
            (None, _) => Kind::Change,
        };
        let limits = &rules.limits;
        let mut parts = Parts { view, limits, scratch: identity, from: arena.len() + 1, arena };
        let (identity, rows) = match (kind, &plan.kinds) {
            (Kind::Truncate, Some(kinds)) => (read_table(&mut parts, kinds)?, 1),
            (Kind::Message, Some(kinds)) => (read_message(&mut parts, plan, kinds)?, 1),
            _ => {
                parts.arena.push(KIND_IDENTITY);
                let rows = parts.read(&plan.identity).map_err(Rejection::from)?;
                if rows == 1 && kind != Kind::Message {
                    bytes::shorten(parts.from - 1, parts.arena);
                }
                (parts.from - 1..parts.arena.len(), rows)
            }
        };
        let keys = (rows > 1).then(|| append_rows(&mut parts, &identity, rows));
        let mut row = Row { key: identity, version: None, scope: None, kind, table: None, contents: None };
        if kind != Kind::Tombstone {
            let mut versions = Versions { view, limits, scratch: version };
            let arena = &mut *parts.arena;
            row.version = ranged(arena, |arena| versions.read(&plan.version, arena))?;
            row.scope = ranged(arena, |arena| versions.read_scope(plan, arena))?;
            if let Some(kinds) = &plan.kinds {
                if kind == Kind::Message {
                    row.key = finish_message(&row, arena);
                } else if kinds.truncates && kind != Kind::Truncate {
                    parts.from = parts.arena.len() + 1;
                    row.table = Some(read_table(&mut parts, kinds)?);
                }
            }
        }
        let contents = plan.contents.as_ref().filter(|_| kind != Kind::Tombstone);
        Ok(match keys {
            None => {
                let contents = contents.map(|contents| contents.digest(view, kind, scratch));
                Reading::Row(Row { contents, ..row })
            }
            Some(keys) => {
                let digests = contents.map(|contents| contents.digests(view, kind, keys.len(), scratch));
                let digest = |i| digests.as_ref().map(|digests| digests[i]);
                let numbered = keys.into_iter().enumerate();
                Reading::Rows(numbered.map(|(i, key)| Row { key, contents: digest(i), ..row.clone() }).collect())
            }
        })
    }

    /// Checks the record's size and its documents, and notes what is in the wanted places.
    fn scan(&mut self, record: &Record<'_>) -> Result<(), Unreadable> {
        let limits = &self.rules.limits;
        let (key, value) = (record.key.map_or(0, <[u8]>::len), record.value.map_or(0, <[u8]>::len));
        let headers = record.headers.as_bytes().len();
        let sizes = [
            ("the record takes", key + value + headers, limits.record_bytes_max),
            ("the key takes", key, limits.key_bytes_max),
            ("the headers take", headers, limits.header_bytes_max),
        ];
        if let Some((what, bytes, bytes_max)) = sizes.into_iter().find(|(_, bytes, bytes_max)| bytes > bytes_max) {
            return Err(rejection::too_large(what, bytes, bytes_max).into());
        }
        if record.value.is_none() && matches!(self.rules.actions.null_value, OnNull::Act(_)) {
            return Err(rejection::null_value().into());
        }
        let key = match (&mut self.key, record.key) {
            (Some(document), Some(key)) => {
                document.read(key, record.headers).map_err(|e| rejection::unread(Reason::KeyMalformed, e, key))
            }
            _ => Ok(()),
        };
        let value = match (&mut self.value, record.value) {
            (Some(document), Some(value)) => {
                document.read(value, record.headers).map_err(|e| rejection::unread(Reason::ValueMalformed, e, value))
            }
            _ => Ok(()),
        };
        if value.is_ok() {
            self.check_is_of_row(record)?;
        }
        // A record that is rejected for its value need not wait for its key's schema.
        if matches!(key, Err(Unreadable::Pending(_))) {
            value?;
            return key;
        }
        key.and(value)?;
        let awaited = self.awaited.iter().zip([(record.key, true), (record.value, false)]);
        match awaited.filter_map(|(sources, (bytes, is_key))| pending(sources.as_ref()?, bytes?, record, is_key)).next()
        {
            Some(schema) => Err(Unreadable::Pending(schema)),
            None => Ok(()),
        }
    }

    /// Checks that the record, whose value has been scanned, is not one about no row.
    fn check_is_of_row(&mut self, record: &Record<'_>) -> Result<(), Rejection> {
        let Some(kinds) = self.plan.kinds.as_ref().filter(|kinds| !kinds.none.is_empty()) else { return Ok(()) };
        let view = View { record, key: None, value: self.value.as_ref() };
        match view.first(&kinds.of, |_| false) {
            Some((spot, value)) if kinds.none.iter().any(|word| value.is(word, &mut self.word)) => {
                Err(rejection::of_no_row(&spot.path))
            }
            _ => Ok(()),
        }
    }
}

/// The schema that these bytes name, if it is being fetched. The destination says what is wrong with bytes that name none.
fn pending(sources: &Sources, bytes: &[u8], record: &Record<'_>, is_key: bool) -> Option<Id> {
    let framed = framing::read(bytes, record.headers, is_key, sources.id_bytes).ok()?;
    sources.is_pending(&framed.id).then_some(framed.id)
}

/// The range that `append` added, if it returns true; otherwise the arena is left as it was.
fn ranged(
    arena: &mut Vec<u8>,
    append: impl FnOnce(&mut Vec<u8>) -> Result<bool, Rejection>,
) -> Result<Option<Range<usize>>, Rejection> {
    let from = arena.len();
    if append(arena)? {
        return Ok(Some(from..arena.len()));
    }
    arena.truncate(from);
    Ok(None)
}

/// The kind that the record's word stands for; a plain change if there is none or the rules do not know it.
fn kind_of(kinds: &KindsPlan, view: View<'_>, scratch: &mut Vec<u8>) -> Kind {
    let Some((_, value)) = view.first(&kinds.of, |_| false) else { return Kind::Change };
    let known = kinds.words.iter().find(|(word, _)| value.is(word, scratch));
    known.map_or(Kind::Change, |(_, kind)| *kind)
}

/// Appends the store keys of all rows; `first` is the first row's, not yet shortened.
fn append_rows(parts: &mut Parts<'_, '_>, first: &Range<usize>, rows: usize) -> Vec<Range<usize>> {
    let identity = first.start + 1..first.end;
    let append = |row| {
        let from = parts.arena.len();
        parts.arena.push(KIND_IDENTITY);
        parts.append_row(&identity, row);
        bytes::shorten(from, parts.arena);
        from..parts.arena.len()
    };
    (0..rows).map(append).collect()
}

/// Appends the store key of the record's table; `parts` starts after its kind byte.
fn read_table(parts: &mut Parts<'_, '_>, kinds: &KindsPlan) -> Result<Range<usize>, Rejection> {
    parts.arena.extend_from_slice(&[KIND_IDENTITY, bytes::TABLE]);
    push_table(parts, kinds)?;
    bytes::shorten(parts.from - 1, parts.arena);
    Ok(parts.from - 1..parts.arena.len())
}

fn push_table(parts: &mut Parts<'_, '_>, kinds: &KindsPlan) -> Result<(), Rejection> {
    for places in &kinds.table {
        match parts.view.first(places, |_| false) {
            None => bytes::push_null(parts.arena),
            Some((spot, value)) => {
                identity::push_scalar(value, &spot.path, parts.arena)?;
                let bytes_max = parts.limits.identity_bytes_max;
                if parts.arena.len() - parts.from > bytes_max {
                    return Err(rejection::identity_too_long(&spot.path, bytes_max));
                }
            }
        }
    }
    Ok(())
}

/// Appends a message's store key up to its version.
fn read_message<'a>(parts: &mut Parts<'a, '_>, plan: &'a Plan, kinds: &KindsPlan) -> Result<Range<usize>, Rejection> {
    parts.arena.extend_from_slice(&[KIND_IDENTITY, bytes::MESSAGE]);
    let from = parts.arena.len();
    match parts.read(&plan.identity) {
        Ok(_) => {}
        Err(identity::Error::Missing(_)) => {
            parts.arena.truncate(from);
            push_table(parts, kinds)?;
        }
        Err(identity::Error::Rejected(rejection)) => return Err(rejection),
    }
    Ok(parts.from - 1..parts.arena.len())
}

/// Appends a message's complete store key, with its version.
fn finish_message(row: &Row, arena: &mut Vec<u8>) -> Range<usize> {
    let from = arena.len();
    arena.extend_from_within(row.key.clone());
    if let Some(version) = row.version.clone() {
        let version = arena[version].to_vec();
        bytes::push_version(&version, arena);
    }
    bytes::shorten(from, arena);
    from..arena.len()
}

#[cfg(test)]
mod tests;
