//! The declarations of one file, from a text or a descriptor, before names are resolved.

use std::fmt;

use super::graph::Scalar;
use crate::schemas::SchemaError;

/// The maximum depth of nested messages.
pub(super) const NESTED_MAX: usize = 64;
/// The maximum number of names in a package's name.
pub(super) const PACKAGE_NAMES_MAX: usize = 64;

/// A file.
#[derive(Debug, Default)]
pub(super) struct File<'t> {
    /// The name by which other files import it; empty for the schema itself.
    pub name: &'t str,
    /// The .proto text, to count lines; `None` for a descriptor.
    pub text: Option<&'t str>,
    pub package: String,
    pub imports: Vec<String>,
    /// Each comes after the message that it is declared in.
    pub messages: Vec<Message>,
    pub enums: Vec<Enum>,
    pub features: Features,
}

/// A message.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub at: usize,
    pub name: String,
    /// The message that it is declared in.
    pub parent: Option<usize>,
    pub fields: Vec<Field>,
    pub features: Features,
    /// The features of each oneof.
    pub oneofs: Vec<Features>,
    /// The entry of a map.
    pub is_entry: bool,
    /// Declared by a field (`map<…>` or a group) instead of by `message`.
    pub is_of_field: bool,
}

/// An enum.
#[derive(Debug, Default)]
pub(super) struct Enum {
    pub at: usize,
    pub name: String,
    /// The message that it is declared in.
    pub parent: Option<usize>,
    pub values: Vec<(String, i32)>,
}

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    pub at: usize,
    pub name: String,
    pub json_name: Option<String>,
    pub number: i64,
    pub is_repeated: bool,
    pub of: Type,
    /// Its own features; once settled, with those of the scopes around it.
    pub features: Features,
    /// The number of its oneof in the message.
    pub oneof: Option<usize>,
    pub default: Option<Literal>,
}

/// A field's type.
#[derive(Debug)]
pub(super) enum Type {
    Scalar(Scalar),
    /// A message or an enum with this name.
    Named(String),
}

/// A value in a schema.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Word(String),
    Integer(i128),
    Float(f64),
    Text(Vec<u8>),
    /// The fields of `{…}` whose values are words; other fields are left out.
    Aggregate(Vec<(String, String)>),
}

/// The features of the fields in a scope. `None` stands for the feature of the scope around it; a file's features are
/// all set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    pub is_explicit: Option<bool>,
    pub is_delimited: Option<bool>,
}

impl Features {
    pub const PROTO2: Self = Self { is_explicit: Some(true), is_delimited: Some(false) };
    pub const PROTO3: Self = Self { is_explicit: Some(false), is_delimited: Some(false) };
    /// The defaults of edition 2023 and of later ones.
    pub const EDITIONS: Self = Self { is_explicit: Some(true), is_delimited: Some(false) };

    /// Sets a feature by its name in .proto files. All others make no difference to a reader: packed and unpacked
    /// elements are both accepted, strings are always checked, and enums are always open.
    pub fn set(&mut self, name: &str, value: &str) {
        match name {
            "field_presence" => self.is_explicit = Some(value != "IMPLICIT"),
            "message_encoding" => self.is_delimited = Some(value == "DELIMITED"),
            _ => {}
        }
    }

    /// These features, completed by those of the scope around them.
    fn within(self, outer: Self) -> Self {
        let Self { is_explicit, is_delimited } = self;
        Self { is_explicit: is_explicit.or(outer.is_explicit), is_delimited: is_delimited.or(outer.is_delimited) }
    }
}

impl File<'_> {
    /// Completes the features of messages, oneofs and fields by those of the scopes around them, once all are read.
    pub fn settle(&mut self) {
        for number in 0..self.messages.len() {
            let (before, rest) = self.messages.split_at_mut(number);
            let Some(message) = rest.first_mut() else { return };
            let outer =
                message.parent.and_then(|parent| before.get(parent)).map_or(self.features, |outer| outer.features);
            message.features = message.features.within(outer);
            for field in &mut message.fields {
                let oneof = field.oneof.and_then(|oneof| message.oneofs.get(oneof)).copied().unwrap_or_default();
                field.features = field.features.within(oneof.within(message.features));
            }
        }
    }

    /// An error at this offset in the text.
    pub fn error(&self, at: usize, what: impl fmt::Display) -> SchemaError {
        let name = if self.name.is_empty() { String::new() } else { format!(" of `{}`", self.name) };
        let place = match self.text {
            Some(text) => {
                let before = &text.as_bytes()[..at.min(text.len())];
                let line = memchr::memchr_iter(b'\n', before).count() + 1;
                let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1) + 1;
                format!("line {line}, column {column}{name}")
            }
            None => format!("the descriptor{name}"),
        };
        SchemaError { at: place, what: what.to_string() }
    }
}
