//! What a record says about its thing, apart from how and when it was delivered. Two records with one identity and one
//! version are a repetition only if their contents are the same.
//!
//! Contents are compared as they are written: a false difference lets a record come twice, but a false match loses data.
//! They are not part of the rules' digest: an entry records which rule read its contents ([`Contents::tag`]), and is not
//! compared with contents that another rule reads.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::part::{Identity, IdentityPart};
use crate::dedup::path::{Path, Places, Source};
use crate::format::DIGEST_TAGS;

/// The contents of a record: all of these parts together, and its kind of change. Those of a delete or a truncate are
/// the kind alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The parts, in order; never empty.
    pub parts: Vec<ContentsPart>,
}

/// A part of a record's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentsPart {
    /// The bytes at this path, as written.
    Written(Path),
    /// The canonical JSON (RFC 8785) of a document, for producers that write one thing in different ways.
    Fingerprint {
        /// The document, or a part of it.
        of: Path,
        /// Places in it to leave out.
        except: Vec<Path>,
    },
    /// Where the identity has rows: the row's own object.
    Rows(Places),
    /// The fields of a row that Debezium flattened (ExtractNewRecordState) without the added ones, whose names begin with
    /// [`ADDED_PREFIX`]. Missing where no field was added.
    Flattened(Path),
    /// The first of these that is present and not null.
    FirstOf(Vec<ContentsPart>),
}

/// The prefix of the fields that Debezium adds to a flattened row: the default of `add.fields.prefix`.
pub const ADDED_PREFIX: &str = "__";

impl Contents {
    /// The whole value, as written: the default contents.
    pub fn whole_value() -> Self {
        Self { parts: vec![ContentsPart::Written(Path { source: Source::Value, steps: Vec::new() })] }
    }

    /// The contents of a topology that does not name any: the whole value; `None` if the identity has a fingerprint or the
    /// content of the whole value, because equal identities then imply equal contents.
    pub fn default_for(identity: &Identity) -> Option<Self> {
        let is_whole = |path: &Path| path.source == Source::Value && path.steps.is_empty();
        let says_all = |part: &IdentityPart| match part {
            IdentityPart::Fingerprint { of: path, .. } | IdentityPart::Content(path) => is_whole(path),
            IdentityPart::Scalar(path) => is_whole(path),
            _ => false,
        };
        (!identity.parts.iter().any(says_all)).then(Self::whole_value)
    }

    /// A number, below [`DIGEST_TAGS`], that tells this rule for contents from nearly every other.
    pub fn tag(&self) -> u16 {
        // The remainder is below DIGEST_TAGS.
        (xxh3_64_with_seed(self.to_string().as_bytes(), 0) % u64::from(DIGEST_TAGS)) as u16
    }

    /// Whether some part is that of a row.
    pub fn has_rows(&self) -> bool {
        self.parts.iter().any(ContentsPart::has_rows)
    }

    /// Appends its paths, in the order in which they are written.
    pub(super) fn collect_paths<'a>(&'a self, paths: &mut Vec<&'a Path>) {
        self.parts.iter().for_each(|part| part.collect_paths(paths));
    }
}

impl ContentsPart {
    pub(in crate::dedup) fn has_rows(&self) -> bool {
        match self {
            Self::Rows(_) => true,
            Self::FirstOf(parts) => parts.iter().any(Self::has_rows),
            Self::Written(_) | Self::Fingerprint { .. } | Self::Flattened(_) => false,
        }
    }

    fn collect_paths<'a>(&'a self, paths: &mut Vec<&'a Path>) {
        match self {
            Self::Written(path) | Self::Flattened(path) => paths.push(path),
            Self::Fingerprint { of, except } => paths.extend([of].into_iter().chain(except)),
            Self::Rows(of) => paths.extend(of),
            Self::FirstOf(parts) => parts.iter().for_each(|part| part.collect_paths(paths)),
        }
    }
}
