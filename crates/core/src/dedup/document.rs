//! A key or a value with wanted places, in any format.

use super::by_schema::{BySchema, JsonLimits, Unread};
use super::json::Scanner;
use super::logical::Shape;
use super::steps::{Found, PathIndex};
use super::vocabulary::Format;
use crate::record::Headers;
use crate::schemas::Sources;

/// The paths to the wanted places of keys or of values.
#[derive(Debug, Default)]
pub(super) struct Paths<'r> {
    /// The steps of each path.
    all: Vec<&'r [String]>,
    /// The number of paths to the whole document, and how many of them are of use only in a flattened one, which has
    /// fields that begin with [`crate::dedup::rules::ADDED_PREFIX`].
    whole: usize,
    whole_if_flattened: usize,
}

impl<'r> Paths<'r> {
    /// Adds a path, and returns its place. `is_flattened`: whether it is of use only if the value there is flattened.
    pub fn add(&mut self, steps: &'r [String], is_flattened: bool) -> PathIndex {
        self.whole += usize::from(steps.is_empty());
        self.whole_if_flattened += usize::from(steps.is_empty() && is_flattened);
        self.all.push(steps);
        PathIndex(self.all.len() - 1)
    }

    /// Whether no place is wanted.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn is_whole_only_if_flattened(&self) -> bool {
        self.whole > 0 && self.whole == self.whole_if_flattened
    }
}

/// Reads the wanted places of one document after the other. Their values are ranges of JSON: of the document itself, or
/// of JSON extracted from it.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and there are two of these in a reader")]
#[derive(Debug)]
pub(super) enum Document {
    /// JSON, possibly with the wrappings of Kafka Connect and Avro.
    Json(Scanner),
    /// Read by the schema that it names.
    BySchema(Box<BySchema>),
}

impl Document {
    /// A reader of keys or values of this format. [`PathIndex`] i is the place of path i.
    pub fn new(format: Format, is_key: bool, paths: &Paths<'_>, limits: JsonLimits, sources: &Sources) -> Self {
        if !format.has_schemas() {
            return Self::Json(Scanner::new(&paths.all, limits.depth_max, format == Format::ConnectJson));
        }
        let document = BySchema::new(format, is_key, &paths.all, limits, sources.clone());
        let document = if paths.is_whole_only_if_flattened() { document.whole_only_if_flattened() } else { document };
        Self::BySchema(Box::new(document))
    }

    /// Reads a document: checks it, and notes the values in the wanted places. After an error they are not valid.
    pub fn read(&mut self, bytes: &[u8], headers: Headers<'_>) -> Result<(), Unread> {
        match self {
            Self::Json(scanner) => scanner.scan(bytes).map_err(Unread::Json),
            Self::BySchema(document) => document.read(bytes, headers),
        }
    }

    /// The value at a place of the last document.
    #[inline]
    pub fn found(&self, place: PathIndex) -> Found {
        match self {
            Self::Json(scanner) => scanner.found(place),
            Self::BySchema(document) => document.found(place),
        }
    }

    /// The JSON that the values of the last document are in. `bytes` are the document's.
    #[inline]
    pub fn json<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Json(_) => bytes,
            Self::BySchema(document) => document.json(bytes),
        }
    }

    /// The schema that the last document carries beside its payload. `bytes` are the document's.
    #[inline]
    pub fn schema<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Json(scanner) => bytes.get(scanner.schema()?),
            Self::BySchema(document) => bytes.get(document.without_id()?.schema()?),
        }
    }

    /// The types of the last document's values, from the schema that it names; `None` if it names none.
    pub fn shape(&self) -> Option<&Shape> {
        match self {
            Self::Json(_) => None,
            Self::BySchema(document) if document.without_id().is_some() => None,
            Self::BySchema(document) => Some(document.shape()),
        }
    }

    /// Whether scalars of the last document may be wrapped in a union, as in Avro's JSON.
    #[inline]
    pub fn is_looking_through(&self) -> bool {
        match self {
            Self::Json(scanner) => scanner.is_looking_through(),
            Self::BySchema(document) => document.without_id().is_some_and(Scanner::is_looking_through),
        }
    }
}
