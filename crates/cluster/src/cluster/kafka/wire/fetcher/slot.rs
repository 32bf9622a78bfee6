//! A partition: its offsets, what is buffered, and its trouble.
//!
//! Invariant: responses to requests from before a `turn` do not count in it. A turn begins whenever what is wanted
//! changes for another reason than a fetch: a start, a pause, another leader, a refetch.

use std::collections::VecDeque;
use std::time::Instant;

use super::super::brokers::Leader;
use super::super::mistakes::{self, Mistake};
use super::super::records::{self, Unpack};
use super::chunk::{Buffers, Chunk, Cursor, Halt, Handing};
use super::fetched::Fetched;
use super::node::Grip;
use super::settings::{CONFIRMED_AFTER, FetchSettings};
use super::trouble::Trouble;
use crate::record::TopicPartition;

/// How many times an unreadable batch is fetched before it counts as damaged: it may have been damaged in transit.
const DAMAGED_MAX: u32 = 3;

/// Whether a partition is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is not read.
    Paused,
    /// It is being read.
    Reading,
    /// It was read until this trouble, which was not returned yet.
    Troubled(Trouble),
}

/// What a leader last reported about a partition's log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub high: i64,
    pub stable: i64,
    pub start: i64,
}

/// A leader has returned nothing at the wanted offset, although records could be there.
#[derive(Clone, Copy, Debug)]
struct Hollow {
    since: Instant,
    /// The end of the gap.
    to: i64,
    /// Whether the leader has repeated that after [`CONFIRMED_AFTER`]. The last offset before `to` is then probed.
    is_confirmed: bool,
}

/// A partition.
#[derive(Debug)]
pub(super) struct Slot {
    pub name: TopicPartition,
    pub turn: u64,
    pub phase: Phase,
    /// The offset after everything handed on, and the epoch of what is before it.
    pub position: i64,
    pub position_epoch: Option<i32>,
    /// The offset after everything fetched, and the epoch of what is before it.
    pub next: i64,
    pub next_epoch: Option<i32>,
    /// The leader of this turn.
    pub leader: Option<Leader>,
    /// Whether the leader holds what was read up to `next`.
    pub is_checked: bool,
    pub chunks: VecDeque<Chunk>,
    /// The bytes of the chunks.
    pub buffered: usize,
    /// Whether it is in the queue of slots with something to hand on.
    pub is_ready: bool,
    pub said: Option<Said>,
    /// The most bytes requested at once.
    pub bytes_max: i32,
    /// When it may be requested again.
    pub until: Option<Instant>,
    failures: u32,
    /// Since when it has been refused with this error code.
    pub refused: Option<(Instant, i16)>,
    /// When it is to be requested alone.
    pub alone_at: Option<Instant>,
    hollow: Option<Hollow>,
    /// The end of a gap after the position, not handed on yet, and the epoch to compare from there.
    gap: Option<(i64, Option<i32>)>,
    /// Since when leaders have not known the epoch that they were asked about.
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
            position_epoch: None,
            next: 0,
            next_epoch: None,
            leader: None,
            is_checked: false,
            chunks: VecDeque::new(),
            buffered: 0,
            is_ready: false,
            said: None,
            bytes_max,
            until: None,
            failures: 0,
            refused: None,
            alone_at: None,
            hollow: None,
            gap: None,
            unknown_since: None,
            damaged: None,
        }
    }

    /// Begins to read at `offset`.
    pub fn start(&mut self, turn: u64, offset: i64, epoch_before: Option<i32>, buffers: &mut Buffers) {
        if !mistakes::is_on(Mistake::BufferedUsedAfterRestart) {
            self.drop_pieces(buffers);
        }
        (self.position, self.position_epoch) = (offset, epoch_before);
        self.phase = Phase::Reading;
        (self.until, self.failures, self.refused) = (None, 0, None);
        (self.unknown_since, self.damaged) = (None, None);
        self.rewind(turn);
    }

    /// Stops reading.
    pub fn pause(&mut self, turn: u64, buffers: &mut Buffers) {
        self.drop_pieces(buffers);
        self.phase = Phase::Paused;
        self.rewind(turn);
    }

    /// Begins a turn at the position, with nothing buffered.
    fn rewind(&mut self, turn: u64) {
        (self.next, self.next_epoch, self.gap) = (self.position, self.position_epoch, None);
        self.begin(turn, None);
    }

    /// Begins a turn with this leader, which is first asked whether it holds what was read, if there is an epoch to
    /// compare.
    pub fn begin(&mut self, turn: u64, leader: Option<Leader>) {
        (self.turn, self.leader) = (turn, leader);
        self.is_checked = self.next_epoch.is_none() || mistakes::is_on(Mistake::LeaderEpochIgnored);
        (self.hollow, self.alone_at) = (None, None);
    }

    pub fn drop_pieces(&mut self, buffers: &mut Buffers) {
        self.chunks.drain(..).for_each(|chunk| buffers.release(chunk.buffer));
        self.buffered = 0;
    }

    /// Whether it may be requested now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.phase == Phase::Reading && self.until.is_none_or(|until| until <= now)
    }

    /// Stops reading. What was fetched before is handed on before the trouble is returned.
    pub fn fail(&mut self, trouble: Trouble) {
        self.phase = Phase::Troubled(trouble);
        self.until = None;
    }

    /// Takes the trouble, once everything before it was handed on.
    pub fn take_trouble(&mut self) -> Option<(TopicPartition, Trouble)> {
        let Phase::Troubled(trouble) = self.phase else { return None };
        if self.has_some() {
            return None;
        }
        self.phase = Phase::Paused;
        Some((self.name.clone(), trouble))
    }

    /// A request for it has failed temporarily.
    pub fn back_off(&mut self, code: i16, settings: &FetchSettings, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + settings.backoff_after(self.failures));
        let since = self.refused.filter(|(_, of)| *of == code).map_or(now, |(since, _)| since);
        self.refused = Some((since, code));
    }

    /// A request for it has succeeded.
    pub fn succeed(&mut self) {
        (self.until, self.failures, self.refused) = (None, 0, None);
    }

    /// A batch at `offset` could not be read. If another fetch may help, it is refetched a limited number of times.
    pub fn spoil(&mut self, offset: i64, what: records::Error, settings: &FetchSettings, now: Instant) {
        let trouble = Trouble::Damaged { offset, what };
        match what {
            records::Error::Damaged(_) => self.refetch(offset, trouble, settings, now),
            records::Error::Magic(_) | records::Error::Codec(_) => self.fail(trouble),
        }
    }

    /// Fetches `offset` again, unless that has failed [`DAMAGED_MAX`] times.
    fn refetch(&mut self, offset: i64, trouble: Trouble, settings: &FetchSettings, now: Instant) {
        let times = 1 + self.damaged.filter(|(at, _)| *at == offset).map_or(0, |(_, times)| times);
        self.damaged = Some((offset, times));
        if times < DAMAGED_MAX { self.back_off(0, settings, now) } else { self.fail(trouble) }
    }

    /// The leader's log ends at `end`, before `next`. If something is not handed on yet, it is dropped and fetched
    /// again; otherwise the partition is truncated.
    pub fn cut(&mut self, end: i64, turn: u64, buffers: &mut Buffers) {
        if !self.has_some() {
            self.fail(Trouble::Truncated { offset: self.next, end });
        } else {
            let leader = self.leader;
            self.drop_pieces(buffers);
            self.rewind(turn);
            self.begin(turn, leader);
        }
    }

    /// Buffers a fetched chunk.
    pub fn add(&mut self, chunk: Chunk) {
        (self.next, self.next_epoch) = (chunk.end, chunk.end_epoch);
        self.buffered += chunk.range.len();
        self.chunks.push_back(chunk);
        (self.hollow, self.alone_at) = (None, None);
    }

    /// A response without any records says that there are none from `next`, or from the `probed` offset, to the last
    /// stable offset. The position moves once the leader has said so again, in a response requested [`CONFIRMED_AFTER`]
    /// later (earlier ones may be delayed), and has returned nothing at the last offset of the gap either.
    pub fn note_hollow(&mut self, probed: Option<i64>, asked_at: Instant, now: Instant) {
        let (Some(said), Some(leader)) = (self.said, self.leader) else { return };
        let hollow = self.hollow.get_or_insert(Hollow { since: now, to: said.stable, is_confirmed: false });
        let to = probed.map_or(hollow.to, |offset| offset.saturating_add(1));
        if probed.is_some() && to > said.stable {
            // The last stable offset has fallen since, and the response says nothing about offsets beyond it.
            (self.hollow, self.alone_at) = (None, None);
            return;
        }
        let to = to.min(said.stable);
        let confirmed_at = hollow.since + CONFIRMED_AFTER;
        if to <= self.next {
            (self.hollow, self.alone_at) = (None, None);
        } else if probed.is_some() || mistakes::is_on(Mistake::EmptinessBelieved) {
            self.pass_over(to, Some(leader.epoch).filter(|epoch| *epoch >= 0));
            (self.hollow, self.alone_at) = (None, None);
        } else if asked_at < confirmed_at {
            self.alone_at = Some(confirmed_at);
        } else {
            (hollow.to, hollow.is_confirmed) = (to, true);
            self.alone_at = Some(now);
        }
    }

    /// The offset to probe before the position moves over a gap: the last one in it.
    pub fn probe(&self) -> Option<i64> {
        self.hollow.filter(|hollow| hollow.is_confirmed).map(|hollow| hollow.to - 1)
    }

    /// The probe has found a record in what the leader says is a gap.
    pub fn contradict(&mut self, settings: &FetchSettings, now: Instant) {
        (self.hollow, self.alone_at) = (None, None);
        self.refetch(self.next, Trouble::Inconsistent { offset: self.next }, settings, now);
    }

    /// Passes over a gap up to `to`, reported by a leader of this epoch. From there this epoch is compared: that of the
    /// last batch may have ended before `to`, and the partition would seem to be truncated.
    fn pass_over(&mut self, to: i64, epoch: Option<i32>) {
        (self.next, self.next_epoch) = (to, epoch.or(self.next_epoch));
        match self.chunks.back_mut() {
            Some(last) => (last.end, last.end_epoch) = (self.next, self.next_epoch),
            None => self.gap = Some((self.next, self.next_epoch)),
        }
    }

    /// It was left out of a response although it may have records: requests it alone at `alone_at`.
    pub fn note_left_out(&mut self, alone_at: Instant) {
        if self.said.is_some_and(|said| said.stable > self.next) {
            self.alone_at.get_or_insert(alone_at);
        }
    }

    /// Whether a leader has said that records follow those fetched, and nothing keeps it from returning them.
    pub fn has_more(&self) -> bool {
        let is_fetched = self.phase == Phase::Reading && self.is_checked && self.refused.is_none();
        is_fetched && self.hollow.is_none() && self.said.is_some_and(|said| said.stable > self.next)
    }

    /// Whether `grip` asked for what is wanted now.
    pub fn is_wanted_by(&self, grip: Option<&Grip>) -> bool {
        grip.is_some_and(|grip| (grip.turn, grip.offset) == (self.turn, self.next))
    }

    /// Whether there is anything to hand on.
    pub fn has_some(&self) -> bool {
        !self.chunks.is_empty() || self.gap.is_some()
    }

    /// Hands on what is buffered. `turn` is a new one, used if something must be fetched again.
    #[expect(clippy::too_many_arguments, reason = "all of them are the fetcher's own")]
    pub fn hand_on(
        &mut self,
        records_max: usize,
        unpack: &mut dyn Unpack,
        into: &mut Fetched,
        buffers: &mut Buffers,
        settings: &FetchSettings,
        turn: u64,
        now: Instant,
    ) {
        let partition = into.add_partition(&self.name);
        if let Some((to, epoch)) = self.gap.take() {
            into.pass(partition, self.position..to, epoch.unwrap_or(-1));
            (self.position, self.position_epoch) = (to, epoch);
        }
        let mut handing = Handing { records_max, checks: settings.check_crcs, unpack, into, partition };
        let mut cursor = Cursor { position: self.position, epoch: self.position_epoch };
        let mut halt = None;
        while let Some(chunk) = self.chunks.front_mut() {
            let before = chunk.range.len();
            let ended = chunk.hand_on(&mut cursor, &mut handing);
            self.buffered = self.buffered.saturating_sub(before - chunk.range.len());
            if let Err(why) = ended {
                halt = Some(why);
                break;
            }
            let buffer = chunk.buffer;
            self.chunks.pop_front();
            buffers.release(buffer);
        }
        (self.position, self.position_epoch) = (cursor.position, cursor.epoch);
        let offset = self.position;
        let trouble = match halt {
            None | Some(Halt::Full | Halt::NoRoom) => return,
            Some(Halt::TooLarge) => Err(Trouble::UnpacksTooLarge { offset }),
            Some(Halt::Damaged(what)) => Ok(what),
        };
        // What is buffered after the failed batch must not be taken for the next records.
        self.drop_pieces(buffers);
        self.rewind(turn);
        match trouble {
            Ok(what) => self.spoil(offset, what, settings, now),
            Err(trouble) => self.fail(trouble),
        }
    }
}
