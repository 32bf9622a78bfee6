//! Batches on their way to one partition: they are built, sealed with a sequence, sent, and sent again.
//!
//! Invariants: batches are in the order of their sequences; a batch keeps its sequence, or is dropped with its
//! transaction; counted from the first batch that is not in the log, at most [`WINDOW`] have been sent: a broker
//! recognises no more than that as repeated (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::brokers::RequestId;
use super::super::mistakes::{Mistake, is_on};
use super::super::records::BatchBuilder;

/// How many batches of a producer a broker remembers for each partition.
pub(super) const WINDOW: usize = 5;

/// Consecutive records with the same number that are reported alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The sender's number.
    pub number: u64,
    /// Whether their offsets are reported.
    pub report: bool,
    /// How many records.
    pub count: i32,
}

/// Adds one record to the runs.
pub(super) fn note(runs: &mut Vec<Run>, number: u64, report: bool) {
    match runs.last_mut() {
        Some(run) if run.number == number && run.report == report => run.count += 1,
        _ => runs.push(Run { number, report, count: 1 }),
    }
}

/// Splits runs after their first `count` records.
pub(super) fn split_runs(runs: &[Run], count: i32) -> (Vec<Run>, Vec<Run>) {
    let (mut first, mut second, mut left) = (Vec::new(), Vec::new(), count);
    for run in runs {
        let here = run.count.min(left);
        left -= here;
        if here > 0 {
            first.push(Run { count: here, ..*run });
        }
        if here < run.count {
            second.push(Run { count: run.count - here, ..*run });
        }
    }
    (first, second)
}

/// A batch that is still being built.
#[derive(Debug)]
pub(super) struct Filling {
    /// Its records.
    pub builder: BatchBuilder,
    /// Whose records they are.
    pub runs: Vec<Run>,
    /// When its first record was handed over.
    pub born: Instant,
}

/// Where a sealed batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// To be sent, for the first time or again.
    Waiting,
    /// In this request.
    Sent(RequestId),
    /// In the log.
    Done,
}

/// A batch as it is sent.
#[derive(Debug)]
pub(super) struct Sealed {
    /// Its bytes, shared with the connection that writes them.
    pub bytes: Arc<Vec<u8>>,
    /// The sequence of its first record.
    pub sequence: i32,
    /// How many records it has.
    pub count: i32,
    /// Whose records they are.
    pub runs: Vec<Run>,
    /// When its first record was handed over.
    pub born: Instant,
    /// Where it is.
    pub sending: Sending,
    /// Whether a request with it got no answer: a copy of it may arrive late.
    pub is_lost: bool,
    /// Why its last attempt failed, for the error of a timeout.
    pub last: Option<String>,
}

/// Whether a partition is part of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    /// Not at all.
    Out,
    /// The coordinator was asked to add it.
    Adding,
    /// It was added.
    In,
}

/// When something is tried again: with the shortest wait at first, then less and less often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    tries: u32,
    until: Option<Instant>,
}

impl Pace {
    /// Tries before the wait doubles.
    const EACH: u32 = 4;

    /// Whether it may be tried now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// When it may be tried, if not at once.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// It has failed: waits before the next try.
    pub fn back_off(&mut self, shortest: Duration, longest: Duration, now: Instant) {
        let doubled = 1_u32.checked_shl(self.tries / Self::EACH).unwrap_or(u32::MAX);
        self.tries = self.tries.saturating_add(1);
        self.until = Some(now + shortest.saturating_mul(doubled).min(longest));
    }

    /// It has succeeded.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// One partition that is written to.
#[derive(Debug)]
pub(super) struct Partition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition's number.
    pub index: i32,
    /// The batch that records are added to.
    pub open: Option<Filling>,
    /// Full batches that have no sequence yet.
    pub full: VecDeque<Filling>,
    /// Batches that have a sequence, in order.
    pub window: VecDeque<Sealed>,
    /// The sequence of the next batch to be sealed.
    pub next_sequence: i32,
    /// The stamp of the producer's identity for which [`Partition::next_sequence`] counts.
    pub stamp: u64,
    /// The producer id that is known to have a batch in this partition. A broker that knows nothing about a producer
    /// accepts any sequence as the first (`ProducerAppendInfo.checkSequence`), so until then only one batch is sent at
    /// a time.
    pub known_to: i64,
    /// Whether it is part of the transaction.
    pub membership: Membership,
    /// Whether a batch has failed: nothing more is sent until all batches under way are answered.
    pub is_draining: bool,
    /// The broker that the last batch was sent to.
    pub node: i32,
    /// When it may be sent to again.
    pub pace: Pace,
    /// Whether it is listed in the writer's `active`.
    pub is_active: bool,
    /// Whether a batch was sent again since the last one was sealed; for deliberate mistakes only.
    pub was_again: bool,
}

impl Partition {
    /// A partition that nothing was written to yet.
    pub fn new(topic: Arc<str>, index: i32) -> Self {
        Self {
            topic,
            index,
            open: None,
            full: VecDeque::new(),
            window: VecDeque::new(),
            next_sequence: 0,
            stamp: 0,
            known_to: -1,
            membership: Membership::Out,
            is_draining: false,
            node: -1,
            pace: Pace::default(),
            is_active: false,
            was_again: false,
        }
    }

    /// Whether everything that was handed over is in the log.
    pub fn is_flushed(&self) -> bool {
        self.open.is_none() && self.full.is_empty() && self.window.is_empty()
    }

    /// How many batches were sent and not answered.
    pub fn in_flight(&self) -> usize {
        self.window.iter().filter(|batch| matches!(batch.sending, Sending::Sent(_))).count()
    }

    /// How many records are not in the log yet.
    pub fn records(&self) -> usize {
        let filling = self.open.iter().chain(&self.full).map(|filling| filling.builder.count());
        let sealed = self.window.iter().filter(|batch| batch.sending != Sending::Done);
        filling.map(|count| count as usize).sum::<usize>() + sealed.map(|batch| batch.count as usize).sum::<usize>()
    }

    /// When its oldest record that is not in the log was handed over.
    pub fn born(&self) -> Option<Instant> {
        let sealed = self.window.iter().find(|batch| batch.sending != Sending::Done).map(|batch| batch.born);
        sealed.or_else(|| self.full.front().map(|filling| filling.born)).or(self.open.as_ref().map(|open| open.born))
    }

    /// The place of the first sealed batch that waits to be sent.
    pub fn waiting(&self) -> Option<usize> {
        let waits = |batch: &Sealed| batch.sending == Sending::Waiting;
        if is_on(Mistake::LastFirst) {
            return self.window.iter().rposition(waits);
        }
        self.window.iter().position(waits)
    }

    /// The place of the batch with this sequence that was sent in this request.
    pub fn sent_in(&self, id: RequestId, sequence: i32) -> Option<usize> {
        self.window.iter().position(|batch| batch.sending == Sending::Sent(id) && batch.sequence == sequence)
    }

    /// Whether all batches before this place are in the log.
    pub fn is_first(&self, place: usize) -> bool {
        self.window.iter().take(place).all(|batch| batch.sending == Sending::Done)
    }

    /// Whether the order of batches allows another one to be sent to `node` now.
    pub fn may_send(&self, node: i32, producer: i64) -> bool {
        let in_flight = self.in_flight();
        if in_flight == 0 || is_on(Mistake::LastFirst) {
            return true;
        }
        // To another broker only when the former one has answered for all that it got: otherwise a later batch could
        // overtake.
        !self.is_draining && self.node == node && self.known_to == producer
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
    fn runs_are_split_after_the_given_number_of_records() {
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
    fn pace_is_quick_at_first_and_bounded() {
        let start = Instant::now();
        let (shortest, longest) = (Duration::from_millis(1), Duration::from_millis(100));
        let mut pace = Pace::default();
        assert!(pace.is_due(start));
        let waits: Vec<u128> = (0..200)
            .map(|_| {
                pace.back_off(shortest, longest, start);
                (pace.until().unwrap() - start).as_millis()
            })
            .collect();
        assert_eq!(waits[..9], [1, 1, 1, 1, 2, 2, 2, 2, 4]);
        assert_eq!(*waits.last().unwrap(), 100);
        assert!(!pace.is_due(start));
        pace.reset();
        assert!(pace.is_due(start));
    }
}
