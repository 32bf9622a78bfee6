//! The bytes of everything that ratchet persists, in one place. They must last: every later release reads
//! what is described here, and a change means a new format number.
//!
//! # Changelog and store
//!
//! A changelog record is (key, value); the store holds the same bytes under the same key. A kind byte
//! leads every key, so that nothing collides with an identity. All numbers are big-endian.
//!
//! | key | value | cardinality | where |
//! |---|---|---|---|
//! | `00` | [`PositionRecord`] | one per partition | changelog and store |
//! | `10` identity | [`EntryRef`] | one per identity of up to [`IDENTITY_BYTES_MAX`] bytes | changelog and store |
//! | `11` SHA-256 of the identity (32 bytes) | [`EntryRef`] | one per longer identity | changelog and store |
//! | `ff` `m` | [`StoreMeta`] | one per store | store only |
//!
//! A null value in the changelog is a tombstone: the key is gone from the store.
//!
//! # Identity
//!
//! The parts of an identity, one after the other, each with a tag byte and, unless the tag implies the
//! size, a length, so that parts cannot run into each other: see [`crate::dedup::identity`].
//!
//! # Entry
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format, [`ENTRY_FORMAT`] |
//! | 1 | flags: 1 has a version, 2 owes a tombstone, 4 has a scope, 8 the record's key was null, 16 a snapshot's read, 32 a streamed change's version beneath it, 64 has contents |
//! | 4 | the record key's hash: Kafka's partitioner's (murmur2, 31 bits) |
//! | 8 | when it was last seen: milliseconds since the epoch, `-1` where no timestamp was known yet |
//! | 1 + 8 n | the number of contents, 1 to 8, and a [`Digest`] of each, oldest first (flag 64) |
//! | 2 | the number of the version's scope in the position record (flag 4) |
//! | 4 + n | the length and the bytes of the last streamed change's version, which is lower (flag 32; 1 and 16 are set) |
//! | rest | the version's bytes (flag 1): their order is the versions' order, see [`crate::dedup::version`] |
//!
//! An entry of format 2 holds up to two of these, for what was settled and for what is under way: see [`Remembered`].
//!
//! # Position record and store meta
//!
//! A format byte, then the fields in order, as bincode 2 writes them in its standard configuration:
//!
//! - `varint`: an unsigned number: below 251 one byte; else `fb` and 2 bytes, `fc` and 4, `fd` and 8, little-endian
//! - `zigzag`: a signed number as the varint of 2 n, or of -2 n - 1 where it is negative
//! - `bytes`: their count as a varint, then the bytes; a `list` likewise: the count, then the items
//! - `optional`: `00`, or `01` and the value
//!
//! | position record | bytes |
//! |---|---|
//! | format | [`POSITION_FORMAT`], 1 byte |
//! | token: lane | varint |
//! | token: transaction | varint |
//! | token: changelog id | 16 bytes |
//! | token: partition | zigzag |
//! | owner | bytes, UTF-8 |
//! | input id | 16 bytes |
//! | processed | list of: from zigzag, to zigzag |
//! | stream time | zigzag |
//! | horizon | zigzag |
//! | rules digest | 32 bytes |
//! | generation | varint |
//! | task count | varint |
//! | truncates | varint |
//! | scopes | list of: bytes, segments, reached |
//! | segments of a scope | list of: above optional bytes, began zigzag |
//! | reached of a scope | list of: offset zigzag, version bytes |
//!
//! | store meta | bytes |
//! |---|---|
//! | format | [`STORE_META_FORMAT`], 1 byte |
//! | changelog id | 16 bytes |
//! | partition | zigzag |
//! | changelog offset | zigzag |
//! | token | optional: the four fields of a token as above |
//! | synced at | zigzag |
//! | position offset | optional zigzag |
//!
//! A position record of format 2 goes on after the scopes with what is said about calls: see [`Calls`].
//!
//! Format 1 of a store's meta, which is still read, ends before the position offset, which is then unknown.
//!
//! # Redo
//!
//! The Kafka half of a task's transaction, kept in the row of a committing sink until Kafka has it: see [`Redo`].
//!
//! # Control topic
//!
//! Commands to a topology's tasks, and what the tasks have made of them: see [`Command`] and [`Acknowledgement`].
//!
//! # HTTP requests
//!
//! What is remembered of requests that are carried out once, in stores of their own: see [`request`].
//!
//! # Rules' text
//!
//! In the state folder, `slot-N/.rules/TOPOLOGY.DIGEST`: the text from which the rules' digest is made, as UTF-8, in a file
//! named after the digest's first 16 hex digits. It only explains the digest when a later start finds a different one. It has
//! no format number: it is believed only if it has that digest, and other releases do not look there.
//!
//! # Committed offset's metadata
//!
//! `ratchet/1 TOKEN DIGEST OWNER`, where TOKEN is a [`Token`] as text, DIGEST the first 16 hex digits of
//! the rules' digest, OWNER a transactional id or `released`: see [`OffsetMetadata`].

use std::fmt;
use std::str::FromStr;

// By their paths, since fuzzing takes this file by its own.
#[path = "format/calls.rs"]
mod calls;
#[path = "format/contents.rs"]
mod contents;
#[path = "format/control.rs"]
mod control;
#[path = "format/murmur2.rs"]
mod murmur2;
#[path = "format/offset_metadata.rs"]
mod offset_metadata;
#[path = "format/redo.rs"]
mod redo;
#[path = "format/remembered.rs"]
mod remembered;
#[path = "format/request.rs"]
pub mod request;

pub use calls::{Calls, Control, Grant};
pub use contents::{CONTENTS_MAX, Contents, ContentsList, DIGEST_BYTES, DIGEST_TAGS, Digest, KnownContents};
pub use control::{Acknowledgement, CONTROL_FORMAT, Command, CommandId, Instruction, ManualDecision, Outcome};
pub use murmur2::key_hash;
pub use offset_metadata::{METADATA_FORMAT, OffsetMetadata};
pub use redo::{REDO_FORMAT, Redo, RedoRecord, RedoWriter};
pub use remembered::{
    FINGERPRINT_BYTES, How, JOURNAL_BYTES_MAX, Journal, JournalWriter, Place, REASON_BYTES_MAX, RESULT_BYTES_MAX,
    Remembered, Reservation, ResultRef, STEP_NAME_BYTES_MAX, Settled, Step, StepState,
};

/// An identity longer than this is stored as its SHA-256.
pub const IDENTITY_BYTES_MAX: usize = 128;

/// The key of the position record.
pub const POSITION_KEY: &[u8] = &[0x00];
/// Leads the key of an identity that is stored whole.
pub const KIND_IDENTITY: u8 = 0x10;
/// Leads the key of an identity that is stored as its SHA-256.
pub const KIND_IDENTITY_DIGEST: u8 = 0x11;
/// The changelog offset in a store's meta once the changelog was found to have lost something that the store has
/// applied: the store is then ahead of anything the changelog holds.
pub const CHANGELOG_LOST: ChangelogOffset = ChangelogOffset(i64::MAX);
/// The key of the store's own position; never in a changelog.
pub const STORE_META_KEY: &[u8] = &[0xff, b'm'];

/// The entry format that is written.
pub const ENTRY_FORMAT: u8 = 1;
/// The entry format that is written where there is more to say because of calls: see [`Remembered`].
pub const ENTRY_FORMAT_CALLS: u8 = 2;
/// The position record format that is written.
pub const POSITION_FORMAT: u8 = 1;
/// The position record format that is written where there is something to say about calls: see [`Calls`].
pub const POSITION_FORMAT_CALLS: u8 = 2;
/// The store meta format that is written.
pub const STORE_META_FORMAT: u8 = 2;
/// The previous format, which is still read: it lacks the position record's offset.
const STORE_META_FORMAT_1: u8 = 1;

/// Unknown time: no record has had a timestamp yet.
pub const NO_TIME: i64 = -1;

/// Maximum memory for decoding a record, as bincode counts it: by the sizes of the decoded values.
const DECODED_BYTES_MAX: usize = 1 << 20;
/// A record of at most this many bytes is sure to stay within that: two bytes decode to about thirty at most.
const SURELY_READABLE_BYTES: usize = 32 << 10;

const FLAG_VERSION: u8 = 1;
const FLAG_OWES_TOMBSTONE: u8 = 2;
const FLAG_SCOPE: u8 = 4;
const FLAG_NULL_KEY: u8 = 8;
const FLAG_FROM_READ: u8 = 16;
const FLAG_STREAMED: u8 = 32;
const FLAG_CONTENTS: u8 = 64;
const FLAGS: u8 =
    FLAG_VERSION | FLAG_OWES_TOMBSTONE | FLAG_SCOPE | FLAG_NULL_KEY | FLAG_FROM_READ | FLAG_STREAMED | FLAG_CONTENTS;
const ENTRY_HEADER_BYTES: usize = 14;

/// Bytes that are not what this release writes or can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A format number from a later release, or no ratchet bytes at all.
    #[error("{what} has format {found}, this release reads {expected}")]
    Format {
        /// What was read.
        what: &'static str,
        /// The format number that was found.
        found: u32,
        /// The format number that this release reads.
        expected: u32,
    },
    /// Bytes that end early or say something impossible.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// What is remembered of an identity, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// When it was last seen, in stream time: milliseconds since the epoch, or [`NO_TIME`].
    pub last_seen: i64,
    /// The version's bytes; `None` if no version was known.
    pub version: Option<&'a [u8]>,
    /// The scope within which the version can be compared, by its number in the position record; `None` if it
    /// has none.
    pub scope: Option<u16>,
    /// Whether the version came from a snapshot's read.
    pub from_read: bool,
    /// The version of the last streamed change, if the version came from a read and is greater.
    pub streamed: Option<&'a [u8]>,
    /// Whether a delete was forwarded whose tombstone was not.
    pub owes_tombstone: bool,
    /// [`key_hash`] of the record's key, `None` if the key was null.
    pub key_hash: Option<u32>,
    /// The contents that were seen at the versions above, or for the identity if there is no version. Empty if they are
    /// unknown.
    pub contents: Contents<'a>,
}

impl<'a> EntryRef<'a> {
    /// Reads an entry.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Error> {
        const WHAT: &str = "an entry";
        let damaged = |reason: &str| Error::Damaged { what: WHAT, reason: reason.to_owned() };
        let &format = bytes.first().ok_or_else(|| damaged("it is empty"))?;
        if format != ENTRY_FORMAT {
            return Err(Error::Format { what: WHAT, found: format.into(), expected: ENTRY_FORMAT.into() });
        }
        let header: &[u8; ENTRY_HEADER_BYTES] = bytes.first_chunk().ok_or_else(|| damaged("it ends early"))?;
        let flags = header[1];
        if flags & !FLAGS != 0 {
            return Err(damaged("it has flags of a later release"));
        }
        let (contents, rest) = match Contents::split(&bytes[ENTRY_HEADER_BYTES..]) {
            _ if flags & FLAG_CONTENTS == 0 => (Contents::NONE, &bytes[ENTRY_HEADER_BYTES..]),
            Some(split) => split,
            None => return Err(damaged("its contents end early, or their number is impossible")),
        };
        let (scope, rest) = match rest.split_first_chunk() {
            _ if flags & FLAG_SCOPE == 0 => (None, rest),
            Some((number, rest)) => (Some(u16::from_be_bytes(*number)), rest),
            None => return Err(damaged("it ends early")),
        };
        let (streamed, version) = match split_counted(rest) {
            _ if flags & FLAG_STREAMED == 0 => (None, rest),
            _ if flags & (FLAG_VERSION | FLAG_FROM_READ) != FLAG_VERSION | FLAG_FROM_READ => {
                return Err(damaged("its flags contradict each other"));
            }
            Some((streamed, version)) => (Some(streamed), version),
            None => return Err(damaged("it ends early")),
        };
        if flags & FLAG_VERSION == 0 && !version.is_empty() {
            return Err(damaged("bytes follow its end"));
        }
        Ok(Self {
            last_seen: i64::from_be_bytes(header[6..14].try_into().expect("eight bytes")),
            version: (flags & FLAG_VERSION != 0).then_some(version),
            scope,
            from_read: flags & FLAG_FROM_READ != 0,
            streamed,
            owes_tombstone: flags & FLAG_OWES_TOMBSTONE != 0,
            key_hash: (flags & FLAG_NULL_KEY == 0)
                .then(|| u32::from_be_bytes(header[2..6].try_into().expect("four bytes"))),
            contents,
        })
    }

    /// The version of the last streamed change; `None` if unknown.
    pub fn last_streamed(&self) -> Option<&'a [u8]> {
        if self.from_read { self.streamed } else { self.version }
    }

    /// Appends the entry's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.version.is_some()) * FLAG_VERSION
            + u8::from(self.owes_tombstone) * FLAG_OWES_TOMBSTONE
            + u8::from(self.scope.is_some()) * FLAG_SCOPE
            + u8::from(self.key_hash.is_none()) * FLAG_NULL_KEY
            + u8::from(self.from_read) * FLAG_FROM_READ
            + u8::from(self.streamed.is_some()) * FLAG_STREAMED
            + u8::from(!self.contents.is_empty()) * FLAG_CONTENTS;
        out.extend_from_slice(&[ENTRY_FORMAT, flags]);
        out.extend_from_slice(&self.key_hash.unwrap_or(0).to_be_bytes());
        out.extend_from_slice(&self.last_seen.to_be_bytes());
        self.contents.encode(out);
        if let Some(scope) = self.scope {
            out.extend_from_slice(&scope.to_be_bytes());
        }
        if let Some(streamed) = self.streamed {
            // A version is part of a record, so it is shorter than 4 GiB.
            out.extend_from_slice(&(streamed.len() as u32).to_be_bytes());
            out.extend_from_slice(streamed);
        }
        out.extend_from_slice(self.version.unwrap_or_default());
    }
}

/// Splits length-prefixed bytes from what follows them.
fn split_counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// Names one committed transaction of one task. It is stored in the position record, in the committed
/// offset's metadata and, after the commit, in the store; if the three agree, the store is current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, bincode::Encode, bincode::Decode)]
pub struct Token {
    /// Random for each start of a lane.
    pub lane: u64,
    /// The number of the lane's transaction, counted from 1.
    pub transaction: u64,
    /// The changelog topic's id.
    pub changelog_id: [u8; 16],
    /// The partition of the changelog, and so of the input.
    pub partition: i32,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = u128::from_be_bytes(self.changelog_id);
        write!(f, "{:016x}.{:x}.{id:032x}.{}", self.lane, self.transaction, self.partition)
    }
}

impl FromStr for Token {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split('.').collect();
        let &[lane, transaction, id, partition] = parts.as_slice() else { return Err(()) };
        Ok(Self {
            lane: u64::from_str_radix(lane, 16).map_err(drop)?,
            transaction: u64::from_str_radix(transaction, 16).map_err(drop)?,
            changelog_id: u128::from_str_radix(id, 16).map_err(drop)?.to_be_bytes(),
            partition: partition.parse().map_err(drop)?,
        })
    }
}

/// What a task has done, as of one transaction: the last changelog record of every transaction.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct PositionRecord {
    /// The transaction.
    pub token: Token,
    /// The transactional id that wrote it.
    pub owner: String,
    /// The input topic's id.
    pub input_id: [u8; 16],
    /// The ranges of source offsets that were processed, start and end (exclusive), ascending and disjoint.
    /// There is one, unless a group reset has skipped records. The last one's end is where reading continues. If that
    /// is not the end of a range, because nothing before it was processed (yet), an empty range at that offset comes
    /// last. Code that does not expect it ignores it.
    pub processed: Vec<(i64, i64)>,
    /// The highest record timestamp seen, or [`NO_TIME`].
    pub stream_time: i64,
    /// The highest `stream time - retention` ever in force, `i64::MIN` if nothing has ever expired.
    pub horizon: i64,
    /// SHA-256 of the rules that the entries were created under.
    pub rules_digest: [u8; 32],
    /// Would count how often the topology was rescaled; always 1.
    pub generation: u32,
    /// How many tasks the topology has: the input's partition count.
    pub task_count: u32,
    /// How many truncates were ever remembered; while 0, no table has an entry.
    pub truncates: u64,
    /// The scopes within which versions can be compared, by number: see [`crate::dedup::epochs`].
    pub scopes: Vec<Scope>,
}

/// A scope within which versions can be compared, and what was seen of it.
#[derive(Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Scope {
    /// What identifies it: the parts of an epoch, encoded like an identity.
    pub bytes: Vec<u8>,
    /// Its segments, in ascending order of their bounds; never empty.
    pub segments: Vec<Segment>,
    /// The highest versions it had reached, in ascending order of offset and version.
    pub reached: Vec<Reached>,
}

/// The versions of a scope above a bound, up to the next segment's bound.
#[derive(Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Segment {
    /// The bound; `None` if there is none.
    pub above: Option<Vec<u8>>,
    /// The lowest source offset at which one of these versions was seen.
    pub began: i64,
}

/// The highest version that a scope had reached at an offset.
#[derive(Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Reached {
    /// The source offset.
    pub offset: i64,
    /// The version's bytes.
    pub version: Vec<u8>,
}

/// Implements `Clone` with a `clone_from` that reuses memory: a task's progress is copied with each transaction.
macro_rules! clone_in_place {
    ($name:ident { $($field:ident),+ }) => {
        impl Clone for $name {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone()),+ }
            }

            fn clone_from(&mut self, source: &Self) {
                $(self.$field.clone_from(&source.$field);)+
            }
        }
    };
}

clone_in_place!(Scope { bytes, segments, reached });
clone_in_place!(Segment { above, began });
clone_in_place!(Reached { offset, version });

/// An offset in a changelog partition: a type of its own, so that it is never taken for an offset in the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, bincode::Encode, bincode::Decode)]
pub struct ChangelogOffset(pub i64);

impl ChangelogOffset {
    /// The offset after it.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// How many offsets it lies beyond an `earlier` one.
    pub fn since(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for ChangelogOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How far a store has got.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct StoreMeta {
    /// The changelog topic's id.
    pub changelog_id: [u8; 16],
    /// The changelog's partition.
    pub partition: i32,
    /// The next changelog offset to read, or [`CHANGELOG_LOST`].
    pub changelog_offset: ChangelogOffset,
    /// The transaction that the store is the result of; `None` while it is being restored.
    pub token: Option<Token>,
    /// The wall clock when this was written, in milliseconds since the epoch.
    pub synced_at: i64,
    /// The changelog offset of the position record that the store holds; `None` if unknown.
    pub position_offset: Option<ChangelogOffset>,
}

/// [`StoreMeta`] in the previous format.
#[derive(bincode::Decode)]
struct StoreMetaFormat1 {
    changelog_id: [u8; 16],
    partition: i32,
    changelog_offset: ChangelogOffset,
    token: Option<Token>,
    synced_at: i64,
}

impl From<StoreMetaFormat1> for StoreMeta {
    fn from(old: StoreMetaFormat1) -> Self {
        let StoreMetaFormat1 { changelog_id, partition, changelog_offset, token, synced_at } = old;
        Self { changelog_id, partition, changelog_offset, token, synced_at, position_offset: None }
    }
}

fn encode_struct(format: u8, value: impl bincode::Encode) -> Vec<u8> {
    let mut out = vec![format];
    bincode::encode_into_std_write(value, &mut out, bincode::config::standard())
        .expect("a vector takes every byte and these structs have no unencodable field");
    out
}

fn decode_struct<T: bincode::Decode<()>>(what: &'static str, format: u8, bytes: &[u8]) -> Result<T, Error> {
    let damaged = |reason: String| Error::Damaged { what, reason };
    let (&found, body) = bytes.split_first().ok_or_else(|| damaged("it is empty".to_owned()))?;
    if found != format {
        return Err(Error::Format { what, found: found.into(), expected: format.into() });
    }
    let config = bincode::config::standard().with_limit::<DECODED_BYTES_MAX>();
    let (value, used) = bincode::decode_from_slice(body, config).map_err(|e| damaged(e.to_string()))?;
    if used != body.len() {
        return Err(damaged("bytes follow its end".to_owned()));
    }
    Ok(value)
}

impl PositionRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode_struct(POSITION_FORMAT, self)
    }

    /// Whether the result of [`PositionRecord::encode`] or of [`PositionRecord::encode_with`] can be read again. To be
    /// checked before it is written.
    pub fn is_readable(encoded: &[u8]) -> bool {
        encoded.len() <= SURELY_READABLE_BYTES || Self::decode_with_calls(encoded).is_ok()
    }

    /// Reads a position record.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        decode_struct("a position record", POSITION_FORMAT, bytes)
    }
}

impl StoreMeta {
    /// The meta's bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode_struct(STORE_META_FORMAT, self)
    }

    /// Reads a store's meta.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        const WHAT: &str = "a store's meta";
        if bytes.first() == Some(&STORE_META_FORMAT_1) {
            return decode_struct::<StoreMetaFormat1>(WHAT, STORE_META_FORMAT_1, bytes).map(Self::from);
        }
        decode_struct(WHAT, STORE_META_FORMAT, bytes)
    }
}

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that were written as hex digits.
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests;
