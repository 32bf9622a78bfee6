//! Reads the wanted places of Protobuf records by their schema.
//!
//! A [`Plan`] is a message of a schema and a tree of wanted places, resolved once. Reading scans the fields of a
//! record, marks those that lead to a wanted place, and writes their values as JSON; other fields are skipped by their
//! lengths. Once the buffers have grown, nothing is allocated per record.
//!
//! **Repeated occurrences** are read as Protobuf's parsers read them. The last occurrence of a field counts; the
//! occurrences of a message are merged. Of a oneof, the field that occurs last counts, with its occurrences since any
//! other field of the oneof. Of a map's entries with the same key, the last one counts. Elements may be packed or not,
//! whatever their declaration says. A field with another wire type than the declared one is an unknown field.
//!
//! For this, a message is a list of marks, its occurrences. One scan over them marks the message's fields and sorts the
//! marks, unless they are in order already. Then the occurrences of each field, and those of each oneof, are adjacent
//! and in the order of the record: they are the list of marks for the field's own message.
//!
//! **An absent field** has its default if the field has no presence or if the schema declares a default; otherwise it
//! is missing. Absent lists and maps are empty.
//!
//! **Failure.** Bytes that are not in the wire format, strings that are not UTF-8, and times out of range give an
//! [`Undecodable`] if they are on the way to a wanted place. Work is linear in the bytes and in the JSON, which
//! [`WRITTEN_MAX`] bounds: an empty message takes two bytes in the record, and all its defaults in JSON. `depth_max`
//! and [`plan::DEPTH_MAX`] bound the recursion.

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

/// The number of bytes of JSON that any record may take, more than ordinary defaults need, and the additional bytes for
/// each byte of the record.
const WRITTEN_MAX: usize = 16 << 20;
const WRITTEN_MAX_PER_BYTE: usize = 16;

impl Plan {
    /// Reads a record.
    ///
    /// # Errors
    /// The bytes do not match the schema. The places extracted by then are not valid.
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
