//! Why a schema is invalid, and why bytes cannot be decoded by their schema.

/// Why a schema is invalid, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", if at.is_empty() { String::new() } else { format!("{at}: ") })]
pub struct SchemaError {
    /// The path of the field, with dots; outside of fields a line and a column, or nothing.
    pub at: String,
    /// What is wrong.
    pub what: String,
}

/// Why bytes cannot be decoded by their schema, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (byte {at}{})", if field.is_empty() { String::new() } else { format!(", in `{field}`") })]
pub struct Undecodable {
    /// The offset of the byte at which the error was noticed.
    pub at: usize,
    /// The path of the field, with dots; indexes of elements and keys of maps are steps, too. Empty for the record
    /// itself.
    pub field: String,
    /// What is wrong.
    pub what: &'static str,
}
