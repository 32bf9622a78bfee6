//! Judges the records of a window: which of them call, and what becomes of the others.
//!
//! In input order, and none before everything of its own identity is settled: what it is judged against would be known
//! to nobody. One that starts a scope or empties a table concerns records of other identities, too. It is judged when it
//! is the first of its window, and nothing behind it is before it is settled: scopes are numbered in the position
//! record, which is that of the prefix's end. Where a topology has epochs or tables, nothing overtakes a record that
//! waits for its identity, as it might be such a one.
//!
//! How far a scope has come decides about records of other identities as well. So where there are epochs, what is judged
//! and not settled counts as seen for whatever is behind it, and records are settled in input order
//! ([`Window::in_order`]): a task that judges one again, after a restart, knows exactly what came before it.
//!
//! What a record meets, in order:
//!
//! | what is remembered of its identity | what it does |
//! |---|---|
//! | its own reservation | goes on with the call |
//! | another's reservation, of which nothing is in the window | newer: calls; the same: goes on with that call; older: stale |
//! | it was itself settled | nothing |
//! | the same was given up | goes on with that call |
//! | the same has asked for something else | conflict |
//! | the same was settled | duplicate |
//! | anything else | as the rules say |
//!
//! - here: in which order; `known_identity`: one record; `stages`: its stage after that

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

/// What judging needs of its lane, besides the window.
pub struct Bench<'a> {
    /// What all lanes share.
    pub context: &'a Context,
    /// The terms of the topology's calls.
    pub terms: &'a Terms,
    /// Reads and judges.
    pub judge: &'a mut Judge,
    /// Says what records ask for.
    pub asker: &'a mut Asker,
    /// Numbers calls.
    pub numbers: &'a mut Numbers,
    /// The time.
    pub now: Now,
}

/// Memory for one round.
#[derive(Default)]
pub struct Round {
    /// The task's progress, at the prefix's end; stream time and horizon are those of the slot that is judged.
    progress: Progress,
    /// What is decided in this round and makes no call.
    drafts: Overlay,
    /// The slots to judge, by their numbers.
    due: Vec<usize>,
    /// The bytes of the entry to judge against.
    entry: Vec<u8>,
}

/// Whose records a key's earlier slots are waiting for, in one round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// It is decided in this round, without a call.
    Decided,
    /// It calls, or waits itself.
    Waits,
}

/// Judges every slot of the window that can be judged. `grants` says what grant covers an offset.
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
    let mut open: HashMap<Vec<u8>, Open> = HashMap::new();
    let due = std::mem::take(&mut round.due);
    let stops = work.task.trouble.stops_before();
    let mut noted = 0;
    for (number, at) in due.iter().copied().enumerate() {
        if bench.context.rules.epoch.is_some() {
            (noted..at).for_each(|before| note(round, window.slot(before)));
            noted = at;
        }
        let slot = window.slot(at);
        bench.judge.in_progress = Some(slot.offset());
        if let Some((_, reason)) = stops.as_ref().filter(|(offset, _)| slot.offset() >= *offset) {
            let reason = format!("{}:{}: {reason}", work.task.input, slot.offset());
            window.slot_mut(at).stage = SlotStage::Stops(reason);
            break;
        }
        // Something before it in this round calls, and so it waits.
        let waits = |key: &Vec<u8>| open.get(key) == Some(&Open::Waits) && !sabotage::is_on(Sabotage::TwoOfIdentity);
        if slot.key.as_ref().is_some_and(waits) {
            match is_in_order(bench.context) {
                // It might start a scope, or empty a table.
                true => break,
                false => continue,
            }
        }
        let is_behind_decided = slot.key.as_ref().is_some_and(|key| open.contains_key(key));
        let judged = known_identity::one(bench, round, (id, work), (number, slot), &grants)?;
        let calls = matches!(judged, SlotStage::Called(_));
        // What it would call upon is not committed yet.
        let waits = calls && is_behind_decided;
        let concerns_others = concerns_others(&judged);
        if concerns_others && at > 0 {
            break;
        }
        if let Some(key) = slot.key.clone() {
            open.insert(key, if calls { Open::Waits } else { Open::Decided });
        }
        let ends = concerns_others || matches!(judged, SlotStage::Stops(_));
        if !waits {
            window.slot_mut(at).stage = judged;
        }
        if ends || (waits && is_in_order(bench.context)) {
            break;
        }
    }
    bench.judge.in_progress = None;
    round.due = due;
    Ok(())
}

/// What a record that is not settled yet leaves behind has been seen all the same by those behind it.
fn note(round: &mut Round, slot: &Slot) {
    let kept = match &slot.stage {
        SlotStage::Judged(judged) => &judged.kept,
        SlotStage::Called(called) => &called.kept,
        SlotStage::Unjudged | SlotStage::Stops(_) | SlotStage::Settled => return,
    };
    // What it starts is noted by its settlement, before anything behind it is judged.
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

/// Finds the slots that nothing keeps from being judged.
fn find_due(round: &mut Round, window: &Window, is_in_order: bool) {
    round.due.clear();
    // Most rounds only hear and settle.
    if !window.slots().any(|slot| matches!(slot.stage, SlotStage::Unjudged)) {
        return;
    }
    let mut open: HashSet<&[u8]> = HashSet::new();
    for (at, slot) in window.slots().enumerate() {
        match &slot.stage {
            // Only the cluster can tell, and it is asked once everything before is settled.
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

    /// Whether a handler would get other work than that with this fingerprint.
    fn is_other_work(&mut self, number: usize, record: &Record<'_>, known: Option<[u8; FINGERPRINT_BYTES]>) -> bool {
        let known = known.map(Fingerprint::from_bytes);
        let asks = self.render(number, record);
        let work = asks.ok().filter(|asks| matches!(asks, Asks::Handler(_)));
        let both = known.zip(work);
        both.is_some_and(|(known, work)| known.compare(work.fingerprint()) == Comparison::Different)
    }

    /// Whether the record that was read as this number makes a call.
    fn calls(&self, number: usize) -> bool {
        let (rows, _) = self.judge.rows(number);
        rows.first().is_some_and(|row| Terms::is_called_by(row.kind))
    }
}
