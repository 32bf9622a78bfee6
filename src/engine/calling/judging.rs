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
//! ([`Window::in_order`]): whoever judges one again, after a restart, knows exactly what came before it.
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

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::dedup::{self, Action, Decision, Evaluation, Kept, Progress, Reason, Rejection, Verdict};
use crate::effect::call::{self, Call, Comparison, Fingerprint, Found, Grant, Now};
use crate::effect::provider::{Asks, is_open};
use crate::engine::context::Context;
use crate::engine::failure::{Failure, Unprocessable};
use crate::engine::judge::Judge;
use crate::engine::output::words;
use crate::engine::process::stops_at;
use crate::engine::resume::Refusal;
use crate::engine::share::TaskId;
use crate::engine::task::Work;
use crate::format::{
    self, EntryRef, FINGERPRINT_BYTES, How, Journal, JournalWriter, Place, Remembered, Settled, UnderWay,
};
use crate::record::Record;
use crate::rendering::work::Asker;
use crate::sabotage::{self, Sabotage};
use crate::state::Overlay;
use crate::topology::sink::terms::{OnDuplicate, Terms};

use super::Numbers;
use super::window::{Called, Judged, Slot, SlotStage, Time, Window};

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

/// What a record meets.
enum Met<'a> {
    /// An entry that decides, or none.
    Entry(Option<EntryRef<'a>>),
    /// Its own reservation.
    Own(UnderWay<'a>),
    /// Another's reservation.
    Other(UnderWay<'a>),
    /// It was itself settled.
    Itself,
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
    let stops = work.task.stops_before();
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
        let judged = one(bench, round, (id, work), (number, slot), &grants)?;
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

/// Judges one slot, which was read as number `number` of this round.
fn one<C: Cluster>(
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
    let own = Place { topic_id: work.task.input_id.0, offset: record.offset };
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
    let decision = evaluation.decision;
    let grant = grants(record.offset);
    match met {
        Met::Itself => {
            Ok(without_call(bench, round, (number, &record), Decision::REPLAYED.into(), Kept::default(), false))
        }
        Met::Own(reservation) => {
            let evaluation = if decision.action == Action::Forward { evaluation } else { forwarded() };
            Ok(go_on(bench, (number, &record), evaluation, (kept, &reservation)))
        }
        // Nobody else would notice: a handler goes on with what was begun for the other.
        Met::Other(reservation)
            if is_same(&decision) && bench.is_other_work(number, &record, reservation.fingerprint) =>
        {
            Ok(conflict(bench, round, (number, &record)))
        }
        Met::Other(reservation) if is_same(&decision) => {
            Ok(go_on(bench, (number, &record), forwarded(), (kept, &reservation)))
        }
        Met::Entry(_) if is_same(&decision) => {
            let settled = remembered.and_then(|remembered| remembered.settled).expect("it is the same as something");
            if let How::GivenUp { first_at_ms } = settled.how
                && !bench.is_other_work(number, &record, settled.fingerprint)
            {
                let found = Found { first_at_ms, attempts: 0, may_have_acted: true };
                let left = Left { entry: settled.entry, found, journal: Journal::default() };
                return Ok(found_again(bench, (number, &record), forwarded(), (kept, left)));
            }
            let other = settled.fingerprint.map(Fingerprint::from_bytes).is_some_and(|known| {
                let rendered = bench.render(number, &record);
                rendered.is_ok_and(|asks| known.compare(asks.fingerprint()) == Comparison::Different)
            });
            if other {
                return Ok(conflict(bench, round, (number, &record)));
            }
            let is_answered = bench.terms.on_duplicate == OnDuplicate::Result;
            Ok(without_call(bench, round, (number, &record), evaluation, kept, is_answered))
        }
        Met::Entry(_) | Met::Other(_) if decision.action == Action::Forward && bench.calls(number) => {
            match bench.render(number, &record) {
                Ok(rendered) => {
                    let (call, action) = call::begin(&bench.terms.policy, grant, bench.now);
                    Ok(called(bench, (call, action), (rendered, Journal::default()), evaluation, kept))
                }
                Err(words) => Ok(refused(bench, round, (number, &record), words)),
            }
        }
        Met::Entry(_) | Met::Other(_) => Ok(without_call(bench, round, (number, &record), evaluation, kept, false)),
    }
}

/// The stage of a record that asks for something else under a key that was used.
fn conflict(bench: &mut Bench<'_>, round: &mut Round, record: (usize, &Record<'_>)) -> SlotStage {
    let evaluation = Evaluation::from(Decision::of_call(bench.terms.on_conflict, Reason::Conflict));
    without_call(bench, round, record, evaluation, Kept::default(), false)
}

/// Whether the record is the same as what it was judged against.
fn is_same(decision: &Decision) -> bool {
    decision.verdict == Verdict::Duplicate && matches!(decision.reason, Reason::Seen | Reason::VersionEqual)
}

fn forwarded() -> Evaluation {
    Decision::of_call(Action::Forward, Reason::First).into()
}

/// The stage of a record that makes no call.
fn without_call(
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

/// What is remembered of an identity once a record that makes no call has left this entry of format 1. What is known of
/// a call that was settled, or is under way, stays.
///
/// # Panics
/// `former` cannot be read, or the entry cannot.
pub fn amended(former: Option<&[u8]>, entry: &[u8]) -> Vec<u8> {
    let entry = EntryRef::decode(entry).expect("just written");
    let former = former.map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
    let settled = former.as_ref().and_then(|former| former.settled);
    let settled = Some(settled.map_or(Settled::done(entry), |settled| Settled { entry, ..settled }));
    let mut bytes = Vec::new();
    Remembered { settled, under_way: former.and_then(|former| former.under_way) }.encode(&mut bytes);
    bytes
}

/// The stage of a record that no request can be made of: nothing has happened, and nothing is remembered.
fn refused(bench: &mut Bench<'_>, round: &mut Round, record: (usize, &Record<'_>), words: String) -> SlotStage {
    let decision = Decision::of_call(bench.terms.on_rejected, Reason::Rejected);
    let rejection = Some(Rejection { reason: Reason::Rejected, message: words });
    without_call(bench, round, record, Evaluation { decision, rejection, full: None }, Kept::default(), false)
}

/// The stage of a record that goes on with the call of this reservation.
fn go_on(
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
struct Left<'a> {
    entry: EntryRef<'a>,
    found: Found,
    journal: Journal<'a>,
}

/// The stage of a record that goes on with a call that may have happened.
fn found_again(
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
        // Without keys it says in its journal that a step begins, so what says nothing has not acted.
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

/// The stage of a record that calls.
fn called(
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
        heard: None,
        is_written: false,
        is_released: false,
    }))
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

/// What a record at this place meets.
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
