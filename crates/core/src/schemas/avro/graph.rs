//! What a schema is: a graph of types.

use std::collections::HashSet;

use crate::schemas::is_index;

/// The largest number of bytes of a fixed type.
pub(crate) const FIXED_BYTES_MAX: u32 = i32::MAX.unsigned_abs();

/// An Avro schema, with every name resolved. It owns all that it consists of.
#[derive(Debug)]
pub struct Schema {
    pub(super) types: Vec<Type>,
    pub(super) root: TypeId,
}

/// The number of a type in its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TypeId(pub(super) usize);

impl TypeId {
    /// From 0, below [`Schema::len`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// A type, and what else is said of its values.
#[derive(Debug)]
pub(crate) struct Type {
    pub kind: Kind,
    pub logical: Option<Logical>,
    pub connect: Option<Box<Connect>>,
}

/// What values consist of.
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
    /// Of items of this type.
    Array(TypeId),
    /// Of values of this type.
    Map(TypeId),
    /// Of these branches, none of which is a union.
    Union(Box<[TypeId]>),
}

/// As many bytes as it says.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub size: u32,
}

/// One of some symbols.
#[derive(Debug)]
pub(crate) struct Enum {
    pub symbols: Box<[Box<str>]>,
}

/// Fields in an order.
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

/// What a value means; only ever of a type that has such values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logical {
    /// Of bytes, or fixed: an unscaled integer, the highest byte first, with this scale.
    Decimal(i32),
    /// Of bytes: a decimal with a scale of its own.
    BigDecimal,
    /// Of a string, or of 16 fixed bytes.
    Uuid,
    /// Of an int: days since 1970.
    Date,
    /// Of an int or a long: since midnight.
    Time(Unit),
    /// Of a long: since 1970, an instant.
    Timestamp(Unit),
    /// Of a long: since 1970, at some place.
    LocalTimestamp(Unit),
    /// Of 12 fixed bytes: months, days and milliseconds.
    Duration,
}

/// What a number of a time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Milli,
    Micro,
    Nano,
}

/// What Kafka Connect's converter says of a type.
#[derive(Debug)]
pub(crate) struct Connect {
    /// The name of a logical type of Connect or Debezium.
    pub name: Box<str>,
    /// Those parameters that are texts.
    pub parameters: Box<[(Box<str>, Box<str>)]>,
}

impl Connect {
    /// The parameter of this name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}

impl Record {
    /// The number of the field of this name, or else of the first that has it as an alias.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let is_called = |known: &str| known.as_bytes() == name;
        let by_name = self.fields.iter().position(|field| is_called(&field.name));
        by_name.or_else(|| self.fields.iter().position(|field| field.aliases.iter().any(|alias| is_called(alias))))
    }
}

/// The fields of a duration, in their order.
pub(crate) const DURATION: [&str; 3] = ["months", "days", "millis"];

impl Schema {
    /// Whether these steps can lead to something in a record: fields by their names or aliases, any key of a map, any
    /// element of an array.
    pub fn has(&self, steps: &[String]) -> bool {
        let mut reached = vec![self.root];
        for (i, step) in steps.iter().enumerate() {
            let mut known = HashSet::new();
            let mut next = Vec::new();
            while let Some(id) = reached.pop() {
                match self.kind(id) {
                    // Its branches are no unions, so this ends.
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

    /// The type of this number.
    pub(crate) fn get(&self, id: TypeId) -> &Type {
        &self.types[id.0]
    }

    /// What values of this type consist of.
    pub(crate) fn kind(&self, id: TypeId) -> &Kind {
        &self.get(id).kind
    }

    /// All types, with their numbers.
    pub(crate) fn types(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter().enumerate().map(|(i, of)| (TypeId(i), of))
    }
}
