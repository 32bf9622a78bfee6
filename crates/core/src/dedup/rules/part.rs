//! An identity and its parts: their kinds, and what follows from a part without looking at a record. `reader/identity.rs`
//! reads them from a record.

use crate::dedup::path::{Path, Places, Source};

/// What says which thing a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The parts that make up the identity, in order.
    pub parts: Vec<IdentityPart>,
}

impl Identity {
    /// The identity made up of these scalars.
    pub fn of_paths(paths: impl IntoIterator<Item = Path>) -> Self {
        Self { parts: paths.into_iter().map(IdentityPart::Scalar).collect() }
    }
}

/// A part of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityPart {
    /// The scalar at this path.
    Scalar(Path),
    /// The JSON at this path, whatever it is: the order of fields and whitespace do not matter, types do.
    Content(Path),
    /// SHA-256 of the canonical JSON (RFC 8785) of a document.
    Fingerprint {
        /// The document, or a part of it.
        of: Path,
        /// Places in it to leave out.
        except: Vec<Path>,
    },
    /// The tumbling bucket of this length that contains the record's timestamp.
    Bucket {
        /// Milliseconds.
        ms: i64,
    },
    /// The first alternative with no missing part.
    FirstOf(Vec<Vec<IdentityPart>>),
    /// Fields of an object, or of each object in an array: the record then has several rows.
    Rows {
        /// The object or array.
        of: Places,
        /// The fields' names.
        named: Names,
    },
}

/// The names of the fields that identify a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Always these.
    Given(Vec<String>),
    /// Those in the array of strings at this path.
    At(Path),
}

impl IdentityPart {
    /// Whether it is the same for all records.
    pub fn is_constant(&self) -> bool {
        match self {
            Self::Scalar(path) => matches!(path.source, Source::Const(_)),
            Self::FirstOf(alternatives) => alternatives.iter().flatten().all(Self::is_constant),
            Self::Content(_) | Self::Fingerprint { .. } | Self::Bucket { .. } | Self::Rows { .. } => false,
        }
    }

    /// Whether it cannot distinguish the records of one partition.
    pub fn is_same_within_a_partition(&self) -> bool {
        match self {
            Self::Scalar(path) => matches!(path.source, Source::Const(_) | Source::Topic | Source::Partition),
            Self::Bucket { .. } => true,
            Self::FirstOf(alternatives) => alternatives.iter().flatten().all(Self::is_same_within_a_partition),
            Self::Content(_) | Self::Fingerprint { .. } | Self::Rows { .. } => false,
        }
    }

    /// Whether it says where the record is in Kafka, and nothing else.
    pub fn is_place(&self) -> bool {
        match self {
            Self::Scalar(path) => matches!(path.source, Source::Topic | Source::Partition | Source::Offset),
            Self::FirstOf(alternatives) => alternatives.iter().flatten().all(Self::is_place),
            Self::Content(_) | Self::Fingerprint { .. } | Self::Bucket { .. } | Self::Rows { .. } => false,
        }
    }

    /// Whether it can be read from a record whose value is null.
    pub fn is_outside_value(&self) -> bool {
        let outside = |path: &Path| path.source != Source::Value;
        match self {
            Self::Scalar(path) | Self::Content(path) | Self::Fingerprint { of: path, .. } => outside(path),
            Self::Bucket { .. } => true,
            Self::FirstOf(alternatives) => alternatives.iter().any(|parts| parts.iter().all(Self::is_outside_value)),
            Self::Rows { of, .. } => of.iter().any(outside),
        }
    }

    /// Whether it may be all bytes of this source, whatever they say.
    pub fn holds_bytes(&self, source: &Source) -> bool {
        match self {
            Self::Scalar(path) => path.source == *source && !path.is_inside(),
            Self::FirstOf(alternatives) => alternatives.iter().flatten().any(|part| part.holds_bytes(source)),
            Self::Content(_) | Self::Fingerprint { .. } | Self::Bucket { .. } | Self::Rows { .. } => false,
        }
    }

    /// Whether records with the same such part always have the same key.
    pub fn holds_key(&self) -> bool {
        let whole = |path: &Path| path.source == Source::Key && !path.is_inside();
        match self {
            Self::Scalar(path) | Self::Content(path) => whole(path),
            Self::Fingerprint { of, except } => whole(of) && except.is_empty(),
            Self::FirstOf(alternatives) => alternatives.iter().all(|parts| parts.iter().any(Self::holds_key)),
            Self::Bucket { .. } | Self::Rows { .. } => false,
        }
    }

    /// Whether it is read from the key alone, if a record has one.
    pub fn is_of_key(&self) -> bool {
        match self {
            Self::Scalar(path) | Self::Content(path) | Self::Fingerprint { of: path, .. } => path.source == Source::Key,
            Self::FirstOf(alternatives) => alternatives.first().is_some_and(|parts| parts.iter().all(Self::is_of_key)),
            Self::Bucket { .. } | Self::Rows { .. } => false,
        }
    }

    /// The length of its longest bucket, in milliseconds, if it has one.
    pub fn bucket_ms(&self) -> Option<i64> {
        match self {
            Self::Bucket { ms } => Some(*ms),
            Self::FirstOf(alternatives) => alternatives.iter().flatten().filter_map(Self::bucket_ms).max(),
            Self::Scalar(_) | Self::Content(_) | Self::Fingerprint { .. } | Self::Rows { .. } => None,
        }
    }

    /// Appends its paths, in the order in which they are written.
    pub(super) fn collect_paths<'a>(&'a self, paths: &mut Vec<&'a Path>) {
        match self {
            Self::Scalar(path) | Self::Content(path) => paths.push(path),
            Self::Fingerprint { of, except } => paths.extend([of].into_iter().chain(except)),
            Self::Bucket { .. } => {}
            Self::FirstOf(alternatives) => alternatives.iter().flatten().for_each(|part| part.collect_paths(paths)),
            Self::Rows { of, named } => {
                paths.extend(of);
                if let Names::At(path) = named {
                    paths.push(path);
                }
            }
        }
    }
}
