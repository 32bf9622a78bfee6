//! A schema with its names resolved: messages and enums by number, and how each field is read.

use super::wire;
use crate::schemas::is_index;

/// All messages and enums that a schema can lead to.
#[derive(Debug, Default)]
pub struct Graph {
    /// By number.
    pub messages: Vec<Message>,
    /// By number.
    pub enums: Vec<Enum>,
    /// The messages of the file itself, in the order in which they are declared.
    pub roots: Vec<usize>,
}

/// A message.
#[derive(Debug, Default)]
pub struct Message {
    /// Its name, without what it is declared in.
    pub name: Box<str>,
    /// By number, ascending.
    pub fields: Vec<Field>,
    /// The messages that are declared in it, and the entries of its maps, in the order of the text.
    pub nested: Vec<usize>,
    /// Whether it is the entry of a map.
    pub is_entry: bool,
    /// Whether it is the entry of a field that is written `map<…>`: the text declares no message for it.
    pub is_synthetic: bool,
    /// What JSON knows it as.
    pub known: Known,
}

/// A message that has a JSON of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// It has not.
    #[default]
    None,
    /// `google.protobuf.Any`.
    Any,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// `google.protobuf.Duration`.
    Duration,
    /// `google.protobuf.FieldMask`.
    FieldMask,
    /// One of those in google/protobuf/wrappers.proto.
    Wrapper,
    /// `google.protobuf.Struct`.
    Struct,
    /// `google.protobuf.Value`.
    Value,
    /// `google.protobuf.ListValue`.
    ListValue,
    /// `confluent.type.Decimal`.
    Decimal,
}

/// An enum.
#[derive(Debug, Default)]
pub struct Enum {
    /// By number, ascending; several of one number in the order in which they are declared.
    pub symbols: Vec<(i32, Box<str>)>,
    /// The number of the first value that was declared.
    pub default: i32,
    /// `google.protobuf.NullValue`: its value is null.
    pub is_null: bool,
}

/// A field.
#[derive(Debug)]
pub struct Field {
    /// Its number on the wire.
    pub number: u32,
    /// Its name in the .proto file.
    pub name: Box<str>,
    /// Its name in JSON.
    pub json_name: Box<str>,
    /// Of one value or element.
    pub of: Type,
    /// How many values it has.
    pub many: Many,
    /// Its oneof: the place of the first member among the message's fields. Its own place if it is in none.
    pub group: usize,
    /// What an absent one counts as, if it is one scalar; `None` if an absent one is missing.
    pub default: Option<Constant>,
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Many {
    /// One, or none.
    One,
    /// Any number.
    List,
    /// Any number, each by its key: the type is the message of the entries.
    Map,
}

/// A field's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A scalar.
    Scalar(Scalar),
    /// The enum of this number.
    Enum(usize),
    /// The message of this number, with its length before it.
    Message(usize),
    /// The message of this number, with a key behind it.
    Group(usize),
}

/// A scalar type.
#[allow(missing_docs, reason = "these are Protobuf's own names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    Double,
    Float,
    Int64,
    Uint64,
    Int32,
    Fixed64,
    Fixed32,
    Bool,
    String,
    Bytes,
    Uint32,
    Sfixed32,
    Sfixed64,
    Sint32,
    Sint64,
}

/// A scalar that a schema holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// A number, a bool or an enum's number. Signed ones are extended to 64 bits, floats are as their bits.
    Bits(u64),
    /// A text, or bytes.
    Bytes(Box<[u8]>),
}

/// Where a path has come to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The type of what is there, or of its elements.
    pub of: Type,
    /// Whether it is a list or a map.
    pub many: Many,
}

/// What a step can lead to.
#[derive(Clone, Copy, Debug)]
pub enum Inside {
    /// A value of this type.
    Place(Place),
    /// Whatever JSON can hold.
    Anything,
}

impl Graph {
    /// Where a step leads.
    pub fn step(&self, at: Place, step: &str) -> Option<Inside> {
        let one = |of| Some(Inside::Place(Place { of, many: Many::One }));
        let message = match (at.many, at.of) {
            (Many::List, of) => return if is_index(step) { one(of) } else { None },
            (Many::Map, Type::Message(entry)) => return one(self.messages[entry].fields.get(1)?.of),
            (Many::One, Type::Message(message) | Type::Group(message)) => &self.messages[message],
            _ => return None,
        };
        let field = message.fields.first()?;
        match message.known {
            Known::None => message.field(step).map(|field| {
                let Field { of, many, .. } = &message.fields[field];
                Inside::Place(Place { of: *of, many: *many })
            }),
            Known::Struct | Known::Value => Some(Inside::Anything),
            Known::ListValue => is_index(step).then_some(Inside::Anything),
            Known::Any if matches!(step, "@type" | "value") => one(field.of),
            _ => None,
        }
    }
}

impl Message {
    /// The place among the fields of the one with this name: its own, or else that in JSON.
    pub fn field(&self, name: &str) -> Option<usize> {
        let by = |of: fn(&Field) -> &str| self.fields.iter().position(|field| of(field) == name);
        by(|field| &field.name).or_else(|| by(|field| &field.json_name))
    }
}

impl Enum {
    /// The name of a number.
    pub fn symbol(&self, number: i32) -> Option<&str> {
        let at = self.symbols.partition_point(|(known, _)| *known < number);
        self.symbols.get(at).filter(|(known, _)| *known == number).map(|(_, symbol)| &**symbol)
    }
}

impl Field {
    /// The type that its values have on the wire, one by one.
    pub fn wire(&self) -> u8 {
        match self.of {
            Type::Enum(_) => wire::VARINT,
            Type::Message(_) => wire::LENGTH,
            Type::Group(_) => wire::GROUP,
            Type::Scalar(scalar) => scalar.wire(),
        }
    }

    /// Whether several of its values may be in one occurrence, behind each other.
    pub fn may_be_packed(&self) -> bool {
        self.many == Many::List && matches!(self.wire(), wire::VARINT | wire::FIXED32 | wire::FIXED64)
    }
}

impl Scalar {
    /// The type that a .proto file names so.
    pub fn of_keyword(word: &str) -> Option<Self> {
        Some(match word {
            "double" => Self::Double,
            "float" => Self::Float,
            "int64" => Self::Int64,
            "uint64" => Self::Uint64,
            "int32" => Self::Int32,
            "fixed64" => Self::Fixed64,
            "fixed32" => Self::Fixed32,
            "bool" => Self::Bool,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "uint32" => Self::Uint32,
            "sfixed32" => Self::Sfixed32,
            "sfixed64" => Self::Sfixed64,
            "sint32" => Self::Sint32,
            "sint64" => Self::Sint64,
            _ => return None,
        })
    }

    /// The type that a descriptor numbers so.
    pub fn of_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Double,
            2 => Self::Float,
            3 => Self::Int64,
            4 => Self::Uint64,
            5 => Self::Int32,
            6 => Self::Fixed64,
            7 => Self::Fixed32,
            8 => Self::Bool,
            9 => Self::String,
            12 => Self::Bytes,
            13 => Self::Uint32,
            15 => Self::Sfixed32,
            16 => Self::Sfixed64,
            17 => Self::Sint32,
            18 => Self::Sint64,
            _ => return None,
        })
    }

    /// The type that its values have on the wire.
    pub fn wire(self) -> u8 {
        match self {
            Self::Double | Self::Fixed64 | Self::Sfixed64 => wire::FIXED64,
            Self::Float | Self::Fixed32 | Self::Sfixed32 => wire::FIXED32,
            Self::String | Self::Bytes => wire::LENGTH,
            _ => wire::VARINT,
        }
    }

    /// What it is if nothing says what it is.
    pub fn zero(self) -> Constant {
        if self.wire() == wire::LENGTH { Constant::Bytes(Box::default()) } else { Constant::Bits(0) }
    }
}
