//! Splits rows into the texts of their fields, as PostgreSQL's JSON functions return them.
//!
//! A string's text is its content, without quotes and escapes. The text of a number, `true`, `false`, an object or an
//! array is its JSON, unchanged. `null` has no text. The rows are valid JSON objects: `shape` has parsed them before.

use std::borrow::Cow;

/// A field's text; `None` for null.
type Text<'a> = Option<Cow<'a, str>>;

/// A position in a row.
struct Cursor<'a> {
    row: &'a str,
    /// In bytes.
    position: usize,
}

/// The texts of the fields with these names: a list for each name, with an entry for each row. A missing field
/// counts as null.
pub(super) fn column_texts<'a>(names: &[String], rows: impl ExactSizeIterator<Item = &'a str>) -> Vec<Vec<Text<'a>>> {
    let mut columns: Vec<Vec<Text<'a>>> = names.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for (number, row) in rows.enumerate() {
        let (mut cursor, mut next) = (Cursor { row, position: 0 }, 0);
        cursor.skip_one_of(b"{");
        while cursor.peek() == Some(b'"') {
            let name = unquoted(cursor.next_value());
            cursor.skip_one_of(b":");
            let value = cursor.next_value();
            cursor.skip_one_of(b",");
            // Most rows have their fields in the order of `names`.
            let mut candidates = (next..names.len()).chain(0..next);
            let Some(column) = candidates.find(|&column| names[column] == name) else { continue };
            next = column + 1;
            columns[column].push(text_of(value));
        }
        columns.iter_mut().for_each(|column| column.resize(number + 1, None));
    }
    columns
}

/// A JSON value's text.
fn text_of(value: &str) -> Text<'_> {
    match value.as_bytes().first() {
        Some(b'"') => Some(unquoted(value)),
        Some(b'n') => None,
        _ => Some(value.into()),
    }
}

/// A JSON string without its quotes and escapes.
fn unquoted(value: &str) -> Cow<'_, str> {
    let plain = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    if !plain.contains('\\') {
        return plain.into();
    }
    serde_json::from_str::<String>(value).expect("the row was parsed when its shape was read").into()
}

impl<'a> Cursor<'a> {
    /// Skips white space, and returns the next byte without skipping it.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.row.as_bytes()[self.position..];
        self.position += rest.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(rest.len());
        self.row.as_bytes().get(self.position).copied()
    }

    /// Skips white space, and then the next byte if it is one of these.
    fn skip_one_of(&mut self, bytes: &[u8]) {
        if self.peek().is_some_and(|byte| bytes.contains(&byte)) {
            self.position += 1;
        }
    }

    /// Skips white space and the next value, and returns the value unchanged.
    fn next_value(&mut self) -> &'a str {
        let first = self.peek();
        let (row, from) = (self.row, self.position);
        let bytes = row.as_bytes();
        match first {
            Some(b'"') => self.skip_string(),
            Some(b'{' | b'[') => {
                let mut depth = 0_usize;
                while let Some(&byte) = bytes.get(self.position) {
                    match byte {
                        b'"' => {
                            self.skip_string();
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.position += 1;
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']');
                self.position += bytes[from..].iter().position(ends).unwrap_or(bytes.len() - from);
            }
        }
        &row[from..self.position]
    }

    /// Skips a string, including both its quotes. The position must be at the opening quote.
    fn skip_string(&mut self) {
        let bytes = self.row.as_bytes();
        self.position += 1;
        while let Some(&byte) = bytes.get(self.position) {
            self.position += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields in another order, escaped names, missing fields, white space, and brackets within strings.
    #[test]
    fn rows_are_split_into_texts_of_columns() {
        let names = ["id", "v \"x\"", "n"].map(str::to_owned);
        let rows = [
            r#"{"id":1,"v \"x\"":"a","n":null}"#,
            " { \"n\" : -1.50E2 ,\n\"other\" : { \"id\" : [ 7 , \"}\" ] } , \"id\" : \"\" } ",
            r#"{"\u0069d":"\u00fc\n\"\\","n":[{"a":"]"}, 1],"v \"x\"":true}"#,
            r#"{"n":{"id":"\"}"},"other":"\\","v \"x\"":"ü","id":false}"#,
            "{}",
        ];
        let texts = column_texts(&names, rows.into_iter());
        let expected = [
            [Some("1"), Some(""), Some("ü\n\"\\"), Some("false"), None],
            [Some("a"), None, Some("true"), Some("ü"), None],
            [None, Some("-1.50E2"), Some(r#"[{"a":"]"}, 1]"#), Some(r#"{"id":"\"}"}"#), None],
        ];
        for (column, expected) in texts.iter().zip(expected) {
            assert_eq!(column.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
        }
    }
}
