//! What a plan does with a record.

use std::ops::Range;

use super::skip::{Skip, Skips};

/// The number of an operation in its program.
pub(super) type OpId = usize;

/// Operations, each for a type and a node of the tree of wanted places.
#[derive(Debug)]
pub(super) struct Program {
    pub ops: Vec<Op>,
    pub root: OpId,
    pub skips: Skips,
    /// The symbols of enums.
    pub symbols: Vec<Box<[Box<str>]>>,
    /// By the number of a field's name: a comma, the name in quotes, and a colon.
    pub members: Vec<Box<[u8]>>,
}

/// What to do with a value. The operations that find pass it, and read what is wanted inside; the others write it, and
/// note what they write at a node.
#[derive(Debug)]
pub(super) enum Op {
    /// Pass it.
    Skip(Skip),
    /// One operation, and then another one with the same value.
    Both(OpId, OpId),
    /// What its branch says.
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
    /// Also the nodes of its three fields.
    Duration(usize, [usize; 3]),
    Object(usize, Box<[Member]>),
    /// All items as `item` says, but for those that are wanted themselves.
    Array {
        node: usize,
        wanted: Box<[Item]>,
        item: OpId,
    },
    /// See [`Op::Array`].
    Map {
        node: usize,
        wanted: Box<[Entry]>,
        value: OpId,
    },
}

/// Some fields of a record that are passed, and the one behind them in which something is wanted.
#[derive(Debug)]
pub(super) struct Part {
    /// See [`Skip::Fields`].
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
    /// Its node, and those below.
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
    /// With this scale; of so many bytes if it is fixed.
    Decimal(Option<u32>, i32),
    BigDecimal,
    Uuid,
    /// Of 16 bytes.
    FixedUuid,
    /// The number of its symbols.
    Enum(u32),
}
