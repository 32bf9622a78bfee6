//! The redo: everything that a transaction writes to Kafka for one task.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format, [`REDO_FORMAT`] |
//! | 8 | the source offset at which the transaction began |
//! | 8 | the next source offset |
//! | rest | the records, in order |
//!
//! | a record | bytes |
//! |---|---|
//! | where | 1 byte: 0 the task's changelog, 1 a topic |
//! | topic | length (2), bytes; only of a topic |
//! | partition | 4, signed; only of a topic |
//! | timestamp | 8, signed: milliseconds since the epoch, the lowest number for none; only of a topic |
//! | headers | length (4), bytes as in [`Headers::as_bytes`]; only of a topic |
//! | key, value | length (4), all ones for null, and the bytes |
//!
//! All numbers are big-endian. A record of the changelog goes to the task's own partition of it and has neither headers
//! nor a timestamp; the last one is the position record.

use crate::record::Headers;

use super::{Error, POSITION_KEY};

/// The redo format that is written.
pub const REDO_FORMAT: u8 = 1;

const WHAT: &str = "a redo";
const CHANGELOG: u8 = 0;
const TOPIC: u8 = 1;
const NULL: u32 = u32::MAX;
const NO_TIMESTAMP: i64 = i64::MIN;
const PREAMBLE_BYTES: usize = 17;

/// A redo, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redo<'a> {
    /// The source offset at which the transaction began: where the group stands while it lacks this.
    pub began: i64,
    /// The next source offset.
    pub next: i64,
    records: &'a [u8],
}

/// A record of a redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedoRecord<'a> {
    /// One for the task's changelog partition.
    Changelog {
        /// The key.
        key: &'a [u8],
        /// The value, `None` for a tombstone.
        value: Option<&'a [u8]>,
    },
    /// One for another topic, such as a dead letter.
    Topic {
        /// The topic.
        topic: &'a str,
        /// The partition.
        partition: i32,
        /// Milliseconds since the epoch; `None` for the time at which it is written.
        timestamp: Option<i64>,
        /// The headers.
        headers: Headers<'a>,
        /// The key, `None` for null.
        key: Option<&'a [u8]>,
        /// The value, `None` for null.
        value: Option<&'a [u8]>,
    },
}

impl<'a> Redo<'a> {
    /// Reads a redo; all of it is checked.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Error> {
        let damaged = |reason: &str| Error::Damaged { what: WHAT, reason: reason.to_owned() };
        let (&format, body) = bytes.split_first().ok_or_else(|| damaged("it is empty"))?;
        if format != REDO_FORMAT {
            return Err(Error::Format { what: WHAT, found: format.into(), expected: REDO_FORMAT.into() });
        }
        let (preamble, records) = body.split_at_checked(PREAMBLE_BYTES - 1).ok_or_else(|| damaged("it ends early"))?;
        let mut rest = preamble;
        let [began, next] = [(); 2].map(|()| take_array(&mut rest).map_or(0, i64::from_be_bytes));
        let redo = Self { began, next, records };
        let (mut rest, mut last) = (records, None);
        while !rest.is_empty() {
            let record = take_record(&mut rest);
            last = Some(record.ok_or_else(|| damaged("a record ends early, or is of an unknown kind"))?);
        }
        match last {
            Some(RedoRecord::Changelog { key: POSITION_KEY, value: Some(_) }) => Ok(redo),
            _ => Err(damaged("it does not end with a position record")),
        }
    }

    /// How many records go to the changelog.
    pub fn changelog_records(&self) -> usize {
        self.records().filter(|record| matches!(record, RedoRecord::Changelog { .. })).count()
    }

    /// The records, in order.
    pub fn records(&self) -> impl Iterator<Item = RedoRecord<'a>> + use<'a> {
        let mut rest = self.records;
        std::iter::from_fn(move || if rest.is_empty() { None } else { take_record(&mut rest) })
    }
}

/// A redo being written.
#[derive(Clone, Debug, Default)]
pub struct RedoWriter {
    bytes: Vec<u8>,
}

impl RedoWriter {
    /// Starts over, keeping the memory.
    pub fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.push(REDO_FORMAT);
        self.bytes.extend_from_slice(&[0; PREAMBLE_BYTES - 1]);
    }

    /// The memory that [`RedoWriter::begin`] keeps, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// What was written so far; a redo once it is finished.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a record.
    pub fn push(&mut self, record: RedoRecord<'_>) {
        let bytes = &mut self.bytes;
        let (key, value) = match record {
            RedoRecord::Changelog { key, value } => {
                bytes.push(CHANGELOG);
                (Some(key), value)
            }
            RedoRecord::Topic { topic, partition, timestamp, headers, key, value } => {
                bytes.push(TOPIC);
                let length = u16::try_from(topic.len()).expect("a topic's name has at most 249 bytes");
                bytes.extend_from_slice(&length.to_be_bytes());
                bytes.extend_from_slice(topic.as_bytes());
                bytes.extend_from_slice(&partition.to_be_bytes());
                bytes.extend_from_slice(&timestamp.unwrap_or(NO_TIMESTAMP).to_be_bytes());
                put_counted(bytes, Some(headers.as_bytes()));
                (key, value)
            }
        };
        put_counted(bytes, key);
        put_counted(bytes, value);
    }

    /// The redo of a transaction that began at one source offset and ends before another.
    pub fn finish(&mut self, began: i64, next: i64) -> &[u8] {
        self.bytes[1..9].copy_from_slice(&began.to_be_bytes());
        self.bytes[9..PREAMBLE_BYTES].copy_from_slice(&next.to_be_bytes());
        &self.bytes
    }
}

fn put_counted(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    let length = part.map_or(NULL, |part| u32::try_from(part.len()).expect("a record is far below 4 GiB"));
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(part.unwrap_or_default());
}

pub(super) fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

pub(super) fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest, N)?.try_into().ok()
}

/// `Some(None)` for null.
fn take_counted<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match u32::from_be_bytes(take_array(rest)?) {
        NULL => Some(None),
        length => take(rest, length as usize).map(Some),
    }
}

fn take_record<'a>(rest: &mut &'a [u8]) -> Option<RedoRecord<'a>> {
    match take_array::<1>(rest)? {
        [CHANGELOG] => Some(RedoRecord::Changelog { key: take_counted(rest)??, value: take_counted(rest)? }),
        [TOPIC] => {
            let length = u16::from_be_bytes(take_array(rest)?);
            let topic = std::str::from_utf8(take(rest, length.into())?).ok()?;
            let partition = i32::from_be_bytes(take_array(rest)?);
            let timestamp = Some(i64::from_be_bytes(take_array(rest)?)).filter(|ms| *ms != NO_TIMESTAMP);
            let headers = Headers::from_bytes(take_counted(rest)??);
            let (key, value) = (take_counted(rest)?, take_counted(rest)?);
            Some(RedoRecord::Topic { topic, partition, timestamp, headers, key, value })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HeaderBuf;

    fn written(headers: Headers<'_>) -> (Vec<u8>, [RedoRecord<'_>; 4]) {
        let letter = |timestamp, key, value| RedoRecord::Topic {
            topic: "t.dead_letter",
            partition: 3,
            timestamp,
            headers,
            key,
            value,
        };
        let records = [
            letter(Some(-1), None, Some(&b"{}"[..])),
            letter(None, Some(b""), None),
            RedoRecord::Changelog { key: b"\x10id", value: None },
            RedoRecord::Changelog { key: b"\x00", value: Some(b"position") },
        ];
        let mut writer = RedoWriter::default();
        writer.begin();
        records.into_iter().for_each(|record| writer.push(record));
        (writer.finish(70, 77).to_vec(), records)
    }

    #[test]
    fn redo_is_read_as_it_was_written() {
        let mut headers = HeaderBuf::default();
        headers.push(b"reason", Some(b"late"));
        headers.push(b"none", None);
        let (bytes, records) = written(headers.as_headers());
        let redo = Redo::decode(&bytes).unwrap();
        assert_eq!((redo.began, redo.next), (70, 77));
        assert_eq!(redo.records().collect::<Vec<_>>(), records);
    }

    #[test]
    fn bytes_are_as_documented() {
        let mut writer = RedoWriter::default();
        writer.begin();
        let headers = Headers::default();
        let (key, value) = (Some(&b"k"[..]), None);
        writer.push(RedoRecord::Topic { topic: "t", partition: 2, timestamp: Some(5), headers, key, value });
        writer.push(RedoRecord::Changelog { key: b"c", value: Some(b"") });
        let expected: &[&[u8]] = &[
            &[1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9],
            &[1, 0, 1, b't', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, b'k', 255, 255, 255, 255],
            &[0, 0, 0, 0, 1, b'c', 0, 0, 0, 0],
        ];
        assert_eq!(writer.finish(8, 9), expected.concat());
    }

    #[test]
    fn redo_that_ends_anywhere_else_or_is_of_a_later_release_is_refused() {
        let (bytes, _) = written(Headers::default());
        for end in 0..bytes.len() {
            assert!(matches!(Redo::decode(&bytes[..end]), Err(Error::Damaged { .. })), "{end}");
        }
        let mut later = bytes.clone();
        later[0] = 2;
        assert!(matches!(Redo::decode(&later), Err(Error::Format { found: 2, .. })));
        let mut other = bytes;
        other[PREAMBLE_BYTES] = 7;
        assert!(matches!(Redo::decode(&other), Err(Error::Damaged { .. })));
    }
}
