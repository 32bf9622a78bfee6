//! A parser of .proto texts: tokens, and what all declarations share, such as names, numbers, strings and options.

use super::file::{File, Literal};
use super::lex::{self, Token};
use crate::schemas::SchemaError;

/// A parser at a position in its text.
pub(super) struct Parser<'t> {
    pub file: File<'t>,
    text: &'t str,
    /// The next token, and the offsets at which it begins (`at`) and ends (`end`).
    pub next: Token<'t>,
    pub at: usize,
    end: usize,
}

/// An option: its name, empty if an extension declares it, and its value.
pub(super) struct Setting {
    pub name: String,
    pub value: Literal,
}

impl<'t> Parser<'t> {
    /// A parser at the first token of a text.
    pub fn new(name: &'t str, text: &'t str) -> Result<Self, SchemaError> {
        let file = File { name, text: Some(text), ..File::default() };
        let mut parser = Self { file, text, next: Token::End, at: 0, end: 0 };
        parser.advance()?;
        Ok(parser)
    }

    pub fn advance(&mut self) -> Result<(), SchemaError> {
        let (next, at, end) = lex::next(self.text, self.end).map_err(|e| self.file.error(e.at, e.what))?;
        (self.next, self.at, self.end) = (next, at, end);
        Ok(())
    }

    #[cold]
    pub fn error(&self, what: impl std::fmt::Display) -> SchemaError {
        self.file.error(self.at, what)
    }

    #[cold]
    pub fn expected<T>(&self, what: &str) -> Result<T, SchemaError> {
        Err(self.error(format!("expected {what}")))
    }

    pub fn is_at(&self, symbol: char) -> bool {
        self.next == Token::Symbol(symbol)
    }

    pub fn is_at_word(&self, word: &str) -> bool {
        self.next == Token::Word(word)
    }

    /// Takes the symbol if it is the next token; whether it was.
    pub fn passes(&mut self, symbol: char) -> Result<bool, SchemaError> {
        let is_there = self.is_at(symbol);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    pub fn passes_word(&mut self, word: &str) -> Result<bool, SchemaError> {
        let is_there = self.is_at_word(word);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    pub fn expect(&mut self, symbol: char) -> Result<(), SchemaError> {
        if self.passes(symbol)? { Ok(()) } else { self.expected(&format!("`{symbol}`")) }
    }

    pub fn word(&mut self, what: &str) -> Result<&'t str, SchemaError> {
        let Token::Word(word) = self.next else { return self.expected(what) };
        self.advance()?;
        Ok(word)
    }

    /// The token after the next one.
    pub fn second(&self) -> Token<'t> {
        lex::next(self.text, self.end).map_or(Token::End, |(token, ..)| token)
    }

    /// A name with dots.
    pub fn full_name(&mut self, what: &str) -> Result<String, SchemaError> {
        let mut name = String::new();
        if self.passes('.')? {
            name.push('.');
        }
        loop {
            name.push_str(self.word(what)?);
            if !self.passes('.')? {
                return Ok(name);
            }
            name.push('.');
        }
    }

    /// Reads adjacent strings as one.
    pub fn string(&mut self) -> Result<Vec<u8>, SchemaError> {
        let mut out = None;
        while let Token::Text(raw) = self.next {
            let Some(mut part) = lex::unescape(raw) else { return Err(self.error("an unknown escape")) };
            out.get_or_insert_with(Vec::new).append(&mut part);
            self.advance()?;
        }
        out.map_or_else(|| self.expected("a string in quotes"), Ok)
    }

    pub fn utf8_string(&mut self) -> Result<String, SchemaError> {
        let at = self.at;
        String::from_utf8(self.string()?).map_err(|_| self.file.error(at, "this string is not UTF-8"))
    }

    pub fn integer(&mut self, what: &str) -> Result<i64, SchemaError> {
        let is_negative = self.passes('-')?;
        let Token::Integer(value) = self.next else { return self.expected(what) };
        let Ok(value) = i64::try_from(value) else { return self.expected(what) };
        self.advance()?;
        Ok(if is_negative { -value } else { value })
    }

    /// Reads `option name = value;`.
    pub fn option(&mut self) -> Result<Setting, SchemaError> {
        self.advance()?;
        let setting = self.setting()?;
        self.expect(';')?;
        Ok(setting)
    }

    /// Reads `name = value`.
    pub fn setting(&mut self) -> Result<Setting, SchemaError> {
        let mut name = String::new();
        let mut is_extension = false;
        loop {
            if self.passes('(')? {
                is_extension = true;
                self.full_name("an option's name")?;
                self.expect(')')?;
            } else {
                name.push_str(self.word("an option's name")?);
            }
            if !self.passes('.')? {
                break;
            }
            name.push('.');
        }
        self.expect('=')?;
        let value = self.literal()?;
        Ok(Setting { name: if is_extension { String::new() } else { name }, value })
    }

    pub fn literal(&mut self) -> Result<Literal, SchemaError> {
        let is_negative = self.passes('-')?;
        let literal = match self.next {
            Token::Text(_) if !is_negative => return self.string().map(Literal::Text),
            Token::Symbol('{') if !is_negative => return self.aggregate(),
            Token::Word(word) if is_negative => Literal::Word(format!("-{word}")),
            Token::Word(word) => Literal::Word(word.to_owned()),
            Token::Integer(value) if is_negative => Literal::Integer(-i128::from(value)),
            Token::Integer(value) => Literal::Integer(value.into()),
            Token::Float(value) => Literal::Float(if is_negative { -value } else { value }),
            _ => return self.expected("a value"),
        };
        self.advance()?;
        Ok(literal)
    }

    /// Reads `{…}`; keeps the fields of the form `name: word` that are not nested deeper.
    pub fn aggregate(&mut self) -> Result<Literal, SchemaError> {
        let mut words = Vec::new();
        let mut open = 0_usize;
        let mut last = None;
        loop {
            match self.next {
                Token::End => return self.expected("`}`"),
                Token::Symbol('{') => (open, last) = (open + 1, None),
                Token::Symbol('}') if open == 1 => {
                    self.advance()?;
                    return Ok(Literal::Aggregate(words));
                }
                Token::Symbol('}') => open -= 1,
                Token::Word(name) if open == 1 && self.second() == Token::Symbol(':') => {
                    self.advance()?;
                    last = Some(name);
                }
                Token::Word(value) => words.extend(last.take().map(|name| (name.to_owned(), value.to_owned()))),
                _ => last = None,
            }
            self.advance()?;
        }
    }

    /// Skips to the end of this statement.
    pub fn skip_statement(&mut self) -> Result<(), SchemaError> {
        let mut open = 0_usize;
        loop {
            match self.next {
                Token::End => return self.expected("`;`"),
                Token::Symbol(';') if open == 0 => return self.advance(),
                Token::Symbol('{' | '[') => open += 1,
                Token::Symbol('}' | ']') => {
                    let Some(left) = open.checked_sub(1) else { return self.expected("`;`") };
                    open = left;
                }
                _ => {}
            }
            self.advance()?;
        }
    }

    /// Skips `{…}`.
    pub fn skip_braces(&mut self) -> Result<(), SchemaError> {
        if !self.is_at('{') {
            return self.expected("`{`");
        }
        self.aggregate().map(drop)
    }
}
