//! Taking rows apart: the texts of their fields, as PostgreSQL's functions for JSON give them.
//!
//! A text is without quotes and escapes; numbers, `true`, `false`, objects and arrays are as they stand there; null is
//! null. The rows are JSON objects: their shape was read before.

use std::borrow::Cow;

/// A field's text; `None` for null.
type Text<'a> = Option<Cow<'a, str>>;

/// Where a row is being read.
struct Cursor<'a> {
    row: &'a str,
    at: usize,
}

/// The texts of the fields with these names: a list for each name, with as many texts as there are rows. What a row lacks
/// is null.
pub(super) fn columns<'a>(names: &[String], rows: impl ExactSizeIterator<Item = &'a str>) -> Vec<Vec<Text<'a>>> {
    let mut columns: Vec<Vec<Text<'a>>> = names.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for (number, row) in rows.enumerate() {
        let (mut cursor, mut next) = (Cursor { row, at: 0 }, 0);
        cursor.pass(b"{");
        while cursor.peek() == Some(b'"') {
            let name = unquoted(cursor.value());
            cursor.pass(b":");
            let value = cursor.value();
            cursor.pass(b",");
            // Rows have their fields in the table's order, mostly.
            let mut places = (next..names.len()).chain(0..next);
            let Some(place) = places.find(|&place| names[place] == name) else { continue };
            next = place + 1;
            columns[place].push(text(value));
        }
        columns.iter_mut().for_each(|column| column.resize(number + 1, None));
    }
    columns
}

fn text(value: &str) -> Text<'_> {
    match value.as_bytes().first() {
        Some(b'"') => Some(unquoted(value)),
        Some(b'n') => None,
        _ => Some(value.into()),
    }
}

/// A JSON text without its quotes and escapes.
fn unquoted(value: &str) -> Cow<'_, str> {
    let plain = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    if !plain.contains('\\') {
        return plain.into();
    }
    serde_json::from_str::<String>(value).expect("its shape was read").into()
}

impl<'a> Cursor<'a> {
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.row.as_bytes()[self.at..];
        self.at += rest.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(rest.len());
        self.row.as_bytes().get(self.at).copied()
    }

    /// Passes one of these, if it is next.
    fn pass(&mut self, any: &[u8]) {
        if self.peek().is_some_and(|byte| any.contains(&byte)) {
            self.at += 1;
        }
    }

    /// Takes the next value as it stands there.
    fn value(&mut self) -> &'a str {
        let first = self.peek();
        let (row, from) = (self.row, self.at);
        let bytes = row.as_bytes();
        match first {
            Some(b'"') => self.pass_text(),
            Some(b'{' | b'[') => {
                let mut depth = 0_usize;
                while let Some(&byte) = bytes.get(self.at) {
                    match byte {
                        b'"' => {
                            self.pass_text();
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']');
                self.at += bytes[from..].iter().position(ends).unwrap_or(bytes.len() - from);
            }
        }
        &row[from..self.at]
    }

    /// Passes a text, from its quote to behind its last one.
    fn pass_text(&mut self) {
        let bytes = self.row.as_bytes();
        self.at += 1;
        while let Some(&byte) = bytes.get(self.at) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names in another order, escaped, missing, with blanks between and brackets within.
    #[test]
    fn rows_are_taken_apart() {
        let names = ["id", "v \"x\"", "n"].map(str::to_owned);
        let rows = [
            r#"{"id":1,"v \"x\"":"a","n":null}"#,
            " { \"n\" : -1.50E2 ,\n\"other\" : { \"id\" : [ 7 , \"}\" ] } , \"id\" : \"\" } ",
            r#"{"\u0069d":"\u00fc\n\"\\","n":[{"a":"]"}, 1],"v \"x\"":true}"#,
            r#"{"n":{"id":"\"}"},"other":"\\","v \"x\"":"ü","id":false}"#,
            "{}",
        ];
        let texts = columns(&names, rows.into_iter());
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
