//! Writes a part of a document with its values of logical types decoded: decimals as JSON numbers, all others as texts.
//! The rest stays byte for byte.

use super::text::Raw;
use super::{Shape, Unlike};
use crate::dedup::json::{Cursor, unescape};

/// A document being read. It was scanned before, so it is JSON, and not nested too deep.
struct Walk<'d> {
    cursor: Cursor<'d>,
    closers: Vec<u8>,
}

/// Appends `document`, a value of this shape.
pub(in crate::dedup) fn write(document: &[u8], shape: &Shape, out: &mut Vec<u8>) -> Result<(), Unlike> {
    let mut walk = Walk { cursor: Cursor::new(document), closers: Vec::new() };
    walk.value(shape, out)
}

impl<'d> Walk<'d> {
    /// Recurses as deep as the shape, whose schema was bounded.
    fn value(&mut self, shape: &Shape, out: &mut Vec<u8>) -> Result<(), Unlike> {
        self.cursor.skip_space();
        match (shape, self.cursor.peek()) {
            (Shape::Logical(logical), first) if first != b'n' => {
                let mut text = Vec::new();
                let raw = self.raw(&mut text)?;
                let quote: &[u8] = if logical.is_number() { b"" } else { b"\"" };
                out.extend_from_slice(quote);
                logical.write(raw, out)?;
                out.extend_from_slice(quote);
                Ok(())
            }
            (Shape::Struct(_) | Shape::Map(_), b'{') if shape.holds_logical() => self.members(shape, b'}', out),
            (Shape::Array(_), b'[') if shape.holds_logical() => self.members(shape, b']', out),
            _ => {
                let copied = self.skip()?;
                out.extend_from_slice(copied);
                Ok(())
            }
        }
    }

    /// The members of an object or an array, with its brackets.
    fn members(&mut self, shape: &Shape, close: u8, out: &mut Vec<u8>) -> Result<(), Unlike> {
        out.push(self.cursor.peek());
        self.cursor.bump();
        let mut name = Vec::new();
        loop {
            self.cursor.skip_space();
            match self.cursor.peek() {
                b',' => {
                    out.push(b',');
                    self.cursor.bump();
                    continue;
                }
                byte if byte == close => {
                    out.push(close);
                    self.cursor.bump();
                    return Ok(());
                }
                _ => {}
            }
            let inner = match shape {
                Shape::Array(items) => items,
                _ => {
                    let text = self.cursor.name().map_err(|_| Unlike)?;
                    let raw = self.cursor.bytes(text.from, text.to);
                    name.clear();
                    unescape(raw, &mut name);
                    out.push(b'"');
                    out.extend_from_slice(raw);
                    out.extend_from_slice(b"\":");
                    shape.field(&name)
                }
            };
            self.value(inner, out)?;
        }
    }

    /// The next value; `text` receives a text without its escapes.
    fn raw<'t>(&mut self, text: &'t mut Vec<u8>) -> Result<Raw<'t>, Unlike>
    where
        'd: 't,
    {
        let first = self.cursor.peek();
        let whole = self.skip()?;
        Ok(match first {
            b'"' => {
                unescape(whole.get(1..whole.len() - 1).ok_or(Unlike)?, text);
                Raw::Text(text)
            }
            b'{' | b'[' => Raw::Composite(whole),
            b't' | b'f' => Raw::Bool,
            _ => Raw::Number(whole),
        })
    }

    /// Passes the next value; returns its bytes.
    fn skip(&mut self) -> Result<&'d [u8], Unlike> {
        let from = self.cursor.at();
        let passed = match self.cursor.peek() {
            b'"' => self.cursor.text().map(drop),
            b'{' | b'[' => self.cursor.skip_composite(&mut self.closers, usize::MAX),
            b't' => self.cursor.literal(b"true"),
            b'f' => self.cursor.literal(b"false"),
            b'n' => self.cursor.literal(b"null"),
            _ => self.cursor.number().map(drop),
        };
        passed.map_err(|_| Unlike)?;
        Ok(self.cursor.bytes(from, self.cursor.at()))
    }
}
