//! A key or a value in which places are wanted, whatever its format is.

use super::by_schema::{BySchema, JsonLimits, Unread};
use super::json::Scanner;
use super::logical::Shape;
use super::steps::{Found, PathIndex};
use super::vocabulary::Format;
use crate::record::Headers;
use crate::schemas::Sources;

/// Reads the wanted places of one document after the other. What it finds is in JSON: in the document itself, or in what
/// was written of it.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and there are two of these in a reader")]
#[derive(Debug)]
pub(super) enum Document {
    /// JSON, maybe with what Kafka Connect and Avro wrap around it.
    Json(Scanner),
    /// Read by the schema that it names.
    BySchema(Box<BySchema>),
}

impl Document {
    /// For keys or values of this format. [`PathIndex`] i is where path i leads.
    pub fn new(format: Format, is_key: bool, paths: &[&[String]], limits: JsonLimits, sources: &Sources) -> Self {
        match format.has_schemas() {
            true => Self::BySchema(Box::new(BySchema::new(format, is_key, paths, limits, sources.clone()))),
            false => Self::Json(Scanner::new(paths, limits.depth_max, format == Format::ConnectJson)),
        }
    }

    /// Checks a document as a whole, and notes what is in the wanted places. After an error, nothing is known about it.
    pub fn read(&mut self, bytes: &[u8], headers: Headers<'_>) -> Result<(), Unread> {
        match self {
            Self::Json(scanner) => scanner.scan(bytes).map_err(Unread::Json),
            Self::BySchema(document) => document.read(bytes, headers),
        }
    }

    /// What the last document has at `place`.
    #[inline]
    pub fn found(&self, place: PathIndex) -> Found {
        match self {
            Self::Json(scanner) => scanner.found(place),
            Self::BySchema(document) => document.found(place),
        }
    }

    /// The JSON in which the places of the last document, which has these bytes, were found.
    #[inline]
    pub fn json<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Json(_) => bytes,
            Self::BySchema(document) => document.json(bytes),
        }
    }

    /// The schema that the last document, which has these bytes, carries beside its payload.
    #[inline]
    pub fn schema<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Json(scanner) => bytes.get(scanner.schema()?),
            Self::BySchema(document) => bytes.get(document.without_id()?.schema()?),
        }
    }

    /// What the schema that the last document names says of the types of its values; `None` if it names none.
    pub fn shape(&self) -> Option<&Shape> {
        match self {
            Self::Json(_) => None,
            Self::BySchema(document) if document.without_id().is_some() => None,
            Self::BySchema(document) => Some(document.shape()),
        }
    }

    /// Whether a scalar may be wrapped by a union, as in Avro's JSON.
    #[inline]
    pub fn is_looking_through(&self) -> bool {
        match self {
            Self::Json(scanner) => scanner.is_looking_through(),
            Self::BySchema(document) => document.without_id().is_some_and(Scanner::is_looking_through),
        }
    }
}
