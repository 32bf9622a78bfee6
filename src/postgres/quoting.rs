//! Quotes names and texts for SQL.

/// A name as a quoted SQL identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as an SQL string constant.
pub(super) fn constant(text: &str) -> String {
    // As E'…', whose escapes do not depend on the session's standard_conforming_strings.
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
