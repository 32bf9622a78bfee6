//! Judges the records of a window: decides which of them call the provider, and what happens to the others.
//!
//! Each record is in a **slot** of the window, whose **stage** says what happens to the record next. A record is judged
//! against what is stored of its identity: the last **settlement**, and the **reservation** of a call that may have
//! been sent. Both contain an **entry**, which the rules compare with the record.
//!
//! Records are judged in input order. A record is judged once all earlier records of its identity are settled, or
//! decided in the same round without a call: until then, the entry to judge it against is not known.
//!
//! Some records concern other identities, too: those that start a **scope**, in which versions are comparable (a
//! topology's `epoch`), or return to one, and those that empty a table. Such a record is judged only as the first of
//! its window, and the records behind it only once it is settled: scopes are numbered in the position record, which
//! describes the end of the settled prefix. Where a topology has epochs, or records that empty tables, no record
//! overtakes a record that waits for its identity, since the waiting record might be of that kind.
//!
//! The highest version seen in a scope decides about records of other identities as well. So where there are epochs, a
//! record that is judged but not settled counts as seen for the records behind it, and records are settled in input
//! order ([`Window::with_input_order`]): a task that judges a record again, after a restart, knows exactly which
//! records preceded it.
//!
//! The first row that applies decides what happens to a record. Two records are equal if the rules make one a duplicate
//! of the other.
//!
//! | remembered about its identity | outcome |
//! |---|---|
//! | its own reservation | continues the call |
//! | the reservation of a record outside the window | if newer: calls; if equal: continues its call; if older: stale |
//! | its own settlement | nothing is done |
//! | the call of an equal record, given up | continues that call |
//! | an equal record with a different request | conflict |
//! | an equal record, settled | duplicate |
//! | anything else | the rules decide |
//!
//! An equal record that would give a handler different work does not continue the call: it is a conflict.
//!
//! This module decides the order, `known_identity` judges one record, `stages` creates its stage. `sabotage::is_on`
//! says whether a test has switched on a deliberate fault.

use std::collections::{HashMap, HashSet};

use crate::cluster::Cluster;
use crate::dedup::Progress;
use crate::effect::call::{Comparison, CoveringGrant, Fingerprint, Now};
use crate::effect::provider::Payload;
use crate::engine::context::Context;
use crate::engine::failure::Failure;
use crate::engine::judge::Judge;
use crate::engine::share::TaskId;
use crate::engine::task::Work;
use crate::format::FINGERPRINT_BYTES;
use crate::record::Record;
use crate::rendering::work::WorkRenderer;
use crate::sabotage::{self, Sabotage};
use crate::state::Overlay;
use crate::topology::sink::terms::Terms;

use super::CallNumbers;
use super::window::{Slot, SlotStage, Window};

mod known_identity;
mod stages;

pub use stages::replace_entry;

/// The parts of a lane that judging needs, besides the window.
pub struct JudgingContext<'a> {
    /// The state that all lanes share.
    pub context: &'a Context,
    /// The topology's settings for calls.
    pub terms: &'a Terms,
    /// Reads and judges records.
    pub judge: &'a mut Judge,
    /// Renders requests, or a handler's work, from records.
    pub work_renderer: &'a mut WorkRenderer,
    /// Numbers calls.
    pub numbers: &'a mut CallNumbers,
    /// The current time.
    pub now: Now,
}

/// Buffers for one round.
#[derive(Default)]
pub struct JudgingBuffers {
    /// The task's progress at the end of the settled prefix, but with stream time and horizon of the slot that is
    /// judged.
    progress: Progress,
    /// The entries of records that are decided in this round without a call.
    drafts: Overlay,
    /// The indexes of the slots to judge.
    slots_to_judge: Vec<usize>,
    /// The bytes of the entry to judge against.
    entry: Vec<u8>,
}

/// The state of an identity's last slot in one round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastSlot {
    /// The slot is decided, without a call.
    Decided,
    /// The slot calls the provider, or waits itself.
    Waits,
}

/// Judges every slot of the window that can be judged. `grants` returns the grant that covers an offset, if any.
pub fn judge<C: Cluster>(
    judging: &mut JudgingContext<'_>,
    buffers: &mut JudgingBuffers,
    (id, work): (TaskId, &Work<'_, C>),
    window: &mut Window,
    grants: impl Fn(i64) -> Option<CoveringGrant>,
) -> Result<(), Failure> {
    buffers.progress.clone_from(&work.task.committed.progress);
    buffers.drafts.clear();
    find_slots_to_judge(buffers, window, is_in_order(judging.context));
    if buffers.slots_to_judge.is_empty() {
        return Ok(());
    }
    let records = buffers.slots_to_judge.iter().map(|index| window.slot(*index).record.record());
    judging.judge.read((work.task.committed.next, &buffers.progress), records);
    judging.judge.look_up(work.store, &buffers.progress).map_err(|error| Failure::state(id, error))?;
    let mut last_slots: HashMap<Vec<u8>, LastSlot> = HashMap::new();
    let slots_to_judge = std::mem::take(&mut buffers.slots_to_judge);
    // The offset of the record before which the task must stop, and the reason.
    let stop = work.task.trouble.planned_stop();
    let mut seen_to = 0;
    for (read_index, slot_index) in slots_to_judge.iter().copied().enumerate() {
        if judging.context.rules.epoch.is_some() {
            (seen_to..slot_index).for_each(|earlier| count_as_seen(buffers, window.slot(earlier)));
            seen_to = slot_index;
        }
        let slot = window.slot(slot_index);
        // For the report of a panic.
        judging.judge.in_progress = Some(slot.offset());
        if let Some((_, reason)) = stop.as_ref().filter(|(offset, _)| slot.offset() >= *offset) {
            let reason = format!("{}:{}: {reason}", work.task.input, slot.offset());
            window.slot_mut(slot_index).stage = SlotStage::MustStopTask(reason);
            break;
        }
        // The record waits for an earlier record of its identity, which calls or waits itself.
        let waits =
            |key: &Vec<u8>| last_slots.get(key) == Some(&LastSlot::Waits) && !sabotage::is_on(Sabotage::TwoOfIdentity);
        if slot.key.as_ref().is_some_and(waits) {
            match is_in_order(judging.context) {
                // The record might start a scope, or empty a table.
                true => break,
                false => continue,
            }
        }
        let is_behind_decided = slot.key.as_ref().is_some_and(|key| last_slots.contains_key(key));
        let judged = known_identity::judge_slot(judging, buffers, (id, work), (read_index, slot), &grants)?;
        let is_call = matches!(judged, SlotStage::Called(_));
        // The entry on which its call would be based is not committed yet.
        let must_wait = is_call && is_behind_decided;
        let concerns_others = concerns_others(&judged);
        if concerns_others && slot_index > 0 {
            break;
        }
        if let Some(key) = slot.key.clone() {
            last_slots.insert(key, if is_call { LastSlot::Waits } else { LastSlot::Decided });
        }
        let ends_round = concerns_others || matches!(judged, SlotStage::MustStopTask(_));
        if !must_wait {
            window.slot_mut(slot_index).stage = judged;
        }
        if ends_round || (must_wait && is_in_order(judging.context)) {
            break;
        }
    }
    judging.judge.in_progress = None;
    buffers.slots_to_judge = slots_to_judge;
    Ok(())
}

/// Counts a record that is judged but not settled as seen, for the records behind it. `kept` is the state that the
/// record leaves behind.
fn count_as_seen(buffers: &mut JudgingBuffers, slot: &Slot) {
    let kept = match &slot.stage {
        SlotStage::Judged(judged) => &judged.kept,
        SlotStage::Called(called) => &called.kept,
        SlotStage::Unjudged | SlotStage::MustStopTask(_) | SlotStage::Settled => return,
    };
    // A new scope is reported when its record is settled, before any record behind it is judged.
    let _ = kept.note(&mut buffers.progress, slot.offset());
}

/// Whether the state that the record in this stage leaves behind concerns records of other identities.
fn concerns_others(stage: &SlotStage) -> bool {
    match stage {
        SlotStage::Judged(judged) => judged.kept.concerns_others(),
        SlotStage::Called(called) => called.kept.concerns_others(),
        SlotStage::Unjudged | SlotStage::MustStopTask(_) | SlotStage::Settled => false,
    }
}

/// Whether no record may be judged before an earlier one, since records may affect records of other identities.
fn is_in_order(context: &Context) -> bool {
    context.rules.epoch.is_some() || context.rules.kinds.as_ref().is_some_and(|kinds| !kinds.truncate.is_empty())
}

/// Finds the slots that can be judged in this round.
fn find_slots_to_judge(buffers: &mut JudgingBuffers, window: &Window, is_in_order: bool) {
    buffers.slots_to_judge.clear();
    // Most rounds have nothing to judge.
    if !window.slots().any(|slot| matches!(slot.stage, SlotStage::Unjudged)) {
        return;
    }
    // The identities of the records that are judged and not settled.
    let mut open: HashSet<&[u8]> = HashSet::new();
    for (index, slot) in window.slots().enumerate() {
        match &slot.stage {
            // Only the cluster can confirm the timestamp. It is asked once all records before this record are settled.
            _ if slot.needs_kafka_time() => break,
            SlotStage::Settled => continue,
            SlotStage::MustStopTask(_) => break,
            _ if slot.concerns_others() => break,
            SlotStage::Unjudged => {
                let is_free = slot.key.as_deref().is_none_or(|key| !open.contains(key));
                match is_free {
                    true => buffers.slots_to_judge.push(index),
                    false if is_in_order => break,
                    false => {}
                }
            }
            SlotStage::Judged(_) | SlotStage::Called(_) if sabotage::is_on(Sabotage::TwoOfIdentity) => {}
            SlotStage::Judged(_) | SlotStage::Called(_) => open.extend(slot.key.as_deref()),
        }
    }
}

impl JudgingContext<'_> {
    /// Renders the record's request, or its handler's work. `read_index`, here and below, is the record's index among
    /// the records that `judge` has read in this round.
    fn render(&mut self, read_index: usize, record: &Record<'_>) -> Result<Payload, String> {
        let (rows, arena) = self.judge.rows(read_index);
        self.work_renderer.render(record, rows, arena)
    }

    /// Whether this record would give a handler different work from the work with the `known` fingerprint.
    fn is_different_work(
        &mut self,
        read_index: usize,
        record: &Record<'_>,
        known: Option<[u8; FINGERPRINT_BYTES]>,
    ) -> bool {
        let known = known.map(Fingerprint::from_bytes);
        let payload = self.render(read_index, record);
        let work = payload.ok().filter(|payload| matches!(payload, Payload::Handler(_)));
        let comparable = known.zip(work);
        comparable.is_some_and(|(known, work)| known.compare(work.fingerprint()) == Comparison::Different)
    }

    /// Whether the record makes a call, if the rules forward it.
    fn makes_call(&self, read_index: usize) -> bool {
        let (rows, _) = self.judge.rows(read_index);
        rows.first().is_some_and(|row| Terms::is_called_by(row.kind))
    }
}
