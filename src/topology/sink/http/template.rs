//! A text with parts of a record in it: `https://api.example.com/charges/{value.order_id}`.
//!
//! - `{PATH}` is what the path leads to in the record
//! - `{{` and `}}` stand for `{` and `}`
//! - `${env:NAME}` and `${file:PATH}` are substituted as everywhere. What they stand for is taken as it is: braces in it
//!   are braces, and no part of a record
//!
//! **Failure**: an [`Error`], with the bytes of the text that it is about.

use std::fmt;
use std::ops::Range;

use crate::dedup::{Path, path};
use crate::yaml::text::substitute_each;
use crate::yaml::{Environment, Text, text};

/// A text with parts of a record in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    substituted: Vec<Text>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The same for each record.
    Fixed {
        /// The text; never empty.
        text: Text,
        /// The text as it is written, with its substitutions not made: nothing secret is in it.
        written: String,
    },
    /// What this path leads to in the record.
    Record(Path),
}

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The bytes of the text that it is about.
    pub at: Range<usize>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// `{` without `}`.
    #[error("`{{` is not closed")]
    Unclosed,
    /// `}` without `{`.
    #[error("`}}` closes nothing")]
    Unopened,
    /// What is in braces is no path.
    #[error("{0}")]
    Path(path::Problem),
    /// What is to be substituted cannot be.
    #[error("{0}")]
    Substitution(text::Error),
}

impl Problem {
    /// What to write instead.
    pub fn help(&self) -> String {
        const BRACES: &str = "to mean a brace itself, write it twice";
        match self {
            Self::Unclosed => format!("close it, e.g. `{{value.order_id}}`; {BRACES}"),
            Self::Unopened => format!("remove it; {BRACES}"),
            Self::Path(_) => format!("in braces stands a path into the record, e.g. `{{value.order_id}}`; {BRACES}"),
            Self::Substitution(error) => error.help(),
        }
    }
}

impl Template {
    /// Reads a text as it is written, with its substitutions not yet made.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(written: &str, environment: &dyn Environment) -> Result<Self, Error> {
        let mut template = Self { pieces: Vec::new(), substituted: Vec::new() };
        // A text between two parts of the record, its braces as they are meant.
        let (mut fixed, mut fixed_from) = (String::new(), 0);
        let mut at = 0;
        while let Some(next) = written[at..].chars().next() {
            let rest = &written[at..];
            let length = match next {
                // What is wrong with it is said when it is made.
                '$' if rest.starts_with("${") || rest.starts_with("$${") => {
                    rest.find('}').map_or(rest.len(), |end| end + 1)
                }
                '{' | '}' if rest[1..].starts_with(next) => {
                    fixed.push(next);
                    at += 2;
                    continue;
                }
                '}' => return Err(Error { at: at..at + 1, problem: Problem::Unopened }),
                '{' => {
                    let end = closing(rest).ok_or(Error { at: at..written.len(), problem: Problem::Unclosed })?;
                    template.add_fixed(&mut fixed, fixed_from..at, environment)?;
                    template.pieces.push(Piece::Record(parse_path(&rest[1..end], at + 1)?));
                    at += end + 1;
                    fixed_from = at;
                    continue;
                }
                other => other.len_utf8(),
            };
            fixed.push_str(&rest[..length]);
            at += length;
        }
        template.add_fixed(&mut fixed, fixed_from..at, environment)?;
        Ok(template)
    }

    /// A text that is the same for each record.
    pub fn fixed(text: Text) -> Self {
        let written = text.to_string();
        let pieces = if text.reveal().is_empty() { Vec::new() } else { vec![Piece::Fixed { text, written }] };
        Self { pieces, substituted: Vec::new() }
    }

    /// Adds the text that was gathered, with its substitutions made.
    fn add_fixed(&mut self, fixed: &mut String, at: Range<usize>, environment: &dyn Environment) -> Result<(), Error> {
        let written = std::mem::take(fixed);
        let text = substitute_each(&written, environment, |secret| self.substituted.push(Text::secret(secret)));
        let text = text.map_err(|error| Error { at, problem: Problem::Substitution(error) })?;
        if !text.reveal().is_empty() {
            self.pieces.push(Piece::Fixed { text, written });
        }
        Ok(())
    }

    /// Its pieces, in order; two texts never stand beside each other.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The paths in it, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Fixed { .. } => None,
            Piece::Record(path) => Some(path),
        })
    }

    /// Whether a record has a part in it.
    pub fn holds_record(&self) -> bool {
        self.paths().next().is_some()
    }

    /// What was substituted in it: secrets.
    pub fn substituted(&self) -> &[Text] {
        &self.substituted
    }

    /// Whether something secret has a part in it.
    pub fn is_secret(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Fixed { text, .. } if text.is_secret()))
    }
}

/// As it is written, but for braces that are written twice: substitutions are not made, so nothing of what they stand for
/// is shown.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Fixed { written, .. } => f.write_str(written),
            Piece::Record(path) => write!(f, "{{{path}}}"),
        })
    }
}

/// Where the brace is that closes the one at the front; one in a quoted name does not count.
fn closing(text: &str) -> Option<usize> {
    let (mut in_quotes, mut is_escaped) = (false, false);
    text.char_indices().find_map(|(at, char)| {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' if in_quotes => is_escaped = true,
            '"' => in_quotes = !in_quotes,
            '}' if !in_quotes => return Some(at),
            _ => {}
        }
        None
    })
}

fn parse_path(text: &str, from: usize) -> Result<Path, Error> {
    Path::parse(text).map_err(|error| {
        let at = from + error.at.min(text.len());
        Error { at: at..from + text.len(), problem: Problem::Path(error.problem) }
    })
}

#[cfg(test)]
mod tests {
    //! Goal: a template is its pieces; nothing that is substituted is read, or shown.

    use super::*;
    use crate::yaml_testing::Fake;

    fn pieces(text: &str) -> Result<Vec<String>, String> {
        let environment = Fake::default().with_variable("T", "s3{value.x}cret").with_variable("EMPTY", "");
        let template = Template::parse(text, &environment).map_err(|error| {
            let at = text.get(error.at.clone()).unwrap_or_else(|| panic!("{text}: {error:?}"));
            format!("{} at `{at}`", error.problem)
        })?;
        assert!(!format!("{template} {template:?}").contains("s3"), "secrets are not shown");
        let shown = |piece: &Piece| match piece {
            Piece::Fixed { text, .. } => text.reveal().to_owned(),
            Piece::Record(path) => format!("<{path}>"),
        };
        Ok(template.pieces().iter().map(shown).collect())
    }

    #[test]
    fn texts_and_parts_of_the_record_take_turns() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("plain", &["plain"]),
            ("{value.id}", &["<value.id>"]),
            ("a/{value.id}/b{meta.topic}", &["a/", "<value.id>", "/b", "<meta.topic>"]),
            ("{value.a}{value.b}", &["<value.a>", "<value.b>"]),
            (r#"x{value."a}\"b"}y"#, &["x", r#"<value."a}\"b">"#, "y"]),
            ("{{value.id}}", &["{value.id}"]),
            ("{{{value.id}}}", &["{", "<value.id>", "}"]),
            ("Bearer ${env:T}", &["Bearer s3{value.x}cret"]),
            ("${env:T}/{value.id}", &["s3{value.x}cret/", "<value.id>"]),
            ("${env:EMPTY}{value.id}${env:EMPTY}", &["<value.id>"]),
            ("${env:NONE:-a{b}", &["a{b"]),
            ("$${env:T} $5", &["${env:T} $5"]),
        ];
        for (text, expected) in cases {
            let expected: Vec<String> = expected.iter().map(|piece| (*piece).to_owned()).collect();
            assert_eq!(pieces(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (text, expected) in [
            ("a {value.id", "`{` is not closed at `{value.id`"),
            ("a } b", "`}` closes nothing at `}`"),
            ("a {order} b", "a path begins with `key`, `value`, `header` or `meta`, not with \"order\" at `order`"),
            ("{value..id}", "a name is missing here; write an empty one as \"\" at `.id`"),
            ("{}", "a path begins with `key`, `value`, `header` or `meta`, not with \"\" at ``"),
            ("{value.id} ${env:NO}", "the environment variable `NO` is not set at ` ${env:NO}`"),
            ("{value.id} ${env:T", "`${` has no `}` at ` ${env:T`"),
        ] {
            assert_eq!(pieces(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn template_knows_what_has_a_part_in_it() {
        let environment = Fake::default().with_variable("T", "s3cret");
        for (text, record, secret) in [("a", false, false), ("a{key}", true, false), ("a${env:T}{key}", true, true)] {
            let template = Template::parse(text, &environment).unwrap();
            assert_eq!((template.holds_record(), template.is_secret()), (record, secret), "{text}");
            assert_eq!(template.to_string(), text);
        }
        let bearer = Template::parse("Bearer ${env:T}, {key} ${env:NO:-none}", &environment).unwrap();
        let substituted: Vec<&str> = bearer.substituted().iter().map(Text::reveal).collect();
        assert_eq!(substituted, ["s3cret", "none"]);
        let fixed = Template::fixed(Text::secret("s3cret"));
        assert_eq!((fixed.to_string(), fixed.is_secret()), ("***".to_owned(), true));
    }
}
