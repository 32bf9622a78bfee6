//! Judges one record of a window by what is remembered of its identity.

use super::stages::{Left, called, conflict, forwarded, found_again, go_on, refused, without_call};
use super::{Bench, Round};
use crate::cluster::Cluster;
use crate::dedup::{self, Action, Decision, Evaluation, Kept, Reason, Verdict};
use crate::effect::call::{self, Comparison, Fingerprint, Found, Grant};
use crate::engine::calling::window::{Slot, SlotStage, Time};
use crate::engine::failure::{Failure, Unprocessable};
use crate::engine::resume::Refusal;
use crate::engine::share::TaskId;
use crate::engine::task::Work;
use crate::format::{self, EntryRef, How, Journal, Place, Remembered, Settled, UnderWay};
use crate::record::Record;
use crate::topology::sink::terms::OnDuplicate;

/// What is remembered of a record's identity, as far as it decides about the record.
enum Met<'a> {
    /// An entry to judge the record against, or none.
    Entry(Option<EntryRef<'a>>),
    /// The record's own reservation.
    Own(UnderWay<'a>),
    /// Another record's reservation.
    Other(UnderWay<'a>),
    /// The record's own settlement.
    Itself,
}

/// Judges one slot, which was read as number `number` of this round.
pub(super) fn judge_slot<C: Cluster>(
    bench: &mut Bench<'_>,
    round: &mut Round,
    (id, work): (TaskId, &Work<'_, C>),
    (number, slot): (usize, &Slot),
    grants: &impl Fn(i64) -> Option<Grant>,
) -> Result<SlotStage, Failure> {
    let record = slot.record.record();
    let context = bench.context;
    if let Time::Future(rejection) = &slot.time {
        let evaluation = Evaluation {
            decision: dedup::reject(&context.rules, rejection),
            rejection: Some(rejection.clone()),
            full: None,
        };
        return Ok(without_call(bench, round, (number, &record), evaluation, Kept::default(), false));
    }
    slot.times.put(&mut round.progress);
    let unreadable =
        |error: format::Error| Failure::refused_at(id, record.offset, Unprocessable::Entry(Refusal::of_record(error)));
    let Round { progress, drafts, entry, .. } = round;
    let known = bench.judge.remembered(drafts, number).map(<[u8]>::to_vec);
    let remembered = known.as_deref().map(Remembered::decode).transpose().map_err(unreadable)?;
    let own = Place { topic_id: work.task.topics.input_id.0, offset: record.offset };
    let met = meet(remembered.as_ref(), own);
    let against = match &met {
        Met::Entry(entry) => *entry,
        Met::Own(_) => remembered.as_ref().and_then(|remembered| Some(remembered.settled.as_ref()?.entry)),
        Met::Other(reservation) => Some(reservation.entry),
        Met::Itself => None,
    };
    entry.clear();
    if let Some(against) = &against {
        against.encode(entry);
    }
    let instead = against.map(|_| entry.as_slice());
    let judged = bench.judge.judge_against(context, (progress, drafts), (number, &record), instead);
    let evaluation = judged.map_err(unreadable)?;
    let kept = bench.judge.keep(number, &record);
    let settled = remembered.and_then(|remembered| remembered.settled);
    Ok(stage(bench, round, (number, &record), (met, settled), (evaluation, kept), grants(record.offset)))
}

/// The stage of a record that was judged against `met`. `settled` is the last settlement of its identity.
fn stage(
    bench: &mut Bench<'_>,
    round: &mut Round,
    (number, record): (usize, &Record<'_>),
    (met, settled): (Met<'_>, Option<Settled<'_>>),
    (evaluation, kept): (Evaluation, Kept),
    grant: Option<Grant>,
) -> SlotStage {
    let decision = evaluation.decision;
    match met {
        Met::Itself => without_call(bench, round, (number, record), Decision::REPLAYED.into(), Kept::default(), false),
        Met::Own(reservation) => {
            let evaluation = if decision.action == Action::Forward { evaluation } else { forwarded() };
            go_on(bench, (number, record), evaluation, (kept, &reservation))
        }
        // Otherwise the handler would go on with the other record's work, and nothing would notice.
        Met::Other(reservation)
            if is_same(&decision) && bench.is_other_work(number, record, reservation.fingerprint) =>
        {
            conflict(bench, round, (number, record))
        }
        Met::Other(reservation) if is_same(&decision) => {
            go_on(bench, (number, record), forwarded(), (kept, &reservation))
        }
        Met::Entry(_) if is_same(&decision) => {
            let settled = settled.expect("a duplicate has a settlement that it equals");
            again(bench, round, (number, record), settled, (evaluation, kept))
        }
        Met::Entry(_) | Met::Other(_) if decision.action == Action::Forward && bench.makes_call(number) => {
            match bench.render(number, record) {
                Ok(rendered) => {
                    let (call, action) = call::begin(&bench.terms.policy, grant, bench.now);
                    called(bench, (call, action), (rendered, Journal::default()), evaluation, kept)
                }
                Err(words) => refused(bench, round, (number, record), words),
            }
        }
        Met::Entry(_) | Met::Other(_) => without_call(bench, round, (number, record), evaluation, kept, false),
    }
}

/// The stage of a record that equals the one settled last.
fn again(
    bench: &mut Bench<'_>,
    round: &mut Round,
    (number, record): (usize, &Record<'_>),
    settled: Settled<'_>,
    (evaluation, kept): (Evaluation, Kept),
) -> SlotStage {
    if let How::GivenUp { first_at_ms } = settled.how
        && !bench.is_other_work(number, record, settled.fingerprint)
    {
        let found = Found { first_at_ms, attempts: 0, may_have_acted: true };
        let left = Left { entry: settled.entry, found, journal: Journal::default() };
        return found_again(bench, (number, record), forwarded(), (kept, left));
    }
    let is_other_request = settled.fingerprint.map(Fingerprint::from_bytes).is_some_and(|known| {
        let rendered = bench.render(number, record);
        rendered.is_ok_and(|asks| known.compare(asks.fingerprint()) == Comparison::Different)
    });
    if is_other_request {
        return conflict(bench, round, (number, record));
    }
    let is_answered = bench.terms.on_duplicate == OnDuplicate::Result;
    without_call(bench, round, (number, record), evaluation, kept, is_answered)
}

/// Whether the record equals the one it was judged against.
fn is_same(decision: &Decision) -> bool {
    decision.verdict == Verdict::Duplicate && matches!(decision.reason, Reason::Seen | Reason::VersionEqual)
}

/// What decides about a record at this place.
fn meet<'a>(remembered: Option<&Remembered<'a>>, own: Place) -> Met<'a> {
    let Some(Remembered { settled, under_way }) = remembered else { return Met::Entry(None) };
    match (under_way, settled) {
        (Some(reservation), _) if reservation.place == own => Met::Own(*reservation),
        (Some(reservation), _) => Met::Other(*reservation),
        (None, Some(settled)) if settled.place == Some(own) && !matches!(settled.how, How::GivenUp { .. }) => {
            Met::Itself
        }
        (None, settled) => Met::Entry(settled.map(|settled| settled.entry)),
    }
}
