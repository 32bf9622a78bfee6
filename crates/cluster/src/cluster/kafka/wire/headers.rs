//! The parts of Kafka's format that are decoded here even where librdkafka reads records: the number of records in a
//! batch, and a record's headers.
//!
//! Any producer of the input can choose these bytes, so they are not trusted: decoding stops at a length that exceeds
//! the bytes.
//!
//! **Failure**: malformed bytes are `None`, or are not counted.

use super::primitives::{prefixed_bytes, varint};
use crate::record::HeaderBuf;

/// The fewest bytes of a record after its length: attributes, two deltas, the lengths of key and value, and the count
/// of headers.
const RECORD_BYTES_MIN: i64 = 6;

/// Counts the records in an unpacked batch, as far as it is readable: the caller reserves memory for each record.
///
/// A batch is a sequence of records, each preceded by its length; before Kafka 0.11, a sequence of messages, each
/// preceded by its offset and its length. A message is not mistaken for a record: it begins with the highest byte of
/// its offset, which is 0, and no record has the length 0.
pub fn count_records(unpacked: &[u8]) -> u64 {
    match skip_record(unpacked) {
        Some(_) => count(unpacked, skip_record),
        None => count(unpacked, skip_message),
    }
}

fn count(mut rest: &[u8], skip: fn(&[u8]) -> Option<&[u8]>) -> u64 {
    let mut records = 0;
    while let Some(after) = skip(rest) {
        records += 1;
        rest = after;
    }
    records
}

/// The bytes after the first record.
fn skip_record(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = varint(bytes)?;
    rest.get(usize::try_from(length).ok().filter(|_| length >= RECORD_BYTES_MIN)?..)
}

/// The bytes after the first message.
fn skip_message(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes.get(8..12)?.try_into().ok().map(u32::from_be_bytes)?;
    bytes.get(12..)?.get(usize::try_from(length).ok()?..)
}

/// A record's headers: their count, then for each the length of its name, the name, the length of its value (-1
/// for null) and the value. No bytes may follow.
pub fn read_headers(bytes: &[u8]) -> Option<HeaderBuf> {
    let mut headers = HeaderBuf::default();
    let (count, mut rest) = varint(bytes)?;
    for _ in 0..count {
        let (name, after) = prefixed_bytes(rest)?;
        let (value, after) = prefixed_bytes(after)?;
        headers.push(name?, value);
        rest = after;
    }
    (count >= 0 && rest.is_empty()).then_some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_old_messages_are_counted() {
        // Length 6, in zigzag: attributes, times, no key, no value, no headers.
        let record = [12, 0, 0, 0, 1, 1, 0];
        assert_eq!(count_records(&record.repeat(1_000)), 1_000);
        let mut message = vec![0; 8];
        message.extend(14_u32.to_be_bytes());
        message.extend([7; 14]);
        assert_eq!(count_records(&message.repeat(1_000)), 1_000);
        // A length of two bytes.
        let long: Vec<u8> = [0x80, 0x02].into_iter().chain([0; 128]).collect();
        assert_eq!(count_records(&long.repeat(3)), 3);
    }

    #[test]
    fn malformed_record_ends_the_count() {
        for broken in [&[][..], &[1], &[0x80], &[0xff; 64], &[40, 0]] {
            assert_eq!(count_records(broken), 0, "{broken:?}");
        }
        // One record whose value could be mistaken for many messages.
        let zeros: Vec<u8> = [0x80, 0x02].into_iter().chain([0; 128]).collect();
        assert_eq!(count_records(&zeros), 1);
    }

    #[test]
    fn headers_are_read_byte_for_byte() {
        // Three headers: "id" = 0xff 0x00, "" = null, "e\0" = "".
        let bytes = [6, 4, b'i', b'd', 4, 0xff, 0, 0, 1, 4, b'e', 0, 0];
        let mut expected = HeaderBuf::default();
        expected.push(b"id", Some(&[0xff, 0]));
        expected.push(b"", None);
        expected.push(b"e\0", Some(b""));
        assert_eq!(read_headers(&bytes), Some(expected));
        assert_eq!(read_headers(&[0]), Some(HeaderBuf::default()));
        // A length of 64 takes two bytes.
        let long: Vec<u8> = [2, 0x80, 1].into_iter().chain([b'n'; 64]).chain([1]).collect();
        assert_eq!(read_headers(&long).unwrap().as_headers().iter().next().unwrap().name, [b'n'; 64]);
    }

    #[test]
    fn malformed_headers_are_rejected() {
        let valid = [4, 2, b'a', 2, b'1', 2, b'b', 1];
        assert!(read_headers(&valid).is_some());
        for length in 0..valid.len() {
            assert_eq!(read_headers(&valid[..length]), None, "{length} bytes");
        }
        let overlong: Vec<u8> = valid.into_iter().chain([0]).collect();
        // A negative count, a null name, a negative length, a length that is too long, a varint that does not end, a
        // trailing byte.
        let broken = [&[1][..], &[2, 1, 1], &[2, 0, 3], &[2, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1], &[0xff; 16], &overlong];
        for bytes in broken {
            assert_eq!(read_headers(bytes), None, "{bytes:?}");
        }
    }
}
