//! The bytes of an embedded cluster's folder, in one place.
//!
//! The folder holds `embedded.lock` (locked by the process that has the cluster open) and `db`, one
//! RocksDB with one column family. A kind byte leads every key; numbers in keys are big-endian, so that
//! the keys' order is the records' order.
//!
//! | key | value | cardinality |
//! |---|---|---|
//! | `00` | [`FolderMeta`] | one |
//! | `01` topic name | [`TopicMeta`] | one per topic |
//! | `02` topic id (16), partition (4) | [`PartitionMeta`] | one per partition |
//! | `03` topic id (16), partition (4), offset (8) | a record, see below | one per record |
//! | `04` length (2), group, length (2), topic, partition (4) | [`OffsetMeta`] | one per committed offset |
//!
//! The batches of the database's write-ahead log also hold marks, which belong to no key: see [`crate::logs`].
//!
//! Values other than records are structs in bincode's standard configuration. [`FolderMeta::format`], its first byte in
//! every release, numbers the format of the whole folder; a folder with another number is rejected without guessing.
//!
//! # A record
//!
//! | bytes | what |
//! |---|---|
//! | 8 | timestamp, little-endian, `-1` for none |
//! | 4 | the key's length, little-endian, `ffffffff` for null |
//! | 4 | the value's length, likewise |
//! | … | key, value, then headers as in [`crate::record::Headers`] to the end |

use crate::cluster::{Error, ErrorKind, Message, TopicId};
use crate::record::Headers;

/// The folder format that is written and read.
pub(super) const FORMAT: u8 = 1;

const KIND_FOLDER: u8 = 0x00;
const KIND_TOPIC: u8 = 0x01;
const KIND_PARTITION: u8 = 0x02;
const KIND_RECORD: u8 = 0x03;
const KIND_OFFSET: u8 = 0x04;

/// The timestamp of a record without one.
const NO_TIMESTAMP: i64 = -1;
/// The length that means null.
const NULL: u32 = u32::MAX;
const RECORD_HEADER_BYTES: usize = 16;

/// The folder's own metadata.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(super) struct FolderMeta {
    /// [`FORMAT`].
    pub format: u8,
    /// Topic ids are derived from this and `topics_created`.
    pub seed: u64,
    /// How many topics were ever created here, so that no id is used twice.
    pub topics_created: u64,
}

/// A topic, as it was created.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(super) struct TopicMeta {
    /// Its id.
    pub id: [u8; 16],
    /// How many partitions it has.
    pub partition_count: i32,
    /// Its settings, by their Kafka names, as given.
    pub settings: Vec<(String, String)>,
}

/// A partition's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(super) struct PartitionMeta {
    /// The first retained offset.
    pub start: i64,
    /// The next offset to assign.
    pub end: i64,
    /// How many records there are, and how many the last compaction left.
    pub records: u64,
    /// See `records`.
    pub kept: u64,
    /// Tombstones below this offset were first seen by a compaction at `tombstones_since_ms`.
    pub tombstones_end: i64,
    /// See `tombstones_end`; milliseconds since the epoch.
    pub tombstones_since_ms: i64,
}

/// What a group has committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub(super) struct OffsetMeta {
    /// The next offset to read.
    pub offset: i64,
    /// The text stored with it.
    pub metadata: String,
}

/// The key of [`FolderMeta`].
pub(super) fn folder_meta_key() -> Vec<u8> {
    vec![KIND_FOLDER]
}

/// The key of a [`TopicMeta`]; with an empty name, the prefix of all of them.
pub(super) fn topic_key(name: &str) -> Vec<u8> {
    [&[KIND_TOPIC], name.as_bytes()].concat()
}

/// The key of a [`PartitionMeta`].
pub(super) fn partition_key(id: TopicId, partition: i32) -> Vec<u8> {
    [&[KIND_PARTITION][..], &id.0, &partition.to_be_bytes()].concat()
}

/// The key of a record.
pub(super) fn record_key(id: TopicId, partition: i32, offset: i64) -> Vec<u8> {
    [&[KIND_RECORD][..], &id.0, &partition.to_be_bytes(), &offset.to_be_bytes()].concat()
}

/// The offset in a record's key.
pub(super) fn offset_of(record_key: &[u8]) -> Option<i64> {
    record_key.last_chunk().map(|bytes| i64::from_be_bytes(*bytes))
}

/// The prefix of the keys of all of a group's offsets.
pub(super) fn group_prefix(group: &str) -> Vec<u8> {
    let mut key = vec![KIND_OFFSET];
    put_counted(&mut key, group);
    key
}

/// The key of an [`OffsetMeta`].
pub(super) fn offset_key(group: &str, topic: &str, partition: i32) -> Vec<u8> {
    let mut key = group_prefix(group);
    put_counted(&mut key, topic);
    key.extend_from_slice(&partition.to_be_bytes());
    key
}

/// The prefix of the keys of all offsets of all groups.
pub(super) fn offsets_prefix() -> Vec<u8> {
    vec![KIND_OFFSET]
}

/// The topic in an offset's key.
pub(super) fn topic_of(offset_key: &[u8]) -> Option<&str> {
    let (_, rest) = take_counted(offset_key.get(1..)?)?;
    let (topic, _) = take_counted(rest)?;
    std::str::from_utf8(topic).ok()
}

/// Names are at most 249 bytes (topics) or rejected beyond 64 KiB (groups): see `check_group`.
fn put_counted(key: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("names were checked to be shorter");
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(text.as_bytes());
}

fn take_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// The first key after all keys with this prefix (which is never all `ff` here).
pub(super) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut bound = prefix.to_vec();
    while let Some(last) = bound.pop() {
        if last < u8::MAX {
            bound.push(last + 1);
            break;
        }
    }
    bound
}

/// A struct's bytes.
pub(super) fn encode(value: &impl bincode::Encode) -> Vec<u8> {
    bincode::encode_to_vec(value, bincode::config::standard()).expect("a vector takes any plain struct")
}

/// Decodes a struct, which must take all of the bytes.
pub(super) fn decode<T: bincode::Decode<()>>(what: &str, bytes: &[u8]) -> Result<T, Error> {
    match bincode::decode_from_slice(bytes, bincode::config::standard()) {
        Ok((value, taken)) if taken == bytes.len() => Ok(value),
        _ => Err(damaged(what)),
    }
}

fn damaged(what: &str) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!("{what} in the embedded cluster's folder is damaged: restore the folder or start a new one"),
    )
}

/// A record's parts, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub timestamp: Option<i64>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// Appends a record's bytes to `out`, with this timestamp.
pub(super) fn encode_record(message: &Message<'_>, timestamp: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&timestamp.to_le_bytes());
    out.extend_from_slice(&length(message.key).to_le_bytes());
    out.extend_from_slice(&length(message.value).to_le_bytes());
    out.extend_from_slice(message.key.unwrap_or_default());
    out.extend_from_slice(message.value.unwrap_or_default());
    out.extend_from_slice(message.headers.as_bytes());
}

fn length(bytes: Option<&[u8]>) -> u32 {
    bytes.map_or(NULL, |bytes| u32::try_from(bytes.len()).expect("a record's size was checked"))
}

/// Reads a record's bytes.
pub(super) fn decode_record(bytes: &[u8]) -> Result<Parts<'_>, Error> {
    let torn = || damaged("a record");
    let (header, rest) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>().ok_or_else(torn)?;
    let timestamp = i64::from_le_bytes(*header.first_chunk().ok_or_else(torn)?);
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (key, rest) = take(rest, word(8)).ok_or_else(torn)?;
    let (value, rest) = take(rest, word(12)).ok_or_else(torn)?;
    Ok(Parts {
        timestamp: (timestamp != NO_TIMESTAMP).then_some(timestamp),
        key,
        value,
        headers: Headers::from_bytes(rest),
    })
}

/// Splits `length` bytes off the front, none for null.
fn take(bytes: &[u8], length: u32) -> Option<(Option<&[u8]>, &[u8])> {
    if length == NULL {
        return Some((None, bytes));
    }
    let (taken, rest) = bytes.split_at_checked(length as usize)?;
    Some((Some(taken), rest))
}
