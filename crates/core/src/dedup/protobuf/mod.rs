//! Reads the wanted places of Protobuf records by their schema.
//!
//! A [`Plan`] is a schema's message and a tree of wanted places, resolved once. Reading passes over a record's fields,
//! marks those that lead to a wanted place, and writes what they hold as JSON; what is not wanted is passed by its
//! length, unread. Nothing is allocated per record once the buffers have grown.
//!
//! **What counts** is what Protobuf's parsers say. Of a field that occurs several times, the last occurrence counts; a
//! message's occurrences are read as if they stood behind each other, which merges them. Of a oneof, the member that
//! occurs last counts, and of it nothing before another member. Of a map's entries with one key, the last counts.
//! Elements may be packed or not, however they are declared. A field of another wire type than its own is an unknown
//! field.
//!
//! To that end a message is a list of marks, its occurrences. Its fields are marked in one pass over them and sorted,
//! if they are not in order already; so the occurrences of a field stand behind each other, as do those of a oneof, in
//! the order of the record. They are the lists that the field's own message is read from.
//!
//! **What is absent** is its default if the field has no presence of its own, or if the schema declares one; otherwise
//! it is missing. Lists and maps are empty.
//!
//! **Failure.** Bytes that are not in the wire format, texts that are not UTF-8, and times outside of the calendar give
//! [`Undecodable`], if they are on the way to a wanted place. Work is linear in the bytes and in what is written, which
//! [`WRITTEN_MAX`] bounds: an empty message is two bytes in the record, and all its defaults in JSON. Recursion is
//! bounded by `depth_max`, and by [`plan::DEPTH_MAX`].

use crate::schemas::Undecodable;

use super::extracted::{Extracted, Mark};

mod known;
mod layout;
mod plan;
mod scalar;
mod walk;
mod wanted;
mod write;

pub(super) use plan::Plan;

use walk::Walk;

/// More than is written for a record of ordinary defaults, and how many bytes more for each of the record's.
const WRITTEN_MAX: usize = 16 << 20;
const WRITTEN_MAX_PER_BYTE: usize = 16;

impl Plan {
    /// Reads a record.
    ///
    /// # Errors
    /// It cannot be decoded; nothing is known about it then.
    pub fn read(&self, bytes: &[u8], to: &mut Extracted) -> Result<(), Undecodable> {
        to.clear(self.steps.len());
        let mut marks = to.take_marks();
        marks.push(Mark { to: bytes.len(), ..Mark::default() });
        let written_max = bytes.len().saturating_mul(WRITTEN_MAX_PER_BYTE).saturating_add(WRITTEN_MAX);
        let mut walk = Walk { plan: self, bytes, to, marks, written_max };
        let result = walk.root(self.root);
        let Walk { to, marks, .. } = walk;
        to.keep_marks(marks);
        result.map_err(|failure| *failure)
    }
}

#[cfg(test)]
mod tests;
