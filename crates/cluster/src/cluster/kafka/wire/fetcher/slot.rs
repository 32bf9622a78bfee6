//! A partition as the fetcher sees it: its offsets, what is buffered, and its trouble, the reason why it is not read
//! any further.
//!
//! - To *hand on* records is to return them to the fetcher's caller.
//! - A *turn* is a number. It changes with each start, pause and change of leader, and when buffered records are
//!   dropped to be fetched again. Responses to requests of an earlier turn do not count.
//! - A *gap* is a range of offsets without records, left by compaction. Before the position moves over a gap just below
//!   the last stable offset, the gap's last offset is *probed*: requested alone, to see whether there is a record after
//!   all (see `fetcher`).
//! - The *epoch before* an offset is the leader epoch of the batch before it, or of the leader that reported the gap
//!   before it. A leader is asked whether it still holds everything up to there (see `epochs`).
//!
//! `mistakes::is_on(...)`: a deliberate mistake, which only simulations switch on, to see that they detect it.

use std::collections::VecDeque;
use std::time::Instant;

use super::super::brokers::Leader;
use super::super::code;
use super::super::mistakes::{self, Mistake};
use super::super::records::{self, Unpack};
use super::chunk::{BufferedBytes, Chunk, Cursor, Halt, Handover};
use super::fetched::Fetched;
use super::node::Target;
use super::settings::{CONFIRMED_AFTER, FetchSettings};
use super::trouble::Trouble;
use crate::record::TopicPartition;

/// How many times an unreadable batch is fetched before it counts as damaged in the log, not only in transit.
const DAMAGED_MAX: u32 = 3;

/// What [`Slot::back_off`] notes as the error code if no broker has returned one.
pub(super) const NO_ERROR_CODE: i16 = code::NONE;

/// Whether a partition is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The partition is not read.
    Paused,
    /// The partition is being read.
    Reading,
    /// The partition was read until this trouble, which has not been returned yet.
    Troubled(Trouble),
}

/// What a leader last reported about a partition's log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    /// The high watermark.
    pub high: i64,
    /// The last stable offset: records below it can be read.
    pub stable: i64,
    /// The first offset in the log.
    pub start: i64,
}

/// The offsets from the wanted one on, where a leader has returned nothing although records could be there.
#[derive(Clone, Copy, Debug)]
struct SuspectedGap {
    /// When the leader first returned nothing.
    since: Instant,
    /// The offset after the gap: the last stable offset at `since`, or a lower one that was reported later.
    end: i64,
    /// Whether the leader has returned nothing again after [`CONFIRMED_AFTER`]. The last offset before `end` is then
    /// probed.
    is_confirmed: bool,
}

/// A partition as the fetcher sees it.
#[derive(Debug)]
pub(super) struct Slot {
    pub name: TopicPartition,
    pub turn: u64,
    pub phase: Phase,
    /// The offset after everything handed on, and the epoch before it.
    pub position: i64,
    pub epoch_before_position: Option<i32>,
    /// The offset after everything fetched, the one wanted next; and the epoch before it.
    pub next_offset: i64,
    pub epoch_before_next: Option<i32>,
    /// The leader of this turn.
    pub leader: Option<Leader>,
    /// Whether the leader has confirmed that it holds what was read up to `next_offset`, or need not be asked.
    pub is_checked: bool,
    /// Parts of responses that were not completely handed on.
    pub chunks: VecDeque<Chunk>,
    /// The bytes of the chunks.
    pub buffered: usize,
    /// Whether the slot is in the fetcher's queue of slots with something to hand on.
    pub is_ready: bool,
    pub reported: Option<Reported>,
    /// The most bytes requested at once.
    pub bytes_max: i32,
    /// When the partition may be requested again.
    pub retry_at: Option<Instant>,
    /// How many requests for the partition have failed in a row.
    failures: u32,
    /// The error code with which requests for the partition fail ([`NO_ERROR_CODE`] without a code), and since when.
    pub refusal: Option<(Instant, i16)>,
    /// When the partition is to be requested by a request for nothing else, to learn whether it has records.
    pub alone_at: Option<Instant>,
    suspected_gap: Option<SuspectedGap>,
    /// If nothing was buffered when a gap was confirmed: the gap's end, to which the next hand-over moves the position
    /// first, and the epoch before that end.
    passed_gap: Option<(i64, Option<i32>)>,
    /// Since when leaders have responded that they do not know the epoch before `next_offset`.
    pub unknown_since: Option<Instant>,
    /// Where a batch could not be read, and how often.
    damaged: Option<(i64, u32)>,
}

impl Slot {
    pub fn new(name: TopicPartition, bytes_max: i32) -> Self {
        Self {
            name,
            turn: 0,
            phase: Phase::Paused,
            position: 0,
            epoch_before_position: None,
            next_offset: 0,
            epoch_before_next: None,
            leader: None,
            is_checked: false,
            chunks: VecDeque::new(),
            buffered: 0,
            is_ready: false,
            reported: None,
            bytes_max,
            retry_at: None,
            failures: 0,
            refusal: None,
            alone_at: None,
            suspected_gap: None,
            passed_gap: None,
            unknown_since: None,
            damaged: None,
        }
    }

    /// Begins to read at `offset`.
    pub fn start(&mut self, turn: u64, offset: i64, epoch_before: Option<i32>, buffered_bytes: &mut BufferedBytes) {
        if !mistakes::is_on(Mistake::BufferedUsedAfterRestart) {
            self.drop_chunks(buffered_bytes);
        }
        (self.position, self.epoch_before_position) = (offset, epoch_before);
        self.phase = Phase::Reading;
        (self.retry_at, self.failures, self.refusal) = (None, 0, None);
        (self.unknown_since, self.damaged) = (None, None);
        self.rewind(turn);
    }

    /// Stops reading.
    pub fn pause(&mut self, turn: u64, buffered_bytes: &mut BufferedBytes) {
        self.drop_chunks(buffered_bytes);
        self.phase = Phase::Paused;
        self.rewind(turn);
    }

    /// Begins a turn at the position, with nothing buffered.
    fn rewind(&mut self, turn: u64) {
        (self.next_offset, self.epoch_before_next, self.passed_gap) = (self.position, self.epoch_before_position, None);
        self.begin(turn, None);
    }

    /// Begins a turn with this leader. If the epoch before `next_offset` is known, the leader is first asked whether it
    /// holds what was read up to there.
    pub fn begin(&mut self, turn: u64, leader: Option<Leader>) {
        (self.turn, self.leader) = (turn, leader);
        self.is_checked = self.epoch_before_next.is_none() || mistakes::is_on(Mistake::LeaderEpochIgnored);
        (self.suspected_gap, self.alone_at) = (None, None);
    }

    pub fn drop_chunks(&mut self, buffered_bytes: &mut BufferedBytes) {
        self.chunks.drain(..).for_each(|chunk| buffered_bytes.release(chunk.response_number));
        self.buffered = 0;
    }

    /// Whether the partition may be requested now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.phase == Phase::Reading && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Stops reading. What was fetched before is handed on before the trouble is returned.
    pub fn fail(&mut self, trouble: Trouble) {
        self.phase = Phase::Troubled(trouble);
        self.retry_at = None;
    }

    /// Takes the trouble, once everything before it was handed on.
    pub fn take_trouble(&mut self) -> Option<(TopicPartition, Trouble)> {
        let Phase::Troubled(trouble) = self.phase else { return None };
        if self.can_hand_on() {
            return None;
        }
        self.phase = Phase::Paused;
        Some((self.name.clone(), trouble))
    }

    /// Handles a temporary failure of a request for the partition; `code` is its error code, or [`NO_ERROR_CODE`].
    pub fn back_off(&mut self, code: i16, settings: &FetchSettings, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + settings.backoff_after(self.failures));
        let since = self.refusal.filter(|(_, before)| *before == code).map_or(now, |(since, _)| since);
        self.refusal = Some((since, code));
    }

    /// A request for the partition has succeeded.
    pub fn succeed(&mut self) {
        (self.retry_at, self.failures, self.refusal) = (None, 0, None);
    }

    /// A batch at `offset` could not be read. It is fetched again, a limited number of times, if that may help.
    pub fn note_unreadable(&mut self, offset: i64, error: records::Error, settings: &FetchSettings, now: Instant) {
        let trouble = Trouble::Damaged { offset, what: error };
        match error {
            records::Error::Damaged(_) => self.refetch(offset, trouble, settings, now),
            records::Error::Magic(_) | records::Error::Codec(_) => self.fail(trouble),
        }
    }

    /// Fetches `offset` again, unless that has failed [`DAMAGED_MAX`] times.
    fn refetch(&mut self, offset: i64, trouble: Trouble, settings: &FetchSettings, now: Instant) {
        let times = 1 + self.damaged.filter(|(at, _)| *at == offset).map_or(0, |(_, times)| times);
        self.damaged = Some((offset, times));
        if times < DAMAGED_MAX { self.back_off(NO_ERROR_CODE, settings, now) } else { self.fail(trouble) }
    }

    /// Handles that the leader does not hold what was fetched: on the leader, the epoch before `next_offset` ends at
    /// `end`, below `next_offset`. Records that are not handed on yet are dropped and fetched again; if all were handed
    /// on, the partition fails with [`Trouble::Truncated`].
    pub fn handle_truncation(&mut self, end: i64, turn: u64, buffered_bytes: &mut BufferedBytes) {
        if !self.can_hand_on() {
            self.fail(Trouble::Truncated { offset: self.next_offset, end });
        } else {
            let leader = self.leader;
            self.drop_chunks(buffered_bytes);
            self.rewind(turn);
            self.begin(turn, leader);
        }
    }

    /// Buffers a fetched chunk.
    pub fn add(&mut self, chunk: Chunk) {
        (self.next_offset, self.epoch_before_next) = (chunk.end, chunk.end_epoch);
        self.buffered += chunk.range.len();
        self.chunks.push_back(chunk);
        (self.suspected_gap, self.alone_at) = (None, None);
    }

    /// Notes that the leader returned no records between `next_offset` and the last stable offset, or, if an offset
    /// was `probed`, no record there. `asked_at`: when the request was sent. `next_offset` moves to the end of the gap
    /// only after the leader has repeated this for a request sent at least [`CONFIRMED_AFTER`] later (a response to an
    /// earlier request may be delayed), and the probe of the gap's last offset has found no record.
    pub fn note_gap(&mut self, probed: Option<i64>, asked_at: Instant, now: Instant) {
        let (Some(reported), Some(leader)) = (self.reported, self.leader) else { return };
        let gap =
            self.suspected_gap.get_or_insert(SuspectedGap { since: now, end: reported.stable, is_confirmed: false });
        let end = probed.map_or(gap.end, |offset| offset.saturating_add(1));
        if probed.is_some() && end > reported.stable {
            // The last stable offset has fallen since, and the response says nothing about offsets beyond it.
            (self.suspected_gap, self.alone_at) = (None, None);
            return;
        }
        let end = end.min(reported.stable);
        let confirmed_at = gap.since + CONFIRMED_AFTER;
        if end <= self.next_offset {
            (self.suspected_gap, self.alone_at) = (None, None);
        } else if probed.is_some() || mistakes::is_on(Mistake::EmptinessBelieved) {
            self.pass_over(end, Some(leader.epoch).filter(|epoch| *epoch >= 0));
            (self.suspected_gap, self.alone_at) = (None, None);
        } else if asked_at < confirmed_at {
            self.alone_at = Some(confirmed_at);
        } else {
            (gap.end, gap.is_confirmed) = (end, true);
            self.alone_at = Some(now);
        }
    }

    /// The offset to probe before the position moves over a gap: the gap's last one. `None` if no gap is confirmed.
    pub fn probe(&self) -> Option<i64> {
        self.suspected_gap.filter(|gap| gap.is_confirmed).map(|gap| gap.end - 1)
    }

    /// The probe has found a record in what the leader says is a gap.
    pub fn note_record_in_gap(&mut self, settings: &FetchSettings, now: Instant) {
        (self.suspected_gap, self.alone_at) = (None, None);
        self.refetch(self.next_offset, Trouble::Inconsistent { offset: self.next_offset }, settings, now);
    }

    /// Moves `next_offset` over a gap that a leader of this epoch has reported. At the gap's end this epoch is
    /// compared, not that of the last batch: that epoch may have ended inside the gap, and the partition would seem
    /// to be truncated.
    fn pass_over(&mut self, end: i64, epoch: Option<i32>) {
        (self.next_offset, self.epoch_before_next) = (end, epoch.or(self.epoch_before_next));
        match self.chunks.back_mut() {
            Some(last) => (last.end, last.end_epoch) = (self.next_offset, self.epoch_before_next),
            None => self.passed_gap = Some((self.next_offset, self.epoch_before_next)),
        }
    }

    /// A response has left the partition out. If the partition may have records, it is requested alone, at `alone_at`
    /// unless an earlier response has set a time for that.
    pub fn note_left_out(&mut self, alone_at: Instant) {
        if self.reported.is_some_and(|reported| reported.stable > self.next_offset) {
            self.alone_at.get_or_insert(alone_at);
        }
    }

    /// Whether the leader has reported that records follow those fetched, and is expected to return them.
    pub fn has_more(&self) -> bool {
        let is_readable = self.phase == Phase::Reading && self.is_checked && self.refusal.is_none();
        is_readable
            && self.suspected_gap.is_none()
            && self.reported.is_some_and(|reported| reported.stable > self.next_offset)
    }

    /// Whether `target` asked for what is wanted now.
    pub fn is_wanted_by(&self, target: Option<&Target>) -> bool {
        target.is_some_and(|target| (target.turn, target.offset) == (self.turn, self.next_offset))
    }

    /// Whether there is anything to hand on.
    pub fn can_hand_on(&self) -> bool {
        !self.chunks.is_empty() || self.passed_gap.is_some()
    }

    /// Hands on what is buffered. `turn`: the number of a new turn, which begins if something must be fetched again.
    #[expect(clippy::too_many_arguments, reason = "all of them are the fetcher's own")]
    pub fn hand_on(
        &mut self,
        records_max: usize,
        unpack: &mut dyn Unpack,
        into: &mut Fetched,
        buffered_bytes: &mut BufferedBytes,
        settings: &FetchSettings,
        turn: u64,
        now: Instant,
    ) {
        let partition = into.add_partition(&self.name);
        if let Some((end, epoch)) = self.passed_gap.take() {
            into.pass(partition, self.position..end, epoch.unwrap_or(-1));
            (self.position, self.epoch_before_position) = (end, epoch);
        }
        let mut handover = Handover { records_max, check_crcs: settings.check_crcs, unpack, into, partition };
        let mut cursor = Cursor { position: self.position, epoch: self.epoch_before_position };
        let mut halt = None;
        while let Some(chunk) = self.chunks.front_mut() {
            let before = chunk.range.len();
            let handed_on = chunk.hand_on(&mut cursor, &mut handover);
            self.buffered = self.buffered.saturating_sub(before - chunk.range.len());
            if let Err(reason) = handed_on {
                halt = Some(reason);
                break;
            }
            let response_number = chunk.response_number;
            self.chunks.pop_front();
            buffered_bytes.release(response_number);
        }
        (self.position, self.epoch_before_position) = (cursor.position, cursor.epoch);
        let offset = self.position;
        let error_or_trouble = match halt {
            None | Some(Halt::Full | Halt::NoRoom) => return,
            Some(Halt::TooLarge) => Err(Trouble::UnpacksTooLarge { offset }),
            Some(Halt::Damaged(error)) => Ok(error),
        };
        // What is buffered after the failed batch must not be taken for the next records.
        self.drop_chunks(buffered_bytes);
        self.rewind(turn);
        match error_or_trouble {
            Ok(error) => self.note_unreadable(offset, error, settings, now),
            Err(trouble) => self.fail(trouble),
        }
    }
}
