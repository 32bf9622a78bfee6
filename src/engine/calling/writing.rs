//! Writes the outcomes in a window's slots into their task's share of the open transaction.
//!
//! **A reservation never replaces a settlement**: the last settlement stays beside it. If it replaces another record's
//! reservation, that becomes the last settlement, as given up, or as in doubt if some of its steps are done: that call
//! may have happened, whatever the outcome of this one. A settlement ends every reservation. A call that is forgotten
//! takes only its own reservation away.
//!
//! - `portion` says what is due, `reserving` and `settling` write reservations and settlements

use crate::cluster::Cluster;
use crate::dedup::{Action, Reason, Verdict};
use crate::effect::call::{Event, Now, Outcome, Permit, Stage};
use crate::engine::failure::{Cause, Failure};
use crate::engine::output::Outlet;
use crate::format::{Called as Granted, Place, Remembered};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};
use crate::state;
use crate::topology::sink::Terms;

use super::grants;
use super::judging::amended;
use super::window::{Called, Judged, Slot, SlotStage, Trouble, Window};

mod portion;
mod reserving;
mod settling;

pub use portion::Portion;

/// What writing needs from its lane.
pub(in crate::engine) struct Pen<'a, 'o, C: Cluster> {
    /// Where the records go, and the task's share.
    pub outlet: &'a mut Outlet<'o, C>,
    /// The terms of the topology's calls.
    pub terms: &'a Terms,
    /// The time.
    pub now: Now,
}

/// Puts everything that is due into the share, as long as `has_room` allows it, and updates the task's position.
pub(in crate::engine) fn write<C: Cluster>(
    pen: &mut Pen<'_, '_, C>,
    window: &mut Window,
    portion: Portion,
    has_room: impl Fn(usize) -> bool,
) -> Result<(), Failure> {
    let grant = pen.next_grant(window);
    let mut last_in_order = window.last_in_order();
    for at in 0..window.len() {
        let has_turn = |window: &Window| at <= last_in_order && window.may_settle(at);
        let slot = window.slot(at);
        if !portion.is_due(slot)
            || slot.is_to_be_settled() && !has_turn(window)
            || slot.may_enter_transaction() && !window.may_settle(at)
        {
            continue;
        }
        if !has_room(pen.outlet.added.bytes) {
            break;
        }
        match (portion, &window.slot(at).stage) {
            (Portion::Releases, SlotStage::Called(called)) if called.outcome().is_none() && !called.has_steps_due() => {
                pen.release_reservation(window.slot_mut(at))?
            }
            _ => pen.write_slot(window.slot_mut(at), grant)?,
        }
        while last_in_order < window.len() && window.slot(last_in_order).is_ahead() {
            last_in_order += 1;
        }
    }
    let position = &mut pen.outlet.share.position;
    window.ahead().put(position);
    match portion {
        // Writing the grant costs nothing, and saves the records that are read next a wait.
        Portion::All => pen.put_grant(grant),
        Portion::Releases => pen.end_grant(window),
        Portion::Settlements => {}
    }
    Ok(())
}

impl<C: Cluster> Pen<'_, '_, C> {
    /// The grant that this transaction writes.
    fn next_grant(&self, window: &mut Window) -> Option<Granted> {
        let end = window.next_grant_end();
        grants::next(&self.terms.policy, window, &self.outlet.share.position, end, self.now.wall_ms)
    }

    fn put_grant(&mut self, grant: Option<Granted>) {
        if let Some(grant) = grant.filter(|_| !sabotage::is_on(Sabotage::GrantNotWritten)) {
            self.outlet.share.position.calls.called = vec![grant];
        }
    }

    /// Takes back the part of the grant under which no call can have been made.
    fn end_grant(&mut self, window: &Window) {
        let position = &mut self.outlet.share.position;
        if let Some(to) = grants::end_of_open(window, position)
            && let Some(granted) = position.calls.called.last_mut()
        {
            granted.to = to;
        }
    }

    /// Writes what is due in a slot.
    fn write_slot(&mut self, slot: &mut Slot, grant: Option<Granted>) -> Result<(), Failure> {
        let Slot { record, key, stage, trouble, .. } = slot;
        let kafka_refusal = match trouble {
            Trouble::Refused(message) => Some(message.as_str()),
            Trouble::None | Trouble::Suspect => None,
        };
        let record = record.record();
        // The topic may have refused the message for its timestamp.
        let record = Record { timestamp: record.timestamp.filter(|_| kafka_refusal.is_none()), ..record };
        match stage {
            SlotStage::Judged(judged) => {
                self.settle_without_call(&record, key.as_deref(), judged, kafka_refusal)?;
                judged.is_written = true;
            }
            SlotStage::Called(called) => {
                let key = key.as_deref().expect("a record that calls has an identity");
                if called.has_steps_due() {
                    return self.write_journal(&record, key, called);
                }
                match called.call.stage() {
                    Stage::Waits(Permit::Reservation) => {
                        self.reserve(&record, key, called)?;
                        if sabotage::is_on(Sabotage::ReservedAfterCall) {
                            called.apply_event(&self.terms.policy, Event::Committed, self.now, &mut |_| 0);
                        }
                    }
                    Stage::Waits(Permit::Grant) => {
                        let grant = grant.expect("a call waits for a grant only where grants are written");
                        self.put_grant(Some(grant));
                        self.on_written(called, grant.since_ms);
                    }
                    Stage::Decided(outcome) => match self.reason_to_stop(&record, called, outcome) {
                        Some(reason) => {
                            if outcome == Outcome::InDoubt {
                                self.reserve_in_doubt(&record, key, called)?;
                            }
                            *stage = SlotStage::Stops(reason);
                        }
                        None => match self.settle(&record, key, called, outcome, kafka_refusal) {
                            Ok(()) => called.is_written = true,
                            // Nothing of its settlement is written.
                            Err(Failure { cause: Cause::RefusedAt(_, reason), .. }) => {
                                *stage = SlotStage::Stops(reason.to_string());
                            }
                            Err(failure) => return Err(failure),
                        },
                    },
                    Stage::Writing(_) | Stage::Ready | Stage::Sent => {}
                }
            }
            SlotStage::Unjudged | SlotStage::Stops(_) | SlotStage::Settled => {}
        }
        Ok(())
    }

    /// The permit that a call waits for is written.
    fn on_written(&self, called: &mut Called, since_ms: i64) {
        let mut nothing = |_| 0;
        called.apply_event(&self.terms.policy, Event::Written { since_ms }, self.now, &mut nothing);
    }

    /// What is remembered under this key, this transaction included.
    fn remembered(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let Outlet { share, work, .. } = &*self.outlet;
        match share.overlay.get(key) {
            Some(written) => Ok(written.map(<[u8]>::to_vec)),
            None => work.store.get(key).map_err(|error: state::Error| Failure::state(share.task, error)),
        }
    }

    /// Puts what is remembered of an identity into the share; if neither part is left, its deletion.
    fn put_remembered(&mut self, key: &[u8], remembered: Remembered<'_>) {
        let overlay = &mut self.outlet.share.overlay;
        if remembered.settled.is_none() && remembered.under_way.is_none() {
            return overlay.put(key, None);
        }
        let mut bytes = Vec::new();
        remembered.encode(&mut bytes);
        overlay.put(key, Some(&bytes));
    }

    fn place_of(&self, record: &Record<'_>) -> Place {
        Place { topic_id: self.outlet.work.task.topics.input_id.0, offset: record.offset }
    }

    /// Counts a settled record.
    fn count_settled(&mut self, record: &Record<'_>, verdict: Verdict, reason: Reason) {
        let Outlet { context, work, share, .. } = &mut *self.outlet;
        share.tally.add(verdict, reason);
        share.keyless.note(context, work.task.topics.facts.task_count, record);
        share.last_timestamp = record.timestamp.or(share.last_timestamp);
        self.outlet.added.records += 1;
        let settled = &mut self.outlet.added.settled;
        match reason {
            Reason::Rejected => settled.rejected += 1,
            Reason::Conflict => settled.conflict += 1,
            Reason::InDoubt => settled.in_doubt += 1,
            Reason::Unavailable => settled.unavailable += 1,
            _ => {}
        }
    }

    /// Settles a record that makes no call. `kafka_refusal`: Kafka's message, if it has refused the settlement before.
    fn settle_without_call(
        &mut self,
        record: &Record<'_>,
        key: Option<&[u8]>,
        judged: &Judged,
        kafka_refusal: Option<&str>,
    ) -> Result<(), Failure> {
        let Judged { evaluation, kept, message, explanation, is_answered, .. } = judged;
        let decision = evaluation.decision;
        if decision.action == Action::DeadLetter {
            self.outlet.dead_letter(record, decision.reason, message, &[])?;
        }
        if let Some(topic) = self.outlet.context.topology.audit.as_deref().filter(|_| !explanation.is_empty()) {
            self.outlet.explain(record, topic, explanation)?;
        }
        let former = key.map(|key| self.remembered(key)).transpose()?.flatten();
        if let (true, Some(former)) = (*is_answered, &former) {
            self.answer_duplicate(record, former, kafka_refusal)?;
        }
        if let (Some(key), Some(entry)) = (key, &kept.entry) {
            let bytes = amended(former.as_deref(), entry);
            self.outlet.share.overlay.put(key, Some(&bytes));
        }
        self.note_progress(record, kept);
        self.count_settled(record, decision.verdict, decision.reason);
        Ok(())
    }

    /// Notes in the task's progress what a settled record leaves behind.
    fn note_progress(&mut self, record: &Record<'_>, kept: &crate::dedup::Kept) {
        if let Some(scope) = kept.note(&mut self.outlet.share.position.progress, record.offset) {
            let (task, offset) = (&self.outlet.work.task.input, record.offset);
            self.outlet.added.epoch_changes += 1;
            tracing::warn!(%task, offset, scope = crate::dedup::explain::epoch(scope), "the epoch changed");
        }
    }
}
