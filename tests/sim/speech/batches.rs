//! A partition's records as the batches that a broker sends, and a producer's batch as records.

use ratchet::record::{HeaderBuf, Headers};

use super::super::kafka::{Found, Isolation, Log, Packing, Record, Stored};
use super::batch::{Batch, Head, Rec};

/// Records in one batch at most.
const RECORDS_MAX: usize = 16;

/// A record as it is in a batch.
fn packed(offset: i64, record: &Record) -> Rec {
    let headers = Headers::from_bytes(&record.headers);
    Rec {
        offset,
        timestamp: record.timestamp.unwrap_or(-1),
        key: record.key.as_deref().map(<[u8]>::to_vec),
        value: record.value.as_deref().map(<[u8]>::to_vec),
        headers: headers.iter().map(|of| (of.name.to_vec(), of.value.map(<[u8]>::to_vec))).collect(),
    }
}

/// The records of a batch.
pub fn records(batch: &Batch) -> Vec<Record> {
    batch.records.iter().map(record).collect()
}

/// A record as it is in a log.
pub fn record(rec: &Rec) -> Record {
    let mut headers = HeaderBuf::default();
    rec.headers.iter().for_each(|(name, value)| headers.push(name, value.as_deref()));
    Record {
        timestamp: (rec.timestamp >= 0).then_some(rec.timestamp),
        key: rec.key.as_deref().map(Into::into),
        value: rec.value.as_deref().map(Into::into),
        headers: headers.as_headers().as_bytes().into(),
    }
}

/// How much is read.
pub struct Limits {
    /// At most so many records.
    pub records_max: usize,
    /// At most so many bytes, of which the last batch may be cut anywhere.
    pub bytes_max: usize,
    /// Whether the first batch is returned whole however large it is (KIP-74).
    pub is_whole: bool,
}

/// What was read.
struct Read<'a> {
    limits: &'a Limits,
    bytes: Vec<u8>,
    end: i64,
}

impl Read<'_> {
    /// Adds a batch. Whether there is room for more.
    fn push(&mut self, batch: &Batch) -> bool {
        let room = self.limits.bytes_max.saturating_sub(self.bytes.len());
        let is_first_too_large = self.bytes.is_empty() && batch.bytes.len() > room;
        // Otherwise an incomplete first batch is left out (`ReplicaManager.readFromLog`, since Fetch v3).
        if is_first_too_large && !self.limits.is_whole || room == 0 && !is_first_too_large {
            return false;
        }
        let taken = if is_first_too_large { batch.bytes.len() } else { room.min(batch.bytes.len()) };
        self.bytes.extend_from_slice(&batch.bytes[..taken]);
        self.end = batch.last + 1;
        taken < room
    }
}

/// What a fetch from `from` on returns, and where it ends. Of a log that is not made of batches, neighbours of one writer
/// are in one batch, which includes the offsets up to the next one: what the cleaner has removed was part of it (KIP-98: a
/// batch keeps its last offset).
pub fn read(log: &Log, from: i64, isolation: Isolation, limits: &Limits) -> (Vec<u8>, i64) {
    let bound = log.bound(isolation).max(from);
    let mut read = Read { limits, bytes: Vec::new(), end: from };
    let mut left = limits.records_max;
    let reaches = |of: &Stored<'_>| of.batch.map_or(of.offset, |batch| batch.last);
    let mut entries = log.entries(from).take_while(|of| reaches(of) < bound).peekable();
    while let Some(first) = entries.peek().copied() {
        let is_marker = matches!(first.found, Found::Marker { .. });
        if first.batch.is_none()
            && is_marker
            && read.end < first.offset
            && !read.push(&gap(log, read.end, first.offset))
        {
            return (read.bytes, read.end);
        }
        let mut records = Vec::new();
        while let Some(one) = entries.next_if(|next| left > 0 && goes_on(&first, next, records.len())) {
            if let Found::Record(record) = one.found {
                records.push(packed(one.offset, record));
                left -= 1;
            } else {
                break;
            }
        }
        let next = entries.peek().map_or(bound, |next| next.offset);
        if !read.push(&batch(&first, records, (read.end, next - 1))) || left == 0 {
            return (read.bytes, read.end);
        }
    }
    if !log.is_batched() && read.end < bound {
        read.push(&gap(log, read.end, bound));
    }
    (read.bytes, read.end)
}

/// Whether `next` is in the same batch as the first one of so many.
fn goes_on(first: &Stored<'_>, next: &Stored<'_>, count: usize) -> bool {
    match (first.batch, next.batch) {
        _ if count == 0 => true,
        (Some(one), Some(other)) => one.base == other.base,
        (None, None) => {
            let is_record = matches!(next.found, Found::Record(_));
            is_record && count < RECORDS_MAX && (first.producer, first.epoch) == (next.producer, next.epoch)
        }
        _ => false,
    }
}

/// The batch of these records; `range`: its offsets, if it has none of its own.
fn batch(first: &Stored<'_>, records: Vec<Rec>, range: (i64, i64)) -> Batch {
    if let (Found::Marker { commits, stamp }, Some(producer)) = (first.found, first.producer) {
        return Batch::marker(producer, 0, commits, first.offset, first.epoch, stamp);
    }
    let (base, last) = first.batch.map_or(range, |of| (of.base, of.last));
    let (producer, producer_epoch) = first.producer.map_or((-1, -1), |producer| (producer, 0));
    let packing = first.batch.map_or(Packing::None, |of| of.packing);
    let head = Head { producer, producer_epoch, sequence: -1, transactional: first.producer.is_some(), packing };
    let mut batch = Batch::build(&head, base, last, first.epoch, records, None);
    if first.batch.is_some_and(|of| of.is_damaged) {
        let mut bytes = batch.bytes.to_vec();
        bytes.last_mut().into_iter().for_each(|byte| *byte ^= 1);
        batch.bytes = bytes.into();
    }
    batch
}

/// A batch without records.
fn gap(log: &Log, from: i64, end: i64) -> Batch {
    Batch::build(&Head::PLAIN, from, end - 1, log.epoch_of(from), Vec::new(), None)
}
