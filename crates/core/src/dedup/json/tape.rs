//! A document as a flat list of tokens, for what must be sorted before it is written.
//!
//! Reading takes linear time, however deeply the document is nested, and allocates nothing once the lists have grown. A
//! caller that walks a tape recurses as deep as the document is nested: the scanner's limit bounds that.

use std::cmp::Ordering;

use super::Malformed;
use super::cursor::{Cursor, Text, unescape};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dedup) enum TokenKind {
    Null,
    Bool(bool),
    Number,
    Text,
    /// A text that was written with escapes.
    Escaped,
    Array,
    Object,
}

/// A value, or a field's name.
#[derive(Clone, Copy, Debug)]
pub(in crate::dedup) struct Token {
    pub kind: TokenKind,
    /// The token after this one and everything inside it.
    pub next: usize,
    /// Number of elements or fields; a field is two tokens, its name and its value.
    pub count: usize,
    from: usize,
    to: usize,
}

/// A document, token by token.
#[derive(Debug, Default)]
pub(in crate::dedup) struct Tape {
    tokens: Vec<Token>,
    /// The open objects and arrays.
    open: Vec<usize>,
    /// The texts that had escapes, without them.
    text: Vec<u8>,
}

impl Tape {
    /// Reads `document`, replacing what was read before. It must be one that a scanner has accepted, or a part of it;
    /// anything but JSON is an error, but UTF-8 is not checked.
    pub fn read(&mut self, document: &[u8]) -> Result<(), Malformed> {
        self.tokens.clear();
        self.open.clear();
        self.text.clear();
        let mut cursor = Cursor::new(document);
        loop {
            self.value(&mut cursor)?;
            if !self.advance(&mut cursor)? {
                break;
            }
        }
        cursor.skip_space();
        if cursor.is_at_end() { Ok(()) } else { Err(cursor.malformed("expected nothing more")) }
    }

    /// The token at `at`; the whole document is the one at 0.
    pub fn token(&self, at: usize) -> Token {
        self.tokens[at]
    }

    /// A text's bytes, without escapes, or a number as written in `document`.
    pub fn bytes<'a>(&'a self, at: usize, document: &'a [u8]) -> &'a [u8] {
        let token = self.tokens[at];
        let from = if token.kind == TokenKind::Escaped { &self.text[..] } else { document };
        from.get(token.from..token.to).unwrap_or_default()
    }

    /// An array's elements.
    pub fn elements(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let token = self.tokens[at];
        let mut next = at + 1;
        (0..token.count).map(move |_| {
            let element = next;
            next = self.tokens[element].next;
            element
        })
    }

    /// An object's fields in the order in which they are written: the tokens of name and value.
    pub fn fields(&self, at: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let token = self.tokens[at];
        let mut next = at + 1;
        (0..token.count).map(move |_| {
            let name = next;
            next = self.tokens[name + 1].next;
            (name, name + 1)
        })
    }

    /// Appends an object's fields to `fields`, sorted by name; of several with the same name, only the last.
    pub fn push_fields(
        &self,
        at: usize,
        document: &[u8],
        fields: &mut Vec<(usize, usize)>,
        order: impl Fn(&[u8], &[u8]) -> Ordering,
    ) {
        let from = fields.len();
        fields.extend(self.fields(at));
        if fields.len() - from < 2 {
            return;
        }
        let name = |field: (usize, usize)| self.bytes(field.0, document);
        // Among fields with the same name, later ones sort first, and the first is kept.
        fields[from..].sort_unstable_by(|&a, &b| order(name(a), name(b)).then(b.0.cmp(&a.0)));
        let mut kept = from;
        for i in from + 1..fields.len() {
            if name(fields[i]) != name(fields[kept]) {
                kept += 1;
                fields[kept] = fields[i];
            }
        }
        fields.truncate(kept + 1);
    }

    fn push(&mut self, kind: TokenKind, from: usize, to: usize) {
        let next = self.tokens.len() + 1;
        self.tokens.push(Token { kind, next, count: 0, from, to });
    }

    fn push_text(&mut self, cursor: &Cursor<'_>, text: Text) {
        if !text.escaped {
            return self.push(TokenKind::Text, text.from, text.to);
        }
        let from = self.text.len();
        unescape(cursor.bytes(text.from, text.to), &mut self.text);
        self.push(TokenKind::Escaped, from, self.text.len());
    }

    /// Reads a value, or the opening bracket of an object or array.
    fn value(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        cursor.skip_space();
        match cursor.peek() {
            b'"' => {
                let text = cursor.text()?;
                self.push_text(cursor, text);
            }
            b'-' | b'0'..=b'9' => {
                let (from, to) = cursor.number()?;
                self.push(TokenKind::Number, from, to);
            }
            open @ (b'{' | b'[') => {
                cursor.bump();
                self.open.push(self.tokens.len());
                self.push(if open == b'{' { TokenKind::Object } else { TokenKind::Array }, 0, 0);
            }
            b't' => cursor.literal(b"true").map(|()| self.push(TokenKind::Bool(true), 0, 0))?,
            b'f' => cursor.literal(b"false").map(|()| self.push(TokenKind::Bool(false), 0, 0))?,
            b'n' => cursor.literal(b"null").map(|()| self.push(TokenKind::Null, 0, 0))?,
            _ => return Err(cursor.malformed("expected a value")),
        }
        Ok(())
    }

    /// Moves to the next value, past a field's name if it has one; false at the end of the document.
    fn advance(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, Malformed> {
        loop {
            let Some(&open) = self.open.last() else { return Ok(false) };
            let opened = open + 1 == self.tokens.len();
            let is_object = self.tokens[open].kind == TokenKind::Object;
            cursor.skip_space();
            if cursor.peek() == if is_object { b'}' } else { b']' } {
                cursor.bump();
                self.tokens[open].next = self.tokens.len();
                self.open.pop();
                continue;
            }
            if !opened {
                if cursor.peek() != b',' {
                    return Err(cursor.malformed("expected a comma or the end of the object or array"));
                }
                cursor.bump();
            }
            self.tokens[open].count += 1;
            if is_object {
                let name = cursor.name()?;
                self.push_text(cursor, name);
            }
            return Ok(true);
        }
    }
}
