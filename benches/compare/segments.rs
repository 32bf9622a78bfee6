//! Counts a topic's records without reading them through Kafka, which would load the broker and take
//! longer than the run itself: the headers of the record batches in a partition's log say how many records
//! each has, who produced them, and how a transaction ended.
//!
//! A count is right once the log is quiet: open transactions are not counted.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Context as _, Outcome, fail};

/// The length of a batch's header: <https://kafka.apache.org/documentation/#recordbatch>.
const HEADER: usize = 61;
/// The length of the base offset and of `batchLength`, which `batchLength` does not count.
const UNCOUNTED: u64 = 12;
/// Bits of a batch's attributes.
const TRANSACTIONAL: u16 = 1 << 4;
const CONTROL: u16 = 1 << 5;
/// The type of a commit in a control record's key, after the version.
const COMMIT: u16 = 1;
/// How much is read of a batch: its header and the relevant part of a marker.
const PIECE: usize = 96;

/// The records in a partition's folder that a read_committed consumer would get.
pub fn committed_records(partition: &Path) -> Outcome<u64> {
    let mut segments: Vec<PathBuf> = std::fs::read_dir(partition)
        .context(partition.display())?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    segments.sort();
    let mut count = Count::default();
    for segment in segments {
        let file = File::open(&segment).context(segment.display())?;
        let size = file.metadata()?.len();
        let mut at = 0;
        while at + HEADER as u64 <= size {
            at += count.batch(&file, at).context(segment.display())?;
        }
    }
    Ok(count.committed)
}

#[derive(Default)]
struct Count {
    committed: u64,
    /// By producer: how many records its open transaction has.
    open: HashMap<i64, u64>,
}

impl Count {
    /// Counts the batch at `at`, and returns its length.
    fn batch(&mut self, file: &File, at: u64) -> Outcome<u64> {
        let mut header = [0; PIECE];
        let read = file.read_at(&mut header, at)?;
        if read < HEADER {
            fail!("a batch is cut off at {at}");
        }
        let number =
            |from: usize, size: usize| header[from..from + size].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        if number(16, 1) != 2 {
            fail!("no record batch of format 2 at {at}");
        }
        let (length, attributes) = (number(8, 4), number(21, 2) as u16);
        let (producer, records) = (number(43, 8) as i64, number(57, 4));
        if attributes & CONTROL != 0 {
            // A marker's only record starts with length, attributes, two deltas and the key's length, one byte each.
            let kind = number(HEADER + 5 + 2, 2) as u16;
            let ended = self.open.remove(&producer).unwrap_or(0);
            self.committed += if kind == COMMIT { ended } else { 0 };
        } else if attributes & TRANSACTIONAL != 0 {
            *self.open.entry(producer).or_default() += records;
        } else {
            self.committed += records;
        }
        Ok(length + UNCOUNTED)
    }
}
