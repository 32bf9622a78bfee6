//! Accepts records: each record is added to its partition's batch, if there is room.
//!
//! A [`Slot`] is the index of a partition in `Writer::partitions`. A [`Ticket`] says who hands a record over, and
//! whether the record's offset is reported.
//!
//! **Failure**: a record that can never be sent, or whose slot does not exist, is refused; the transaction stays open.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::Instant;

use super::super::code;
use super::super::primitives::VARINT_BYTES_MAX;
use super::super::records::{BatchBuilder, HEAD_BYTES, RECORD_HEAD_BYTES_MAX, TooLarge};
use super::partition::{Partition, UnsealedBatch, add_to_runs};
use super::{NewRecord, Slot, State, Ticket, WriteError, WriteErrorKind, Writer};
use crate::record::Headers;

/// The most bytes that a record takes in a batch besides its key, value and headers. Headers take fewer bytes in a
/// batch than in the format of `Headers`.
const RECORD_OVERHEAD_BYTES_MAX: usize = RECORD_HEAD_BYTES_MAX + 3 * VARINT_BYTES_MAX;

impl Writer {
    /// The slot of a partition; the first call for a partition creates it.
    pub fn slot(&mut self, topic: &str, partition: i32) -> Slot {
        if let Some(slot) = self.slots.get(topic).and_then(|slots| slots.get(&partition)) {
            return Slot(*slot);
        }
        let known = self.slots.get_key_value(topic).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| {
            let name: Arc<str> = topic.into();
            self.unwatched.push(Arc::clone(&name));
            name
        });
        let slot = self.partitions.len();
        self.partitions.push(Partition::new(Arc::clone(&name), partition));
        self.slots.entry(name).or_default().insert(partition, slot);
        Slot(slot)
    }

    /// Hands over a record. `false` if there is no room for it now: call [`Writer::drive`], then hand it over again.
    /// [`WriteErrorKind::Refused`] concerns this record alone: the transaction stays open.
    pub fn send(&mut self, ticket: Ticket, to: Slot, record: &NewRecord<'_>, now: Instant) -> Result<bool, WriteError> {
        self.check_open()?;
        let [key_bytes, value_bytes] = [record.key, record.value].map(|bytes| bytes.map_or(0, <[u8]>::len));
        let bytes = RECORD_OVERHEAD_BYTES_MAX + key_bytes + value_bytes + record.headers.as_bytes().len();
        self.check_size(bytes)?;
        if !self.check_room(bytes) {
            return Ok(false);
        }
        self.add(ticket, to, bytes, now, |builder| {
            builder.push(record.timestamp, record.key, record.value, record.headers)
        })?;
        Ok(true)
    }

    /// Hands over a record with the key, value and headers of a record that was read: `tail` holds them as that
    /// record's batch encodes them, see [`super::super::records::RawRecord::tail`]. Otherwise like [`Writer::send`].
    pub fn send_tail(
        &mut self,
        ticket: Ticket,
        to: Slot,
        timestamp: i64,
        tail: &[u8],
        now: Instant,
    ) -> Result<bool, WriteError> {
        self.check_open()?;
        let bytes = RECORD_OVERHEAD_BYTES_MAX + tail.len();
        self.check_size(bytes)?;
        if !self.check_room(bytes) {
            return Ok(false);
        }
        self.add(ticket, to, bytes, now, |builder| builder.push_tail(timestamp, tail))?;
        Ok(true)
    }

    /// Hands over records for one partition, each with a key and a value and without headers. `false` if there is no
    /// room for all of them: the remaining ones are left in `records`.
    pub fn send_all<'a>(
        &mut self,
        ticket_number: u64,
        to: Slot,
        timestamp: i64,
        records: &mut Peekable<impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>>,
        now: Instant,
    ) -> Result<bool, WriteError> {
        let ticket = Ticket { number: ticket_number, report: false };
        while let Some((key, value)) = records.peek().copied() {
            let record = NewRecord { timestamp, key: Some(key), value, headers: Headers::default() };
            if !self.send(ticket, to, &record, now)? {
                return Ok(false);
            }
            records.next();
        }
        Ok(true)
    }

    fn check_open(&self) -> Result<(), WriteError> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        if matches!(self.state, State::Open) {
            return Ok(());
        }
        Err(WriteError::new(WriteErrorKind::Abort, "no transaction is open"))
    }

    fn check_size(&self, bytes: usize) -> Result<(), WriteError> {
        let limit = self.settings.message_bytes_max;
        let batch_bytes = bytes + HEAD_BYTES;
        if batch_bytes <= limit {
            return Ok(());
        }
        let message = format!("the record needs a batch of up to {batch_bytes} bytes; the limit is {limit} bytes");
        Err(WriteError { kind: WriteErrorKind::Refused, code: Some(code::MESSAGE_TOO_LARGE), message })
    }

    /// Whether a record of this size can be held. A single record always can. If there is no room, batches are sent
    /// before they are full, until half of the buffer is free.
    fn check_room(&mut self, bytes: usize) -> bool {
        let has_room = self.held_bytes == 0 || self.held_bytes + bytes <= self.settings.buffered_bytes_max;
        self.lacks_room |= !has_room;
        has_room
    }

    /// Adds a record of at most `bytes` bytes to its partition's batch.
    fn add(
        &mut self,
        ticket: Ticket,
        to: Slot,
        bytes: usize,
        now: Instant,
        push: impl FnOnce(&mut BatchBuilder) -> Result<(), TooLarge>,
    ) -> Result<(), WriteError> {
        let batch_bytes_max = self.settings.batch_bytes.min(self.settings.message_bytes_max);
        let Some(partition) = self.partitions.get_mut(to.0) else {
            return Err(WriteError::new(WriteErrorKind::Refused, "there is no such slot"));
        };
        if let Some(full_batch) = partition.open_batch.take_if(|batch| batch.builder.bytes() + bytes > batch_bytes_max)
        {
            partition.full_batches.push_back(full_batch);
        }
        let batch = partition.open_batch.get_or_insert_with(|| UnsealedBatch {
            builder: BatchBuilder::within(self.packer.buffer()),
            runs: Vec::new(),
            first_record_at: now,
        });
        let bytes_before = if batch.builder.is_empty() { 0 } else { batch.builder.bytes() };
        batch.builder.make_room(bytes, batch_bytes_max);
        if let Err(too_large) = push(&mut batch.builder) {
            return Err(WriteError::new(WriteErrorKind::Refused, too_large.to_string()));
        }
        add_to_runs(&mut batch.runs, ticket.number, ticket.report);
        self.held_bytes += batch.builder.bytes() - bytes_before;
        if !std::mem::replace(&mut partition.is_active, true) {
            self.active_slots.push(to.0);
        }
        Ok(())
    }
}
