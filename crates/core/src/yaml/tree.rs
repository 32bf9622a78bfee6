//! Parses YAML text into a small tree that keeps each scalar's text, its place, and whether it was quoted.
//!
//! Deliberately unsupported: tags other than `!!str`, merge keys, several documents in one file, keys that are not
//! plain text. Aliases are followed, as copies, within [`NODES_MAX`].

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::report::Place;

/// Maximum nesting of lists and mappings.
pub const DEPTH_MAX: usize = 32;
/// Maximum number of nodes in a string, including copies by alias.
pub const NODES_MAX: usize = 20_000;
/// Maximum size of a string.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Why a string is not YAML, or not the supported part of YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Where the problem is.
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// A scalar, a list or a mapping, and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its value.
    pub value: Value,
    /// Its place; for lists and mappings that of the first line.
    pub place: Place,
}

/// The value of a [`Node`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text as written, without its quotes.
    Scalar {
        /// The text.
        text: String,
        /// Whether it was written without quotes, so that it may mean e.g. null or a number.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order written; keys may repeat.
    Mapping(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// The key's place.
    pub key_place: Place,
    /// The value.
    pub node: Node,
}

impl Node {
    /// Whether it is empty, `~` or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null"))
    }

    /// Number of nodes, including itself.
    fn count(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::count).sum(),
            Value::Mapping(entries) => entries.iter().map(|entry| entry.node.count()).sum(),
        }
    }

    /// Number of levels, including itself.
    fn depth(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Mapping(entries) => entries.iter().map(|entry| entry.node.depth()).max().unwrap_or(0),
        }
    }
}

/// Parses `text`; an empty text is a null.
pub fn parse(text: &str) -> Result<Node, Error> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the file is {} bytes long, at most {TEXT_BYTES_MAX} are read", text.len());
        return Err(Error { place: Place::default(), message, help: "split it".to_owned() });
    }
    let mut builder = Builder {
        places: Places::new(text),
        open: Vec::new(),
        root: None,
        anchors: HashMap::new(),
        nodes_left: NODES_MAX,
        documents: 0,
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.event(event, span)?,
            Err(error) => return Err(syntax(text, &builder.places, error.marker().index(), error.info())),
        }
    }
    Ok(builder
        .root
        .unwrap_or(Node { value: Value::Scalar { text: String::new(), plain: true }, place: Place::default() }))
}

/// A syntax error, with the hint that helps most often.
fn syntax(text: &str, places: &Places<'_>, index: usize, info: &str) -> Error {
    // An error at the end of the text is shown at the last character, since there is no line after it.
    let last = text.trim_end().char_indices().next_back().map_or(0, |(last, _)| last);
    let byte = places.byte(index).min(last);
    let line_start = text[..byte].rfind('\n').map_or(0, |newline| newline + 1);
    // The parser often notices an open bracket or a stray brace only on a later line.
    let nearby_start = text[..line_start.saturating_sub(1)].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = text[byte..].find('\n').map_or(text.len(), |newline| byte + newline);
    let nearby = &text[nearby_start..line_end];
    let help = if nearby.contains("${") || nearby.contains("{topic}") {
        "put a value that holds { or } into quotes, e.g. \"${env:NAME}\" or \"{topic}.unique\""
    } else if nearby.contains('\t') {
        "indent with spaces, YAML does not take tabs"
    } else {
        "check the indentation, the brackets and the quotes here and on the line before"
    };
    let end = text[byte..].chars().next().filter(|next| *next != '\n').map_or(byte, |next| byte + next.len_utf8());
    Error { place: Place::new(byte, end), message: format!("this is not YAML: {info}"), help: help.to_owned() }
}

/// Converts the parser's places, in characters, to bytes.
struct Places<'a> {
    text: &'a str,
    /// The byte at which each character begins; empty if the text is ASCII.
    bytes: Vec<usize>,
}

impl<'a> Places<'a> {
    fn new(text: &'a str) -> Self {
        let bytes = if text.is_ascii() { Vec::new() } else { text.char_indices().map(|(byte, _)| byte).collect() };
        Self { text, bytes }
    }

    fn byte(&self, index: usize) -> usize {
        if self.text.is_ascii() {
            return index.min(self.text.len());
        }
        self.bytes.get(index).copied().unwrap_or(self.text.len())
    }

    /// The place from `start` to `end`, without trailing whitespace.
    fn between(&self, start: usize, end: usize) -> Place {
        let (start, end) = (self.byte(start), self.byte(end));
        let text = self.text.get(start..end).unwrap_or_default();
        Place { start, length: text.trim_end().len() }
    }

    fn of(&self, span: &Span) -> Place {
        self.between(span.start.index(), span.end.index())
    }

    /// Like [`Places::between`], but limited to the first line.
    fn first_line(&self, start: usize, end: usize) -> Place {
        let place = self.between(start, end);
        let text = self.text.get(place.start..place.end()).unwrap_or_default();
        Place { start: place.start, length: text.lines().next().unwrap_or_default().trim_end().len() }
    }
}

/// A list or mapping that has not ended yet.
struct Open {
    value: Value,
    /// A key waiting for its value.
    key: Option<(String, Place)>,
    start: usize,
    anchor: usize,
}

struct Builder<'a> {
    places: Places<'a>,
    open: Vec<Open>,
    root: Option<Node>,
    /// The nodes that anchors stand for; 0 is not an anchor.
    anchors: HashMap<usize, Node>,
    nodes_left: usize,
    documents: usize,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Error> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.error(
                        &span,
                        "there is a second document in this file",
                        "one file is one document: put each into a file of its own",
                    ));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.as_ref().is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                if tag.is_some() && !is_text {
                    return Err(self.unknown_tag(&span));
                }
                let plain = style == ScalarStyle::Plain && !is_text;
                // The parser places an empty scalar at what follows it, which is not worth pointing at.
                let mut place = self.places.of(&span);
                place.length = if plain && text.is_empty() { 0 } else { place.length };
                let node = Node { value: Value::Scalar { text: text.into_owned(), plain }, place };
                self.add(node, anchor, &span)
            }
            Event::SequenceStart(anchor, tag) => self.begin(Value::List(Vec::new()), anchor, tag.is_some(), &span),
            Event::MappingStart(anchor, tag) => self.begin(Value::Mapping(Vec::new()), anchor, tag.is_some(), &span),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let place = self.places.first_line(open.start, span.end.index());
                self.add(Node { value: open.value, place }, open.anchor, &span)
            }
            Event::Alias(anchor) => {
                let Some(mut node) = self.anchors.get(&anchor).cloned() else {
                    return Err(self.error(&span, "this alias stands inside of what it names", "write it out"));
                };
                if self.open.len() + node.depth() > DEPTH_MAX {
                    return Err(self.too_deep(&span));
                }
                node.place = self.places.of(&span);
                self.take_nodes(node.count() - 1, &span)?;
                self.add(node, 0, &span)
            }
        }
    }

    fn begin(&mut self, value: Value, anchor: usize, tagged: bool, span: &Span) -> Result<(), Error> {
        if tagged {
            return Err(self.unknown_tag(span));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(self.too_deep(span));
        }
        if self.is_key_next() {
            return Err(self.error(
                span,
                "a key must be a plain text",
                "put it into quotes if it holds brackets or braces",
            ));
        }
        self.open.push(Open { value, key: None, start: span.start.index(), anchor });
        Ok(())
    }

    /// Whether a mapping's key comes next.
    fn is_key_next(&self) -> bool {
        matches!(self.open.last(), Some(Open { value: Value::Mapping(_), key: None, .. }))
    }

    /// Adds a complete node to whatever is open.
    fn add(&mut self, node: Node, anchor: usize, span: &Span) -> Result<(), Error> {
        self.take_nodes(1, span)?;
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let is_key = self.is_key_next();
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut open.value, open.key.take()) {
            (Value::List(items), _) => items.push(node),
            (Value::Mapping(entries), Some((key, key_place))) => entries.push(Entry { key, key_place, node }),
            (Value::Mapping(_), None) => match node.value {
                Value::Scalar { text, .. } if is_key => open.key = Some((text, node.place)),
                _ => return Err(self.error(span, "a key must be a plain text", "write the key itself")),
            },
            (Value::Scalar { .. }, _) => {}
        }
        Ok(())
    }

    fn take_nodes(&mut self, count: usize, span: &Span) -> Result<(), Error> {
        match self.nodes_left.checked_sub(count) {
            Some(left) => {
                self.nodes_left = left;
                Ok(())
            }
            None => {
                let message = format!("there are more than {NODES_MAX} values, those named by aliases included");
                Err(self.error(span, &message, "use fewer aliases, or split the file"))
            }
        }
    }

    fn too_deep(&self, span: &Span) -> Error {
        self.error(
            span,
            &format!("lists and mappings are nested more than {DEPTH_MAX} deep"),
            "nothing that ratchet reads is nested so deep",
        )
    }

    fn unknown_tag(&self, span: &Span) -> Error {
        self.error(
            span,
            "tags are not read here",
            "remove the word that begins with `!`; to make a string of a number, put it into quotes",
        )
    }

    fn error(&self, span: &Span, message: &str, help: &str) -> Error {
        let place = self.places.first_line(span.start.index(), span.end.index());
        Error { place, message: message.to_owned(), help: help.to_owned() }
    }
}
