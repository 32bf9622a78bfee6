//! The program of a plan.

use std::ops::Range;

use super::skip::{Skip, Skips};

/// The index of an operation in its program.
pub(super) type OpId = usize;

/// Operations, each for a type and a node of the tree of wanted places.
#[derive(Debug)]
pub(super) struct Program {
    pub ops: Vec<Op>,
    pub root: OpId,
    pub skips: Skips,
    /// The symbols of each enum.
    pub symbols: Vec<Box<[Box<str>]>>,
    /// By the number of a field's name: a comma, the name in quotes and a colon.
    pub members: Vec<Box<[u8]>>,
}

/// The operation for a value. Those whose names begin with `Find` search it for wanted places; the others write it, and
/// note it at a node.
#[derive(Debug)]
pub(super) enum Op {
    /// Skips the value.
    Skip(Skip),
    /// Two operations with the same value, one after the other.
    Both(OpId, OpId),
    /// The operation of the value's branch.
    Union(Box<[OpId]>),
    FindFields(Box<[Part]>),
    FindItems {
        wanted: Box<[Item]>,
        item: Skip,
    },
    FindEntries {
        wanted: Box<[Entry]>,
        value: Skip,
    },
    Scalar(usize, Scalar),
    /// With the nodes of the three fields.
    Duration(usize, [usize; 3]),
    Object(usize, Box<[Member]>),
    /// Writes all items by `item`, except for the wanted ones.
    Array {
        node: usize,
        wanted: Box<[Item]>,
        item: OpId,
    },
    /// As [`Op::Array`].
    Map {
        node: usize,
        wanted: Box<[Entry]>,
        value: OpId,
    },
}

/// Fields of a record that are skipped, and a field after them that is wanted or searched.
#[derive(Debug)]
pub(super) struct Part {
    /// The index of the skipped fields in [`Skips::fields`].
    pub fields: u32,
    pub then: Option<Member>,
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// The number of its name.
    pub name: u32,
    pub op: OpId,
}

/// A wanted item of an array, by its number.
#[derive(Debug)]
pub(super) struct Item {
    pub number: u64,
    pub op: OpId,
}

/// A wanted value of a map.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: Box<[u8]>,
    pub op: OpId,
    /// Its node, and the nodes below it.
    pub nodes: Range<usize>,
}

/// How a scalar is read and written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    Null,
    Bool,
    Int,
    Long,
    Float,
    Double,
    Text,
    Bytes,
    Fixed(u32),
    /// The size, if the type is fixed, and the scale.
    Decimal(Option<u32>, i32),
    BigDecimal,
    Uuid,
    /// A UUID of 16 bytes.
    FixedUuid,
    /// The index of its symbols in [`Program::symbols`].
    Enum(u32),
}
