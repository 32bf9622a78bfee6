//! The fields of a message that are read, found by their numbers.

use crate::dedup::steps::Steps;
use crate::schemas::protobuf::{Field, Many, Message};

/// Numbers below this one may be looked up by index.
const DENSE_MAX: usize = 256;

/// The fields of a message that are read.
#[derive(Debug)]
pub(super) struct Layout {
    /// By number: the index of the field's entry plus one; 0 if the field is not read.
    dense: Box<[u32]>,
    /// Sorted by number.
    entries: Box<[Entry]>,
    /// The fields that have a value when absent, sorted by group.
    pub absent: Box<[Absent]>,
    /// The nodes that fields lead to, sorted by field.
    nodes: Box<[(usize, usize)]>,
}

/// A field that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    number: u32,
    /// The wire type of a single value.
    wire: u8,
    may_be_packed: bool,
    /// Its oneof.
    pub group: usize,
    /// Its index in the message.
    pub field: usize,
}

/// A field that has a value when absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absent {
    pub group: usize,
    pub field: usize,
}

impl Entry {
    fn of(field: &Field, place: usize) -> Self {
        let (wire, may_be_packed) = (field.wire(), field.may_be_packed());
        Self { number: field.number, wire, may_be_packed, group: field.group, field: place }
    }

    /// Whether its values may have this wire type.
    #[inline]
    pub fn takes(&self, wire: u8) -> bool {
        wire == self.wire || self.may_be_packed && wire == crate::schemas::protobuf::wire::LENGTH
    }
}

impl Layout {
    /// The layout with all fields.
    pub fn of_all(message: &Message) -> Self {
        let all = message.fields.iter().enumerate();
        Self::new(message, all.map(|(place, field)| Entry::of(field, place)).collect(), Vec::new())
    }

    /// The layout with the fields that lead from this node to a wanted place, and with the other fields of their
    /// oneofs.
    pub fn of_wanted(message: &Message, steps: &Steps, node: usize) -> Self {
        let mut nodes = Vec::new();
        for (name, _, child) in steps.children(node) {
            let field = std::str::from_utf8(name).ok().and_then(|name| message.field(name));
            nodes.extend(field.map(|field| (field, child)));
        }
        nodes.sort_unstable();
        let mut groups: Vec<_> = nodes.iter().map(|(field, _)| message.fields[*field].group).collect();
        groups.sort_unstable();
        let all = message.fields.iter().enumerate();
        let entries = all.filter(|(_, field)| groups.binary_search(&field.group).is_ok());
        Self::new(message, entries.map(|(place, field)| Entry::of(field, place)).collect(), nodes)
    }

    /// `entries` are sorted by number.
    fn new(message: &Message, entries: Vec<Entry>, nodes: Vec<(usize, usize)>) -> Self {
        let length = entries.iter().map(|entry| entry.number as usize + 1).filter(|length| *length <= DENSE_MAX).max();
        // No longer than is worth it for this many entries.
        let length = length.unwrap_or_default().min(4 * entries.len() + 16);
        let mut dense = vec![0; length];
        for (cell, entry) in (1..).zip(&entries) {
            if let Some(slot) = dense.get_mut(entry.number as usize) {
                *slot = cell;
            }
        }
        let has_value = |entry: &&Entry| {
            let field = &message.fields[entry.field];
            field.many != Many::One || field.default.is_some()
        };
        let absent = entries.iter().filter(has_value);
        let mut absent: Vec<_> = absent.map(|entry| Absent { group: entry.group, field: entry.field }).collect();
        absent.sort_unstable_by_key(|absent| (absent.group, absent.field));
        Self { dense: dense.into(), entries: entries.into(), absent: absent.into(), nodes: nodes.into() }
    }

    /// The field with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Entry> {
        match self.dense.get(number as usize) {
            Some(0) => None,
            Some(cell) => self.entries.get(*cell as usize - 1),
            None => {
                let at = self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
                self.entries.get(at)
            }
        }
    }

    /// The nodes that a field leads to: two if it is wanted by its name and by its JSON name.
    #[inline]
    pub fn nodes(&self, field: usize) -> &[(usize, usize)] {
        let from = self.nodes.partition_point(|(known, _)| *known < field);
        let nodes = &self.nodes[from..];
        let length = nodes.iter().take_while(|(known, _)| *known == field).count();
        &nodes[..length]
    }
}
