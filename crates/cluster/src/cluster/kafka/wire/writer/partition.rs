//! Batches on their way to one partition: they are built, sealed with a sequence, sent, and resent after failures.
//!
//! **Terms.** A sequence numbers a producer's records in one partition. A batch has the sequence of its first record,
//! by which the broker recognises a repeated batch; it is in the log once the broker has acknowledged it. The sender of
//! a record is the caller that handed the record to the writer, and has a number ([`Ticket`](super::Ticket)).
//!
//! Invariants: batches are in the order of their sequences; a batch keeps its sequence until it is dropped with its
//! transaction; from the first batch that is not in the log onwards, at most [`REMEMBERED_BATCHES`] batches have been
//! sent: a broker recognises a repeated batch only among the last batches, as many as it remembers
//! (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
//!
//! `is_on(Mistake::...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::brokers::RequestId;
use super::super::mistakes::{Mistake, is_on};
use super::super::records::BatchBuilder;

/// How many batches of a producer a broker remembers for each partition.
pub(super) const REMEMBERED_BATCHES: usize = 5;

/// Consecutive records of one sender in a batch. Their offsets are all reported to the sender, or none of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The sender's number ([`Ticket::number`](super::Ticket::number)).
    pub number: u64,
    /// Whether their offsets are reported.
    pub report: bool,
    /// The number of records.
    pub count: i32,
}

/// Adds one record to the runs.
pub(super) fn add_to_runs(runs: &mut Vec<Run>, number: u64, report: bool) {
    match runs.last_mut() {
        Some(run) if run.number == number && run.report == report => run.count += 1,
        _ => runs.push(Run { number, report, count: 1 }),
    }
}

/// Splits runs after their first `count` records.
pub(super) fn split_runs(runs: &[Run], count: i32) -> (Vec<Run>, Vec<Run>) {
    let (mut first, mut second, mut remaining) = (Vec::new(), Vec::new(), count);
    for run in runs {
        let in_first = run.count.min(remaining);
        remaining -= in_first;
        if in_first > 0 {
            first.push(Run { count: in_first, ..*run });
        }
        if in_first < run.count {
            second.push(Run { count: run.count - in_first, ..*run });
        }
    }
    (first, second)
}

/// A batch that is still being built.
#[derive(Debug)]
pub(super) struct UnsealedBatch {
    /// Its records.
    pub builder: BatchBuilder,
    /// The senders of its records, in order.
    pub runs: Vec<Run>,
    /// When its first record was handed over.
    pub first_record_at: Instant,
}

/// How far the sending of a sealed batch has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendState {
    /// The batch waits to be sent, for the first time or again.
    Waiting,
    /// The batch was sent in this request, which has no response yet.
    Sent(RequestId),
    /// The batch is in the log.
    Logged,
}

/// A batch with its sequence, in the form in which it is sent.
#[derive(Debug)]
pub(super) struct SealedBatch {
    /// Its bytes, shared with the connection that writes them.
    pub bytes: Arc<Vec<u8>>,
    /// The sequence of its first record.
    pub sequence: i32,
    /// The number of its records.
    pub count: i32,
    /// The senders of its records, in order.
    pub runs: Vec<Run>,
    /// When its first record was handed over.
    pub first_record_at: Instant,
    /// How far its sending has got.
    pub send_state: SendState,
    /// Whether a request with the batch got no response: a copy of the batch may arrive late.
    pub may_have_late_copy: bool,
    /// Why its last attempt failed, for the error of a timeout.
    pub last_failure: Option<String>,
}

/// Whether a partition is part of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionMembership {
    /// It is not part of the transaction.
    Out,
    /// The coordinator was asked to add it.
    Adding,
    /// It was added.
    In,
}

/// The wait before the next attempt: short at first, then longer, up to a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RetryBackoff {
    attempts: u32,
    until: Option<Instant>,
}

impl RetryBackoff {
    /// Attempts before the wait doubles.
    const ATTEMPTS_PER_WAIT: u32 = 4;

    /// Whether the wait is over, so that an attempt may be made now.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// When the next attempt may be made; `None` if at once.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Notes a failed attempt, and sets the wait before the next one.
    pub fn extend(&mut self, shortest: Duration, longest: Duration, now: Instant) {
        let doubled = 1_u32.checked_shl(self.attempts / Self::ATTEMPTS_PER_WAIT).unwrap_or(u32::MAX);
        self.attempts = self.attempts.saturating_add(1);
        self.until = Some(now + shortest.saturating_mul(doubled).min(longest));
    }

    /// Notes a successful attempt.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// A partition that is written to.
#[derive(Debug)]
pub(super) struct Partition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition's number.
    pub index: i32,
    /// The batch that records are added to.
    pub open_batch: Option<UnsealedBatch>,
    /// Full batches that have no sequence yet.
    pub full_batches: VecDeque<UnsealedBatch>,
    /// Batches that have a sequence, in order.
    pub sealed_batches: VecDeque<SealedBatch>,
    /// The sequence of the next batch to be sealed.
    pub next_sequence: i32,
    /// The [`Session::identity_number`](super::session::Session::identity_number) to which `next_sequence` belongs.
    pub identity_number: u64,
    /// The producer id that is known to have a batch in this partition. A broker that knows nothing about a producer
    /// accepts any sequence as the first (`ProducerAppendInfo.checkSequence`), so before the first batch is in the log
    /// only one batch is sent at a time.
    pub known_producer_id: i64,
    /// Whether the partition is part of the transaction.
    pub membership: TransactionMembership,
    /// Whether a batch has failed: no further batch is sent until all batches in flight have a response.
    pub is_draining: bool,
    /// The broker that the last batch was sent to.
    pub node: i32,
    /// When batches may be sent to the partition again.
    pub backoff: RetryBackoff,
    /// Whether the partition is listed in the writer's `active_slots`.
    pub is_active: bool,
    /// Whether a batch was resent since the last one was sealed; for deliberate mistakes only.
    pub was_resent: bool,
}

impl Partition {
    /// A partition without batches.
    pub fn new(topic: Arc<str>, index: i32) -> Self {
        Self {
            topic,
            index,
            open_batch: None,
            full_batches: VecDeque::new(),
            sealed_batches: VecDeque::new(),
            next_sequence: 0,
            identity_number: 0,
            known_producer_id: -1,
            membership: TransactionMembership::Out,
            is_draining: false,
            node: -1,
            backoff: RetryBackoff::default(),
            is_active: false,
            was_resent: false,
        }
    }

    /// Whether all records that were handed over are in the log.
    pub fn is_flushed(&self) -> bool {
        self.open_batch.is_none() && self.full_batches.is_empty() && self.sealed_batches.is_empty()
    }

    /// The number of batches that were sent and have no response.
    pub fn in_flight(&self) -> usize {
        self.sealed_batches.iter().filter(|batch| matches!(batch.send_state, SendState::Sent(_))).count()
    }

    /// The number of records that are not in the log yet.
    pub fn unlogged_records(&self) -> usize {
        let unsealed = self.open_batch.iter().chain(&self.full_batches).map(|unsealed| unsealed.builder.count());
        let sealed = self.sealed_batches.iter().filter(|batch| batch.send_state != SendState::Logged);
        unsealed.map(|count| count as usize).sum::<usize>() + sealed.map(|batch| batch.count as usize).sum::<usize>()
    }

    /// When the oldest record that is not in the log was handed over; `None` if all records are in the log.
    pub fn oldest_record_at(&self) -> Option<Instant> {
        let sealed = self
            .sealed_batches
            .iter()
            .find(|batch| batch.send_state != SendState::Logged)
            .map(|batch| batch.first_record_at);
        sealed
            .or_else(|| self.full_batches.front().map(|unsealed| unsealed.first_record_at))
            .or(self.open_batch.as_ref().map(|open| open.first_record_at))
    }

    /// The position in `sealed_batches` of the first batch that waits to be sent.
    pub fn next_to_send(&self) -> Option<usize> {
        let waits = |batch: &SealedBatch| batch.send_state == SendState::Waiting;
        if is_on(Mistake::LastFirst) {
            return self.sealed_batches.iter().rposition(waits);
        }
        self.sealed_batches.iter().position(waits)
    }

    /// The position of the batch with this sequence that was sent in this request.
    pub fn position_sent_in(&self, id: RequestId, sequence: i32) -> Option<usize> {
        self.sealed_batches
            .iter()
            .position(|batch| batch.send_state == SendState::Sent(id) && batch.sequence == sequence)
    }

    /// Whether all batches before this position are in the log.
    pub fn is_first_unlogged(&self, position: usize) -> bool {
        self.sealed_batches.iter().take(position).all(|batch| batch.send_state == SendState::Logged)
    }

    /// Whether the order of batches allows the producer with this id to send another batch to `node` now.
    pub fn can_send_to(&self, node: i32, producer_id: i64) -> bool {
        let in_flight = self.in_flight();
        if in_flight == 0 || is_on(Mistake::LastFirst) {
            return true;
        }
        // Another broker gets a batch only when the former one has responded to all batches that it got: otherwise a
        // later batch could overtake an earlier one.
        !self.is_draining && self.node == node && self.known_producer_id == producer_id
    }
}

/// The sequence `count` records after `sequence`: the greatest is followed by 0
/// (`DefaultRecordBatch.incrementSequence`).
pub(super) fn sequence_after(sequence: i32, count: i32) -> i32 {
    sequence.wrapping_add(count) & i32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_wraps_to_zero() {
        assert_eq!(sequence_after(0, 5), 5);
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 2, 7), 4);
    }

    #[test]
    fn runs_are_split_after_a_number_of_records() {
        let run = |number, count| Run { number, report: number == 2, count };
        let runs = [run(1, 3), run(2, 1), run(1, 2)];
        for count in 0..=6 {
            let (first, second) = split_runs(&runs, count);
            let total = |runs: &[Run]| runs.iter().map(|run| run.count).sum::<i32>();
            assert_eq!((total(&first), total(&second)), (count, 6 - count));
            let flat =
                |runs: &[Run]| runs.iter().flat_map(|run| vec![run.number; run.count as usize]).collect::<Vec<_>>();
            assert_eq!([flat(&first), flat(&second)].concat(), [1, 1, 1, 2, 1, 1]);
        }
    }

    #[test]
    fn backoff_is_short_at_first_and_bounded() {
        let start = Instant::now();
        let (shortest, longest) = (Duration::from_millis(1), Duration::from_millis(100));
        let mut backoff = RetryBackoff::default();
        assert!(backoff.is_over(start));
        let waits: Vec<u128> = (0..200)
            .map(|_| {
                backoff.extend(shortest, longest, start);
                (backoff.until().unwrap() - start).as_millis()
            })
            .collect();
        assert_eq!(waits[..9], [1, 1, 1, 1, 2, 2, 2, 2, 4]);
        assert_eq!(*waits.last().unwrap(), 100);
        assert!(!backoff.is_over(start));
        backoff.reset();
        assert!(backoff.is_over(start));
    }
}
