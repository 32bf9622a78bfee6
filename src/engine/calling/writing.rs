//! Writes the outcomes in a window's slots into their task's **share** of the open transaction, which holds the changes
//! that the transaction makes for the task.
//!
//! What is stored of an identity has two parts: the last **settlement**, which is the outcome of a record, and the
//! **reservation** of a call that may have been sent. A call needs a **permit** before it is sent: its own reservation,
//! or a **grant** in the task's position record, for all records up to an offset.
//!
//! **A new reservation leaves the last settlement in place.** The exception: if it replaces the reservation of another
//! record, that record's call is settled as given up, or as in doubt if some of its steps are done, and this becomes
//! the last settlement: the other call may have happened, whatever becomes of the new one. Settling a call removes the
//! identity's reservation; only if a handler's call is given up do its recorded steps stay there. Forgetting a call
//! removes only its own reservation. Settling a record without a call removes none.
//!
//! `portion` decides which slots are due, `reserving` and `settling` write reservations and settlements.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use crate::cluster::Cluster;
use crate::dedup::{Action, Reason, Verdict};
use crate::effect::call::{Event, Now, Outcome, Permit, Stage};
use crate::engine::failure::{Cause, Failure};
use crate::engine::output::Outlet;
use crate::format::{Grant, Place, Remembered};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};
use crate::state;
use crate::topology::sink::Terms;

use super::grants;
use super::judging::replace_entry;
use super::window::{CalledRecord, JudgedRecord, RefusalState, Slot, SlotStage, Window};

mod portion;
mod reserving;
mod settling;

pub use portion::Portion;

/// Writes slots; holds the parts of a lane that this needs.
pub(in crate::engine) struct SlotWriter<'a, 'o, C: Cluster> {
    /// Sends messages in the open transaction, and holds the task's share of it.
    pub outlet: &'a mut Outlet<'o, C>,
    /// The topology's settings for calls.
    pub terms: &'a Terms,
    /// The current time.
    pub now: Now,
}

/// Writes the slots that are due into the share, and updates the task's position. `has_room` returns whether the
/// transaction has room for more after this writer has added the given number of bytes; once it has none, the remaining
/// slots wait for the next transaction.
pub(in crate::engine) fn write<C: Cluster>(
    writer: &mut SlotWriter<'_, '_, C>,
    window: &mut Window,
    portion: Portion,
    has_room: impl Fn(usize) -> bool,
) -> Result<(), Failure> {
    let grant = writer.next_grant(window);
    let mut last_in_order = window.last_in_order();
    for index in 0..window.len() {
        let slot = window.slot(index);
        // The slot has nothing to write now, or the input order does not permit its settlement yet, or Kafka has
        // refused a transaction, and the search for the refused record leaves this record out.
        if !portion.is_due(slot)
            || slot.can_be_settled() && index > last_in_order
            || slot.may_enter_transaction() && !window.may_settle(index)
        {
            continue;
        }
        if !has_room(writer.outlet.added.bytes) {
            break;
        }
        match (portion, &window.slot(index).stage) {
            (Portion::Releases, SlotStage::Called(called))
                if called.outcome().is_none() && !called.has_unwritten_steps() =>
            {
                writer.release_reservation(window.slot_mut(index))?
            }
            _ => writer.write_slot(window.slot_mut(index), grant)?,
        }
        // The slot that was just written may permit the next one.
        while last_in_order < window.len() && window.slot(last_in_order).is_settled_after_commit() {
            last_in_order += 1;
        }
    }
    let position = &mut writer.outlet.share.position;
    window.position_after_commit().write_to(position);
    match portion {
        // The grant is cheap to write, and it saves the next records a wait.
        Portion::All => writer.put_grant(grant),
        Portion::Releases => writer.shorten_grant(window),
        Portion::Settlements => {}
    }
    Ok(())
}

impl<C: Cluster> SlotWriter<'_, '_, C> {
    /// The grant that this transaction writes.
    fn next_grant(&self, window: &mut Window) -> Option<Grant> {
        let end = window.next_grant_end();
        grants::next(&self.terms.policy, window, &self.outlet.share.position, end, self.now.wall_ms)
    }

    /// Stores a grant in the task's position, if there is one, in place of all earlier grants.
    fn put_grant(&mut self, grant: Option<Grant>) {
        if let Some(grant) = grant.filter(|_| !sabotage::is_on(Sabotage::GrantNotWritten)) {
            self.outlet.share.position.calls.grants = vec![grant];
        }
    }

    /// Removes the part of the grant under which no call can have been made.
    fn shorten_grant(&mut self, window: &Window) {
        let position = &mut self.outlet.share.position;
        if let Some(to) = grants::shortened_end(window, position)
            && let Some(last) = position.calls.grants.last_mut()
        {
            last.to = to;
        }
    }

    /// Writes what is due in a slot: a settlement, reservation, grant or the outcomes of steps. If the task must stop
    /// before the record, the slot's stage becomes [`SlotStage::MustStopTask`].
    fn write_slot(&mut self, slot: &mut Slot, grant: Option<Grant>) -> Result<(), Failure> {
        let Slot { record, key, stage, refusal, .. } = slot;
        let kafka_refusal = match refusal {
            RefusalState::Refused(message) => Some(message.as_str()),
            RefusalState::None | RefusalState::Suspect => None,
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
                // The journal holds the outcomes of the handler's steps.
                if called.has_unwritten_steps() {
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
                        self.on_permit_written(called, grant.since_ms);
                    }
                    Stage::Decided(outcome) => match self.stop_reason(&record, called, outcome) {
                        Some(reason) => {
                            if outcome == Outcome::InDoubt {
                                // An operator's command needs the reservation to find the call.
                                self.reserve_in_doubt(&record, key, called)?;
                            }
                            *stage = SlotStage::MustStopTask(reason);
                        }
                        None => match self.settle(&record, key, called, outcome, kafka_refusal) {
                            Ok(()) => called.is_written = true,
                            // Nothing of its settlement is written.
                            Err(Failure { cause: Cause::RefusedAt(_, reason), .. }) => {
                                *stage = SlotStage::MustStopTask(reason.to_string());
                            }
                            Err(failure) => return Err(failure),
                        },
                    },
                    Stage::Writing(_) | Stage::Ready | Stage::Sent => {}
                }
            }
            SlotStage::Unjudged | SlotStage::MustStopTask(_) | SlotStage::Settled => {}
        }
        Ok(())
    }

    /// Tells the call that its permit was written. `since_ms`: the earliest time at which the call may have been sent,
    /// as the permit says.
    fn on_permit_written(&self, called: &mut CalledRecord, since_ms: i64) {
        let mut draw = |_| 0;
        called.apply_event(&self.terms.policy, Event::Written { since_ms }, self.now, &mut draw);
    }

    /// The state stored under this key, including this transaction's writes.
    fn remembered(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let Outlet { share, work, .. } = &*self.outlet;
        match share.overlay.get(key) {
            Some(written) => Ok(written.map(<[u8]>::to_vec)),
            None => work.store.get(key).map_err(|error: state::Error| Failure::state(share.task, error)),
        }
    }

    /// Puts an identity's state into the share, or its deletion if neither a settlement nor a reservation is left.
    fn put_remembered(&mut self, key: &[u8], remembered: Remembered<'_>) {
        let overlay = &mut self.outlet.share.overlay;
        if remembered.settled.is_none() && remembered.reservation.is_none() {
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
        // Counts records without a key in topics whose records should have one.
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
        judged: &JudgedRecord,
        kafka_refusal: Option<&str>,
    ) -> Result<(), Failure> {
        let JudgedRecord { evaluation, kept, message, explanation, repeats_result, .. } = judged;
        let decision = evaluation.decision;
        if decision.action == Action::DeadLetter {
            self.outlet.dead_letter(record, decision.reason, message, &[])?;
        }
        if let Some(topic) = self.outlet.context.topology.audit.as_deref().filter(|_| !explanation.is_empty()) {
            self.outlet.explain(record, topic, explanation)?;
        }
        let former = key.map(|key| self.remembered(key)).transpose()?.flatten();
        if let (true, Some(former)) = (*repeats_result, &former) {
            self.repeat_result(record, former, kafka_refusal)?;
        }
        if let (Some(key), Some(entry)) = (key, &kept.entry) {
            let bytes = replace_entry(former.as_deref(), entry);
            self.outlet.share.overlay.put(key, Some(&bytes));
        }
        self.note_progress(record, kept);
        self.count_settled(record, decision.verdict, decision.reason);
        Ok(())
    }

    /// Updates the task's progress by the state that a settled record leaves behind (`kept`).
    fn note_progress(&mut self, record: &Record<'_>, kept: &crate::dedup::Kept) {
        if let Some(scope) = kept.note(&mut self.outlet.share.position.progress, record.offset) {
            let (task, offset) = (&self.outlet.work.task.input, record.offset);
            self.outlet.added.epoch_changes += 1;
            tracing::warn!(%task, offset, scope = crate::dedup::explain::epoch(scope), "the epoch changed");
        }
    }
}
