//! Makes the stages of judged records.

use std::sync::Arc;

use super::{Bench, Round};
use crate::dedup::{Action, Decision, Evaluation, Kept, Reason, Rejection};
use crate::effect::call::{self, Call, Found};
use crate::effect::provider::{Asks, is_open};
use crate::engine::calling::window::{Called, Judged, SlotStage};
use crate::engine::output::words;
use crate::engine::process::stops_at;
use crate::format::{EntryRef, Journal, JournalWriter, Remembered, Settled, UnderWay};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};

/// The stage of a record that asks for something else under a key that was already used.
pub(super) fn conflict(bench: &mut Bench<'_>, round: &mut Round, record: (usize, &Record<'_>)) -> SlotStage {
    let evaluation = Evaluation::from(Decision::of_call(bench.terms.on_conflict, Reason::Conflict));
    without_call(bench, round, record, evaluation, Kept::default(), false)
}

pub(super) fn forwarded() -> Evaluation {
    Decision::of_call(Action::Forward, Reason::First).into()
}

/// The stage of a record that makes no call.
pub(super) fn without_call(
    bench: &mut Bench<'_>,
    round: &mut Round,
    (number, record): (usize, &Record<'_>),
    evaluation: Evaluation,
    kept: Kept,
    is_answered: bool,
) -> SlotStage {
    let context = bench.context;
    if evaluation.decision.action == Action::Fail {
        return SlotStage::Stops(stops_at(context, record, &evaluation));
    }
    let Round { progress, drafts, .. } = round;
    let mut explanation = Vec::new();
    if evaluation.decision.action == Action::Drop && context.topology.audit.is_some() {
        let known = (&*progress, &*drafts);
        bench.judge.dropped(context, known, number, record, evaluation.decision).write(&mut explanation);
    }
    if let Some(entry) = &kept.entry {
        let (rows, arena) = bench.judge.rows(number);
        let key = arena[rows[0].key.clone()].to_vec();
        let bytes = amended(bench.judge.remembered(drafts, number), entry);
        drafts.put(&key, Some(&bytes));
    }
    let message = words(context, &evaluation).into_owned();
    let is_written = false;
    SlotStage::Judged(Box::new(Judged { evaluation, kept, message, explanation, is_answered, is_written }))
}

/// What is remembered of an identity after a record without a call has left this entry of format 1. What is remembered
/// of calls, settled or under way, stays.
///
/// # Panics
/// `former` or the entry cannot be decoded.
pub fn amended(former: Option<&[u8]>, entry: &[u8]) -> Vec<u8> {
    let entry = EntryRef::decode(entry).expect("just written");
    let former = former.map(|bytes| Remembered::decode(bytes).expect("it was decoded when the record was judged"));
    let settled = former.as_ref().and_then(|former| former.settled);
    let settled = Some(settled.map_or(Settled::done(entry), |settled| Settled { entry, ..settled }));
    let mut bytes = Vec::new();
    Remembered { settled, under_way: former.and_then(|former| former.under_way) }.encode(&mut bytes);
    bytes
}

/// The stage of a record from which no request can be made: nothing has happened, and nothing is remembered.
pub(super) fn refused(
    bench: &mut Bench<'_>,
    round: &mut Round,
    record: (usize, &Record<'_>),
    words: String,
) -> SlotStage {
    let decision = Decision::of_call(bench.terms.on_rejected, Reason::Rejected);
    let rejection = Some(Rejection { reason: Reason::Rejected, message: words });
    without_call(bench, round, record, Evaluation { decision, rejection, full: None }, Kept::default(), false)
}

/// The stage of a record that goes on with the call of this reservation.
pub(super) fn go_on(
    bench: &mut Bench<'_>,
    (number, record): (usize, &Record<'_>),
    evaluation: Evaluation,
    (kept, reservation): (Kept, &UnderWay<'_>),
) -> SlotStage {
    let UnderWay { entry, first_at_ms, attempts, was_sent, journal, .. } = *reservation;
    let found = Found { first_at_ms, attempts, may_have_acted: was_sent };
    found_again(bench, (number, record), evaluation, (kept, Left { entry, found, journal }))
}

/// What is left of a call that may have happened.
pub(super) struct Left<'a> {
    pub entry: EntryRef<'a>,
    pub found: Found,
    pub journal: Journal<'a>,
}

/// The stage of a record that goes on with a call that may have happened.
pub(super) fn found_again(
    bench: &mut Bench<'_>,
    (number, record): (usize, &Record<'_>),
    evaluation: Evaluation,
    (kept, left): (Kept, Left<'_>),
) -> SlotStage {
    let asks = match bench.render(number, record) {
        Ok(asks) => asks,
        Err(words) => {
            let Record { topic, partition, offset, .. } = record;
            return SlotStage::Stops(format!(
                "{topic}:{partition}:{offset}: its call may have happened, and no request can be made of it any more: \
                 {words}"
            ));
        }
    };
    let mut bytes = Vec::new();
    left.entry.encode(&mut bytes);
    let may_have_acted = match asks {
        Asks::Http(_) => true,
        // Without keys, a handler's journal says when a step begins. If it does not, nothing has acted.
        Asks::Handler(_) if bench.terms.policy.key.is_none() => {
            is_open(left.journal) && !sabotage::is_on(Sabotage::MarkUnread)
        }
        Asks::Handler(_) => left.found.may_have_acted,
    };
    let found = Found { may_have_acted, ..left.found };
    let (call, action) = call::resume(&bench.terms.policy, found, bench.now);
    let journal = if sabotage::is_on(Sabotage::JournalDropped) { Journal::default() } else { left.journal };
    called(bench, (call, action), (asks, journal), evaluation, kept.with_entry(bytes))
}

/// The stage of a record that calls the provider.
pub(super) fn called(
    bench: &mut Bench<'_>,
    (call, action): (Call, call::Action),
    (asks, journal): (Asks, Journal<'_>),
    evaluation: Evaluation,
    kept: Kept,
) -> SlotStage {
    let send_at = match action {
        call::Action::SendAt(at) | call::Action::Hold(at) => at,
        call::Action::Write(_) | call::Action::Send { .. } | call::Action::Settle(_) => bench.now.monotonic,
    };
    SlotStage::Called(Box::new(Called {
        call,
        number: bench.numbers.take(),
        send_at,
        ended_at: None,
        asks,
        journal: Arc::new(JournalWriter::after(journal)),
        steps: None,
        evaluation,
        kept,
        last_answer: None,
        is_written: false,
        is_released: false,
    }))
}
