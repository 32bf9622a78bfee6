//! The window: the records that a task has read and not settled, in input order.
//!
//! A record waits in its slot until it is judged; if it is new, the provider is called; then a transaction settles it.
//! The **settled prefix** ends before the first slot that is not settled. Its end is the group's committed offset. The
//! position record holds stream time and horizon at that end, and lists the ranges settled beyond it, so that a restart
//! skips them.
//!
//! Stream time moves as records are read, in input order, and each slot keeps the stream time after its record. So it
//! does not matter when the record is judged.
//!
//! Nothing here waits or writes. A transaction contains [`Window::ahead`] and what its slots have put into it.
//! [`Window::on_commit`] or [`Window::on_abort`] applies its outcome.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::dedup::{Progress, Rules, check_time};
use crate::effect::call::{Draw, Event, Now, Policy, Stage};
use crate::effect::provider::CallNumber;
use crate::engine::bisect::Bisect;
use crate::engine::control::CommandProgress;
use crate::engine::share::Position;
use crate::record::Record;
use crate::sabotage::{self, Sabotage};

mod commands;
mod reach;
mod refused;
mod slot;

use reach::Reach;
pub use slot::{Called, Judged, LastAnswer, OwnedRecord, Slot, SlotStage, Steps, Time, Times, Trouble};

/// What a transaction releases once it is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetGo {
    /// Whether there are calls that may be sent.
    pub calls: bool,
    /// The handlers that go on with their next step, and from when on it may act (wall clock, in milliseconds since the
    /// epoch).
    pub handlers: Vec<(CallNumber, i64)>,
}

/// Where a task is once the open transaction is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The end of the settled prefix.
    pub next: i64,
    /// Stream time and horizon there.
    pub times: Times,
    /// The ranges that are settled beyond it.
    pub beyond: Vec<(i64, i64)>,
}

impl Ahead {
    /// Puts it into a share's position.
    pub fn put(self, position: &mut Position) {
        position.next = position.next.max(self.next);
        position.calls.beyond = self.beyond;
        self.times.put(&mut position.progress);
    }
}

/// The records that a task has read and not settled.
#[derive(Debug)]
pub struct Window {
    slots: VecDeque<Slot>,
    bytes: usize,
    /// The end of the settled prefix, and stream time and horizon there.
    next: i64,
    times: Times,
    /// The next offset to read, and stream time and horizon there.
    read_to: i64,
    tail: Progress,
    /// The ranges that former owners have settled and that are not read yet.
    beyond: VecDeque<(i64, i64)>,
    /// The end of the grants of former owners.
    former_grants_end: i64,
    /// How far the next grant reaches.
    reach: Reach,
    /// Whether records are settled in input order: see [`Window::in_order`].
    is_in_order: bool,
    /// Whether Kafka has refused a record's settlement, and that is not resolved yet.
    is_in_trouble: bool,
    /// How many suspects a transaction may settle, while Kafka refuses one of them.
    bisect: Bisect,
    /// Whether its partition is paused because the window is full.
    pub is_paused: bool,
    /// Whether it has changed since the lane last looked at it.
    pub is_touched: bool,
    /// How far its task has got with commands.
    pub commands: CommandProgress,
}

impl Window {
    /// The window of a task that goes on at this position.
    pub fn new(position: &Position) -> Self {
        let times = Times::of(&position.progress);
        let mut tail = Progress::default();
        times.put(&mut tail);
        Self {
            slots: VecDeque::new(),
            bytes: 0,
            next: position.next,
            times,
            read_to: position.next,
            tail,
            beyond: position.calls.beyond.iter().copied().collect(),
            former_grants_end: position.calls.called.last().map_or(i64::MIN, |called| called.to),
            reach: Reach::new(position.next),
            is_in_order: false,
            is_in_trouble: false,
            bisect: Bisect::new(usize::MAX),
            is_paused: false,
            is_touched: false,
            commands: CommandProgress::default(),
        }
    }

    /// The same, with records settled in input order if `is_in_order`. The versions that scopes have reached decide
    /// about records of other identities, so the position record must hold those as of the settled prefix's end, and
    /// none that came later.
    pub fn in_order(self, is_in_order: bool) -> Self {
        Self { is_in_order, ..self }
    }

    /// The number of the last slot that may be settled now, as far as order is concerned: the first that is not settled
    /// yet; `usize::MAX` if any order will do.
    pub fn last_in_order(&self) -> usize {
        match self.is_in_order {
            true => self.slots.iter().take_while(|slot| slot.is_ahead()).count(),
            false => usize::MAX,
        }
    }

    /// The slots, in input order.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether everything that was read is settled.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Roughly the memory that its records take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The end of the grants of former owners: calls of records before it may have been sent.
    pub fn former_grants_end(&self) -> i64 {
        self.former_grants_end
    }

    /// The end of a grant that is written now.
    pub fn next_grant_end(&mut self) -> i64 {
        self.reach.end(self.read_to)
    }

    /// Whether one of its calls is on the wire, or on its way there.
    pub fn is_calling(&self) -> bool {
        let is_sent =
            |slot: &Slot| matches!(&slot.stage, SlotStage::Called(called) if called.call.stage() == Stage::Sent);
        self.slots.iter().any(is_sent)
    }

    /// Everything before this offset is settled.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// The next offset to read.
    pub fn read_to(&self) -> i64 {
        self.read_to
    }

    /// The slot with this number, from 0.
    pub fn slot(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    /// The slot with this number, from 0.
    pub fn slot_mut(&mut self, at: usize) -> &mut Slot {
        self.is_touched = true;
        &mut self.slots[at]
    }

    /// The number of the slot with this offset.
    pub fn find(&self, offset: i64) -> Option<usize> {
        self.slots.binary_search_by_key(&offset, Slot::offset).ok()
    }

    /// Takes in the next record. `key` returns the key of its identity; `is_certain` says whether a record that is from
    /// the future by this host's clock is so by every clock.
    pub fn take_in(
        &mut self,
        (record, topic): (&Record<'_>, &Arc<str>),
        (rules, progress, wall_ms): (&Rules, &Progress, i64),
        key: impl FnOnce() -> Option<Vec<u8>>,
        is_certain: impl FnOnce() -> bool,
    ) {
        let offset = record.offset;
        assert!(offset >= self.read_to, "offset {offset} came after {}", self.read_to);
        (self.read_to, self.is_touched) = (offset + 1, true);
        let is_settled = self.was_settled_before(offset);
        let is_replayed = progress.is_replayed(offset);
        let time = match check_time(rules, &self.tail, record.timestamp, wall_ms).filter(|_| !is_replayed) {
            None => Time::Believed,
            Some(rejection) if is_certain() => Time::Future(rejection),
            Some(rejection) if is_settled && sabotage::is_on(Sabotage::SettledNotDoubted) => Time::Future(rejection),
            // A former owner with the right time may have believed and settled it, and then stream time includes it.
            Some(_) => Time::Doubted,
        };
        if time == Time::Believed && !is_replayed {
            self.tail.advance(rules, record.timestamp);
        }
        let stage = if is_settled { SlotStage::Settled } else { SlotStage::Unjudged };
        let key = if is_settled || is_replayed || time != Time::Believed { None } else { key() };
        let slot = Slot {
            record: OwnedRecord::of(record, topic),
            key,
            times: Times::of(&self.tail),
            time,
            stage,
            trouble: Trouble::None,
        };
        self.bytes += slot.record.bytes();
        self.slots.push_back(slot);
        self.pop_settled();
    }

    /// Whether a former owner has settled the record at this offset; forgets the ranges before that.
    fn was_settled_before(&mut self, offset: i64) -> bool {
        while self.beyond.front().is_some_and(|&(_, to)| to <= offset) {
            self.beyond.pop_front();
        }
        self.beyond.front().is_some_and(|&(from, _)| from <= offset)
    }

    /// Where the task is once the open transaction is committed.
    pub fn ahead(&self) -> Ahead {
        let prefix = self.slots.iter().take_while(|slot| slot.may_be_passed()).count();
        let (next, times) = match prefix.checked_sub(1).map(|last| &self.slots[last]) {
            None => (self.next, self.times),
            Some(last) if prefix == self.slots.len() => (self.read_to, last.times),
            Some(last) => (last.offset() + 1, last.times),
        };
        let mut beyond: Vec<(i64, i64)> = Vec::new();
        let mut before = next;
        for slot in self.slots.iter().skip(prefix) {
            let (from, to) = (slot.offset(), slot.offset() + 1);
            if slot.is_ahead() {
                match beyond.last_mut() {
                    // No record lies, or ever will, between the two.
                    Some((_, end)) if *end == before => *end = to,
                    _ => beyond.push((from, to)),
                }
            }
            before = to;
        }
        let unread = self.beyond.iter().map(|&(from, to)| (from.max(self.read_to), to));
        beyond.extend(unread.filter(|(from, to)| from < to));
        if sabotage::is_on(Sabotage::BeyondNotListed) {
            beyond.clear();
        }
        let next = if sabotage::is_on(Sabotage::OffsetBeyondUnsettled) { self.read_to } else { next };
        let times = if sabotage::is_on(Sabotage::StreamTimeBeyond) { Times::of(&self.tail) } else { times };
        Ahead { next, times, beyond }
    }

    /// After a commit: marks its settlements final and releases the calls it authorised.
    pub fn on_commit(&mut self, policy: &Policy, now: Now, draw: Draw<'_>) -> LetGo {
        self.is_touched = true;
        let mut let_go = LetGo::default();
        for slot in &mut self.slots {
            if let SlotStage::Called(called) = &mut slot.stage
                && let Some(since_ms) = called.steps_committed(policy, now, draw)
            {
                let_go.handlers.push((called.number, since_ms));
            }
            match &mut slot.stage {
                SlotStage::Judged(judged) if judged.is_written => slot.stage = SlotStage::Settled,
                SlotStage::Called(called) if called.is_written => slot.stage = SlotStage::Settled,
                SlotStage::Called(called) if matches!(called.call.stage(), Stage::Writing(_)) => {
                    called.apply_event(policy, Event::Committed, now, draw);
                    let_go.calls = true;
                }
                _ => {}
            }
        }
        self.pop_settled();
        self.end_search_if_done();
        let_go
    }

    /// For a sabotage: the handlers whose steps are in the open transaction, and since when.
    pub fn written_steps(&self) -> Vec<(CallNumber, i64)> {
        let written = |slot: &Slot| match &slot.stage {
            SlotStage::Called(called) => Some((called.number, called.steps.as_ref()?.written_ms?)),
            _ => None,
        };
        self.slots.iter().filter_map(written).collect()
    }

    /// After a certain abort: puts everything back to what it was before the transaction.
    pub fn on_abort(&mut self, policy: &Policy, now: Now, draw: Draw<'_>) {
        self.is_touched = true;
        for slot in &mut self.slots {
            match &mut slot.stage {
                // The entry it was judged against may have been in that transaction.
                SlotStage::Judged(_) => slot.stage = SlotStage::Unjudged,
                SlotStage::Called(called) => {
                    called.is_written = false;
                    // A release that an earlier transaction committed is written once more.
                    called.is_released = false;
                    called.steps.iter_mut().for_each(|steps| steps.written_ms = None);
                    if matches!(called.call.stage(), Stage::Writing(_)) {
                        called.apply_event(policy, Event::Aborted, now, draw);
                    }
                }
                SlotStage::Unjudged | SlotStage::Stops(_) | SlotStage::Settled => {}
            }
        }
    }

    /// Removes the slots of the settled prefix.
    fn pop_settled(&mut self) {
        let is_over = |slot: &mut Slot| matches!(slot.stage, SlotStage::Settled) && slot.may_be_passed();
        while let Some(slot) = self.slots.pop_front_if(is_over) {
            self.bytes -= slot.record.bytes();
            (self.next, self.times) = (slot.offset() + 1, slot.times);
        }
        if self.slots.is_empty() {
            self.next = self.read_to;
        }
    }

    /// Moves on to this offset: everything before it is read.
    pub fn pass_to(&mut self, offset: i64) {
        self.read_to = self.read_to.max(offset);
        self.pop_settled();
    }

    /// When the next call that is ready may be sent, on the monotonic clock.
    pub fn next_send(&self) -> Option<Duration> {
        let ready = |slot: &Slot| match &slot.stage {
            SlotStage::Called(called) if called.is_ready() => Some(called.send_at),
            _ => None,
        };
        self.slots.iter().filter_map(ready).min()
    }
}

#[cfg(test)]
pub(super) mod tests;
