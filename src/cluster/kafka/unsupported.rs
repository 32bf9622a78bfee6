//! Properties that only librdkafka knows, so that it has to read and write.

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
    /// That the wire does not know this property.
    pub fn new(property: &str, why: &'static str) -> Self {
        Self { property: property.to_owned(), why }
    }
}
