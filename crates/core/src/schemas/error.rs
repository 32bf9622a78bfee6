//! Why a text is no schema, and why bytes are no record of one.

/// Why a text is no schema, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", if at.is_empty() { String::new() } else { format!("{at}: ") })]
pub struct SchemaError {
    /// The fields that lead to it, with dots; where no field does, a line and a column, or nothing.
    pub at: String,
    /// What is wrong, in words.
    pub what: String,
}

/// Why bytes are no record of their schema, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (byte {at}{})", if field.is_empty() { String::new() } else { format!(", in `{field}`") })]
pub struct Undecodable {
    /// The byte, from 0, at which it was noticed.
    pub at: usize,
    /// The fields that lead to it, with dots; numbers of elements and keys of maps are steps, too. Empty for the record
    /// itself.
    pub field: String,
    /// What is wrong.
    pub what: &'static str,
}
