//! The window: the records that a task has read and not yet settled, in input order.
//!
//! A record waits in its slot until it is judged; if it is new, the provider is called; then a transaction settles it.
//! A settled record keeps its slot until all records before it are settled. The **settled prefix** ends before the
//! first slot that is not settled. Its end is the group's committed offset. The position record holds stream time and
//! horizon at that end, and lists the ranges settled beyond it, so that a restart skips them.
//!
//! **Stream time** is the highest timestamp of the records that were read, except records whose timestamps are not
//! believed because they lie in the future. The **horizon** is the highest value that stream time minus the retention
//! ever had: identities last seen before it may be forgotten, so a record with an earlier timestamp is late. Both
//! advance as records are read, in input order, and each slot keeps the values after its record. So the outcome does
//! not depend on when the record is judged.
//!
//! A **grant** in the position record permits the calls of all records before an offset, its end ([`super::grants`]).
//!
//! Nothing here waits or writes. A transaction contains the position that [`Window::position_after_commit`] returns and
//! the writes of the window's slots. [`Window::on_commit`] or [`Window::on_abort`] applies the transaction's outcome.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

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
use crate::schemas::Id;

mod commands;
mod reach;
mod refused;
mod slot;

use reach::Reach;
pub use slot::{
    CalledRecord, JudgedRecord, LastResponse, OwnedRecord, RefusalState, ReportedSteps, Slot, SlotStage, Times,
    TimestampCheck,
};

/// Calls and handlers that may continue after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitEffects {
    /// Whether new calls may be sent.
    pub allows_calls: bool,
    /// The calls whose handlers (users' functions that carry out calls in steps) continue with their next step, each
    /// with the time since which that step may have acted (wall clock, in milliseconds since the epoch).
    pub resumed_handlers: Vec<(CallNumber, i64)>,
}

/// A task's position after the commit of the open transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionAfterCommit {
    /// The end of the settled prefix.
    pub next: i64,
    /// Stream time and horizon at that end.
    pub times: Times,
    /// The ranges of offsets that are settled beyond that end.
    pub beyond: Vec<(i64, i64)>,
}

impl PositionAfterCommit {
    /// Stores it in a share's position.
    pub fn write_to(self, position: &mut Position) {
        position.next = position.next.max(self.next);
        position.calls.beyond = self.beyond;
        self.times.write_to(&mut position.progress);
    }
}

/// The records that a task has read and not yet settled.
#[derive(Debug)]
pub struct Window {
    slots: VecDeque<Slot>,
    /// Roughly the memory of the records in the slots.
    bytes: usize,
    /// The end of the settled prefix: all records before this offset are settled.
    settled_end: i64,
    /// Stream time and horizon at the end of the settled prefix.
    times: Times,
    /// The next offset to read.
    read_to: i64,
    /// Stream time and horizon after all records that were read.
    tail: Progress,
    /// The ranges of offsets that former owners have settled and that are not yet read.
    beyond: VecDeque<(i64, i64)>,
    /// The end of the grants of former owners.
    former_grants_end: i64,
    /// How far the next grant reaches.
    reach: Reach,
    /// Whether records are settled in input order: see [`Window::with_input_order`].
    is_in_order: bool,
    /// Whether a record's settlement was refused by Kafka, and the refusal is not resolved yet.
    has_refusal: bool,
    /// Bounds the number of records that a transaction may settle while Kafka refuses one of them: see `refused`.
    bisect: Bisect,
    /// Whether the partition is paused because the window is full or waits for a schema.
    pub is_paused: bool,
    /// The schema of the next record to read, if it is not known yet, and since when the window has waited for it, on
    /// the monotonic clock.
    pub awaited_schema: Option<(Id, Duration)>,
    /// Whether the window has changed since the lane last processed it.
    pub needs_processing: bool,
    /// The task's progress with the operator's commands.
    pub commands: CommandProgress,
}

impl Window {
    /// The window of a task that continues at this position.
    pub fn new(position: &Position) -> Self {
        let times = Times::of(&position.progress);
        let mut tail = Progress::default();
        times.write_to(&mut tail);
        Self {
            slots: VecDeque::new(),
            bytes: 0,
            settled_end: position.next,
            times,
            read_to: position.next,
            tail,
            beyond: position.calls.beyond.iter().copied().collect(),
            former_grants_end: position.calls.grants.last().map_or(i64::MIN, |grant| grant.to),
            reach: Reach::new(position.next),
            is_in_order: false,
            has_refusal: false,
            bisect: Bisect::new(usize::MAX),
            is_paused: false,
            awaited_schema: None,
            needs_processing: false,
            commands: CommandProgress::default(),
        }
    }

    /// The same window, in which records are settled in input order if `is_in_order`. That is necessary with epochs:
    /// there the highest version of a scope (such as one server) also decides about records of other identities, so the
    /// position record must hold the versions as of the end of the settled prefix, and no later version.
    pub fn with_input_order(self, is_in_order: bool) -> Self {
        Self { is_in_order, ..self }
    }

    /// The index of the last slot that may be settled next: in input order, the first slot that neither is settled nor
    /// will be settled by the open transaction; without an order, `usize::MAX`.
    pub fn last_in_order(&self) -> usize {
        match self.is_in_order {
            true => self.slots.iter().take_while(|slot| slot.is_settled_after_commit()).count(),
            false => usize::MAX,
        }
    }

    /// The slots, in input order.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// The number of slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether all records that were read are settled.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Roughly the memory of the records, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The end of the grants of former owners: calls of records before it may have been sent.
    pub fn former_grants_end(&self) -> i64 {
        self.former_grants_end
    }

    /// The end of a grant that the current transaction writes.
    pub fn next_grant_end(&mut self) -> i64 {
        self.reach.end(self.read_to)
    }

    /// Whether a call was submitted to the driver and its attempt has not ended.
    pub fn is_calling(&self) -> bool {
        let is_sent =
            |slot: &Slot| matches!(&slot.stage, SlotStage::Called(called) if called.call.stage() == Stage::Sent);
        self.slots.iter().any(is_sent)
    }

    /// Whether the window waits for the schema of the next record to read.
    pub fn is_waiting(&self) -> bool {
        self.awaited_schema.is_some()
    }

    /// The end of the settled prefix: all records before this offset are settled.
    pub fn settled_end(&self) -> i64 {
        self.settled_end
    }

    /// The next offset to read.
    pub fn read_to(&self) -> i64 {
        self.read_to
    }

    /// The slot at this index.
    pub fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// The slot at this index.
    pub fn slot_mut(&mut self, index: usize) -> &mut Slot {
        self.needs_processing = true;
        &mut self.slots[index]
    }

    /// The index of the slot with this offset.
    pub fn find(&self, offset: i64) -> Option<usize> {
        self.slots.binary_search_by_key(&offset, Slot::offset).ok()
    }

    /// Appends the next record. `progress` is the task's committed progress. `key` returns the key of the record's
    /// identity. `is_certainly_future` is called only if the timestamp is too far ahead of this host's clock, and
    /// returns whether the timestamp is too far ahead of the cluster's clock as well.
    ///
    /// # Errors
    /// The schema that `key` needs and that is not known yet. The window is unchanged.
    pub fn push_record(
        &mut self,
        (record, topic): (&Record<'_>, &Arc<str>),
        (rules, progress, wall_ms): (&Rules, &Progress, i64),
        key: impl FnOnce() -> Result<Option<Vec<u8>>, Id>,
        is_certainly_future: impl FnOnce() -> bool,
    ) -> Result<(), Id> {
        let offset = record.offset;
        assert!(offset >= self.read_to, "offset {offset} came after {}", self.read_to);
        let is_settled = self.was_settled_by_former_owner(offset);
        // Whether the record was processed before, and the committed progress, stream time included, has counted it.
        let is_replayed = progress.is_replayed(offset);
        let key = if is_settled || is_replayed { None } else { key()? };
        (self.read_to, self.needs_processing) = (offset + 1, true);
        let timestamp_check = match check_time(rules, &self.tail, record.timestamp, wall_ms).filter(|_| !is_replayed) {
            None => TimestampCheck::Believed,
            Some(rejection) if is_certainly_future() => TimestampCheck::Future(rejection),
            Some(rejection) if is_settled && sabotage::is_on(Sabotage::SettledNotDoubted) => {
                TimestampCheck::Future(rejection)
            }
            // A former owner with a correct clock may have believed and settled it, and then stream time includes it.
            Some(_) => TimestampCheck::SeemsFuture,
        };
        if timestamp_check == TimestampCheck::Believed && !is_replayed {
            self.tail.advance(rules, record.timestamp);
        }
        let stage = if is_settled { SlotStage::Settled } else { SlotStage::Unjudged };
        let key = key.filter(|_| timestamp_check == TimestampCheck::Believed);
        let slot = Slot {
            record: OwnedRecord::from_record(record, topic),
            key,
            times: Times::of(&self.tail),
            timestamp_check,
            stage,
            refusal: RefusalState::None,
        };
        self.bytes += slot.record.bytes();
        self.slots.push_back(slot);
        self.pop_settled();
        Ok(())
    }

    /// Whether a former owner has settled the record at this offset. Forgets the ranges before that offset.
    fn was_settled_by_former_owner(&mut self, offset: i64) -> bool {
        while self.beyond.front().is_some_and(|&(_, to)| to <= offset) {
            self.beyond.pop_front();
        }
        self.beyond.front().is_some_and(|&(from, _)| from <= offset)
    }

    /// The task's position after the commit of the open transaction.
    pub fn position_after_commit(&self) -> PositionAfterCommit {
        let prefix_length = self.slots.iter().take_while(|slot| slot.can_join_prefix()).count();
        let (next, times) = match prefix_length.checked_sub(1).map(|last| &self.slots[last]) {
            None => (self.settled_end, self.times),
            Some(last) if prefix_length == self.slots.len() => (self.read_to, last.times),
            Some(last) => (last.offset() + 1, last.times),
        };
        let mut beyond: Vec<(i64, i64)> = Vec::new();
        let mut previous_end = next;
        for slot in self.slots.iter().skip(prefix_length) {
            let (from, to) = (slot.offset(), slot.offset() + 1);
            if slot.is_settled_after_commit() {
                match beyond.last_mut() {
                    // There is no record between the range and this slot, and there never will be.
                    Some((_, end)) if *end == previous_end => *end = to,
                    _ => beyond.push((from, to)),
                }
            }
            previous_end = to;
        }
        let unread = self.beyond.iter().map(|&(from, to)| (from.max(self.read_to), to));
        beyond.extend(unread.filter(|(from, to)| from < to));
        if sabotage::is_on(Sabotage::BeyondNotListed) {
            beyond.clear();
        }
        let next = if sabotage::is_on(Sabotage::OffsetBeyondUnsettled) { self.read_to } else { next };
        let times = if sabotage::is_on(Sabotage::StreamTimeBeyond) { Times::of(&self.tail) } else { times };
        PositionAfterCommit { next, times, beyond }
    }

    /// After a commit: marks the written settlements as final, and releases the calls that the commit authorised.
    pub fn on_commit(&mut self, policy: &Policy, now: Now, draw: Draw<'_>) -> CommitEffects {
        self.needs_processing = true;
        let mut effects = CommitEffects::default();
        for slot in &mut self.slots {
            if let SlotStage::Called(called) = &mut slot.stage
                && let Some(since_ms) = called.on_steps_committed(policy, now, draw)
            {
                effects.resumed_handlers.push((called.number, since_ms));
            }
            match &mut slot.stage {
                SlotStage::Judged(judged) if judged.is_written => slot.stage = SlotStage::Settled,
                SlotStage::Called(called) if called.is_written => slot.stage = SlotStage::Settled,
                SlotStage::Called(called) if matches!(called.call.stage(), Stage::Writing(_)) => {
                    called.apply_event(policy, Event::Committed, now, draw);
                    effects.allows_calls = true;
                }
                _ => {}
            }
        }
        self.pop_settled();
        self.end_search_if_done();
        effects
    }

    /// For a sabotage: the handlers whose steps are in the open transaction, and the times at which these were written.
    pub fn written_steps(&self) -> Vec<(CallNumber, i64)> {
        let written = |slot: &Slot| match &slot.stage {
            SlotStage::Called(called) => Some((called.number, called.reported_steps.as_ref()?.written_ms?)),
            _ => None,
        };
        self.slots.iter().filter_map(written).collect()
    }

    /// After an abort that has certainly taken effect: restores the state before the transaction.
    pub fn on_abort(&mut self, policy: &Policy, now: Now, draw: Draw<'_>) {
        self.needs_processing = true;
        for slot in &mut self.slots {
            match &mut slot.stage {
                // The entry that it was judged against may have been in that transaction.
                SlotStage::Judged(_) => slot.stage = SlotStage::Unjudged,
                SlotStage::Called(called) => {
                    called.is_written = false;
                    // Even if an earlier transaction has committed the release of the call's reservation, the release
                    // is written once more, which changes nothing.
                    called.is_released = false;
                    called.reported_steps.iter_mut().for_each(|steps| steps.written_ms = None);
                    if matches!(called.call.stage(), Stage::Writing(_)) {
                        called.apply_event(policy, Event::Aborted, now, draw);
                    }
                }
                SlotStage::Unjudged | SlotStage::MustStopTask(_) | SlotStage::Settled => {}
            }
        }
    }

    /// Removes the slots of the settled prefix.
    fn pop_settled(&mut self) {
        let is_removable = |slot: &mut Slot| matches!(slot.stage, SlotStage::Settled) && slot.can_join_prefix();
        while let Some(slot) = self.slots.pop_front_if(is_removable) {
            self.bytes -= slot.record.bytes();
            (self.settled_end, self.times) = (slot.offset() + 1, slot.times);
        }
        if self.slots.is_empty() {
            self.settled_end = self.read_to;
        }
    }

    /// Advances the read position to this offset: no unread record lies before it.
    pub fn advance_to(&mut self, offset: i64) {
        self.read_to = self.read_to.max(offset);
        self.pop_settled();
    }

    /// When the first ready call may be sent, on the monotonic clock.
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
