//! Creates the stages of judged records: a record's [`SlotStage`] says what happens to it next.
//!
//! An unfinished call of an earlier owner or record is stored as a **reservation** ([`Reservation`]), or as a
//! settlement whose call was given up. Both are read into a [`FormerCall`]; its [`FoundCall`] contains what the call's
//! state machine needs to know about earlier attempts.
//!
//! `read_index` is a record's index among the records that the judge has read in this round. `kept` is the state that a
//! record leaves behind once it is settled. `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::sync::Arc;

use super::{JudgingBuffers, JudgingContext};
use crate::dedup::{Action, Decision, Evaluation, Kept, Reason, Rejection};
use crate::effect::call::{self, Action as CallAction, Call, FoundCall};
use crate::effect::provider::{Payload, is_open};
use crate::engine::calling::window::{CalledRecord, JudgedRecord, SlotStage};
use crate::engine::output::description;
use crate::engine::process::stop_reason;
use crate::format::{EntryRef, Journal, JournalWriter, Remembered, Reservation, Settled};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};

/// The stage of a record whose request differs from an earlier request under the same key.
pub(super) fn conflict_stage(
    judging: &mut JudgingContext<'_>,
    buffers: &mut JudgingBuffers,
    record: (usize, &Record<'_>),
) -> SlotStage {
    let evaluation = Evaluation::from(Decision::by_call_rule(judging.terms.on_conflict, Reason::Conflict));
    no_call_stage(judging, buffers, record, evaluation, Kept::default(), false)
}

/// The evaluation of a record that is forwarded.
pub(super) fn forward_evaluation() -> Evaluation {
    Decision::by_call_rule(Action::Forward, Reason::First).into()
}

/// The stage of a record that makes no call. `repeats_result`: whether the identity's remembered result is written once
/// more for it.
pub(super) fn no_call_stage(
    judging: &mut JudgingContext<'_>,
    buffers: &mut JudgingBuffers,
    (read_index, record): (usize, &Record<'_>),
    evaluation: Evaluation,
    kept: Kept,
    repeats_result: bool,
) -> SlotStage {
    let context = judging.context;
    if evaluation.decision.action == Action::Fail {
        return SlotStage::MustStopTask(stop_reason(context, record, &evaluation));
    }
    let JudgingBuffers { progress, drafts, .. } = buffers;
    let mut explanation = Vec::new();
    if evaluation.decision.action == Action::Drop && context.topology.audit.is_some() {
        let judged_by = (&*progress, &*drafts);
        judging.judge.dropped(context, judged_by, read_index, record, evaluation.decision).write(&mut explanation);
    }
    if let Some(entry) = &kept.entry {
        let (rows, arena) = judging.judge.rows(read_index);
        let key = arena[rows[0].key.clone()].to_vec();
        let bytes = replace_entry(judging.judge.remembered(drafts, read_index), entry);
        drafts.put(&key, Some(&bytes));
    }
    let message = description(context, &evaluation).into_owned();
    let is_written = false;
    SlotStage::Judged(Box::new(JudgedRecord { evaluation, kept, message, explanation, repeats_result, is_written }))
}

/// The encoded state of an identity after a record without a call: `entry` replaces the settled entry in the state
/// `former`. What `former` says about calls, settled or reserved, is preserved. (`entry` is of format 1, which says
/// nothing about calls; a state that says something about calls is of format 2.)
///
/// # Panics
/// `former` or `entry` cannot be decoded.
pub fn replace_entry(former: Option<&[u8]>, entry: &[u8]) -> Vec<u8> {
    let entry = EntryRef::decode(entry).expect("just written");
    let former = former.map(|bytes| Remembered::decode(bytes).expect("it was decoded when the record was judged"));
    let settled = former.as_ref().and_then(|former| former.settled);
    let settled = Some(settled.map_or(Settled::done(entry), |settled| Settled { entry, ..settled }));
    let mut bytes = Vec::new();
    Remembered { settled, reservation: former.and_then(|former| former.reservation) }.encode(&mut bytes);
    bytes
}

/// The stage of a record from which no request can be rendered: no call was made, and no state is kept.
pub(super) fn rejected_stage(
    judging: &mut JudgingContext<'_>,
    buffers: &mut JudgingBuffers,
    record: (usize, &Record<'_>),
    message: String,
) -> SlotStage {
    let decision = Decision::by_call_rule(judging.terms.on_rejected, Reason::Rejected);
    let rejection = Some(Rejection { reason: Reason::Rejected, message });
    no_call_stage(judging, buffers, record, Evaluation { decision, rejection, full: None }, Kept::default(), false)
}

/// The stage of a record that continues the call of this reservation, its own or an equal record's.
pub(super) fn reservation_stage(
    judging: &mut JudgingContext<'_>,
    (read_index, record): (usize, &Record<'_>),
    evaluation: Evaluation,
    (kept, reservation): (Kept, &Reservation<'_>),
) -> SlotStage {
    let Reservation { entry, first_attempt_at_ms, attempts, was_sent, journal, .. } = *reservation;
    let found = FoundCall { first_attempt_at_ms, attempts, may_have_acted: was_sent };
    resumed_stage(judging, (read_index, record), evaluation, (kept, FormerCall { entry, found, journal }))
}

/// What is stored of a call that may have happened: it was reserved, or given up.
pub(super) struct FormerCall<'a> {
    /// The entry of the call's identity.
    pub entry: EntryRef<'a>,
    /// What is known about the attempts.
    pub found: FoundCall,
    /// The committed outcomes of a handler's steps.
    pub journal: Journal<'a>,
}

/// The stage of a record that continues a call that may have happened.
pub(super) fn resumed_stage(
    judging: &mut JudgingContext<'_>,
    (read_index, record): (usize, &Record<'_>),
    evaluation: Evaluation,
    (kept, former_call): (Kept, FormerCall<'_>),
) -> SlotStage {
    let payload = match judging.render(read_index, record) {
        Ok(payload) => payload,
        Err(message) => {
            let Record { topic, partition, offset, .. } = record;
            return SlotStage::MustStopTask(format!(
                "{topic}:{partition}:{offset}: its call may have happened, but its request can no longer be \
                 rendered: {message}"
            ));
        }
    };
    let mut bytes = Vec::new();
    former_call.entry.encode(&mut bytes);
    let may_have_acted = match payload {
        Payload::Http(_) => true,
        // Without keys, a mark in the handler's journal announces each step before the step begins. The journal is open
        // if it ends with a mark: that step may have acted. Otherwise only steps with recorded outcomes have acted.
        Payload::Handler(_) if judging.terms.policy.key.is_none() => {
            is_open(former_call.journal) && !sabotage::is_on(Sabotage::MarkUnread)
        }
        Payload::Handler(_) => former_call.found.may_have_acted,
    };
    let found = FoundCall { may_have_acted, ..former_call.found };
    let (call, action) = call::resume(&judging.terms.policy, found, judging.now);
    let journal = if sabotage::is_on(Sabotage::JournalDropped) { Journal::default() } else { former_call.journal };
    call_stage(judging, (call, action), (payload, journal), evaluation, kept.with_entry(bytes))
}

/// The stage of a record that calls the provider.
pub(super) fn call_stage(
    judging: &mut JudgingContext<'_>,
    (call, action): (Call, CallAction),
    (payload, journal): (Payload, Journal<'_>),
    evaluation: Evaluation,
    kept: Kept,
) -> SlotStage {
    let send_at = match action {
        CallAction::SendAt(at) | CallAction::Hold(at) => at,
        // The call has to be permitted or settled first, so this time delays nothing.
        CallAction::Write(_) | CallAction::Send { .. } | CallAction::Settle(_) => judging.now.monotonic,
    };
    SlotStage::Called(Box::new(CalledRecord {
        call,
        number: judging.numbers.take(),
        send_at,
        ended_at: None,
        payload,
        journal: Arc::new(JournalWriter::after(journal)),
        reported_steps: None,
        evaluation,
        kept,
        last_response: None,
        is_written: false,
        is_released: false,
    }))
}
