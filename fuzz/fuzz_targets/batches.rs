//! A batch's bytes, whatever they are, are counted and read within their bounds; what was written in order reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::frames::{gzip_size_hint, lz4_size_hint, snappy_chunk, snappy_size};
use ratchet_fuzz::headers::{count_records, read_headers};
use ratchet_fuzz::record::HeaderBuf;

/// The least that a record takes: its length, and what it must have.
const RECORD_BYTES_MIN: usize = 7;
/// The least that a message of before Kafka 0.11 takes, of those that are counted: an offset and a length.
const MESSAGE_BYTES_MIN: usize = 12;
/// More than gzip makes of a byte.
const GZIP_RATIO_MAX: usize = 1032;
/// The largest block of a frame of lz4, as its head may say.
const LZ4_BLOCK_MAX: usize = 1 << 22;

/// A number as it stands in records.
fn varint(number: i64) -> Vec<u8> {
    let mut rest = (number << 1 ^ number >> 63) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn counted(bytes: Option<&[u8]>) -> Vec<u8> {
    let mut written = varint(bytes.map_or(-1, |bytes| bytes.len() as i64));
    written.extend(bytes.unwrap_or_default());
    written
}

fn headers(bytes: &[u8]) {
    let Some(read) = read_headers(bytes) else { return };
    let all: Vec<_> = read.as_headers().iter().collect();
    let mut written = varint(all.len() as i64);
    for header in &all {
        written.extend(counted(Some(header.name)));
        written.extend(counted(header.value));
    }
    // A number may be written longer than it need be.
    assert!(written.len() <= bytes.len(), "more came out than went in");
    assert_eq!(read_headers(&written), Some(read));
}

/// Cuts the bytes into names and values, writes them as headers, and into records, and reads both back.
fn in_order(bytes: &[u8]) {
    let mut expected = HeaderBuf::default();
    let (mut written, mut count) = (Vec::new(), 0);
    let mut rest = bytes;
    while let Some((&length, behind)) = rest.split_first() {
        let (name, behind) = behind.split_at(usize::from(length >> 4).min(behind.len()));
        let (value, behind) = behind.split_at(usize::from(length & 0x0f).min(behind.len()));
        let value = (length & 0x0f != 0x0f).then_some(value);
        expected.push(name, value);
        written.extend(counted(Some(name)));
        written.extend(counted(value));
        (rest, count) = (behind, count + 1);
    }
    let whole: Vec<u8> = varint(count).into_iter().chain(written).collect();
    assert_eq!(read_headers(&whole), Some(expected));
    // Attributes, two differences, a null key and a null value, and these headers.
    let record = [&[0, 0, 0, 1, 1][..], &whole].concat();
    let record = counted(Some(&record));
    for count in [1, 2, 7] {
        assert_eq!(count_records(&record.repeat(count)), count as u64);
    }
}

fn frames(bytes: &[u8]) {
    assert!(gzip_size_hint(bytes) <= bytes.len() * GZIP_RATIO_MAX);
    if let Some(hint) = lz4_size_hint(bytes)
        && bytes[4] & 0x08 == 0
    {
        assert!(hint <= bytes.len() * LZ4_BLOCK_MAX, "{hint} of {} bytes", bytes.len());
    }
    let _ = snappy_size(bytes);
    if let Some((block, rest)) = snappy_chunk(bytes) {
        assert_eq!(4 + block.len() + rest.len(), bytes.len());
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 4 {
        0 => headers(bytes),
        1 => {
            let most = bytes.len() / RECORD_BYTES_MIN.min(MESSAGE_BYTES_MIN);
            assert!(count_records(bytes) <= most as u64);
        }
        2 => frames(bytes),
        _ => in_order(bytes),
    }
});
