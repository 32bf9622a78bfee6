//! Which fields of a message are read, found by their numbers.

use crate::dedup::steps::Steps;
use crate::schemas::protobuf::{Field, Many, Message};

/// Numbers up to this one are looked up by index.
const DENSE_MAX: usize = 256;

/// The fields of a message that are read.
#[derive(Debug)]
pub(super) struct Layout {
    /// By number: one more than the place of its entry.
    dense: Box<[u32]>,
    /// By number, ascending.
    entries: Box<[Entry]>,
    /// Those that are something although they are absent, by group.
    pub absent: Box<[Absent]>,
    /// The nodes that fields lead to, by field.
    nodes: Box<[(usize, usize)]>,
}

/// A field that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    number: u32,
    /// The type of its values on the wire.
    wire: u8,
    may_be_packed: bool,
    /// Its oneof.
    pub group: usize,
    /// Its place among the message's.
    pub field: usize,
}

/// A field that is something although it is absent.
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

    /// Whether its values may be written so.
    #[inline]
    pub fn takes(&self, wire: u8) -> bool {
        wire == self.wire || self.may_be_packed && wire == crate::schemas::protobuf::wire::LENGTH
    }
}

impl Layout {
    /// All fields.
    pub fn of_all(message: &Message) -> Self {
        let all = message.fields.iter().enumerate();
        Self::new(message, all.map(|(place, field)| Entry::of(field, place)).collect(), Vec::new())
    }

    /// Those that lead from this node to something wanted, and those that exclude one of them.
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

    /// The entries come by number.
    fn new(message: &Message, entries: Vec<Entry>, nodes: Vec<(usize, usize)>) -> Self {
        let length = entries.iter().map(|entry| entry.number as usize + 1).filter(|length| *length <= DENSE_MAX).max();
        // As long as it is not much longer than what is in it.
        let length = length.unwrap_or_default().min(4 * entries.len() + 16);
        let mut dense = vec![0; length];
        for (cell, entry) in (1..).zip(&entries) {
            if let Some(slot) = dense.get_mut(entry.number as usize) {
                *slot = cell;
            }
        }
        let is_something = |entry: &&Entry| {
            let field = &message.fields[entry.field];
            field.many != Many::One || field.default.is_some()
        };
        let absent = entries.iter().filter(is_something);
        let mut absent: Vec<_> = absent.map(|entry| Absent { group: entry.group, field: entry.field }).collect();
        absent.sort_unstable_by_key(|absent| (absent.group, absent.field));
        Self { dense: dense.into(), entries: entries.into(), absent: absent.into(), nodes: nodes.into() }
    }

    /// The field of this number.
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

    /// The nodes that a field leads to: one for its name, and one for its name in JSON, if both are wanted.
    #[inline]
    pub fn nodes(&self, field: usize) -> &[(usize, usize)] {
        let from = self.nodes.partition_point(|(known, _)| *known < field);
        let nodes = &self.nodes[from..];
        let length = nodes.iter().take_while(|(known, _)| *known == field).count();
        &nodes[..length]
    }
}
