//! The responses to Produce requests: what they mean for each batch.
//!
//! A **slot** is the index of a partition in `Writer::partitions`, and a **position** the index of a batch in
//! `Partition::sealed_batches`. Senders are the callers that handed records to the writer, each under a number.
//!
//! Invariants: an accepted batch is reported once; a batch that is too large is split into halves, whose records keep
//! their sequences.
//!
//! **Failure**: a batch whose partition the response does not name is sent again.
//!
//! `is_on(Mistake::...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::sync::Arc;
use std::time::Instant;

use super::super::brokers::{Brokers, Purpose, RequestId};
use super::super::connection::throttle_duration;
use super::super::messages::produce::{Partition as PartitionResponse, Response};
use super::super::mistakes::{Mistake, is_on};
use super::super::records::{BatchBuilder, BatchProducer, Batches, BoundedUnpacker, Codec, Unpack};
use super::delivery::{self, BatchOutcome, WriteError, WriteErrorKind, describe};
use super::partition::{Run, SealedBatch, SendState, sequence_after, split_runs};
use super::produce::{ProduceRequest, RequestBatch};
use super::{Failure, Writer, recycle};

/// The most bytes that one of the writer's own batches may unpack to when it is split.
const UNPACKED_MAX: usize = i32::MAX as usize;

impl Writer {
    /// Handles the response to a Produce request.
    pub(super) fn handle_produce_response(
        &mut self,
        id: RequestId,
        request: &ProduceRequest,
        version: i16,
        body: &[u8],
        brokers: &mut Brokers,
        now: Instant,
    ) {
        let response = match Response::read(version, body) {
            Ok(response) => response,
            Err(malformed) => {
                return self.handle_produce_failure(id, request, true, &malformed.to_string(), brokers, now);
            }
        };
        if let Some(throttle) = throttle_duration(response.throttle_ms) {
            brokers.mute(request.node, Purpose::Produce, now + throttle);
        }
        for sent in &request.batches {
            let Some(partition) = self.partitions.get(sent.slot) else { continue };
            let is_same_partition = |response: &&PartitionResponse<'_>| {
                response.topic == &*partition.topic && response.partition == partition.index
            };
            match response.partitions.iter().find(is_same_partition) {
                Some(response) => self.handle_batch_response(id, sent, response, brokers, now),
                None => self.resend(id, sent, "the broker's response does not name the partition".to_owned(), now),
            }
        }
    }

    fn handle_batch_response(
        &mut self,
        id: RequestId,
        sent: &RequestBatch,
        response: &PartitionResponse<'_>,
        brokers: &mut Brokers,
        now: Instant,
    ) {
        let Some(partition) = self.partitions.get(sent.slot) else { return };
        let Some(position) = partition.position_sent_in(id, sent.sequence) else { return };
        let (is_first, count) = (
            partition.is_first_unlogged(position),
            partition.sealed_batches.get(position).map_or(0, |batch| batch.count),
        );
        let what = format!("writing to {}:{}", partition.topic, partition.index);
        let why = || response.message.map_or_else(|| describe(response.error), str::to_owned);
        match delivery::batch_outcome(response.error) {
            BatchOutcome::Done => self.accept_batch(sent.slot, position, response.base_offset),
            BatchOutcome::Retry { moved } => {
                if moved {
                    brokers.doubt_leader(&partition.topic, partition.index, Some(sent.leader), now);
                }
                self.resend(id, sent, why(), now);
            }
            // The batch before this one has failed as well, and is sent first.
            BatchOutcome::Gap if !is_first => self.resend(id, sent, why(), now),
            BatchOutcome::TooLarge if count > 1 => self.split_batch(sent.slot, position, &what, now),
            BatchOutcome::TooLarge | BatchOutcome::Refused => self.refuse_records(sent.slot, position, response, &what),
            // A gap here means that all batches before this one are in the log: no batch can be sent again to close it.
            BatchOutcome::Gap | BatchOutcome::Abort => {
                self.fail_batch(sent.slot, position, response, WriteErrorKind::Abort, &what)
            }
            BatchOutcome::Denied => self.fail_batch(sent.slot, position, response, WriteErrorKind::Refused, &what),
            BatchOutcome::Fenced => self.fail_fenced(&what, response.error),
        }
        self.clear_in_flight(id, sent);
    }

    /// Notes that a batch is no longer in flight: the broker has responded, even if the batch failed.
    fn clear_in_flight(&mut self, id: RequestId, sent: &RequestBatch) {
        let Some(partition) = self.partitions.get_mut(sent.slot) else { return };
        let Some(position) = partition.position_sent_in(id, sent.sequence) else { return };
        if let Some(batch) = partition.sealed_batches.get_mut(position) {
            batch.send_state = SendState::Waiting;
        }
    }

    /// Handles a batch that is in the log.
    fn accept_batch(&mut self, slot: usize, position: usize, base_offset: i64) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        partition.known_producer_id = self.session.producer_id;
        partition.backoff.reset();
        if let Some(batch) = partition.sealed_batches.get_mut(position) {
            batch.send_state = SendState::Logged;
            let mut offset = base_offset;
            for run in &batch.runs {
                if run.report {
                    // If the broker has not said the offsets, -1 is reported, and only if `Writer::expect` has said where
                    // the records must be: the commit then fails.
                    let is_reported = base_offset >= 0 || self.expected.contains_key(&run.number);
                    let offsets =
                        (0..run.count).map(|index| if base_offset < 0 { -1 } else { offset + i64::from(index) });
                    self.delivered.extend(offsets.filter(|_| is_reported).map(|offset| (run.number, offset)));
                }
                offset += i64::from(run.count);
            }
        }
        while let Some(batch) = partition.sealed_batches.pop_front_if(|batch| batch.send_state == SendState::Logged) {
            self.held_bytes = self.held_bytes.saturating_sub(batch.bytes.len());
            recycle(&mut self.packer, batch.bytes);
        }
        if self.held_bytes < self.settings.buffered_bytes_max / 2 {
            self.lacks_room = false;
        }
    }

    /// Handles a batch with records that will never be accepted: those that the broker names, or else all of them.
    fn refuse_records(&mut self, slot: usize, position: usize, response: &PartitionResponse<'_>, what: &str) {
        let why = response.message.map_or_else(|| describe(response.error), str::to_owned);
        let runs = self.runs_of(slot, position);
        let mut named: Vec<(u64, String)> = Vec::new();
        for refused in &response.record_errors {
            if let Some(number) = number_at(&runs, refused.index) {
                named.push((number, refused.message.unwrap_or(&why).to_owned()));
            }
        }
        if named.is_empty() {
            named = runs.iter().map(|run| (run.number, why.clone())).collect();
        }
        for (number, message) in named {
            let (kind, message) = (WriteErrorKind::Abort, format!("{what}: {message}"));
            self.report_failure(number, true, &WriteError { kind, code: Some(response.error), message });
        }
        if is_on(Mistake::RefusedIsSkipped) {
            return self.skip_batch(slot, position);
        }
        let error = WriteError::coded(WriteErrorKind::Abort, what, response.error);
        self.fail(error);
    }

    /// A deliberate mistake: drops a batch; if it was the last one, the next batch gets its sequence.
    fn skip_batch(&mut self, slot: usize, position: usize) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        let Some(batch) = partition.sealed_batches.remove(position) else { return };
        self.held_bytes = self.held_bytes.saturating_sub(batch.bytes.len());
        if position == partition.sealed_batches.len() {
            partition.next_sequence = batch.sequence;
        }
    }

    /// Handles a batch that has failed for another reason than its records.
    fn fail_batch(
        &mut self,
        slot: usize,
        position: usize,
        response: &PartitionResponse<'_>,
        kind: WriteErrorKind,
        what: &str,
    ) {
        let error = WriteError::coded(kind, what, response.error);
        for run in self.runs_of(slot, position) {
            self.report_failure(run.number, false, &error);
        }
        self.fail(error);
    }

    fn runs_of(&self, slot: usize, position: usize) -> Vec<Run> {
        let batch = self.partitions.get(slot).and_then(|partition| partition.sealed_batches.get(position));
        batch.map(|batch| batch.runs.clone()).unwrap_or_default()
    }

    /// Reports that records of the sender with this number have failed, but not the same failure twice in a row.
    pub(super) fn report_failure(&mut self, number: u64, refused: bool, error: &WriteError) {
        let failure = Failure { number, refused, error: error.clone() };
        if self.failures.last() != Some(&failure) {
            self.failures.push(failure);
        }
    }

    /// Splits a batch that is too large for its topic, as Java's client does (`ProducerBatch.split`). Its records keep
    /// their sequences, so that the batches after it need not change.
    fn split_batch(&mut self, slot: usize, position: usize, what: &str, now: Instant) {
        let Some(partition) = self.partitions.get_mut(slot) else { return };
        let halves = partition.sealed_batches.get(position).and_then(|batch| self::halves(batch, &mut self.packer));
        let Some((first, second)) = halves else {
            let message = format!("{what}: a batch that is too large cannot be split");
            return self.fail(WriteError::new(WriteErrorKind::Abort, message));
        };
        self.held_bytes += first.bytes.len() + second.bytes.len();
        if let Some(whole) = partition.sealed_batches.remove(position) {
            self.held_bytes = self.held_bytes.saturating_sub(whole.bytes.len());
        }
        partition.sealed_batches.insert(position, second);
        partition.sealed_batches.insert(position, first);
        if !partition.is_draining {
            partition.backoff.extend(self.settings.retry_backoff, self.settings.retry_backoff_max, now);
        }
        partition.is_draining = true;
    }
}

impl Writer {
    /// A deliberate mistake: gives a batch another sequence, if it is the partition's last batch.
    pub(super) fn resequence(&mut self, id: RequestId, sent: &RequestBatch) {
        let Some(partition) = self.partitions.get_mut(sent.slot) else { return };
        let Some(position) = partition.position_sent_in(id, sent.sequence) else { return };
        let is_last = position + 1 == partition.sealed_batches.len();
        let Some(batch) = partition.sealed_batches.get_mut(position).filter(|_| is_last) else { return };
        let Some(Ok(read)) = Batches::new(&batch.bytes).next() else { return };
        let mut builder = BatchBuilder::new();
        for record in read.records(read.payload()).filter_map(Result::ok) {
            let _ = builder.push_tail(record.timestamp, record.tail);
        }
        let producer = BatchProducer {
            producer_id: read.producer_id,
            producer_epoch: read.producer_epoch,
            base_sequence: partition.next_sequence,
            transactional: true,
        };
        batch.bytes = Arc::new(builder.seal(producer, &mut self.packer));
        batch.sequence = partition.next_sequence;
        batch.send_state = SendState::Waiting;
        partition.next_sequence = sequence_after(partition.next_sequence, batch.count);
        partition.is_draining = true;
    }
}

/// The sender's number of the record at this index of a batch.
fn number_at(runs: &[Run], index: i32) -> Option<u64> {
    let mut index_in_run = index;
    for run in runs {
        if (0..run.count).contains(&index_in_run) {
            return Some(run.number);
        }
        index_in_run -= run.count;
    }
    None
}

/// The two halves of a batch, sealed under the producer id and epoch of the whole batch. `None` if the batch cannot be
/// read, which cannot happen since this writer built it.
fn halves(whole: &SealedBatch, packer: &mut super::Packer) -> Option<(SealedBatch, SealedBatch)> {
    let batch = Batches::new(&whole.bytes).next()?.ok()?;
    let codec = batch.codec().ok()?;
    let unpacked;
    let payload = match codec {
        Codec::None => batch.payload(),
        codec => {
            unpacked = BoundedUnpacker::new(UNPACKED_MAX).unpack(codec, batch.payload()).ok()?;
            &*unpacked
        }
    };
    let count = whole.count / 2;
    let (mut first, mut second) = (BatchBuilder::new(), BatchBuilder::new());
    for (index, record) in batch.records(payload).enumerate() {
        let record = record.ok()?;
        let into = if index < count as usize { &mut first } else { &mut second };
        into.push_tail(record.timestamp, record.tail).ok()?;
    }
    if first.count() != count || second.count() != whole.count - count {
        return None;
    }
    let (first_runs, second_runs) = split_runs(&whole.runs, count);
    let mut seal_half = |builder: BatchBuilder, sequence, runs| {
        let count = builder.count();
        let producer = BatchProducer {
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
            base_sequence: sequence,
            transactional: true,
        };
        let bytes = Arc::new(builder.seal(producer, packer));
        SealedBatch {
            bytes,
            sequence,
            count,
            runs,
            first_record_at: whole.first_record_at,
            send_state: SendState::Waiting,
            may_have_late_copy: whole.may_have_late_copy,
            last_failure: whole.last_failure.clone(),
        }
    };
    let first_half = seal_half(first, whole.sequence, first_runs);
    let second_half = seal_half(second, sequence_after(whole.sequence, count), second_runs);
    Some((first_half, second_half))
}
