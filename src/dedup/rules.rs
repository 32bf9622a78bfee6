//! The rules of a topology: how its records are identified and versioned, for how long they are
//! remembered, and what becomes of those that cannot be judged.

use sha2::{Digest, Sha256};

use super::path::{Path, Source};
use super::vocabulary::{Action, Format};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// For how long an entry is remembered, in stream time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Always.
    Forever,
    /// For a time after it was last seen.
    For {
        /// Milliseconds.
        ms: i64,
    },
}

impl Retention {
    /// The retention of a topology that names none: seven days, or forever where a version says what is
    /// older (forgetting an entry would let an old version through).
    pub fn default_for(version: Option<&Version>) -> Self {
        if version.is_some() { Retention::Forever } else { Retention::For { ms: 7 * DAY_MS } }
    }

    /// How far a timestamp may be beyond the wall clock where the topology does not say: an hour, or a
    /// tenth of the retention if that is less.
    pub fn default_future_max_ms(self) -> i64 {
        match self {
            Retention::Forever => HOUR_MS,
            Retention::For { ms } => HOUR_MS.min(ms / 10),
        }
    }
}

/// What to do in each of the cases in which a record is not simply new, duplicate or stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actions {
    /// `on_invalid`: it cannot be read or believed.
    pub invalid: Action,
    /// `on_missing`: it has no identity.
    pub missing_identity: Action,
    /// `on_null_value`: its value is null.
    pub null_value: Action,
    /// `on_equal`: its version is the one remembered.
    pub equal_version: Action,
    /// `on_missing_version`: it has no version.
    pub missing_version: Action,
    /// `on_late`: it is older than the retention horizon.
    pub late: Action,
    /// `on_unsendable`: the output refuses it.
    pub unsendable: Action,
}

impl Default for Actions {
    fn default() -> Self {
        Self {
            invalid: Action::DeadLetter,
            missing_identity: Action::DeadLetter,
            null_value: Action::DeadLetter,
            equal_version: Action::Drop,
            missing_version: Action::Forward,
            late: Action::DeadLetter,
            unsendable: Action::DeadLetter,
        }
    }
}

/// What a record may take, so that none of them can hurt the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of key, value and headers together.
    pub record_bytes_max: usize,
    /// How deep JSON may be nested; `[]` is 1 deep.
    pub json_depth_max: usize,
    /// Bytes of an identity's encoding, before a long one is hashed.
    pub identity_bytes_max: usize,
    /// Digits of a version, leading zeros not counted; at most [`super::version::DIGITS_MAX`] are ever read.
    pub version_digits_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { record_bytes_max: 16 << 20, json_depth_max: 128, identity_bytes_max: 64 << 10, version_digits_max: 300 }
    }
}

/// What says which thing a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The scalars that together are the identity, in order.
    pub parts: Vec<Path>,
}

/// What says which record is newer: an integer, written as a JSON integer or as decimal text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Where it stands.
    pub of: Path,
}

/// The rules of a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How keys are read.
    pub key_format: Format,
    /// How values are read.
    pub value_format: Format,
    /// What identifies a record.
    pub identity: Identity,
    /// What versions a record; `None` drops whatever was seen before.
    pub version: Option<Version>,
    /// For how long entries are remembered.
    pub retention: Retention,
    /// How far a timestamp may be beyond the wall clock, in milliseconds.
    pub future_max_ms: i64,
    /// What to do with what is not simply new, duplicate or stale.
    pub actions: Actions,
    /// What a record may take.
    pub limits: Limits,
}

/// Rules that contradict themselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An identity without parts: every record would be the same thing.
    #[error("the identity has no parts; name at least one path")]
    NoIdentity,
    /// A path inside what is not JSON.
    #[error(
        "`{path}` reads inside the {what}, which is bytes; write `{what}_format: json`, or use `{what}` as a whole"
    )]
    InsideBytes {
        /// The path.
        path: String,
        /// `key` or `value`.
        what: &'static str,
    },
    /// A path with steps inside a header, a constant or the record's place.
    #[error("`{path}` cannot be read inside of; only keys and values can")]
    InsideScalar {
        /// The path.
        path: String,
    },
    /// An identity without anything of the record in it: every record would be the same thing.
    #[error("the identity holds constants only, so all records would be the same thing; name a path")]
    ConstantIdentity,
}

impl Rules {
    /// Rules with every default of a topology: a key of bytes, a value of JSON, the retention and the
    /// actions that hold where nothing is said.
    pub fn new(identity: Identity, version: Option<Version>) -> Self {
        let retention = Retention::default_for(version.as_ref());
        Self {
            key_format: Format::Bytes,
            value_format: Format::Json,
            identity,
            version,
            retention,
            future_max_ms: retention.default_future_max_ms(),
            actions: Actions::default(),
            limits: Limits::default(),
        }
    }

    /// Everything about the rules that contradicts itself. [`super::Reader`] reads by such rules without
    /// panicking, but not as anyone would expect.
    pub fn problems(&self) -> Vec<Error> {
        let mut problems = Vec::new();
        if self.identity.parts.is_empty() {
            problems.push(Error::NoIdentity);
        } else if self.identity.parts.iter().all(|part| matches!(part.source, Source::Const(_))) {
            problems.push(Error::ConstantIdentity);
        }
        for path in self.paths().filter(|path| path.is_inside()) {
            let (what, format) = match path.source {
                Source::Key => ("key", self.key_format),
                Source::Value => ("value", self.value_format),
                _ => {
                    problems.push(Error::InsideScalar { path: path.to_string() });
                    continue;
                }
            };
            if format != Format::Json {
                problems.push(Error::InsideBytes { path: path.to_string(), what });
            }
        }
        problems
    }

    /// SHA-256 over what the entries depend on. Two rules with the same digest can share a state; the
    /// retention, the actions and the limits may change under it.
    ///
    /// What is hashed is this text, in UTF-8, each line ended by a line feed: `ratchet rules 1`;
    /// `key_format: ` and `value_format: ` with their words; a line `identity: PATH` for each part, in
    /// order; `version: integer PATH`, or `version: none`. Paths are written as [`Path`] displays them,
    /// which never contains a line feed.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.canonical_text()).into()
    }

    pub(super) fn canonical_text(&self) -> String {
        let mut text = String::from("ratchet rules 1\n");
        let mut line = |name: &str, value: &str| text.extend([name, ": ", value, "\n"]);
        line("key_format", self.key_format.as_str());
        line("value_format", self.value_format.as_str());
        for part in &self.identity.parts {
            line("identity", &part.to_string());
        }
        match &self.version {
            Some(version) => line("version", &format!("integer {}", version.of)),
            None => line("version", "none"),
        }
        text
    }

    /// Every path of the rules: the identity's parts in order, then the version's.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.identity.parts.iter().chain(self.version.iter().map(|version| &version.of))
    }
}

#[cfg(test)]
mod tests;
