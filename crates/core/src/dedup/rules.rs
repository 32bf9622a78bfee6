//! The rules of a topology: how its records are identified and versioned, how long they are remembered, and what to do
//! with those that cannot be judged.

use sha2::{Digest, Sha256};

use super::path::{Path, Scalar, Source};
use super::vocabulary::{Action, Format, MissingPart, Reads, Refresh, TimeUnit, VersionKind};

mod canonical;
mod changes;
mod contents;
mod part;
mod problems;

pub use super::path::Places;
pub use contents::{ADDED_PREFIX, Contents, ContentsPart};
pub use part::{Identity, IdentityPart, Names};
pub use problems::Error;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// How long an entry is remembered, in stream time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// For ever.
    Forever,
    /// For this long after it was last seen.
    For {
        /// Milliseconds.
        ms: i64,
    },
}

impl Retention {
    /// The retention of a topology that sets none: seven days, or for ever where a version says what is older, since
    /// forgetting an entry would let an old version through.
    pub fn default_for(version: Option<&Version>) -> Self {
        if version.is_some() { Retention::Forever } else { Retention::For { ms: 7 * DAY_MS } }
    }

    /// How far a timestamp may be ahead of the wall clock where the topology does not say: an hour, or a tenth of the
    /// retention if that is less.
    pub fn default_future_max_ms(self) -> i64 {
        match self {
            Retention::Forever => HOUR_MS,
            Retention::For { ms } => HOUR_MS.min(ms / 10),
        }
    }
}

/// What to do in each case where a record is not simply new, duplicate or stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actions {
    /// `on_invalid`: it cannot be read or believed.
    pub invalid: Action,
    /// `on_missing`: it has no identity.
    pub missing_identity: Action,
    /// `on_null_value`: its value is null.
    pub null_value: OnNull,
    /// `on_equal`: its version equals the one remembered.
    pub equal_version: Action,
    /// `on_missing_version`: it has no version.
    pub missing_version: Action,
    /// `on_epoch_change`: it starts an epoch.
    pub epoch_change: Action,
    /// `on_late`: it is older than the retention horizon.
    pub late: Action,
    /// `on_unsendable`: the output refuses it.
    pub unsendable: Action,
    /// `on_rejected`: the sink refuses what it causes.
    pub rejected: Action,
    /// `on_conflict`: it has the identity and the version of a record with other contents, or asks a provider for
    /// something else than that record did.
    pub conflict: Action,
    /// `on_in_doubt`: its call may have happened. It is remembered all the same.
    pub in_doubt: Action,
    /// `on_unavailable`: its attempts to call are exhausted.
    pub unavailable: Action,
}

impl Default for Actions {
    fn default() -> Self {
        Self {
            invalid: Action::DeadLetter,
            missing_identity: Action::DeadLetter,
            null_value: OnNull::Act(Action::DeadLetter),
            equal_version: Action::Drop,
            missing_version: Action::Forward,
            epoch_change: Action::Forward,
            late: Action::DeadLetter,
            unsendable: Action::DeadLetter,
            rejected: Action::DeadLetter,
            conflict: Action::Drop,
            in_doubt: Action::DeadLetter,
            unavailable: Action::DeadLetter,
        }
    }
}

/// Limits on a record, so that none can harm the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of key, value and headers together.
    pub record_bytes_max: usize,
    /// Bytes of a key.
    pub key_bytes_max: usize,
    /// Bytes of all headers together, with 8 added for each.
    pub header_bytes_max: usize,
    /// How deeply JSON may be nested; `[]` is 1 deep.
    pub json_depth_max: usize,
    /// Bytes of an identity's encoding, before a long one is hashed.
    pub identity_bytes_max: usize,
    /// Digits of a version, without leading zeros; [`super::version::DIGITS_MAX`] limits them in any case.
    pub version_digits_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            record_bytes_max: 16 << 20,
            key_bytes_max: 1 << 20,
            header_bytes_max: 1 << 20,
            json_depth_max: 128,
            identity_bytes_max: 64 << 10,
            version_digits_max: 300,
        }
    }
}

/// What says which record is newer: one value, or several compared one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The values; never empty.
    pub parts: Vec<VersionPart>,
}

impl Version {
    /// The integer at `path`, as a JSON integer or as decimal text.
    pub fn integer(path: Path) -> Self {
        Self { parts: vec![VersionPart::new(path, VersionKind::Integer)] }
    }
}

/// One part of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionPart {
    /// Where it is.
    pub of: Places,
    /// Where to find integers that it is raised to if less than the greatest of them: the first place that has a value,
    /// an integer or an array of integers and nulls, also as text.
    pub at_least: Option<Places>,
    /// How it is read.
    pub kind: VersionKind,
    /// Its minimum: a record with less is invalid. Not in the digest, since what is remembered still reads the same.
    pub min: Option<i64>,
    /// The unit of a number, if the kind is [`VersionKind::Timestamp`].
    pub unit: TimeUnit,
    /// Values that count as missing.
    pub none: Vec<Scalar>,
    /// Whether a value that is not of the kind counts as missing, instead of making the record invalid.
    pub lenient: bool,
    /// Whether a record without this part has no version. Otherwise it has none only when all parts are missing.
    pub required: bool,
    /// Where it sorts when it is missing.
    pub missing: MissingPart,
}

impl VersionPart {
    /// The part of this kind at `path`, with the defaults for everything else.
    pub fn new(path: Path, kind: VersionKind) -> Self {
        Self {
            of: vec![path],
            at_least: None,
            kind,
            min: None,
            unit: TimeUnit::Milliseconds,
            none: Vec::new(),
            lenient: false,
            required: false,
            missing: MissingPart::Lowest,
        }
    }
}

/// What scopes versions: they are comparable if all of it is equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The parts that make up the scope, in order. A missing part is null.
    pub parts: Vec<EpochPart>,
}

/// A part of an epoch's scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochPart {
    /// Where it is.
    pub of: Places,
    /// Values that put a record in no scope: it is compared as if it were in its entry's.
    pub none: Vec<Scalar>,
}

/// How kinds of change are distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Where the word for the kind is.
    pub of: Places,
    /// The words for deletes.
    pub delete: Vec<Scalar>,
    /// The words for a snapshot's reads.
    pub read: Vec<Scalar>,
    /// What to do with a read when a streamed change is known. Not in the digest: it may change.
    pub reads: Reads,
    /// The words for truncates.
    pub truncate: Vec<Scalar>,
    /// The words for messages.
    pub message: Vec<Scalar>,
    /// The words for records that are about no row and no table, such as DDL: they have no identity, and their keys are
    /// not read. Not in the digest: it may change.
    pub none: Vec<Scalar>,
    /// The parts that name the table: a truncate's identity. A missing part is null.
    pub table: Vec<Places>,
}

/// What to do with a null value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNull {
    /// Always this.
    Act(Action),
    /// `follow_delete`: forward it if the delete before it was forwarded.
    FollowDelete,
    /// `delete`: it is the delete itself, and judged like any other.
    Delete,
}

/// The rules of a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How keys are read.
    pub key_format: Format,
    /// How values are read.
    pub value_format: Format,
    /// How JSON without a schema is read if a format has schemas: [`Format::Json`] or [`Format::ConnectJson`].
    /// Identities and versions are remembered as in that format, so that a topic can change to schemas.
    pub json_format: Format,
    /// What identifies a record.
    pub identity: Identity,
    /// What versions a record; with `None`, anything seen before is dropped.
    pub version: Option<Version>,
    /// What scopes versions; `None` if all are comparable.
    pub epoch: Option<Epoch>,
    /// How kinds of change are distinguished; `None` if every record is a plain change.
    pub kinds: Option<Kinds>,
    /// What is compared, besides identity and version, to tell a repetition from another event; `None` if nothing.
    pub contents: Option<Contents>,
    /// How long entries are remembered.
    pub retention: Retention,
    /// When that time starts again.
    pub refresh: Refresh,
    /// How far a timestamp may be ahead of the wall clock, in milliseconds.
    pub future_max_ms: i64,
    /// What to do with what is not simply new, duplicate or stale.
    pub actions: Actions,
    /// Limits on a record.
    pub limits: Limits,
}

impl Rules {
    /// Rules with a topology's defaults: a key of bytes, a value of JSON, the default contents, retention and
    /// actions.
    pub fn new(identity: Identity, version: Option<Version>) -> Self {
        let retention = Retention::default_for(version.as_ref());
        let contents = Contents::default_for(&identity);
        Self {
            key_format: Format::Bytes,
            value_format: Format::Json,
            json_format: Format::Json,
            identity,
            version,
            epoch: None,
            kinds: None,
            contents,
            retention,
            refresh: Refresh::OnForward,
            future_max_ms: retention.default_future_max_ms(),
            actions: Actions::default(),
            limits: Limits::default(),
        }
    }

    /// The format of this source; `None` if it is not a key or a value.
    pub fn format_of(&self, source: &Source) -> Option<Format> {
        match source {
            Source::Key => Some(self.key_format),
            Source::Value => Some(self.value_format),
            _ => None,
        }
    }

    /// Whether keys or values are read by the schemas that they name.
    pub fn reads_schemas(&self) -> bool {
        self.key_format.has_schemas() || self.value_format.has_schemas()
    }

    /// This format, or [`Rules::json_format`] if it has schemas.
    pub(super) fn without_schemas(&self, format: Format) -> Format {
        if format.has_schemas() { self.json_format } else { format }
    }

    /// The same rules for records in JSON: with [`Rules::json_format`] in place of formats with schemas.
    pub fn for_json(&self) -> Self {
        let (key_format, value_format) =
            (self.without_schemas(self.key_format), self.without_schemas(self.value_format));
        Self { key_format, value_format, ..self.clone() }
    }

    /// SHA-256 over what the entries depend on. Rules with the same digest can share a state; the contents, the
    /// retention, the actions, the limits and a version part's minimum may change without changing it.
    ///
    /// The hashed text, in UTF-8, each line ended by a line feed: `ratchet rules 1`; `key_format: ` and `value_format:
    /// ` with their words, or, of a format with schemas, with that of [`Rules::json_format`]; a line `identity: PART`
    /// for each part, in order; a line `version: PART` for each, or `version: none`; a line `epoch: PART` for each; the
    /// lines of `kinds`, if any. Parts are written as they display, which never contains a line feed.
    pub fn digest(&self) -> [u8; 32] {
        Self::digest_of(&self.text())
    }

    /// The text that their digest is of.
    pub fn text(&self) -> String {
        self.canonical_text()
    }

    /// The digest of rules with this text.
    pub fn digest_of(text: &str) -> [u8; 32] {
        Sha256::digest(text).into()
    }

    /// Every path of the rules, in the order in which they are written.
    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        self.identity.parts.iter().for_each(|part| part.collect_paths(&mut paths));
        let version = self.version.iter().flat_map(|version| &version.parts);
        paths.extend(version.flat_map(|part| part.of.iter().chain(part.at_least.iter().flatten())));
        paths.extend(self.epoch.iter().flat_map(|epoch| &epoch.parts).flat_map(|part| &part.of));
        if let Some(kinds) = &self.kinds {
            paths.extend(kinds.of.iter().chain(kinds.table.iter().flatten()));
        }
        self.contents.iter().for_each(|contents| contents.collect_paths(&mut paths));
        paths
    }
}

#[cfg(test)]
mod tests;
