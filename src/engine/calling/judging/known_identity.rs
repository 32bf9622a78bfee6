//! Judges one record of a window by the stored state of its identity.
//!
//! [`Remembered`], the state of an identity, has two parts, one of which may be missing. The **settlement**
//! ([`Settled`]) is the outcome of the last settled record. The **reservation** ([`Reservation`]) belongs to an
//! unsettled record whose call may have been sent. Each part contains an **entry** ([`EntryRef`]), which the rules
//! compare with the record.
//!
//! `read_index` is a record's index among the records that the judge has read in this round. `kept` is the state that a
//! record leaves behind once it is settled.

use super::stages::{
    FormerCall, call_stage, conflict_stage, forward_evaluation, no_call_stage, rejected_stage, reservation_stage,
    resumed_stage,
};
use super::{JudgingBuffers, JudgingContext};
use crate::cluster::Cluster;
use crate::dedup::{self, Action, Decision, Evaluation, Kept, Reason, Verdict};
use crate::effect::call::{self, Comparison, CoveringGrant, Fingerprint, FoundCall};
use crate::engine::calling::window::{Slot, SlotStage, TimestampCheck};
use crate::engine::failure::{Failure, Unprocessable};
use crate::engine::resume::Refusal;
use crate::engine::share::TaskId;
use crate::engine::task::Work;
use crate::format::{self, EntryRef, How, Journal, Place, Remembered, Reservation, Settled};
use crate::record::Record;
use crate::topology::sink::terms::OnDuplicate;

/// The part of an identity's stored state that decides about a record.
enum KnownState<'a> {
    /// The entry to judge the record against, if there is one.
    Entry(Option<EntryRef<'a>>),
    /// The record's own reservation.
    OwnReservation(Reservation<'a>),
    /// The reservation of another record.
    OtherReservation(Reservation<'a>),
    /// The record's own settlement.
    OwnSettlement,
}

/// Judges the record of one slot. `grants` returns the grant that covers an offset, if any.
pub(super) fn judge_slot<C: Cluster>(
    judging: &mut JudgingContext<'_>,
    buffers: &mut JudgingBuffers,
    (id, work): (TaskId, &Work<'_, C>),
    (read_index, slot): (usize, &Slot),
    grants: &impl Fn(i64) -> Option<CoveringGrant>,
) -> Result<SlotStage, Failure> {
    let record = slot.record.record();
    let context = judging.context;
    if let TimestampCheck::Future(rejection) = &slot.timestamp_check {
        let evaluation = Evaluation {
            decision: dedup::reject(&context.rules, rejection),
            rejection: Some(rejection.clone()),
            full: None,
        };
        return Ok(no_call_stage(judging, buffers, (read_index, &record), evaluation, Kept::default(), false));
    }
    slot.times.write_to(&mut buffers.progress);
    let unreadable =
        |error: format::Error| Failure::refused_at(id, record.offset, Unprocessable::Entry(Refusal::of_record(error)));
    let JudgingBuffers { progress, drafts, entry, .. } = buffers;
    let stored = judging.judge.remembered(drafts, read_index).map(<[u8]>::to_vec);
    let remembered = stored.as_deref().map(Remembered::decode).transpose().map_err(unreadable)?;
    let own = Place { topic_id: work.task.topics.input_id.0, offset: record.offset };
    let known_state = find_known_state(remembered.as_ref(), own);
    // The entry to judge the record against.
    let reference = match &known_state {
        KnownState::Entry(entry) => *entry,
        KnownState::OwnReservation(_) => {
            remembered.as_ref().and_then(|remembered| Some(remembered.settled.as_ref()?.entry))
        }
        KnownState::OtherReservation(reservation) => Some(reservation.entry),
        KnownState::OwnSettlement => None,
    };
    entry.clear();
    if let Some(reference) = &reference {
        reference.encode(entry);
    }
    let reference_bytes = reference.map(|_| entry.as_slice());
    let judged = judging.judge.judge_against(context, (progress, drafts), (read_index, &record), reference_bytes);
    let evaluation = judged.map_err(unreadable)?;
    let kept = judging.judge.keep(read_index, &record);
    let settled = remembered.and_then(|remembered| remembered.settled);
    Ok(judged_stage(
        judging,
        buffers,
        (read_index, &record),
        (known_state, settled),
        (evaluation, kept),
        grants(record.offset),
    ))
}

/// The stage of a record that was judged against `known_state`. `settled` is the last settlement of its identity.
fn judged_stage(
    judging: &mut JudgingContext<'_>,
    buffers: &mut JudgingBuffers,
    (read_index, record): (usize, &Record<'_>),
    (known_state, settled): (KnownState<'_>, Option<Settled<'_>>),
    (evaluation, kept): (Evaluation, Kept),
    grant: Option<CoveringGrant>,
) -> SlotStage {
    let decision = evaluation.decision;
    match known_state {
        KnownState::OwnSettlement => {
            no_call_stage(judging, buffers, (read_index, record), Decision::REPLAYED.into(), Kept::default(), false)
        }
        KnownState::OwnReservation(reservation) => {
            // The record's call may have been sent, so it continues whatever the rules say now.
            let evaluation = if decision.action == Action::Forward { evaluation } else { forward_evaluation() };
            reservation_stage(judging, (read_index, record), evaluation, (kept, &reservation))
        }
        // Without this check, the handler would silently continue with the other record's work.
        KnownState::OtherReservation(reservation)
            if is_duplicate(&decision) && judging.is_different_work(read_index, record, reservation.fingerprint) =>
        {
            conflict_stage(judging, buffers, (read_index, record))
        }
        KnownState::OtherReservation(reservation) if is_duplicate(&decision) => {
            reservation_stage(judging, (read_index, record), forward_evaluation(), (kept, &reservation))
        }
        KnownState::Entry(_) if is_duplicate(&decision) => {
            let settled = settled.expect("a duplicate has a settlement that it equals");
            duplicate_stage(judging, buffers, (read_index, record), settled, (evaluation, kept))
        }
        KnownState::Entry(_) | KnownState::OtherReservation(_)
            if decision.action == Action::Forward && judging.makes_call(read_index) =>
        {
            match judging.render(read_index, record) {
                Ok(rendered) => {
                    let (call, action) = call::begin(&judging.terms.policy, grant, judging.now);
                    call_stage(judging, (call, action), (rendered, Journal::default()), evaluation, kept)
                }
                Err(message) => rejected_stage(judging, buffers, (read_index, record), message),
            }
        }
        KnownState::Entry(_) | KnownState::OtherReservation(_) => {
            no_call_stage(judging, buffers, (read_index, record), evaluation, kept, false)
        }
    }
}

/// The stage of a record that equals the last settled record of its identity.
fn duplicate_stage(
    judging: &mut JudgingContext<'_>,
    buffers: &mut JudgingBuffers,
    (read_index, record): (usize, &Record<'_>),
    settled: Settled<'_>,
    (evaluation, kept): (Evaluation, Kept),
) -> SlotStage {
    if let How::GivenUp { first_attempt_at_ms } = settled.how
        && !judging.is_different_work(read_index, record, settled.fingerprint)
    {
        let found = FoundCall { first_attempt_at_ms, attempts: 0, may_have_acted: true };
        let former_call = FormerCall { entry: settled.entry, found, journal: Journal::default() };
        return resumed_stage(judging, (read_index, record), forward_evaluation(), (kept, former_call));
    }
    let is_different_request = settled.fingerprint.map(Fingerprint::from_bytes).is_some_and(|stored| {
        let rendered = judging.render(read_index, record);
        rendered.is_ok_and(|payload| stored.compare(payload.fingerprint()) == Comparison::Different)
    });
    if is_different_request {
        return conflict_stage(judging, buffers, (read_index, record));
    }
    let repeats_result = judging.terms.on_duplicate == OnDuplicate::Result;
    no_call_stage(judging, buffers, (read_index, record), evaluation, kept, repeats_result)
}

/// Whether the record equals the record that it was judged against.
fn is_duplicate(decision: &Decision) -> bool {
    decision.verdict == Verdict::Duplicate && matches!(decision.reason, Reason::Seen | Reason::VersionEqual)
}

/// Finds the state that decides about the record at the place `own`.
fn find_known_state<'a>(remembered: Option<&Remembered<'a>>, own: Place) -> KnownState<'a> {
    let Some(Remembered { settled, reservation }) = remembered else { return KnownState::Entry(None) };
    match (reservation, settled) {
        (Some(reservation), _) if reservation.place == own => KnownState::OwnReservation(*reservation),
        (Some(reservation), _) => KnownState::OtherReservation(*reservation),
        (None, Some(settled)) if settled.place == Some(own) && !matches!(settled.how, How::GivenUp { .. }) => {
            KnownState::OwnSettlement
        }
        (None, settled) => KnownState::Entry(settled.map(|settled| settled.entry)),
    }
}
