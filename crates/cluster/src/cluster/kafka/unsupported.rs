//! Properties that only librdkafka supports, for which `data_path: auto` chooses librdkafka.

/// A property that only librdkafka supports with its present value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kafka property {property} needs librdkafka: {why}")]
pub(super) struct Unsupported {
    /// The property's name.
    pub property: String,
    /// The reason, which never contains the value.
    pub why: &'static str,
}

impl Unsupported {
    /// An unsupported property, with the reason.
    pub fn new(property: &str, why: &'static str) -> Self {
        Self { property: property.to_owned(), why }
    }
}
