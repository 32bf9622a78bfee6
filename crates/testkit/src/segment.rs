//! A partition's log as a broker keeps it: what no client shows.

use std::fs;
use std::path::Path;

/// The producer's id and epoch of each batch of records in a partition's first segment; `data` is the broker's folder.
pub fn producers_of(data: &Path, topic: &str, partition: i32) -> Vec<(i64, i16)> {
    let segment = data.join(format!("{topic}-{partition}")).join("00000000000000000000.log");
    let segment = fs::read(segment).expect("the partition's first segment");
    // Markers are no batches of records.
    const CONTROL: u8 = 0x20;
    let number = |batch: &[u8]| {
        let id = i64::from_be_bytes(batch[43..51].try_into().expect("eight bytes"));
        (id, i16::from_be_bytes(batch[51..53].try_into().expect("two bytes")))
    };
    batches(&segment).into_iter().filter(|batch| batch[22] & CONTROL == 0).map(number).collect()
}

/// How many batches in the first segments of a topic's partitions have this text.
pub fn batches_with(data: &Path, topic: &str, text: &str) -> usize {
    let segment = |number| fs::read(data.join(format!("{topic}-{number}")).join("00000000000000000000.log")).ok();
    let has_it = |batch: &&[u8]| batch.windows(text.len()).any(|part| part == text.as_bytes());
    (0..).map_while(segment).map(|segment| batches(&segment).into_iter().filter(has_it).count()).sum()
}

/// The whole batches of a segment.
fn batches(mut segment: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    // Base offset i64 · length i32 · leader epoch i32 · magic i8 · CRC u32 · attributes i16 · last offset i32 · times
    // 2 * i64 · producer id i64 · producer epoch i16.
    while let [_, _, _, _, _, _, _, _, l0, l1, l2, l3, ..] = *segment {
        let batch = 12 + u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if segment.len() < batch || batch == 12 {
            break;
        }
        found.push(&segment[..batch]);
        segment = &segment[batch..];
    }
    found
}
