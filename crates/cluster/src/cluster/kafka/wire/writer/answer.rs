//! What a broker's answer means for a batch.
//!
//! Invariants: an accepted batch is reported once; a batch that is too large is split into halves, whose records keep
//! their sequences.
//!
//! **Failure**: a batch that the answer does not mention is sent again.

use std::sync::Arc;
use std::time::Instant;

use super::super::brokers::{Brokers, RequestId, Use};
use super::super::connection::throttle;
use super::super::messages::produce::{Partition as Answer, Response};
use super::super::mistakes::{Mistake, is_on};
use super::super::records::{BatchBuilder, Batches, Bounded, Codec, SealAs, Unpack};
use super::delivery::{self, BatchOutcome, WriteError, WriteErrorKind, describe};
use super::partition::{Run, Sealed, Sending, sequence_after, split_runs};
use super::produce::{Part, Produce};
use super::{Failure, Writer, recycle};

/// The most bytes that one of the writer's own batches may unpack to when it is split.
const UNPACKED_MAX: usize = i32::MAX as usize;

impl Writer {
    /// Handles the answer to a Produce request.
    pub(super) fn produce_answered(
        &mut self,
        id: RequestId,
        produce: &Produce,
        version: i16,
        body: &[u8],
        brokers: &mut Brokers,
        now: Instant,
    ) {
        let response = match Response::read(version, body) {
            Ok(response) => response,
            Err(malformed) => return self.produce_failed(id, produce, true, &malformed.to_string(), brokers, now),
        };
        if let Some(throttle) = throttle(response.throttle_ms) {
            brokers.mute(produce.node, Use::Produce, now + throttle);
        }
        for part in &produce.parts {
            let Some(partition) = self.partitions.get(part.at) else { continue };
            let is_its =
                |answer: &&Answer<'_>| answer.topic == &*partition.topic && answer.partition == partition.index;
            match response.partitions.iter().find(is_its) {
                Some(answer) => self.batch_answered(id, part, answer, brokers, now),
                None => self.send_again(id, part, "the broker's answer does not name the partition".to_owned(), now),
            }
        }
    }

    fn batch_answered(&mut self, id: RequestId, part: &Part, answer: &Answer<'_>, brokers: &mut Brokers, now: Instant) {
        let Some(partition) = self.partitions.get(part.at) else { return };
        let Some(place) = partition.sent_in(id, part.sequence) else { return };
        let (is_first, count) = (partition.is_first(place), partition.window.get(place).map_or(0, |batch| batch.count));
        let what = format!("writing to {}:{}", partition.topic, partition.index);
        let why = || answer.message.map_or_else(|| describe(answer.error), str::to_owned);
        match delivery::of_batch(answer.error) {
            BatchOutcome::Done => self.batch_done(part.at, place, answer.base_offset),
            BatchOutcome::Again { moved } => {
                if moved {
                    brokers.doubt(&partition.topic, partition.index, Some(part.leader), now);
                }
                self.send_again(id, part, why(), now);
            }
            // The batch before it has failed as well, and is sent first.
            BatchOutcome::Gap if !is_first => self.send_again(id, part, why(), now),
            BatchOutcome::TooLarge if count > 1 => self.split(part.at, place, &what, now),
            BatchOutcome::TooLarge | BatchOutcome::Refused => self.batch_refused(part.at, place, answer, &what),
            BatchOutcome::Gap | BatchOutcome::Abort => {
                self.batch_failed(part.at, place, answer, WriteErrorKind::Abort, &what)
            }
            BatchOutcome::Denied => self.batch_failed(part.at, place, answer, WriteErrorKind::Refused, &what),
            BatchOutcome::Fenced => self.lose(&what, answer.error),
        }
        self.mark_answered(id, part);
    }

    /// A batch that is answered, but neither in the log nor to be sent again, is no longer under way.
    fn mark_answered(&mut self, id: RequestId, part: &Part) {
        let Some(partition) = self.partitions.get_mut(part.at) else { return };
        let Some(place) = partition.sent_in(id, part.sequence) else { return };
        if let Some(batch) = partition.window.get_mut(place) {
            batch.sending = Sending::Waiting;
        }
    }

    /// A batch is in the log.
    fn batch_done(&mut self, at: usize, place: usize, base_offset: i64) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        partition.known_to = self.session.producer_id;
        partition.pace.reset();
        if let Some(batch) = partition.window.get_mut(place) {
            batch.sending = Sending::Done;
            let mut offset = base_offset;
            for run in &batch.runs {
                if run.report {
                    let is_wanted = base_offset >= 0 || self.expected.contains_key(&run.number);
                    let offsets =
                        (0..run.count).map(|place| if base_offset < 0 { -1 } else { offset + i64::from(place) });
                    self.delivered.extend(offsets.filter(|_| is_wanted).map(|offset| (run.number, offset)));
                }
                offset += i64::from(run.count);
            }
        }
        while let Some(batch) = partition.window.pop_front_if(|batch| batch.sending == Sending::Done) {
            self.held = self.held.saturating_sub(batch.bytes.len());
            recycle(&mut self.packer, batch.bytes);
        }
        if self.held < self.settings.buffered_bytes_max / 2 {
            self.is_pressed = false;
        }
    }

    /// Records that will never be accepted: those that the broker names, or all of the batch.
    fn batch_refused(&mut self, at: usize, place: usize, answer: &Answer<'_>, what: &str) {
        let why = answer.message.map_or_else(|| describe(answer.error), str::to_owned);
        let runs = self.runs_of(at, place);
        let mut named: Vec<(u64, String)> = Vec::new();
        for refused in &answer.refused {
            if let Some(number) = number_at(&runs, refused.number) {
                named.push((number, refused.message.unwrap_or(&why).to_owned()));
            }
        }
        if named.is_empty() {
            named = runs.iter().map(|run| (run.number, why.clone())).collect();
        }
        for (number, message) in named {
            let (kind, message) = (WriteErrorKind::Abort, format!("{what}: {message}"));
            self.report_failure(number, true, &WriteError { kind, code: Some(answer.error), message });
        }
        if is_on(Mistake::RefusedIsSkipped) {
            return self.skip(at, place);
        }
        let error = WriteError::coded(WriteErrorKind::Abort, what, answer.error);
        self.fail(error);
    }

    /// A deliberate mistake: drops a batch, and what follows takes its place.
    fn skip(&mut self, at: usize, place: usize) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        let Some(batch) = partition.window.remove(place) else { return };
        self.held = self.held.saturating_sub(batch.bytes.len());
        if place == partition.window.len() {
            partition.next_sequence = batch.sequence;
        }
    }

    /// A batch has failed, and not because of its records.
    fn batch_failed(&mut self, at: usize, place: usize, answer: &Answer<'_>, kind: WriteErrorKind, what: &str) {
        let error = WriteError::coded(kind, what, answer.error);
        for run in self.runs_of(at, place) {
            self.report_failure(run.number, false, &error);
        }
        self.fail(error);
    }

    fn runs_of(&self, at: usize, place: usize) -> Vec<Run> {
        let batch = self.partitions.get(at).and_then(|partition| partition.window.get(place));
        batch.map(|batch| batch.runs.clone()).unwrap_or_default()
    }

    /// Reports that records with this number have failed; the same failure is not reported twice in a row.
    pub(super) fn report_failure(&mut self, number: u64, refused: bool, error: &WriteError) {
        let failure = Failure { number, refused, error: error.clone() };
        if self.failures.last() != Some(&failure) {
            self.failures.push(failure);
        }
    }

    /// Splits a batch that is too large for its topic, as Java's client does (`ProducerBatch.split`). Its records keep
    /// their sequences, so that the batches after it stay as they are.
    fn split(&mut self, at: usize, place: usize, what: &str, now: Instant) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        let halves = partition.window.get(place).and_then(|batch| self::halves(batch, &mut self.packer));
        let Some((first, second)) = halves else {
            let message = format!("{what}: a batch that is too large cannot be split");
            return self.fail(WriteError::new(WriteErrorKind::Abort, message));
        };
        self.held += first.bytes.len() + second.bytes.len();
        if let Some(whole) = partition.window.remove(place) {
            self.held = self.held.saturating_sub(whole.bytes.len());
        }
        partition.window.insert(place, second);
        partition.window.insert(place, first);
        if !partition.is_draining {
            partition.pace.back_off(self.settings.retry_backoff, self.settings.retry_backoff_max, now);
        }
        partition.is_draining = true;
    }
}

impl Writer {
    /// A deliberate mistake: gives a batch another sequence, if it is the last one.
    pub(super) fn resequence(&mut self, id: RequestId, part: &Part) {
        let Some(partition) = self.partitions.get_mut(part.at) else { return };
        let Some(place) = partition.sent_in(id, part.sequence) else { return };
        let is_last = place + 1 == partition.window.len();
        let Some(batch) = partition.window.get_mut(place).filter(|_| is_last) else { return };
        let Some(Ok(read)) = Batches::new(&batch.bytes).next() else { return };
        let mut builder = BatchBuilder::new();
        for record in read.records(read.payload()).filter_map(Result::ok) {
            let _ = builder.push_tail(record.timestamp, record.tail);
        }
        let seal = SealAs {
            producer_id: read.producer_id,
            producer_epoch: read.producer_epoch,
            base_sequence: partition.next_sequence,
            transactional: true,
        };
        batch.bytes = Arc::new(builder.seal(seal, &mut self.packer));
        batch.sequence = partition.next_sequence;
        batch.sending = Sending::Waiting;
        partition.next_sequence = sequence_after(partition.next_sequence, batch.count);
        partition.is_draining = true;
    }
}

/// The sender's number of the record at this place in its batch.
fn number_at(runs: &[Run], place: i32) -> Option<u64> {
    let mut before = place;
    for run in runs {
        if (0..run.count).contains(&before) {
            return Some(run.number);
        }
        before -= run.count;
    }
    None
}

/// The two halves of a batch, sealed as it was. `None` if it cannot be read, which cannot happen, as this writer built
/// it.
fn halves(whole: &Sealed, packer: &mut super::Packer) -> Option<(Sealed, Sealed)> {
    let batch = Batches::new(&whole.bytes).next()?.ok()?;
    let codec = batch.codec().ok()?;
    let unpacked;
    let payload = match codec {
        Codec::None => batch.payload(),
        codec => {
            unpacked = Bounded::new(UNPACKED_MAX).unpack(codec, batch.payload()).ok()?;
            &*unpacked
        }
    };
    let count = whole.count / 2;
    let (mut first, mut second) = (BatchBuilder::new(), BatchBuilder::new());
    for (place, record) in batch.records(payload).enumerate() {
        let record = record.ok()?;
        let into = if place < count as usize { &mut first } else { &mut second };
        into.push_tail(record.timestamp, record.tail).ok()?;
    }
    if first.count() != count || second.count() != whole.count - count {
        return None;
    }
    let (first_runs, second_runs) = split_runs(&whole.runs, count);
    let mut seal = |builder: BatchBuilder, sequence, runs| {
        let count = builder.count();
        let seal = SealAs {
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
            base_sequence: sequence,
            transactional: true,
        };
        let bytes = Arc::new(builder.seal(seal, packer));
        Sealed {
            bytes,
            sequence,
            count,
            runs,
            born: whole.born,
            sending: Sending::Waiting,
            is_lost: whole.is_lost,
            last: whole.last.clone(),
        }
    };
    let one = seal(first, whole.sequence, first_runs);
    let other = seal(second, sequence_after(whole.sequence, count), second_runs);
    Some((one, other))
}
