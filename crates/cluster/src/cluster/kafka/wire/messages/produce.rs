//! Produce, versions 8 (KIP-467: errors of single records) to 11. Versions from 9 on are flexible (KIP-482), and from
//! 10 on a response names the leader (KIP-951). From version 12 on, the broker adds a batch's partition to the
//! transaction (KIP-890); here the writer does that itself.
//!
//! ```text
//! request:   transactional id · acks i16 · timeout ms i32 · topics [name, partitions [partition i32, records]]
//! response:  topics [name, partitions [partition i32, error i16, base offset i64, append time i64, log start i64,
//!            record errors [index i32, message], message, tag 0: leader i32, epoch i32]] · throttle ms i32
//! ```
//!
//! All requests require acknowledgement by all in-sync replicas.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::super::connection::{Segment, Segments};
use super::super::primitives::{Reader, put_compact_text, put_text, put_unsigned};
use super::Malformed;

/// Produce's API key.
pub const API_KEY: i16 = 0;
/// The supported versions.
pub const VERSIONS: RangeInclusive<i16> = 8..=11;

const FLEXIBLE_FROM: i16 = 9;
const ACKS_ALL: i16 = -1;
/// The tag of a partition's leader.
const LEADER_TAG: u64 = 0;
/// The fewest bytes that a partition in a response takes, the error of a record, and a topic.
const PARTITION_BYTES_MIN: usize = 4 + 2 + 3 * 8 + 2;
const RECORD_ERROR_BYTES_MIN: usize = 4 + 1;
const TOPIC_BYTES_MIN: usize = 2;

/// A request without its batches.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The producer's transactional id.
    pub transactional_id: Option<&'a str>,
    /// How long the broker waits for the replicas.
    pub timeout_ms: i32,
}

/// A batch to be sent.
#[derive(Clone, Debug)]
pub struct OutgoingBatch<B = Vec<u8>> {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition; a request contains at most one batch for it.
    pub partition: i32,
    /// The sealed batch: see [`super::super::records::BatchBuilder::seal`].
    pub batch: B,
}

/// A request's body in segments: fields and batches alternate, beginning and ending with fields. So batch `n` is
/// segment `2 n + 1`. Batches are first sorted by topic; the batches of one topic stay in order.
pub fn request(version: i16, request: Request<'_>, batches: Vec<OutgoingBatch>) -> Vec<Vec<u8>> {
    build(version, request, batches, Vec::len, |fields| fields, |batch| batch)
}

/// Like [`request`], for batches that their sender keeps for retries.
pub fn shared_request(version: i16, request: Request<'_>, batches: Vec<OutgoingBatch<Arc<Vec<u8>>>>) -> Segments {
    build(version, request, batches, |batch| batch.len(), Segment::Owned, Segment::Shared).into()
}

fn build<B, S>(
    version: i16,
    request: Request<'_>,
    mut batches: Vec<OutgoingBatch<B>>,
    len: impl Fn(&B) -> usize,
    fields_segment: impl Fn(Vec<u8>) -> S,
    batch_segment: impl Fn(B) -> S,
) -> Vec<S> {
    batches.sort_by(|a, b| a.topic.cmp(&b.topic));
    let mut segments = Vec::with_capacity(2 * batches.len() + 1);
    let mut fields = FieldWriter { bytes: Vec::new(), flexible: version >= FLEXIBLE_FROM };
    fields.nullable_text(request.transactional_id);
    fields.bytes.extend_from_slice(&ACKS_ALL.to_be_bytes());
    fields.bytes.extend_from_slice(&request.timeout_ms.to_be_bytes());
    fields.count(batches.chunk_by(is_same_topic).count());
    let counts: Vec<usize> = batches.chunk_by(is_same_topic).map(<[_]>::len).collect();
    let mut batches = batches.into_iter();
    for count in counts {
        for (index, outgoing) in batches.by_ref().take(count).enumerate() {
            if index == 0 {
                fields.text(&outgoing.topic);
                fields.count(count);
            }
            fields.bytes.extend_from_slice(&outgoing.partition.to_be_bytes());
            fields.count(len(&outgoing.batch));
            segments.push(fields_segment(std::mem::take(&mut fields.bytes)));
            segments.push(batch_segment(outgoing.batch));
            fields.no_tags();
        }
        fields.no_tags();
    }
    fields.no_tags();
    segments.push(fields_segment(fields.bytes));
    segments
}

fn is_same_topic<B>(a: &OutgoingBatch<B>, b: &OutgoingBatch<B>) -> bool {
    a.topic == b.topic
}

/// Writes the fields between batches, as the version encodes them: flexible or not (KIP-482).
struct FieldWriter {
    bytes: Vec<u8>,
    flexible: bool,
}

impl FieldWriter {
    /// A count of items, or a length of bytes. Batches are far below 2 GiB.
    fn count(&mut self, count: usize) {
        match self.flexible {
            true => put_unsigned(&mut self.bytes, count as u64 + 1),
            false => self.bytes.extend_from_slice(&(count as i32).to_be_bytes()),
        }
    }

    fn text(&mut self, text: &str) {
        match self.flexible {
            true => put_compact_text(&mut self.bytes, text),
            false => put_text(&mut self.bytes, text),
        }
    }

    fn nullable_text(&mut self, text: Option<&str>) {
        match (text, self.flexible) {
            (Some(text), _) => self.text(text),
            (None, true) => self.bytes.push(0),
            (None, false) => self.bytes.extend_from_slice(&(-1_i16).to_be_bytes()),
        }
    }

    /// Ends a structure: in flexible versions, with an empty list of tagged fields.
    fn no_tags(&mut self) {
        if self.flexible {
            self.bytes.push(0);
        }
    }
}

/// A response, borrowed from its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The outcome of each batch.
    pub partitions: Vec<Partition<'a>>,
    /// For how long the client should send no more requests.
    pub throttle_ms: i32,
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The error of the batch, 0 for none.
    pub error: i16,
    /// The first record's offset, -1 for an error or if it is no longer known (a duplicate of an older batch).
    pub base_offset: i64,
    /// When the broker appended the batch, if it sets the timestamps of records, otherwise -1.
    pub append_time_ms: i64,
    /// The first offset in the log, -1 for an error.
    pub log_start_offset: i64,
    /// The errors of the records because of which the batch was refused.
    pub record_errors: Vec<RecordError<'a>>,
    /// The broker's message.
    pub message: Option<&'a str>,
    /// The leader and its epoch, if this broker is not the leader and knows it (version 10 and later).
    pub leader: Option<(i32, i32)>,
}

/// The error of a record because of which its batch was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError<'a> {
    /// The record's index in the batch, from 0.
    pub index: i32,
    /// The broker's message.
    pub message: Option<&'a str>,
}

impl<'a> Response<'a> {
    /// Reads a response's body in one of [`VERSIONS`].
    pub fn read(version: i16, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut parser = Parser { reader: Reader::new(body), flexible: version >= FLEXIBLE_FROM };
        parser.response().filter(|_| parser.reader.rest().is_empty()).ok_or(Malformed("Produce"))
    }
}

/// Reads the fields of a response, as the version encodes them. Each method returns `None` for malformed bytes.
struct Parser<'a> {
    reader: Reader<'a>,
    flexible: bool,
}

impl<'a> Parser<'a> {
    fn response(&mut self) -> Option<Response<'a>> {
        let mut partitions = Vec::new();
        for _ in 0..self.count(TOPIC_BYTES_MIN)? {
            let topic = self.text()??;
            for _ in 0..self.count(PARTITION_BYTES_MIN)? {
                partitions.push(self.partition(topic)?);
            }
            self.tags(|_, _| Some(()))?;
        }
        let throttle_ms = self.reader.i32()?;
        self.tags(|_, _| Some(()))?;
        Some(Response { partitions, throttle_ms })
    }

    fn partition(&mut self, topic: &'a str) -> Option<Partition<'a>> {
        let (partition, error) = (self.reader.i32()?, self.reader.i16()?);
        let (base_offset, append_time_ms, log_start_offset) =
            (self.reader.i64()?, self.reader.i64()?, self.reader.i64()?);
        let mut record_errors = Vec::new();
        for _ in 0..self.count(RECORD_ERROR_BYTES_MIN)? {
            record_errors.push(RecordError { index: self.reader.i32()?, message: self.text()? });
            self.tags(|_, _| Some(()))?;
        }
        let message = self.text()?;
        let mut leader = None;
        self.tags(|tag, mut field| {
            if tag == LEADER_TAG {
                leader = Some((field.i32()?, field.i32()?)).filter(|(node, _)| *node >= 0);
            }
            Some(())
        })?;
        Some(Partition {
            topic,
            partition,
            error,
            base_offset,
            append_time_ms,
            log_start_offset,
            record_errors,
            message,
            leader,
        })
    }

    fn count(&mut self, item_bytes_min: usize) -> Option<usize> {
        if self.flexible { self.reader.compact_count(item_bytes_min) } else { self.reader.count(item_bytes_min) }
    }

    fn text(&mut self) -> Option<Option<&'a str>> {
        if self.flexible { self.reader.compact_text() } else { self.reader.text() }
    }

    fn tags(&mut self, known: impl FnMut(u64, Reader<'a>) -> Option<()>) -> Option<()> {
        if self.flexible { self.reader.tags(known) } else { Some(()) }
    }
}
