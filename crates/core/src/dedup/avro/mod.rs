//! Reads the wanted places of Avro records by the writer's schema, and skips over everything else.
//!
//! A [`Plan`] is a schema and the wanted places, compiled to a program: for each type that a path leads through, what
//! is passed and what is read; for each that is wanted, what is written. What was read is in [`Extracted`] as JSON, see
//! there.
//!
//! | type | JSON |
//! |---|---|
//! | null, boolean | the same |
//! | int, long, and dates, times and timestamps | an integer; [`Plan::shape`] says what it counts |
//! | float, double | the shortest number that gives it back, or `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | string | a text |
//! | bytes, fixed | a text in base64, padded |
//! | decimal, big-decimal | a number, exact, with all digits of its scale |
//! | uuid | a text with hyphens, in lower case; a string that is no UUID as it is |
//! | duration | `{"months":…,"days":…,"millis":…}` |
//! | enum | its symbol, a text |
//! | record, map | an object |
//! | array | an array |
//! | union | the value of its branch |
//!
//! Fields are found by their names, or else by their aliases. Where a map has a key twice, the last one counts.
//!
//! **Invariants.** No record can cause a panic. What a record takes is bounded: at most [`DEPTH_MAX`] levels, skipped
//! or read; each byte is read once for each wanted place around it at most; items that take no bytes are skipped in one
//! go; what is written has at most [`WRITTEN_BYTES_MIN`] and [`WRITTEN_BYTES_PER_BYTE`] bytes for each byte read. Once
//! the buffers have grown, nothing is allocated, but for decimals of more than 128 bits.
//!
//! What is skipped is checked only as far as it has to be: not the UTF-8 of texts, and nothing in a block that says how
//! many bytes it has.
//!
//! **Failure.** Bytes that are no record of the schema, or hold more than one, give an [`Undecodable`]; what was
//! extracted until then does not count.

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

/// No record has more levels of records, arrays and maps, whatever the limits say.
const DEPTH_MAX: usize = 512;
/// What any record may be written as.
const WRITTEN_BYTES_MIN: usize = 1 << 20;
/// What a record may be written as for each of its bytes: names of fields take none there.
const WRITTEN_BYTES_PER_BYTE: usize = 256;

/// How to read the wanted places of records with one schema.
#[derive(Debug)]
pub(super) struct Plan {
    program: Program,
    shape: Shape,
    /// How many nodes the tree of wanted places has.
    nodes: usize,
    depth_max: usize,
}

impl Plan {
    /// A plan for records with this schema and these wanted places, with at most this many levels.
    pub fn new(schema: &Schema, steps: &Steps, depth_max: usize) -> Self {
        let program = compile::compile(schema, steps);
        let shape = shape::of(schema, steps);
        Self { program, shape, nodes: steps.len(), depth_max: depth_max.min(DEPTH_MAX) }
    }

    /// Reads a record, the only one in these bytes.
    ///
    /// # Errors
    /// They are no record of the schema.
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

    /// Where values of logical types are in the wanted places, and which fields there are texts.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

#[cfg(test)]
mod tests;
