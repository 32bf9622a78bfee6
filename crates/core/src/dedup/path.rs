//! Paths: where a scalar is in a record, as written in a topology.
//!
//! | path | meaning |
//! |---|---|
//! | `key`, `value` | the raw bytes |
//! | `key.id`, `value.items.0.sku` | inside the JSON: fields, and indices of arrays |
//! | `value."a.b"` | a name in JSON's quotes, for names that need them |
//! | `header.NAME` | the last header of this name, dots included, its raw bytes; `header."NAME"` for odd names |
//! | `meta.topic`, `meta.partition`, `meta.offset`, `meta.timestamp` | where the record is in Kafka |
//!
//! A constant (`{const: x}`) is a mapping in YAML and not a string, so [`Path::parse`] never returns one.

use std::fmt;

use super::number;

/// Maximum number of steps in a path: more than any document needs.
pub const STEPS_MAX: usize = 64;

/// Where a scalar comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The record's key.
    Key,
    /// The record's value.
    Value,
    /// The last header of this name.
    Header(String),
    /// The input topic's name.
    Topic,
    /// The input partition's number.
    Partition,
    /// The record's offset.
    Offset,
    /// The record's timestamp, milliseconds since the epoch.
    Timestamp,
    /// A constant.
    Const(Scalar),
}

/// The value of a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// A text.
    Text(String),
    /// A number, exactly as written.
    Number(Number),
    /// True or false.
    Bool(bool),
}

/// A number as JSON writes it, of any size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Number(String);

impl Number {
    /// The number in `text` by JSON's grammar, if it is one with an exponent below 10^18.
    pub fn parse(text: &str) -> Option<Self> {
        number::is_number(text.as_bytes()).then(|| Self(text.to_owned()))
    }

    /// The number as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a scalar is in a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Where it comes from.
    pub source: Source,
    /// The steps into a JSON document: field names, or array indices in decimal. Empty for everything but a key or a
    /// value.
    pub steps: Vec<String>,
}

/// A text that is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Error {
    /// The byte of the text at which the problem begins.
    pub at: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// Why a string is not a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It begins with an unknown word.
    #[error("a path begins with `key`, `value`, `header` or `meta`, not with {0:?}")]
    UnknownSource(String),
    /// `meta.` is followed by an unknown word.
    #[error("`meta` has `topic`, `partition`, `offset` and `timestamp`, not {0:?}")]
    UnknownMeta(String),
    /// `header` without a name.
    #[error("name the header: `header.NAME`")]
    HeaderName,
    /// Two dots in a row, or one at either end.
    #[error("a name is missing here; write an empty one as \"\"")]
    EmptyStep,
    /// A quote that is not closed, or an escape that JSON does not know.
    #[error("this is not a name in JSON's quotes")]
    BadQuotes,
    /// Something other than a dot after a closing quote.
    #[error("expected a dot, or the end, after the closing quote")]
    AfterQuotes,
    /// `items[0]`.
    #[error(
        "array elements are steps of their own: write `items.0` for `items[0]`, or put an odd name in double quotes"
    )]
    Bracket,
    /// A character that only a quoted name may hold.
    #[error("a name with {0:?} in it needs double quotes: value.\"a b\"")]
    NeedsQuotes(char),
    /// A path of more than [`STEPS_MAX`] steps.
    #[error("a path has at most {STEPS_MAX} steps")]
    TooManySteps,
}

/// Places for one value: the first that is present and not null counts. Never empty.
pub type Places = Vec<Path>;

impl Path {
    /// Parses a path as the module describes it.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (root, rest) = match text.split_once('.') {
            Some((root, rest)) => (root, Some((root.len() + 1, rest))),
            None => (text, None),
        };
        let source = match root {
            "key" => Source::Key,
            "value" => Source::Value,
            "header" => Source::Header(parse_header(text, rest)?),
            "meta" => parse_meta(text, rest)?,
            _ => return Err(Error { at: 0, problem: Problem::UnknownSource(root.to_owned()) }),
        };
        let steps = match (&source, rest) {
            (Source::Key | Source::Value, Some((at, rest))) => parse_steps(at, rest)?,
            _ => Vec::new(),
        };
        Ok(Self { source, steps })
    }

    /// The steps that lead from `of` to this path; `None` if this is not inside `of`.
    pub fn within(&self, of: &Path) -> Option<&[String]> {
        let steps = self.steps.strip_prefix(of.steps.as_slice())?;
        (self.source == of.source && !steps.is_empty()).then_some(steps)
    }

    /// Whether this reads inside a JSON document.
    pub fn is_inside(&self) -> bool {
        !self.steps.is_empty()
    }
}

fn parse_header(text: &str, rest: Option<(usize, &str)>) -> Result<String, Error> {
    let Some((at, name)) = rest.filter(|(_, name)| !name.is_empty()) else {
        return Err(Error { at: text.len(), problem: Problem::HeaderName });
    };
    if name.starts_with('"') {
        let (name, length) = parse_quoted(at, name)?;
        if at + length != text.len() {
            return Err(Error { at: at + length, problem: Problem::AfterQuotes });
        }
        return Ok(name);
    }
    match name.char_indices().find(|&(_, c)| c == '"' || c.is_whitespace() || c.is_control()) {
        Some((i, c)) => Err(Error { at: at + i, problem: Problem::NeedsQuotes(c) }),
        None => Ok(name.to_owned()),
    }
}

fn parse_meta(text: &str, rest: Option<(usize, &str)>) -> Result<Source, Error> {
    match rest.map(|(_, name)| name) {
        Some("topic") => Ok(Source::Topic),
        Some("partition") => Ok(Source::Partition),
        Some("offset") => Ok(Source::Offset),
        Some("timestamp") => Ok(Source::Timestamp),
        other => {
            let at = rest.map_or(text.len(), |(at, _)| at);
            Err(Error { at, problem: Problem::UnknownMeta(other.unwrap_or_default().to_owned()) })
        }
    }
}

/// The steps in `rest`, which starts at byte `at` of the whole path.
fn parse_steps(mut at: usize, mut rest: &str) -> Result<Vec<String>, Error> {
    let mut steps = Vec::new();
    loop {
        if steps.len() == STEPS_MAX {
            return Err(Error { at, problem: Problem::TooManySteps });
        }
        let (step, length) = if rest.starts_with('"') { parse_quoted(at, rest)? } else { parse_plain(at, rest)? };
        steps.push(step);
        at += length;
        rest = &rest[length..];
        if rest.is_empty() {
            return Ok(steps);
        }
        rest = rest.strip_prefix('.').ok_or(Error { at, problem: Problem::AfterQuotes })?;
        at += 1;
    }
}

/// A name up to the next dot, and its length.
fn parse_plain(at: usize, rest: &str) -> Result<(String, usize), Error> {
    let name = rest.split('.').next().unwrap_or_default();
    if name.is_empty() {
        return Err(Error { at, problem: Problem::EmptyStep });
    }
    match name.char_indices().find(|&(_, c)| needs_quotes(c)) {
        Some((i, '[' | ']')) => Err(Error { at: at + i, problem: Problem::Bracket }),
        Some((i, c)) => Err(Error { at: at + i, problem: Problem::NeedsQuotes(c) }),
        None => Ok((name.to_owned(), name.len())),
    }
}

/// Whether a plain step cannot contain this character: one that would end it, that looks like another query language's,
/// or that cannot be seen.
fn needs_quotes(c: char) -> bool {
    matches!(c, '.' | '"' | '\'' | '\\' | '[' | ']' | '*') || c.is_whitespace() || c.is_control()
}

/// A name in JSON's quotes at the start of `rest`, and its length in bytes there.
fn parse_quoted(at: usize, rest: &str) -> Result<(String, usize), Error> {
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find_map(|(i, c)| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes.then_some(i + 1)
    });
    let bad = Error { at, problem: Problem::BadQuotes };
    let length = end.ok_or_else(|| bad.clone())?;
    let name = serde_json::from_str(&rest[..length]).map_err(|_| bad)?;
    Ok((name, length))
}

fn write_quoted(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write!(f, "{}", serde_json::Value::from(name))
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Key => f.write_str("key")?,
            Source::Value => f.write_str("value")?,
            Source::Header(name) => {
                f.write_str("header.")?;
                let plain =
                    !name.is_empty() && !name.contains(|c: char| c == '"' || c.is_whitespace() || c.is_control());
                if plain { f.write_str(name)? } else { write_quoted(f, name)? }
            }
            Source::Topic => f.write_str("meta.topic")?,
            Source::Partition => f.write_str("meta.partition")?,
            Source::Offset => f.write_str("meta.offset")?,
            Source::Timestamp => f.write_str("meta.timestamp")?,
            Source::Const(scalar) => write!(f, "{{const: {scalar}}}")?,
        }
        for step in &self.steps {
            f.write_str(".")?;
            if step.is_empty() || step.contains(needs_quotes) { write_quoted(f, step)? } else { f.write_str(step)? }
        }
        Ok(())
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Text(text) => write_quoted(f, text),
            Scalar::Number(number) => f.write_str(number.as_str()),
            Scalar::Bool(value) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests;
