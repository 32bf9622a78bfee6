//! Reads just enough of an SQL statement to tell where its parameters are, whether it is one statement, and with which
//! word it begins. PostgreSQL itself reads the rest.
//!
//! Strings, `E''` strings, quoted names, dollar quotes and comments, nested ones too, are skipped as PostgreSQL does
//! with `standard_conforming_strings` on, which is the default.

use std::ops::Range;

/// What a statement is made of, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The first word, in lower case, and where it is.
    pub first: Option<(String, Range<usize>)>,
    /// The second word, in lower case.
    pub second: Option<String>,
    /// Whether the word `returning` stands in it.
    pub returning: bool,
    /// The parameters' numbers, and where they are.
    pub parameters: Vec<(u32, Range<usize>)>,
    /// A mark that other drivers use for a parameter: `?`, `:name`, `%s`.
    pub foreign: Option<Range<usize>>,
    /// The first semicolon.
    pub end: Option<usize>,
    /// Where another statement begins after it.
    pub another: Option<usize>,
}

/// Something that is not closed, and where it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclosed {
    /// What it is, in words.
    pub what: &'static str,
    /// The byte at which it is opened.
    pub at: usize,
}

/// Reads a text.
pub fn read(text: &str) -> Result<Statement, Unclosed> {
    let mut statement = Statement::default();
    let mut lexer = Lexer { bytes: text.as_bytes(), at: 0 };
    let mut words = 0;
    while lexer.skip_space()? {
        let from = lexer.at;
        if statement.end.is_some() && lexer.peek() != b';' {
            statement.another.get_or_insert(from);
        }
        match lexer.token()? {
            Token::Word => {
                let word = text[from..lexer.at].to_lowercase();
                statement.returning |= word == "returning";
                match words {
                    0 => statement.first = Some((word, from..lexer.at)),
                    1 => statement.second = Some(word),
                    _ => {}
                }
            }
            Token::Parameter(number) => statement.parameters.push((number, from..lexer.at)),
            Token::Foreign => {
                statement.foreign.get_or_insert(from..lexer.at);
            }
            Token::Semicolon => {
                statement.end.get_or_insert(from);
            }
            Token::Other => {}
        }
        words += 1;
    }
    Ok(statement)
}

enum Token {
    Word,
    Parameter(u32),
    Foreign,
    Semicolon,
    Other,
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Whether a name can begin with this byte.
fn begins_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii()
}

fn continues_name(byte: u8) -> bool {
    begins_name(byte) || byte.is_ascii_digit() || byte == b'$'
}

impl Lexer<'_> {
    /// The byte here; 0 at the end.
    fn peek(&self) -> u8 {
        self.ahead(0)
    }

    fn ahead(&self, by: usize) -> u8 {
        self.bytes.get(self.at + by).copied().unwrap_or_default()
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.bytes.get(self.at).copied().is_some_and(&wanted) {
            self.at += 1;
        }
    }

    /// Skips whitespace and comments; false at the end.
    fn skip_space(&mut self) -> Result<bool, Unclosed> {
        loop {
            self.skip_while(|byte| byte.is_ascii_whitespace());
            match (self.peek(), self.ahead(1)) {
                (b'-', b'-') => self.skip_while(|byte| byte != b'\n'),
                (b'/', b'*') => self.skip_comment()?,
                _ => return Ok(self.at < self.bytes.len()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), Unclosed> {
        let (from, mut depth) = (self.at, 0_usize);
        while self.at < self.bytes.len() {
            match (self.peek(), self.ahead(1)) {
                (b'/', b'*') => (depth, self.at) = (depth + 1, self.at + 2),
                (b'*', b'/') => (depth, self.at) = (depth - 1, self.at + 2),
                _ => self.at += 1,
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(Unclosed { what: "a comment", at: from })
    }

    fn token(&mut self) -> Result<Token, Unclosed> {
        match self.peek() {
            b'\'' => self.quoted(b'\'', false, "a string").map(|()| Token::Other),
            b'"' => self.quoted(b'"', false, "a quoted name").map(|()| Token::Other),
            b'$' => self.dollar(),
            b';' => Ok(self.one(Token::Semicolon)),
            // Casts, and slices of arrays.
            b':' if self.ahead(1) == b':' || self.ahead(1) == b'=' => {
                self.at += 2;
                Ok(Token::Other)
            }
            b':' if begins_name(self.ahead(1)) => {
                self.at += 1;
                self.skip_while(continues_name);
                Ok(Token::Foreign)
            }
            b'?' => Ok(self.one(Token::Foreign)),
            b'%' if self.ahead(1) == b's' && !continues_name(self.ahead(2)) => {
                self.at += 2;
                Ok(Token::Foreign)
            }
            byte if begins_name(byte) => self.word(),
            byte if byte.is_ascii_digit() => {
                self.skip_while(|byte| continues_name(byte) && byte != b'$' || byte == b'.');
                Ok(Token::Other)
            }
            _ => Ok(self.one(Token::Other)),
        }
    }

    fn one(&mut self, token: Token) -> Token {
        self.at += 1;
        token
    }

    /// A word, or a string with a letter before its quote.
    fn word(&mut self) -> Result<Token, Unclosed> {
        let from = self.at;
        self.skip_while(continues_name);
        let has_escapes = matches!(&self.bytes[from..self.at], [b'e' | b'E']);
        match self.peek() {
            b'\'' if has_escapes => self.quoted(b'\'', true, "a string").map(|()| Token::Other),
            _ => Ok(Token::Word),
        }
    }

    /// A quoted text, in which the quote is doubled.
    fn quoted(&mut self, quote: u8, has_escapes: bool, what: &'static str) -> Result<(), Unclosed> {
        let from = self.at;
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.peek() {
                b'\\' if has_escapes => self.at += 2,
                byte if byte == quote && self.ahead(1) == quote => self.at += 2,
                byte if byte == quote => {
                    self.at += 1;
                    return Ok(());
                }
                _ => self.at += 1,
            }
        }
        Err(Unclosed { what, at: from })
    }

    /// A parameter, or a text between `$tag$` and `$tag$`.
    fn dollar(&mut self) -> Result<Token, Unclosed> {
        let from = self.at;
        self.at += 1;
        if self.peek().is_ascii_digit() {
            self.skip_while(|byte| byte.is_ascii_digit());
            let digits = std::str::from_utf8(&self.bytes[from + 1..self.at]).unwrap_or_default();
            return Ok(Token::Parameter(digits.parse().unwrap_or(u32::MAX)));
        }
        if begins_name(self.peek()) {
            self.skip_while(|byte| continues_name(byte) && byte != b'$');
        }
        if self.peek() != b'$' {
            return Ok(Token::Other);
        }
        self.at += 1;
        let tag = &self.bytes[from..self.at];
        match self.bytes[self.at..].windows(tag.len()).position(|window| window == tag) {
            Some(position) => {
                self.at += position + tag.len();
                Ok(Token::Other)
            }
            None => Err(Unclosed { what: "a dollar-quoted string", at: from }),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: what PostgreSQL takes for a parameter is one here, and nothing else is.

    use super::*;

    fn parameters(text: &str) -> Vec<u32> {
        read(text).unwrap().parameters.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn parameters_are_found_outside_of_texts_only() {
        for (text, expected) in [
            ("insert into t values ($1, $2)", &[1, 2][..]),
            ("select '$1', $2", &[2]),
            ("select 'it''s $1', $2", &[2]),
            (r"select 'a\', $1, '$2'", &[1]),
            (r"select E'a\'$1', $2", &[2]),
            (r#"select "a$1""$2", $3"#, &[3]),
            ("select $$ $1 $$, $2", &[2]),
            ("select $a$ $1 $$ $b$ $a$, $2", &[2]),
            ("select -- $1\n $2", &[2]),
            ("select /* $1 /* $2 */ $3 */ $4", &[4]),
            ("select $1::int, a[$2:$3]", &[1, 2, 3]),
            ("select a$1, $2", &[2]),
            ("select $1::text::int4", &[1]),
            ("select $12+$1", &[12, 1]),
            ("select naïve$1, $2", &[2]),
            ("select 1$1", &[1]),
        ] {
            assert_eq!(parameters(text), expected, "{text}");
        }
    }

    #[test]
    fn statements_end_where_they_end() {
        for (text, end, another) in [
            ("select 1", None, None),
            ("select 1;", Some(8), None),
            ("select 1 ; ; -- no more\n", Some(9), None),
            ("select ';'; select 2", Some(10), Some(12)),
            ("select $$;$$; /* ; */ select 2", Some(12), Some(22)),
        ] {
            let read = read(text).unwrap();
            assert_eq!((read.end, read.another), (end, another), "{text}");
        }
    }

    #[test]
    fn first_words_are_known_whatever_is_before_them() {
        let first = |text: &str| read(text).unwrap().first.map(|(word, at)| (word, at.start));
        assert_eq!(first("  COMMIT"), Some(("commit".to_owned(), 2)));
        assert_eq!(first("/* a */ Insert into t"), Some(("insert".to_owned(), 8)));
        assert_eq!(first("(select 1)"), None);
        assert_eq!(first(" -- nothing"), None);
        assert_eq!(read("prepare transaction 'x'").unwrap().second.as_deref(), Some("transaction"));
    }

    #[test]
    fn returning_is_a_word_and_no_part_of_a_text() {
        let returning = |text: &str| read(text).unwrap().returning;
        assert!(returning("insert into t values (1)\nReturning id"));
        for text in ["insert into t values ('returning')", "insert into \"returning\" values (1) -- returning"] {
            assert!(!returning(text), "{text}");
        }
    }

    #[test]
    fn marks_of_other_drivers_are_noticed() {
        for text in ["values (?)", "values (:id)", "values (%s)"] {
            assert!(read(text).unwrap().foreign.is_some(), "{text}");
        }
        for text in ["select a::text", "select a % 2", "select ':id', '?'", "select a[1:2]"] {
            assert_eq!(read(text).unwrap().foreign, None, "{text}");
        }
    }

    #[test]
    fn what_is_not_closed_is_named_with_its_place() {
        for (text, what, at) in [
            ("select 'a", "a string", 7),
            ("select E'a\\'", "a string", 8),
            ("select \"a", "a quoted name", 7),
            ("select $a$ $b$", "a dollar-quoted string", 7),
            ("select /* /* */", "a comment", 7),
        ] {
            assert_eq!(read(text), Err(Unclosed { what, at }), "{text}");
        }
    }
}
