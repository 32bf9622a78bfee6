//! A schema with its names resolved: messages and enums by number, and the fields of each message.

use super::wire;
use crate::schemas::is_index;

/// All messages and enums of a schema and of the files that it imports.
#[derive(Debug, Default)]
pub struct Graph {
    /// By number.
    pub messages: Vec<Message>,
    /// By number.
    pub enums: Vec<Enum>,
    /// The package of the file itself; empty without one.
    pub package: Box<str>,
    /// The messages of the file itself, in the order in which they are declared.
    pub roots: Vec<usize>,
}

/// A message.
#[derive(Debug, Default)]
pub struct Message {
    /// Its name, without those of the package and of the messages around it.
    pub name: Box<str>,
    /// By number, ascending.
    pub fields: Vec<Field>,
    /// The messages that are declared in it, and the entries of its maps, in the order of the text.
    pub nested: Vec<usize>,
    /// Whether it is the entry of a map.
    pub is_entry: bool,
    /// Whether it is declared by a field (`map<…>` or a group) instead of by `message`.
    pub is_of_field: bool,
    /// Whether it has a JSON form of its own.
    pub known: Known,
}

/// A well-known message, which has a JSON form of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// Any other message.
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
    /// A message of google/protobuf/wrappers.proto.
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
    /// Sorted by number; symbols with the same number in the order of their declarations.
    pub symbols: Vec<(i32, Box<str>)>,
    /// The number of the first declared value.
    pub default: i32,
    /// Whether it is `google.protobuf.NullValue`, whose value is null.
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
    /// The type of one value or element.
    pub of: Type,
    /// Whether it is single, a list or a map.
    pub many: Many,
    /// Its oneof, as the index of the oneof's first field in the message; its own index if it is in no oneof.
    pub group: usize,
    /// The value of an absent field, if it is a single scalar; `None` if an absent field is missing.
    pub default: Option<Constant>,
}

/// Whether a field is single, a list or a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Many {
    /// At most one value.
    One,
    /// Any number of values.
    List,
    /// Any number of values by key: the type is the message of the entries.
    Map,
}

/// A field's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A scalar.
    Scalar(Scalar),
    /// The enum with this number.
    Enum(usize),
    /// The message with this number, after its length.
    Message(usize),
    /// The message with this number, between the keys of a group.
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
    /// A number, a bool or the number of an enum's value. Signed numbers are extended to 64 bits; of floats, the bits.
    Bits(u64),
    /// A string, or bytes.
    Bytes(Box<[u8]>),
}

/// The type that the steps of a path lead to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The type of the value or of its elements.
    pub of: Type,
    /// Whether the value is single, a list or a map.
    pub many: Many,
}

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub enum Inside {
    /// A value of this type.
    Place(Place),
    /// Any JSON.
    Anything,
}

impl Graph {
    /// The type that a step leads to; `None` if it leads nowhere.
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
    /// The index of the field with this name, or else with this name in JSON.
    pub fn field(&self, name: &str) -> Option<usize> {
        let by = |of: fn(&Field) -> &str| self.fields.iter().position(|field| of(field) == name);
        by(|field| &field.name).or_else(|| by(|field| &field.json_name))
    }
}

impl Enum {
    /// The symbol with this number.
    pub fn symbol(&self, number: i32) -> Option<&str> {
        let at = self.symbols.partition_point(|(known, _)| *known < number);
        self.symbols.get(at).filter(|(known, _)| *known == number).map(|(_, symbol)| &**symbol)
    }
}

impl Field {
    /// The wire type of a single value.
    pub fn wire(&self) -> u8 {
        match self.of {
            Type::Enum(_) => wire::VARINT,
            Type::Message(_) => wire::LENGTH,
            Type::Group(_) => wire::GROUP,
            Type::Scalar(scalar) => scalar.wire(),
        }
    }

    /// Whether one occurrence may hold several values.
    pub fn may_be_packed(&self) -> bool {
        self.many == Many::List && matches!(self.wire(), wire::VARINT | wire::FIXED32 | wire::FIXED64)
    }
}

impl Scalar {
    /// The type with this keyword.
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

    /// The type with this number in descriptors.
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

    /// The wire type of its values.
    pub fn wire(self) -> u8 {
        match self {
            Self::Double | Self::Fixed64 | Self::Sfixed64 => wire::FIXED64,
            Self::Float | Self::Fixed32 | Self::Sfixed32 => wire::FIXED32,
            Self::String | Self::Bytes => wire::LENGTH,
            _ => wire::VARINT,
        }
    }

    /// The default of a field that declares none.
    pub fn zero(self) -> Constant {
        if self.wire() == wire::LENGTH { Constant::Bytes(Box::default()) } else { Constant::Bits(0) }
    }
}
