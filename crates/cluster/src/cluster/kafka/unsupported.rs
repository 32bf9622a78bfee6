//! Properties that only librdkafka supports, for which `data_path: auto` chooses librdkafka.

/// A property that only librdkafka knows, as it is set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kafka property {property} needs librdkafka: {why}")]
pub(super) struct Unsupported {
    /// Its name.
    pub property: String,
    /// Why; never holds its value.
    pub why: &'static str,
}

impl Unsupported {
    /// A property unknown to the wire.
    pub fn new(property: &str, why: &'static str) -> Self {
        Self { property: property.to_owned(), why }
    }
}
