//! Fetch, version 11: the last version that is not flexible (KIP-482); every broker since 2.3 knows it.
//!
//! ```text
//! request:   replica -1 · max wait ms i32 · min bytes i32 · max bytes i32 · isolation i8 · session id i32, epoch i32 ·
//!            topics [name, partitions [partition i32, leader epoch i32, offset i64, log start -1 i64, max bytes i32]]
//!            · forgotten [name, partitions [i32]] · rack
//! response:  throttle ms i32 · error i16 · session id i32 · topics [name, partitions [partition i32, error i16,
//!            high watermark i64, last stable offset i64, log start i64, aborted [producer id i64, first offset i64],
//!            preferred replica i32, records]]
//! ```
//!
//! In a session (KIP-227) a request names only partitions that have changed and those to forget, and a response only
//! partitions with records or changes. All requests have the isolation level read_committed, and contain the leader
//! epoch that the client knows (KIP-320), so that a broker whose epoch differs responds with an error.

use std::ops::Range;

use super::super::primitives::{Reader, put_text};
use super::super::records::AbortedTransaction;
use super::Malformed;

/// Fetch's API key.
pub const API_KEY: i16 = 1;
/// The supported version.
pub const VERSION: i16 = 11;

const REPLICA_NONE: i32 = -1;
const READ_COMMITTED: i8 = 1;
const LOG_START_NONE: i64 = -1;
/// The fewest bytes that a partition in a response takes, and the bytes of an aborted transaction.
const PARTITION_BYTES_MIN: usize = 4 + 2 + 3 * 8 + 4 + 4 + 4;
const ABORTED_BYTES: usize = 8 + 8;
/// The fewest bytes that a topic takes: an empty name, and the count of its partitions.
const TOPIC_BYTES_MIN: usize = 2 + 4;

/// A fetch session (KIP-227).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The id that the broker assigned, 0 for none.
    pub id: i32,
    /// 0 opens a session, or replaces the session `id` with a new one; -1 ends the session, or requests none; otherwise
    /// the number of the request in the session, from 1.
    pub epoch: i32,
}

impl Session {
    /// Opens a session: all partitions are named.
    pub const OPEN: Self = Self { id: 0, epoch: 0 };
    /// No session: all partitions are named in each request.
    pub const NONE: Self = Self { id: 0, epoch: -1 };

    /// The session of the next request, after a response without error whose session id is `id`. If the broker had no
    /// room for a session, `id` is 0, and the next request attempts again to open one.
    pub fn next(self, id: i32) -> Self {
        match (id, self.epoch) {
            (0, _) => Self::OPEN,
            // After the largest number, the count restarts at 1.
            (id, i32::MAX) => Self { id, epoch: 1 },
            (id, epoch) => Self { id, epoch: epoch + 1 },
        }
    }

    /// The session of a request that ends this session and opens another, after an error of the session.
    pub fn reopen(self) -> Self {
        Self { id: self.id, epoch: 0 }
    }
}

/// How long a broker may wait, and how much it may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long the broker waits for `bytes_min`.
    pub max_wait_ms: i32,
    /// The number of bytes with which the broker responds at once.
    pub bytes_min: i32,
    /// The most bytes for all partitions together; the broker exceeds it only if the first batch is larger.
    pub bytes_max: i32,
}

/// A partition to be read, and the offset from which to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// The partition.
    pub partition: i32,
    /// The known epoch of the leader, -1 for none.
    pub leader_epoch: i32,
    /// The offset.
    pub offset: i64,
    /// The most bytes of the partition; the broker exceeds it only if the first batch is larger.
    pub bytes_max: i32,
}

/// A list of topics that is being written: for each, its name and its partitions.
#[derive(Debug)]
struct Topics {
    bytes: Vec<u8>,
    count: i32,
    /// The last topic: the position of its name, the position of its count of partitions, and that count.
    last: Option<(Range<usize>, usize, i32)>,
}

impl Topics {
    /// An empty list in `buffer`. `head`: what precedes the topics, with space for their count, which
    /// [`Request::finish`] writes.
    fn new(mut buffer: Vec<u8>, head: &[u8]) -> Self {
        buffer.clear();
        buffer.extend_from_slice(head);
        Self { bytes: buffer, count: 0, last: None }
    }

    /// Adds a partition of `topic`, whose fields the caller writes next.
    fn add(&mut self, topic: &str) {
        match &mut self.last {
            Some((name, count_at, count)) if self.bytes.get(name.clone()) == Some(topic.as_bytes()) => {
                *count += 1;
                overwrite_count(&mut self.bytes, *count_at, *count);
            }
            _ => {
                let start = self.bytes.len();
                put_text(&mut self.bytes, topic);
                let count_at = self.bytes.len();
                self.bytes.extend_from_slice(&1_i32.to_be_bytes());
                self.last = Some((start + 2..count_at, count_at, 1));
                self.count += 1;
            }
        }
    }
}

/// Overwrites the count at this position.
fn overwrite_count(bytes: &mut [u8], at: usize, count: i32) {
    if let Some(target) = bytes.get_mut(at..at + 4) {
        target.copy_from_slice(&count.to_be_bytes());
    }
}

/// The position of a request's count of topics.
const TOPICS_AT: usize = 4 + 4 + 4 + 4 + 1 + 4 + 4;

/// A request that is being written.
#[derive(Debug)]
pub struct Request {
    topics: Topics,
    forgotten: Topics,
}

impl Request {
    /// Starts a request in `buffer`, which is cleared.
    pub fn new(buffer: Vec<u8>, limits: Limits, session: Session) -> Self {
        let mut head = Vec::with_capacity(TOPICS_AT + 4);
        for number in [REPLICA_NONE, limits.max_wait_ms, limits.bytes_min, limits.bytes_max] {
            head.extend_from_slice(&number.to_be_bytes());
        }
        head.extend_from_slice(&READ_COMMITTED.to_be_bytes());
        for number in [session.id, session.epoch, 0] {
            head.extend_from_slice(&number.to_be_bytes());
        }
        Self { topics: Topics::new(buffer, &head), forgotten: Topics::new(Vec::new(), &[0; 4]) }
    }

    /// Adds a partition to be read. Partitions of the same topic have to be added in succession.
    pub fn want(&mut self, topic: &str, wanted: FetchPartition) {
        self.topics.add(topic);
        let bytes = &mut self.topics.bytes;
        bytes.extend_from_slice(&wanted.partition.to_be_bytes());
        bytes.extend_from_slice(&wanted.leader_epoch.to_be_bytes());
        bytes.extend_from_slice(&wanted.offset.to_be_bytes());
        bytes.extend_from_slice(&LOG_START_NONE.to_be_bytes());
        bytes.extend_from_slice(&wanted.bytes_max.to_be_bytes());
    }

    /// Adds a partition that the session should forget. Partitions of the same topic have to be added in succession.
    pub fn forget(&mut self, topic: &str, partition: i32) {
        self.forgotten.add(topic);
        self.forgotten.bytes.extend_from_slice(&partition.to_be_bytes());
    }

    /// The request's body.
    pub fn finish(self) -> Vec<u8> {
        let Self { mut topics, mut forgotten } = self;
        overwrite_count(&mut topics.bytes, TOPICS_AT, topics.count);
        overwrite_count(&mut forgotten.bytes, 0, forgotten.count);
        topics.bytes.extend_from_slice(&forgotten.bytes);
        // No rack is sent, so that all reads go to the leader.
        put_text(&mut topics.bytes, "");
        topics.bytes
    }
}

/// A response, borrowed from its body.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// An error of the whole request, such as an invalid session.
    pub error: i16,
    /// The session's id, 0 for none.
    pub session_id: i32,
    topics: Reader<'a>,
    count: usize,
}

impl<'a> Response<'a> {
    /// Reads a response's body and checks all of it.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let response = Self::read_head(body).ok_or(Malformed("Fetch"))?;
        let mut partitions = response.partitions();
        partitions.by_ref().for_each(drop);
        if partitions.is_whole() { Ok(response) } else { Err(Malformed("Fetch")) }
    }

    fn read_head(body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        // The throttle time, which the connection has read.
        reader.i32()?;
        let (error, session_id) = (reader.i16()?, reader.i32()?);
        let count = reader.count(TOPIC_BYTES_MIN)?;
        Some(Self { error, session_id, topics: reader, count })
    }

    /// The partitions in the response.
    pub fn partitions(&self) -> Partitions<'a> {
        Partitions { reader: self.topics, topics_left: self.count, topic: "", partitions_left: 0, failed: false }
    }
}

/// A partition in a response.
#[derive(Clone, Copy, Debug)]
pub struct Partition<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The partition's error, 0 for none.
    pub error: i16,
    /// The offset after the records that all in-sync replicas have, -1 after an error.
    pub high_watermark: i64,
    /// The offset after the records that can be read with read_committed, -1 after an error.
    pub last_stable_offset: i64,
    /// The first offset in the log, -1 after an error.
    pub log_start_offset: i64,
    /// The transactions that were aborted.
    pub aborted: AbortedList<'a>,
    /// The replica that the broker recommends for reading, -1 for none. A request without a rack receives none.
    pub preferred_replica: i32,
    /// Whole batches, and perhaps the beginning of another: see [`super::super::records::Batches`].
    pub records: &'a [u8],
    /// The position of `records` in the body, for callers that keep the body.
    pub records_at: usize,
}

impl Partition<'_> {
    /// The range of the records in the body.
    pub fn records_range(&self) -> Range<usize> {
        self.records_at..self.records_at + self.records.len()
    }
}

/// The aborted transactions in the records that were fetched from a partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct AbortedList<'a> {
    bytes: &'a [u8],
}

impl<'a> AbortedList<'a> {
    /// How many transactions the list contains.
    pub fn len(&self) -> usize {
        self.bytes.len() / ABORTED_BYTES
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The transactions in the list.
    pub fn iter(&self) -> impl Iterator<Item = AbortedTransaction> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || Some(AbortedTransaction { producer_id: reader.i64()?, first_offset: reader.i64()? }))
    }
}

/// The partitions of a response.
#[derive(Clone, Debug)]
pub struct Partitions<'a> {
    reader: Reader<'a>,
    topics_left: usize,
    topic: &'a str,
    partitions_left: usize,
    failed: bool,
}

impl<'a> Partitions<'a> {
    /// Whether all partitions were read, and no bytes follow.
    fn is_whole(&self) -> bool {
        !self.failed && self.topics_left == 0 && self.partitions_left == 0 && self.reader.rest().is_empty()
    }

    /// The next partition, `Some(None)` after the last, `None` if it is malformed.
    fn read_next(&mut self) -> Option<Option<Partition<'a>>> {
        while self.partitions_left == 0 {
            if self.topics_left == 0 {
                return Some(None);
            }
            self.topics_left -= 1;
            self.topic = self.reader.text()??;
            self.partitions_left = self.reader.count(PARTITION_BYTES_MIN)?;
        }
        self.partitions_left -= 1;
        let reader = &mut self.reader;
        let (partition, error) = (reader.i32()?, reader.i16()?);
        let (high_watermark, last_stable_offset, log_start_offset) = (reader.i64()?, reader.i64()?, reader.i64()?);
        let aborted = reader.count(ABORTED_BYTES)?;
        let aborted = AbortedList { bytes: reader.take(aborted * ABORTED_BYTES)? };
        let preferred_replica = reader.i32()?;
        let records = reader.bytes()?.unwrap_or_default();
        let records_at = reader.position() - records.len();
        Some(Some(Partition {
            topic: self.topic,
            partition,
            error,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted,
            preferred_replica,
            records,
            records_at,
        }))
    }
}

impl<'a> Iterator for Partitions<'a> {
    type Item = Partition<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.read_next();
        self.failed = next.is_none();
        next.flatten()
    }
}
