//! A parsed schema: a graph of types.

use std::collections::HashSet;

use crate::schemas::is_index;

/// The maximum size of a fixed type.
pub(crate) const FIXED_BYTES_MAX: u32 = i32::MAX.unsigned_abs();

/// An Avro schema, with every name resolved.
#[derive(Debug)]
pub struct Schema {
    pub(super) types: Vec<Type>,
    pub(super) root: TypeId,
}

/// The number of a type in its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TypeId(pub(super) usize);

impl TypeId {
    /// The number, below [`Schema::len`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// A type with its attributes.
#[derive(Debug)]
pub(crate) struct Type {
    pub kind: Kind,
    pub logical: Option<Logical>,
    pub connect: Option<Box<Connect>>,
}

/// The structure of a type's values.
#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(Fixed),
    Enum(Enum),
    Record(Record),
    /// With items of this type.
    Array(TypeId),
    /// With values of this type.
    Map(TypeId),
    /// With these branches, none of which is a union.
    Union(Box<[TypeId]>),
}

/// A number of bytes.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub size: u32,
}

/// One of several symbols.
#[derive(Debug)]
pub(crate) struct Enum {
    pub symbols: Box<[Box<str>]>,
}

/// Fields in their order.
#[derive(Debug)]
pub(crate) struct Record {
    /// No two have the same name.
    pub fields: Box<[Field]>,
}

/// A field of a record.
#[derive(Debug)]
pub(crate) struct Field {
    pub name: Box<str>,
    pub aliases: Box<[Box<str>]>,
    pub of: TypeId,
}

/// A logical type, which fits the type that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logical {
    /// Bytes or fixed: an unscaled integer, big-endian, with this scale.
    Decimal(i32),
    /// Bytes: a decimal that includes its scale.
    BigDecimal,
    /// A string, or fixed with 16 bytes.
    Uuid,
    /// An int: days since 1970.
    Date,
    /// An int or a long: units since midnight.
    Time(Unit),
    /// A long: units since 1970, an instant.
    Timestamp(Unit),
    /// A long: units since 1970 in local time.
    LocalTimestamp(Unit),
    /// Fixed with 12 bytes: months, days and milliseconds.
    Duration,
}

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Milli,
    Micro,
    Nano,
}

/// The attributes that Kafka Connect's converter gives a type.
#[derive(Debug)]
pub(crate) struct Connect {
    /// The name of a logical type of Connect or Debezium.
    pub name: Box<str>,
    /// The parameters that are strings.
    pub parameters: Box<[(Box<str>, Box<str>)]>,
}

impl Connect {
    /// The parameter with this name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}

impl Record {
    /// The number of the field with this name, or else of the first field with this alias.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let is_called = |known: &str| known.as_bytes() == name;
        let by_name = self.fields.iter().position(|field| is_called(&field.name));
        by_name.or_else(|| self.fields.iter().position(|field| field.aliases.iter().any(|alias| is_called(alias))))
    }
}

/// The fields of a duration, in their order.
pub(crate) const DURATION: [&str; 3] = ["months", "days", "millis"];

impl Schema {
    /// Whether these steps can lead to a value: fields by their names or aliases, any key of a map, any index of an
    /// array.
    pub fn has(&self, steps: &[String]) -> bool {
        let mut reached = vec![self.root];
        for (i, step) in steps.iter().enumerate() {
            let mut known = HashSet::new();
            let mut next = Vec::new();
            while let Some(id) = reached.pop() {
                match self.kind(id) {
                    // No branch is a union, so this ends.
                    Kind::Union(branches) => reached.extend(branches),
                    Kind::Record(record) => {
                        let field = record.find(step.as_bytes()).map(|field| record.fields[field].of);
                        next.extend(field.filter(|of| known.insert(*of)));
                    }
                    Kind::Map(values) => next.extend(known.insert(*values).then_some(*values)),
                    Kind::Array(items) if is_index(step) => next.extend(known.insert(*items).then_some(*items)),
                    Kind::Fixed(_)
                        if self.get(id).logical == Some(Logical::Duration)
                            && i + 1 == steps.len()
                            && DURATION.contains(&step.as_str()) =>
                    {
                        return true;
                    }
                    _ => {}
                }
            }
            reached = next;
        }
        !reached.is_empty()
    }

    /// The branch of a union that is not null, if there is only one.
    pub(crate) fn only_branch(&self, branches: &[TypeId]) -> Option<TypeId> {
        let mut others = branches.iter().filter(|of| !matches!(self.kind(**of), Kind::Null));
        others.next().copied().filter(|_| others.next().is_none())
    }

    /// The type of a whole record.
    pub(crate) fn root(&self) -> TypeId {
        self.root
    }

    /// The number of types.
    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// The type with this number.
    pub(crate) fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0]
    }

    /// The structure of this type's values.
    pub(crate) fn kind(&self, id: TypeId) -> &Kind {
        &self.get(id).kind
    }

    /// All types, with their numbers.
    pub(crate) fn types(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(i, of)| (TypeId(i), of))
    }
}
