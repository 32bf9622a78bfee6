//! Reads the wanted places of Avro records by the writer's schema, and skips everything else.
//!
//! A [`Plan`] is a schema and the wanted places, compiled to a program. A value on the way to a wanted place is
//! searched for it, a wanted value is written to [`Extracted`] as JSON, and any other value is skipped.
//!
//! | type | JSON |
//! |---|---|
//! | null, boolean | null, a boolean |
//! | int, long, and dates, times and timestamps | an integer; [`Plan::shape`] says what it counts |
//! | float, double | the shortest number that is read back as the same value, or `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | string | a string |
//! | bytes, fixed | a string in base64, padded |
//! | decimal, big-decimal | a number, exact, with all digits of its scale |
//! | uuid | a string with hyphens, in lower case; a string that is not a UUID is unchanged |
//! | duration | `{"months":…,"days":…,"millis":…}` |
//! | enum | the symbol, a string |
//! | record, map | an object |
//! | array | an array |
//! | union | the value of its branch |
//!
//! Fields are found by their names, or else by their aliases. If a map has a key twice, the last entry counts.
//!
//! **Invariants.** No record can cause a panic. The work for a record is bounded: it has at most [`DEPTH_MAX`] levels;
//! each byte is read at most once for each wanted place around it; items without bytes are skipped in one step; the
//! JSON has at most [`WRITTEN_BYTES_MIN`] bytes, [`WRITTEN_BYTES_PER_BYTE`] more for each byte of the record, and one
//! more value. Once the buffers have grown, nothing is allocated, except for decimals of more than 128 bits.
//!
//! A skipped value is checked only as far as needed to find its end: not the UTF-8 of a string, and nothing in a block
//! whose size is given.
//!
//! **Failure.** Bytes that do not match the schema, or continue after the record, give an [`Undecodable`]. The places
//! extracted by then are not valid.

use super::extracted::Extracted;
use super::logical::Shape;
use super::steps::Steps;
use crate::schemas::Undecodable;
use crate::schemas::avro::Schema;

mod compile;
mod cursor;
mod program;
mod read;
mod scalar;
mod shape;
mod skip;

use cursor::Cursor;
use program::Program;

/// The maximum number of levels of records, arrays and maps, whatever the limits say.
const DEPTH_MAX: usize = 512;
/// The number of bytes of JSON that any record may take.
const WRITTEN_BYTES_MIN: usize = 1 << 20;
/// The additional bytes of JSON for each byte of a record, in which the names of fields take none.
const WRITTEN_BYTES_PER_BYTE: usize = 256;

/// How to read the wanted places of records with one schema.
#[derive(Debug)]
pub(super) struct Plan {
    program: Program,
    shape: Shape,
    /// The number of nodes of the tree of wanted places.
    nodes: usize,
    depth_max: usize,
}

impl Plan {
    /// A plan for records with this schema and at most this many levels, and for these wanted places.
    pub fn new(schema: &Schema, steps: &Steps, depth_max: usize) -> Self {
        let program = compile::compile(schema, steps);
        let shape = shape::of(schema, steps);
        Self { program, shape, nodes: steps.len(), depth_max: depth_max.min(DEPTH_MAX) }
    }

    /// Reads a record, which takes all of these bytes.
    ///
    /// # Errors
    /// The bytes do not match the schema.
    pub fn read(&self, bytes: &[u8], to: &mut Extracted) -> Result<(), Undecodable> {
        to.clear(self.nodes);
        let mut cursor = Cursor::new(bytes);
        let written_max = bytes.len().saturating_mul(WRITTEN_BYTES_PER_BYTE).saturating_add(WRITTEN_BYTES_MIN);
        let result = read::read(&self.program, &mut cursor, to, self.depth_max, written_max);
        result.map_err(|fault| fault.finish())?;
        if !cursor.is_at_end() {
            return Err(cursor.fault(cursor.at(), "bytes follow the record").finish());
        }
        Ok(())
    }

    /// The logical types of values in the wanted places, and the fields there that are strings.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

#[cfg(test)]
mod tests;
