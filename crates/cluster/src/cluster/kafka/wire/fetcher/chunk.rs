//! A partition's part of a response, a *chunk*. When it arrives, only the heads of its batches (the fields before the
//! records) are read. Later the batches are checked, unpacked and handed on (returned to the fetcher's caller) one by
//! one. If the response's size limit has *cut off* the last batch, that batch is fetched again.
//!
//! `mistakes::is_on(...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::connection::Body;
use super::super::mistakes::{self, Mistake};
use super::super::records::{self, AbortedFilter, Batch, Batches, Codec, Unpack, UnpackError, Unpacked};
use super::fetched::{Fetched, HeldBytes, place_in};

/// Counts the bytes of the responses that are not completely handed on: each until its last chunk is gone.
#[derive(Debug, Default)]
pub(super) struct BufferedBytes {
    /// The number of the last response.
    last_number: u64,
    bytes: usize,
    /// By a response's number: its size, and how many of its chunks are left.
    held: BTreeMap<u64, (usize, usize)>,
}

impl BufferedBytes {
    /// The bytes of all these responses.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts a response of which this many chunks are kept, and returns its number. Without chunks it is not counted.
    pub fn hold(&mut self, bytes: usize, chunks: usize) -> u64 {
        self.last_number += 1;
        if chunks > 0 {
            self.bytes += bytes;
            self.held.insert(self.last_number, (bytes, chunks));
        }
        self.last_number
    }

    /// A chunk of the response with this number is gone.
    pub fn release(&mut self, response_number: u64) {
        let Some((bytes, chunks)) = self.held.get_mut(&response_number) else { return };
        *chunks -= 1;
        if *chunks == 0 {
            self.bytes -= *bytes;
            self.held.remove(&response_number);
        }
    }
}

/// What the heads of the batches in a partition's part of a response say.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// The bytes of the usable batches: those that are complete, in order, and before any error.
    pub bytes: usize,
    /// The offset after the last usable batch, and that batch's leader epoch; `None` if no usable batch reaches the
    /// wanted offset.
    pub next: Option<(i64, i32)>,
    /// The full size of the last batch if it is cut off; 0 if its length is cut off too.
    pub cut_off_bytes: Option<u64>,
    /// What is wrong with the batch after the usable ones.
    pub error: Option<records::Error>,
}

impl Heads {
    /// Reads what was returned for `offset`.
    pub fn read(bytes: &[u8], offset: i64) -> Self {
        let (mut heads, mut without_last) = (Self::default(), Self::default());
        let mut batches = Batches::new(bytes);
        for batch in batches.by_ref() {
            match batch {
                Ok(batch) => {
                    (without_last.bytes, without_last.next) = (heads.bytes, heads.next);
                    heads.bytes += batch.bytes().len();
                    if batch.last_offset >= offset {
                        heads.next = Some((batch.last_offset.saturating_add(1), batch.leader_epoch));
                    }
                }
                Err(error) => {
                    // No checksum covers a base offset. If two are out of order, the former may be the wrong one, so
                    // neither batch is used.
                    let readable = if error == records::Error::OUT_OF_ORDER { without_last } else { heads };
                    return Self { error: Some(error), ..readable };
                }
            }
        }
        let cut_off = batches.partial_batch();
        if !cut_off.is_empty() {
            let length = cut_off.get(8..12).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
            heads.cut_off_bytes = Some(length.map_or(0, |length| u64::from(length) + 12));
        }
        if mistakes::is_on(Mistake::StartedBatchPassed)
            && let Some(delta) = cut_off.get(23..27)
            && let (Ok(base), Ok(delta)) = (cut_off[..8].try_into(), delta.try_into())
        {
            heads.next = Some((i64::from_be_bytes(base) + i64::from(i32::from_be_bytes(delta)) + 1, 0));
        }
        heads
    }
}

/// A partition's part of a response.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The number of the response in [`BufferedBytes`].
    pub response_number: u64,
    pub body: Arc<Body>,
    /// The part of the body with the batches that are not completely handed on.
    pub range: Range<usize>,
    /// Skips the batches of aborted transactions.
    pub aborted: AbortedFilter,
    /// The partition's next offset after the chunk, and after a gap of compaction that follows it.
    pub end: i64,
    /// The leader epoch of the batch before `end`, or of the leader that reported the gap; `None` if it is not known.
    pub end_epoch: Option<i32>,
    /// The first batch, while it is being handed on.
    pub open_batch: Option<OpenBatch>,
}

/// A batch that is being handed on.
#[derive(Debug)]
pub(super) struct OpenBatch {
    held: HeldBytes,
    /// The part of `held` with the records that were not handed on yet, and how many there are.
    rest: Range<usize>,
    records_left: usize,
    /// The lowest offset that the first of these records can have.
    next_offset: i64,
}

/// How far a partition was handed on: up to which offset, and the leader epoch of what is before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub position: i64,
    pub epoch: Option<i32>,
}

/// Why a chunk was not handed on to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// [`Handover::records_max`] is reached.
    Full,
    /// There is no room at present to unpack a batch.
    NoRoom,
    /// A batch unpacks to more than is allowed.
    TooLarge,
    /// A batch cannot be read.
    Damaged(records::Error),
}

/// How records are handed on.
pub(super) struct Handover<'a> {
    /// The most records that `into` may have.
    pub records_max: usize,
    /// Whether the checksums of batches are verified.
    pub check_crcs: bool,
    pub unpack: &'a mut dyn Unpack,
    pub into: &'a mut Fetched,
    /// The partition's index in `into`.
    pub partition: usize,
}

impl Chunk {
    /// Hands on the records that are left, and moves `cursor` past them.
    pub fn hand_on(&mut self, cursor: &mut Cursor, handover: &mut Handover<'_>) -> Result<(), Halt> {
        let body = Arc::clone(&self.body);
        loop {
            if handover.into.len() >= handover.records_max {
                return Err(Halt::Full);
            }
            let rest = body.as_slice().get(self.range.clone()).unwrap_or_default();
            let Some(batch) = Batches::new(rest).next() else {
                as_complete(rest).into_iter().for_each(|completed| hand_on_cut_off(completed, cursor, handover));
                break;
            };
            let batch = batch.map_err(Halt::Damaged)?;
            let position_before = cursor.position;
            let handed_on = self.hand_on_batch(&batch, cursor, handover);
            if handed_on.is_ok() {
                cursor.position = cursor.position.max(batch.last_offset.saturating_add(1));
                self.range.start += batch.bytes().len();
            }
            if cursor.position > position_before {
                cursor.epoch = Some(batch.leader_epoch).filter(|epoch| *epoch >= 0);
                handover.into.pass(handover.partition, position_before..cursor.position, batch.leader_epoch);
            }
            handed_on?;
        }
        if self.end > cursor.position {
            let epoch = self.end_epoch.unwrap_or(-1);
            handover.into.pass(handover.partition, cursor.position..self.end, epoch);
            *cursor = Cursor { position: self.end, epoch: self.end_epoch };
        }
        Ok(())
    }

    fn hand_on_batch(
        &mut self,
        batch: &Batch<'_>,
        cursor: &mut Cursor,
        handover: &mut Handover<'_>,
    ) -> Result<(), Halt> {
        if self.open_batch.is_none() {
            self.open_batch = self.open_next_batch(batch, cursor.position, handover)?;
        }
        let Some(open) = &mut self.open_batch else { return Ok(()) };
        handover.into.add_batch_part(handover.partition, batch.leader_epoch, open.held.clone());
        let bytes = open.held.as_slice();
        let rest = bytes.get(open.rest.clone()).unwrap_or_default();
        for record in batch.records_from(rest, open.records_left, open.next_offset) {
            if handover.into.len() >= handover.records_max {
                return Err(Halt::Full);
            }
            let record = record.map_err(Halt::Damaged)?;
            open.rest.start = place_in(bytes, record.tail) + record.tail.len();
            open.records_left = open.records_left.saturating_sub(1);
            open.next_offset = record.offset.saturating_add(1);
            if record.offset >= cursor.position {
                handover.into.add(bytes, &record);
                cursor.position = record.offset.saturating_add(1);
            }
        }
        self.open_batch = None;
        Ok(())
    }

    /// Opens the first batch. `None` if the batch has no records for readers, or only records below the position. Even
    /// then the filter of aborted transactions takes note of the batch.
    fn open_next_batch(
        &mut self,
        batch: &Batch<'_>,
        position: i64,
        handover: &mut Handover<'_>,
    ) -> Result<Option<OpenBatch>, Halt> {
        if handover.check_crcs {
            batch.check().map_err(Halt::Damaged)?;
        }
        let mut is_admitted = self.aborted.admits(batch).map_err(Halt::Damaged)?;
        is_admitted |= mistakes::is_on(Mistake::MarkerAsRecord) && batch.is_control();
        is_admitted |= mistakes::is_on(Mistake::AbortedPassedOn) && !batch.is_control();
        // A batch that compaction has emptied has nothing to unpack.
        if !is_admitted || batch.count == 0 || batch.last_offset < position {
            return Ok(None);
        }
        let (held, rest) = match batch.codec().map_err(Halt::Damaged)? {
            Codec::None => {
                let at = place_in(self.body.as_slice(), batch.payload());
                (HeldBytes::Response(Arc::clone(&self.body)), at..at + batch.payload().len())
            }
            codec => {
                let unpacked = handover.unpack.unpack(codec, batch.payload()).map_err(|rejected| match rejected {
                    UnpackError::TooLarge => Halt::TooLarge,
                    UnpackError::NoRoom => Halt::NoRoom,
                    UnpackError::Damaged => Halt::Damaged(records::Error::Damaged("it cannot be unpacked")),
                })?;
                let rest = 0..unpacked.len();
                (HeldBytes::Unpacked(Arc::new(unpacked)), rest)
            }
        };
        // `Fetched` notes in 32 bits where in these bytes a record is.
        if u32::try_from(held.as_slice().len()).is_err() {
            return Err(Halt::TooLarge);
        }
        let left = usize::try_from(batch.count).unwrap_or(0);
        Ok(Some(OpenBatch { held, rest, records_left: left, next_offset: batch.base_offset }))
    }
}

/// A deliberate mistake: changes a batch that was cut off so that it looks complete. `None` unless the mistake is on.
fn as_complete(cut_off: &[u8]) -> Option<Vec<u8>> {
    if !mistakes::is_on(Mistake::StartedBatchTaken) || cut_off.len() <= records::HEAD_BYTES {
        return None;
    }
    let length = i32::try_from(cut_off.len().checked_sub(12)?).ok()?;
    let mut completed = cut_off.to_vec();
    completed.get_mut(8..12)?.copy_from_slice(&length.to_be_bytes());
    Some(completed)
}

/// A deliberate mistake: hands on a batch that was cut off, as [`as_complete`] has changed it.
fn hand_on_cut_off(completed: Vec<u8>, cursor: &mut Cursor, handover: &mut Handover<'_>) {
    let held = HeldBytes::Unpacked(Arc::new(Unpacked::new(completed)));
    let Some(Ok(batch)) = Batches::new(held.as_slice()).next() else { return };
    handover.into.add_batch_part(handover.partition, batch.leader_epoch, held.clone());
    for record in batch.records(batch.payload()).map_while(Result::ok) {
        if record.offset >= cursor.position {
            handover.into.add(held.as_slice(), &record);
        }
    }
    cursor.position = cursor.position.max(batch.last_offset + 1);
}
