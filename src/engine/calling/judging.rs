//! Judges the records of a window: decides which of them call the provider, and what happens to the others.
//!
//! Records are judged in input order, and none before all earlier records of its identity are settled, or decided in
//! the same round without a call: until then, the entry to judge it against is not known. A record that starts a scope
//! or empties a table concerns other identities, too. It is judged only as the first of its window, and the records
//! behind it only once it is settled: scopes are numbered in the position record, which describes the end of the
//! settled prefix. Where a topology has epochs, or records that empty tables, no record overtakes one that waits for
//! its identity, since the waiting one might be of that kind.
//!
//! The version that a scope has reached decides about records of other identities as well. So where there are epochs, a
//! record that is judged but not settled counts as seen for the records behind it, and records are settled in input
//! order ([`Window::in_order`]): a task that judges a record again, after a restart, knows exactly what came before it.
//!
//! What happens to a record, by the first row that fits. Equal records are duplicates by the rules.
//!
//! | remembered of its identity | outcome |
//! |---|---|
//! | its own reservation | goes on with the call |
//! | the reservation of a record outside the window | newer: calls; equal: goes on with that call; older: stale |
//! | its own settlement | nothing is done |
//! | the call of an equal record, given up | goes on with that call |
//! | an equal record that asked for something else | conflict |
//! | an equal record, settled | duplicate |
//! | anything else | as the rules say |
//!
//! This module decides the order, `known_identity` judges one record, `stages` makes its stage.

use std::collections::{HashMap, HashSet};

use crate::cluster::Cluster;
use crate::dedup::Progress;
use crate::effect::call::{Comparison, Fingerprint, Grant, Now};
use crate::effect::provider::Asks;
use crate::engine::context::Context;
use crate::engine::failure::Failure;
use crate::engine::judge::Judge;
use crate::engine::share::TaskId;
use crate::engine::task::Work;
use crate::format::FINGERPRINT_BYTES;
use crate::record::Record;
use crate::rendering::work::Asker;
use crate::sabotage::{self, Sabotage};
use crate::state::Overlay;
use crate::topology::sink::terms::Terms;

use super::Numbers;
use super::window::{Slot, SlotStage, Window};

mod known_identity;
mod stages;

pub use stages::amended;

/// What judging needs from its lane, besides the window.
pub struct Bench<'a> {
    /// What all lanes share.
    pub context: &'a Context,
    /// The terms of the topology's calls.
    pub terms: &'a Terms,
    /// Reads and judges.
    pub judge: &'a mut Judge,
    /// Renders requests, or a handler's work, from records.
    pub asker: &'a mut Asker,
    /// Numbers calls.
    pub numbers: &'a mut Numbers,
    /// The time.
    pub now: Now,
}

/// Buffers for one round.
#[derive(Default)]
pub struct Round {
    /// The task's progress at the end of the settled prefix, but with stream time and horizon of the slot that is
    /// judged.
    progress: Progress,
    /// The entries of records that are decided in this round without a call.
    drafts: Overlay,
    /// The numbers of the slots to judge.
    due: Vec<usize>,
    /// The bytes of the entry to judge against.
    entry: Vec<u8>,
}

/// The state of an identity's last slot in one round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastSlot {
    /// It is decided, without a call.
    Decided,
    /// It calls, or waits itself.
    Waits,
}

/// Judges every slot of the window that can be judged. `grants` returns the grant that covers an offset.
pub fn judge<C: Cluster>(
    bench: &mut Bench<'_>,
    round: &mut Round,
    (id, work): (TaskId, &Work<'_, C>),
    window: &mut Window,
    grants: impl Fn(i64) -> Option<Grant>,
) -> Result<(), Failure> {
    round.progress.clone_from(&work.task.committed.progress);
    round.drafts.clear();
    find_due(round, window, is_in_order(bench.context));
    if round.due.is_empty() {
        return Ok(());
    }
    let records = round.due.iter().map(|at| window.slot(*at).record.record());
    bench.judge.read((work.task.committed.next, &round.progress), records);
    bench.judge.look_up(work.store, &round.progress).map_err(|error| Failure::state(id, error))?;
    let mut last_slots: HashMap<Vec<u8>, LastSlot> = HashMap::new();
    let due = std::mem::take(&mut round.due);
    let stop = work.task.trouble.stops_before();
    let mut noted_to = 0;
    for (number, at) in due.iter().copied().enumerate() {
        if bench.context.rules.epoch.is_some() {
            (noted_to..at).for_each(|before| note_seen(round, window.slot(before)));
            noted_to = at;
        }
        let slot = window.slot(at);
        bench.judge.in_progress = Some(slot.offset());
        if let Some((_, reason)) = stop.as_ref().filter(|(offset, _)| slot.offset() >= *offset) {
            let reason = format!("{}:{}: {reason}", work.task.input, slot.offset());
            window.slot_mut(at).stage = SlotStage::Stops(reason);
            break;
        }
        // It waits for an earlier record of its identity, which calls or waits itself.
        let waits =
            |key: &Vec<u8>| last_slots.get(key) == Some(&LastSlot::Waits) && !sabotage::is_on(Sabotage::TwoOfIdentity);
        if slot.key.as_ref().is_some_and(waits) {
            match is_in_order(bench.context) {
                // It might start a scope, or empty a table.
                true => break,
                false => continue,
            }
        }
        let is_behind_decided = slot.key.as_ref().is_some_and(|key| last_slots.contains_key(key));
        let judged = known_identity::judge_slot(bench, round, (id, work), (number, slot), &grants)?;
        let is_call = matches!(judged, SlotStage::Called(_));
        // The entry that its call would be based on is not committed yet.
        let waits = is_call && is_behind_decided;
        let concerns_others = concerns_others(&judged);
        if concerns_others && at > 0 {
            break;
        }
        if let Some(key) = slot.key.clone() {
            last_slots.insert(key, if is_call { LastSlot::Waits } else { LastSlot::Decided });
        }
        let ends_round = concerns_others || matches!(judged, SlotStage::Stops(_));
        if !waits {
            window.slot_mut(at).stage = judged;
        }
        if ends_round || (waits && is_in_order(bench.context)) {
            break;
        }
    }
    bench.judge.in_progress = None;
    round.due = due;
    Ok(())
}

/// Counts a record that is judged but not settled as seen, for the records behind it.
fn note_seen(round: &mut Round, slot: &Slot) {
    let kept = match &slot.stage {
        SlotStage::Judged(judged) => &judged.kept,
        SlotStage::Called(called) => &called.kept,
        SlotStage::Unjudged | SlotStage::Stops(_) | SlotStage::Settled => return,
    };
    // A new scope is reported when its record is settled, before anything behind it is judged.
    let _ = kept.note(&mut round.progress, slot.offset());
}

fn concerns_others(stage: &SlotStage) -> bool {
    match stage {
        SlotStage::Judged(judged) => judged.kept.concerns_others(),
        SlotStage::Called(called) => called.kept.concerns_others(),
        SlotStage::Unjudged | SlotStage::Stops(_) | SlotStage::Settled => false,
    }
}

/// Whether records of one identity may concern those of another.
fn is_in_order(context: &Context) -> bool {
    context.rules.epoch.is_some() || context.rules.kinds.as_ref().is_some_and(|kinds| !kinds.truncate.is_empty())
}

/// Finds the slots that can be judged now.
fn find_due(round: &mut Round, window: &Window, is_in_order: bool) {
    round.due.clear();
    // Most rounds have nothing to judge.
    if !window.slots().any(|slot| matches!(slot.stage, SlotStage::Unjudged)) {
        return;
    }
    let mut open: HashSet<&[u8]> = HashSet::new();
    for (at, slot) in window.slots().enumerate() {
        match &slot.stage {
            // Only the cluster can confirm its timestamp, and is asked once everything before is settled.
            _ if slot.is_doubted() => break,
            SlotStage::Settled => continue,
            SlotStage::Stops(_) => break,
            _ if slot.concerns_others() => break,
            SlotStage::Unjudged => {
                let is_free = slot.key.as_deref().is_none_or(|key| !open.contains(key));
                match is_free {
                    true => round.due.push(at),
                    false if is_in_order => break,
                    false => {}
                }
            }
            SlotStage::Judged(_) | SlotStage::Called(_) if sabotage::is_on(Sabotage::TwoOfIdentity) => {}
            SlotStage::Judged(_) | SlotStage::Called(_) => open.extend(slot.key.as_deref()),
        }
    }
}

impl Bench<'_> {
    fn render(&mut self, number: usize, record: &Record<'_>) -> Result<Asks, String> {
        let (rows, arena) = self.judge.rows(number);
        self.asker.ask(record, rows, arena)
    }

    /// Whether this record would give a handler other work than that with the `known` fingerprint.
    fn is_other_work(&mut self, number: usize, record: &Record<'_>, known: Option<[u8; FINGERPRINT_BYTES]>) -> bool {
        let known = known.map(Fingerprint::from_bytes);
        let asks = self.render(number, record);
        let work = asks.ok().filter(|asks| matches!(asks, Asks::Handler(_)));
        let both = known.zip(work);
        both.is_some_and(|(known, work)| known.compare(work.fingerprint()) == Comparison::Different)
    }

    /// Whether the record with this number makes a call.
    fn makes_call(&self, number: usize) -> bool {
        let (rows, _) = self.judge.rows(number);
        rows.first().is_some_and(|row| Terms::is_called_by(row.kind))
    }
}
