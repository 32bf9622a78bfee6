//! A partition's log as a broker keeps it: what no client shows.

use std::fs;
use std::path::Path;

/// The producer's id and epoch of each batch of records in a partition's first segment; `data` is the broker's folder.
pub fn producers_of(data: &Path, topic: &str, partition: i32) -> Vec<(i64, i16)> {
    let segment = data.join(format!("{topic}-{partition}")).join("00000000000000000000.log");
    producers(&fs::read(segment).expect("the partition's first segment"))
}

/// Markers are no batches of records.
fn producers(mut segment: &[u8]) -> Vec<(i64, i16)> {
    const CONTROL: u8 = 0x20;
    let mut found = Vec::new();
    // Base offset i64 · length i32 · leader epoch i32 · magic i8 · CRC u32 · attributes i16 · last offset i32 · times
    // 2 * i64 · producer id i64 · producer epoch i16.
    while let [_, _, _, _, _, _, _, _, l0, l1, l2, l3, ..] = *segment {
        let batch = 12 + u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if segment.len() < batch || batch == 12 {
            break;
        }
        let field = |at: usize, bytes: usize| &segment[at..at + bytes];
        if segment[22] & CONTROL == 0 {
            let id = i64::from_be_bytes(field(43, 8).try_into().expect("eight bytes"));
            found.push((id, i16::from_be_bytes(field(51, 2).try_into().expect("two bytes"))));
        }
        segment = &segment[batch..];
    }
    found
}
