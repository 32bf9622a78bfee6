//! The keys that a mapping may hold, as a table. The reader, the JSON Schema and the tables in the documentation are
//! built from it.

use super::Shape;

/// A mapping's keys, in the order in which they are usually written.
#[derive(Debug)]
pub struct Mapping {
    /// The keys.
    pub keys: &'static [Key],
    /// Exactly one of these must be given; empty if there is no such choice.
    pub one_of: &'static [&'static str],
    /// At least one of these must be given; empty if there is no such choice.
    pub any_of: &'static [&'static str],
    /// Pairs: the first has no meaning without the second.
    pub needs: &'static [(&'static str, &'static str)],
}

/// One key of a mapping.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub takes: Type,
    /// An example, e.g. `retention: 30d`.
    pub example: &'static str,
    /// What applies if it is left out.
    pub default: Omitted,
    /// Its meaning, in Markdown; links lead to sections of the documentation's page.
    pub about: &'static str,
}

/// What applies if a key is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omitted {
    /// It cannot be left out.
    Refused,
    /// Nothing.
    Nothing,
    /// This value.
    Is(&'static str),
    /// As described by these words, in Markdown.
    Words(&'static str),
}

/// The type of a value. The text in each describes it in words, for errors.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A text, not empty.
    Text(&'static str),
    /// A text matched by a regular expression, the second of these.
    Pattern(&'static str, &'static str),
    /// One of a few words.
    Words(fn() -> Vec<String>),
    /// `true` or `false`.
    Boolean,
    /// A whole number, from the first number to the second.
    Integer(&'static str, u64, u64),
    /// A text, a number, `true` or `false`.
    Scalar,
    /// A duration above zero.
    Duration,
    /// A number of bytes.
    Size(&'static str),
    /// A time, milliseconds, or null.
    Time,
    /// A mapping of texts.
    Texts,
    /// A list of whole numbers, which may be empty.
    Numbers(&'static str),
    /// Any YAML.
    Any(&'static str),
    /// One of the schema's definitions, by its name.
    Defined(&'static str, &'static str),
    /// A list, not empty.
    List(&'static str, &'static Type),
    /// A list, which may be empty.
    ListOrNone(&'static str, &'static Type),
    /// A value or a list of them.
    OneOrList(&'static str, &'static Type),
    /// One of these.
    AnyOf(&'static str, &'static [Type]),
    /// A mapping.
    Mapping(&'static str, &'static Mapping),
}

impl Mapping {
    /// A mapping of these keys.
    pub const fn of(keys: &'static [Key]) -> Self {
        Self { keys, one_of: &[], any_of: &[], needs: &[] }
    }

    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The keys' names, in their order.
    pub fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }
}

impl Key {
    /// A key that cannot be left out.
    pub const fn required(name: &'static str, takes: Type, example: &'static str, about: &'static str) -> Self {
        Self { name, takes, example, default: Omitted::Refused, about }
    }

    /// A key that can be left out, without a default.
    pub const fn optional(name: &'static str, takes: Type, example: &'static str, about: &'static str) -> Self {
        Self { name, takes, example, default: Omitted::Nothing, about }
    }

    /// The same key with a default.
    pub const fn or(self, default: Omitted) -> Self {
        Self { default, ..self }
    }

    /// What its value should look like.
    pub const fn shape(&self) -> Shape<'static> {
        Shape { what: self.takes.what(), example: self.example }
    }
}

impl Type {
    /// A mapping of these keys.
    pub const fn mapping(of: &'static Mapping) -> Self {
        Self::Mapping("a mapping", of)
    }

    /// In words, e.g. `a duration`.
    pub const fn what(&self) -> &'static str {
        match self {
            Self::Words(_) => "one of a few words",
            Self::Boolean => "true or false",
            Self::Scalar => "a string, a number, true or false",
            Self::Duration => "a duration",
            Self::Time => "a time or milliseconds",
            Self::Texts => "a mapping of strings",
            Self::Text(what)
            | Self::Size(what)
            | Self::Numbers(what)
            | Self::Any(what)
            | Self::Pattern(what, _)
            | Self::Integer(what, _, _)
            | Self::Defined(what, _)
            | Self::List(what, _)
            | Self::ListOrNone(what, _)
            | Self::OneOrList(what, _)
            | Self::AnyOf(what, _)
            | Self::Mapping(what, _) => what,
        }
    }
}
