//! How names and texts are written in SQL.

/// A name as SQL quotes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as an SQL constant.
pub(super) fn constant(text: &str) -> String {
    // With the escapes of E'', which mean the same whatever the session's settings are.
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
