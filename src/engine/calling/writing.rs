//! Writes what the slots of a window have come to into their task's share of the open transaction.
//!
//! **A reservation never replaces a settlement**: what was settled last stays beside it, and so does another record's
//! reservation, as given up: its call may have happened, whatever becomes of this one. A settlement ends whatever is
//! reserved; one that is forgotten leaves everything as it was before its reservation.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::dedup::{Action, Reason, Verdict};
use crate::effect::call::{Event, Kept as KeptOf, Now, Outcome, Permit, Stage};
use crate::effect::provider::{Asks, is_open};
use crate::engine::failure::{Cause, Failure};
use crate::engine::output::Outlet;
use crate::engine::share::Position;
use crate::format::{
    Called as Granted, EntryRef, How, Journal, JournalWriter, Place, REASON_BYTES_MAX, Remembered, ResultRef, Settled,
    UnderWay,
};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};
use crate::state;
use crate::topology::sink::Terms;

use super::grants;
use super::judging::amended;
use super::results::result_of;
use super::window::{Called, HeardLast, Judged, Slot, SlotStage, Trouble, Window};

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Everything that is due.
    All,
    /// What is settled, and nothing that lets a call go.
    Settlements,
    /// What is settled; and what was reserved and never sent is given back.
    Releases,
}

impl What {
    /// Whether that concerns a window whose task is committed up to this position.
    pub fn is_due_in(self, window: &Window, committed: &Position) -> bool {
        let ends_grant = || self == Self::Releases && grants::end_of_open(window, committed).is_some();
        // What a former owner has settled leaves the window without a transaction.
        let is_ahead = window.next() > committed.next;
        self.has_due(window) || is_ahead || ends_grant()
    }

    /// Whether that concerns a slot of this window whose turn it is.
    pub fn has_due(self, window: &Window) -> bool {
        self.due(window).next().is_some()
    }

    /// The slots of this window that it concerns, and whose turn it is.
    pub fn due(self, window: &Window) -> impl Iterator<Item = &Slot> {
        let reach = window.reach_of_order();
        let has_turn = move |at: usize, slot: &Slot| !slot.is_to_be_settled() || at <= reach;
        let is_due = move |(at, slot): &(usize, &Slot)| self.is_due(slot) && has_turn(*at, slot);
        window.slots().enumerate().filter(is_due).map(|(_, slot)| slot)
    }

    /// Whether that concerns a slot.
    pub fn is_due(self, slot: &Slot) -> bool {
        match (&slot.stage, self) {
            (SlotStage::Judged(judged), _) => !judged.is_written,
            (SlotStage::Called(called), _) if called.is_written => false,
            (SlotStage::Called(called), _) if called.has_steps_due() => true,
            (SlotStage::Called(called), _) => match called.call.stage() {
                Stage::Decided(_) => true,
                _ if self == Self::Releases => called.call.may_be_released() && !called.is_released,
                Stage::Waits(_) => self == Self::All,
                Stage::Writing(_) | Stage::Ready | Stage::Sent => false,
            },
            _ => false,
        }
    }
}

/// What writing needs of its lane.
pub(in crate::engine) struct Pen<'a, 'o, C: Cluster> {
    /// Where the records go, and the task's share.
    pub outlet: &'a mut Outlet<'o, C>,
    /// The terms of the topology's calls.
    pub terms: &'a Terms,
    /// The time.
    pub now: Now,
}

/// Puts everything that is due into the share, as long as `has_room` says so, and brings the task's position to where it
/// is then.
pub(in crate::engine) fn write<C: Cluster>(
    pen: &mut Pen<'_, '_, C>,
    window: &mut Window,
    what: What,
    has_room: impl Fn(usize) -> bool,
) -> Result<(), Failure> {
    let grant = pen.grant(window);
    let mut reach = window.reach_of_order();
    for at in 0..window.len() {
        let has_turn = |window: &Window| at <= reach && window.may_settle(at);
        let slot = window.slot(at);
        if !what.is_due(slot)
            || slot.is_to_be_settled() && !has_turn(window)
            || slot.is_to_be_taken() && !window.may_settle(at)
        {
            continue;
        }
        if !has_room(pen.outlet.added.bytes) {
            break;
        }
        match (what, &window.slot(at).stage) {
            (What::Releases, SlotStage::Called(called)) if called.outcome().is_none() && !called.has_steps_due() => {
                pen.release(window.slot_mut(at))?
            }
            _ => pen.slot(window.slot_mut(at), grant)?,
        }
        while reach < window.len() && window.slot(reach).is_ahead() {
            reach += 1;
        }
    }
    let position = &mut pen.outlet.share.position;
    window.ahead().put(position);
    match what {
        // It costs nothing, and what is read next need not wait for it.
        What::All => pen.put_grant(grant),
        What::Releases => pen.end_grant(window),
        What::Settlements => {}
    }
    Ok(())
}

impl<C: Cluster> Pen<'_, '_, C> {
    /// The grant that this transaction writes.
    fn grant(&self, window: &mut Window) -> Option<Granted> {
        let end = window.next_grant_end();
        grants::next(&self.terms.policy, window, &self.outlet.share.position, end, self.now.wall_ms)
    }

    fn put_grant(&mut self, grant: Option<Granted>) {
        if let Some(grant) = grant.filter(|_| !sabotage::is_on(Sabotage::GrantNotWritten)) {
            self.outlet.share.position.calls.called = vec![grant];
        }
    }

    /// Takes back what nobody can have called under.
    fn end_grant(&mut self, window: &Window) {
        let position = &mut self.outlet.share.position;
        if let Some(to) = grants::end_of_open(window, position)
            && let Some(granted) = position.calls.called.last_mut()
        {
            granted.to = to;
        }
    }

    fn slot(&mut self, slot: &mut Slot, grant: Option<Granted>) -> Result<(), Failure> {
        let Slot { record, key, stage, trouble, .. } = slot;
        let refused = match trouble {
            Trouble::Refused(message) => Some(message.as_str()),
            Trouble::None | Trouble::Suspect => None,
        };
        let record = record.record();
        // A topic may refuse it for its timestamp.
        let record = Record { timestamp: record.timestamp.filter(|_| refused.is_none()), ..record };
        match stage {
            SlotStage::Judged(judged) => {
                self.judged(&record, key.as_deref(), judged, refused)?;
                judged.is_written = true;
            }
            SlotStage::Called(called) => {
                let key = key.as_deref().expect("what calls has an identity");
                if called.has_steps_due() {
                    return self.journal(&record, key, called);
                }
                match called.call.stage() {
                    Stage::Waits(Permit::Reservation) => {
                        self.reserve(&record, key, called)?;
                        if sabotage::is_on(Sabotage::ReservedAfterCall) {
                            called.happen(&self.terms.policy, Event::Committed, self.now, &mut |_| 0);
                        }
                    }
                    Stage::Waits(Permit::Grant) => {
                        let grant = grant.expect("only who writes grants waits for one");
                        self.put_grant(Some(grant));
                        self.written(called, grant.since_ms);
                    }
                    Stage::Decided(outcome) => match self.stops(&record, called, outcome) {
                        Some(reason) => {
                            if outcome == Outcome::InDoubt {
                                self.leave_reserved(&record, key, called)?;
                            }
                            *stage = SlotStage::Stops(reason);
                        }
                        None => match self.settle(&record, key, called, outcome, refused) {
                            Ok(()) => called.is_written = true,
                            // Nothing of it is written.
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

    fn written(&self, called: &mut Called, since_ms: i64) {
        let mut nothing = |_| 0;
        called.happen(&self.terms.policy, Event::Written { since_ms }, self.now, &mut nothing);
    }

    /// What is remembered under this key, this transaction included.
    fn remembered(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let Outlet { share, work, .. } = &*self.outlet;
        match share.overlay.get(key) {
            Some(written) => Ok(written.map(<[u8]>::to_vec)),
            None => work.store.get(key).map_err(|error: state::Error| Failure::state(share.task, error)),
        }
    }

    /// Puts what is remembered of an identity into the share; nothing, if neither part is there.
    fn put(&mut self, key: &[u8], remembered: Remembered<'_>) {
        let overlay = &mut self.outlet.share.overlay;
        if remembered.settled.is_none() && remembered.under_way.is_none() {
            return overlay.put(key, None);
        }
        let mut bytes = Vec::new();
        remembered.encode(&mut bytes);
        overlay.put(key, Some(&bytes));
    }

    fn place(&self, record: &Record<'_>) -> Place {
        Place { topic_id: self.outlet.work.task.input_id.0, offset: record.offset }
    }

    fn settled(&mut self, record: &Record<'_>, verdict: Verdict, reason: Reason) {
        let share = &mut self.outlet.share;
        share.tally.add(verdict, reason);
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

    /// A record that makes no call.
    fn judged(
        &mut self,
        record: &Record<'_>,
        key: Option<&[u8]>,
        judged: &Judged,
        refused: Option<&str>,
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
            self.answer(record, former, refused)?;
        }
        if let (Some(key), Some(entry)) = (key, &kept.entry) {
            let bytes = amended(former.as_deref(), entry);
            self.outlet.share.overlay.put(key, Some(&bytes));
        }
        self.note(record, kept);
        self.settled(record, decision.verdict, decision.reason);
        Ok(())
    }

    fn note(&mut self, record: &Record<'_>, kept: &crate::dedup::Kept) {
        if let Some(scope) = kept.note(&mut self.outlet.share.position.progress, record.offset) {
            let (task, offset) = (&self.outlet.work.task.input, record.offset);
            self.outlet.added.epoch_changes += 1;
            tracing::warn!(%task, offset, scope = crate::dedup::explain::epoch(scope), "the epoch changed");
        }
    }

    fn reserve(&mut self, record: &Record<'_>, key: &[u8], called: &mut Called) -> Result<(), Failure> {
        let journal = Arc::clone(&called.journal);
        let first_at_ms = self.put_reservation(record, key, called, (None, journal.as_journal()))?;
        self.written(called, first_at_ms);
        Ok(())
    }

    /// A call in doubt before which the task stops, and that went under a grant, leaves a reservation behind: without
    /// one, nothing would be known of it that somebody could settle.
    fn leave_reserved(&mut self, record: &Record<'_>, key: &[u8], called: &Called) -> Result<(), Failure> {
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let is_known = former.is_some_and(|former| former.under_way.is_some());
        match called.call.first_at_ms().filter(|_| !is_known) {
            Some(first_at_ms) => {
                let journal = Arc::clone(&called.journal);
                self.put_reservation(record, key, called, (Some(first_at_ms), journal.as_journal())).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Writes a call's reservation. Returns since when it says that the call may have been made: `first_at_ms`, or as the
    /// call says.
    fn put_reservation(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &Called,
        (first_at_ms, journal): (Option<i64>, Journal<'_>),
    ) -> Result<i64, Failure> {
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let place = self.place(record);
        let (mut settled, mut under_way) = (None, None);
        if let Some(former) = former {
            (settled, under_way) = (former.settled, former.under_way);
        }
        // A handler that goes on where another record's has stopped takes its journal along.
        let is_other = |other: &UnderWay<'_>| other.place != place && called.journal.is_empty();
        if let Some(other) = under_way.filter(is_other) {
            let UnderWay { entry, place, first_at_ms, fingerprint, journal, .. } = other;
            let (how, result) = match journal.is_empty() {
                true => (How::GivenUp { first_at_ms }, None),
                // Whoever began it anew would do again what is long done.
                false => (How::InDoubt, Some(ResultRef::Reason(OVERTAKEN))),
            };
            settled = Some(Settled { entry, how, place: Some(place), fingerprint, result });
            self.overtaken(record, &other);
        }
        let first_at_ms = first_at_ms.or(called.call.first_at_ms()).unwrap_or(self.now.wall_ms);
        let entry = called.kept.entry.clone().expect("what calls is remembered");
        let reservation = UnderWay {
            entry: EntryRef::decode(&entry).expect("just written"),
            place,
            first_at_ms,
            // Those of a handler are its next step's.
            attempts: if journal.is_empty() { called.call.attempts() } else { 0 },
            may_have_acted: called.call.may_have_acted(),
            // A handler's next step may begin as soon as this is committed.
            was_sent: called.call.may_have_acted() || matches!(called.asks, Asks::Handler(_)),
            fingerprint: Some(called.asks.fingerprint().to_bytes()),
            journal,
        };
        let settled = settled.filter(|_| !sabotage::is_on(Sabotage::ReservationOverSettlement));
        if !sabotage::is_on(Sabotage::ReservationNotWritten) {
            self.put(key, Remembered { settled, under_way: Some(reservation) });
        }
        // What names a scope must not be there without the scope.
        called.kept.start(&mut self.outlet.share.position.progress);
        Ok(first_at_ms)
    }

    /// Work of which some steps are done is passed over for what is newer: nobody goes on with it.
    fn overtaken(&mut self, record: &Record<'_>, other: &UnderWay<'_>) {
        if !other.journal.is_empty() {
            self.outlet.added.settled.in_doubt += 1;
            let (offset, newer, steps) = (other.place.offset, record.offset, other.journal.len());
            tracing::warn!(task = %self.outlet.work.task.input, offset, newer, steps, "{OVERTAKEN}");
        }
    }

    /// Leaves a handler's reservation to whoever goes on, and says that its next step has not begun. Says whether there
    /// is anything to leave.
    fn leave(&mut self, record: &Record<'_>, key: &[u8], called: &Called) -> Result<bool, Failure> {
        let journal = without_mark(called.journal.as_journal());
        if journal.is_empty() {
            return Ok(false);
        }
        self.put_reservation(record, key, called, (None, journal.as_journal()))?;
        let written = self.remembered(key)?.unwrap_or_default();
        let written = Remembered::decode(&written).expect("just written");
        let under_way =
            written.under_way.map(|under_way| UnderWay { was_sent: false, may_have_acted: false, ..under_way });
        self.put(key, Remembered { under_way, ..written });
        Ok(true)
    }

    /// Remembers what a handler's steps have come to, in the call's reservation. It goes on once that is committed.
    fn journal(&mut self, record: &Record<'_>, key: &[u8], called: &mut Called) -> Result<(), Failure> {
        let now_ms = self.now.wall_ms;
        let Some(told) = &called.steps else { return Ok(()) };
        let mut journal = (*called.journal).clone();
        for step in &told.steps {
            assert!(journal.push(step.as_step()), "a handler tells no more than there is room for");
        }
        self.put_reservation(record, key, called, (Some(now_ms), journal.as_journal()))?;
        called.steps.iter_mut().for_each(|steps| steps.written_ms = Some(now_ms));
        Ok(())
    }

    /// Why the task stops before a record with this outcome, if it does.
    fn stops(&self, record: &Record<'_>, called: &Called, outcome: Outcome) -> Option<String> {
        (self.action(outcome) == Action::Fail).then(|| {
            let Record { topic, partition, offset, .. } = record;
            let (reason, key) = (reason_of(outcome), on(outcome));
            format!(
                "{topic}:{partition}:{offset} is {}: {}; the topology says `{key}: fail`",
                reason.as_str(),
                said(called, outcome)
            )
        })
    }

    fn action(&self, outcome: Outcome) -> Action {
        use crate::effect::call::{OnInDoubt, OnUnavailable};
        match outcome {
            Outcome::Done => Action::Forward,
            Outcome::Rejected => self.terms.on_rejected,
            Outcome::Conflict => self.terms.on_conflict,
            Outcome::InDoubt => match self.terms.policy.on_in_doubt {
                OnInDoubt::Fail => Action::Fail,
                OnInDoubt::DeadLetter | OnInDoubt::Retry => Action::DeadLetter,
            },
            Outcome::Unavailable => match self.terms.policy.on_unavailable {
                OnUnavailable::Fail => Action::Fail,
                // Others have succeeded meanwhile: it is the record's own trouble.
                OnUnavailable::Hold | OnUnavailable::DeadLetter => Action::DeadLetter,
            },
        }
    }

    /// Settles a call.
    fn settle(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &Called,
        outcome: Outcome,
        refused: Option<&str>,
    ) -> Result<(), Failure> {
        let is_refusal = called.heard.as_ref().and_then(|heard| heard.status).is_some_and(|status| status / 100 == 4);
        let outcome = match outcome {
            Outcome::InDoubt if is_refusal && sabotage::is_on(Sabotage::RejectedAfterAll) => Outcome::Rejected,
            outcome => outcome,
        };
        let reason = reason_of(outcome);
        let message = said(called, outcome);
        match self.action(outcome) {
            Action::DeadLetter => {
                // All of them: not only those that count towards giving it up.
                let attempts = called.call.attempt().max(called.call.attempts()).to_string();
                let status = called.heard.as_ref().and_then(|heard| heard.status).map(|status| status.to_string());
                let mut more: Vec<(&str, &str)> = vec![("attempts", &attempts)];
                more.extend(called.asks.key().map(|key| ("key", key.as_str())));
                more.extend(status.as_deref().map(|status| ("status", status)));
                self.outlet.dead_letter(record, reason, &message, &more)?;
            }
            Action::Forward => self.result(record, called, refused)?,
            Action::Drop | Action::Fail => {}
        }
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let entry = called.kept.entry.as_deref().expect("what calls is remembered");
        let entry = EntryRef::decode(entry).expect("just written");
        let how = match called.call.kept(outcome) {
            KeptOf::Done => Some(How::Done),
            KeptOf::Failed => Some(match outcome {
                Outcome::Conflict => How::Conflict,
                Outcome::InDoubt => How::InDoubt,
                _ => How::Rejected,
            }),
            KeptOf::GivenUp { first_at_ms } => Some(How::GivenUp { first_at_ms }),
            KeptOf::AsBefore => None,
        };
        // What a handler's steps have come to stays with its reservation: a duplicate goes on from there.
        let may_have_acted = called.call.may_have_acted() && !sabotage::is_on(Sabotage::LeftAlthoughActed);
        let stays = outcome == Outcome::Unavailable
            && !called.journal.is_empty()
            && !sabotage::is_on(Sabotage::GivenUpLosesJournal)
            && (may_have_acted || self.leave(record, key, called)?);
        let message = bounded(&message);
        match how {
            _ if stays => {}
            Some(how) => {
                let is_other = |other: &UnderWay<'_>| other.place != self.place(record) && called.journal.is_empty();
                if let Some(other) = former.and_then(|former| former.under_way).filter(is_other) {
                    self.overtaken(record, &other);
                }
                let place = Some(self.place(record));
                let fingerprint = Some(called.asks.fingerprint().to_bytes());
                let result = if how == How::Done { result_of(called) } else { Some(ResultRef::Reason(message)) };
                self.put(
                    key,
                    Remembered { settled: Some(Settled { entry, how, place, fingerprint, result }), under_way: None },
                );
                self.note(record, &called.kept);
            }
            None => self.forget(key, former, self.place(record)),
        }
        match outcome {
            Outcome::Done => {
                self.settled(record, Verdict::Forwarded, called.evaluation.decision.reason);
                self.outlet.added.settled.done += 1;
            }
            _ => self.settled(record, Verdict::Invalid, reason),
        }
        Ok(())
    }

    /// Nothing has happened: what this record has reserved goes, and everything else stays.
    pub fn forget(&mut self, key: &[u8], former: Option<Remembered<'_>>, place: Place) {
        let Some(former) = former else { return };
        let under_way = former.under_way.filter(|reservation| reservation.place != place);
        if under_way != former.under_way {
            self.put(key, Remembered { under_way, ..former });
        }
    }

    /// Takes back what a record has reserved and never sent.
    pub fn release(&mut self, slot: &mut Slot) -> Result<(), Failure> {
        let Some(key) = slot.key.as_deref() else { return Ok(()) };
        if let SlotStage::Called(called) = &mut slot.stage {
            called.is_released = true;
            if self.leave(&slot.record.record(), key, called)? {
                return Ok(());
            }
        }
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let place = self.place(&slot.record.record());
        self.forget(key, former, place);
        Ok(())
    }
}

/// Why work that was begun is in doubt for good.
const OVERTAKEN: &str = "some of its steps are done, and a newer version came before the others";

/// A journal without the mark that its last step begins, if that is all that is known of it.
fn without_mark(journal: Journal<'_>) -> JournalWriter {
    let is_marked = is_open(journal) && !sabotage::is_on(Sabotage::MarkLeft);
    let kept = journal.len() - usize::from(is_marked);
    let mut trimmed = JournalWriter::default();
    assert!(journal.steps().take(kept).all(|step| trimmed.push(step)), "it is no longer than before");
    trimmed
}

fn reason_of(outcome: Outcome) -> Reason {
    match outcome {
        Outcome::Done => Reason::First,
        Outcome::Rejected => Reason::Rejected,
        Outcome::Conflict => Reason::Conflict,
        Outcome::InDoubt => Reason::InDoubt,
        Outcome::Unavailable => Reason::Unavailable,
    }
}

/// The key of the topology that says what becomes of an outcome.
fn on(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "on_done",
        Outcome::Rejected => "on_rejected",
        Outcome::Conflict => "on_conflict",
        Outcome::InDoubt => "on_in_doubt",
        Outcome::Unavailable => "on_unavailable",
    }
}

/// What a call has come to, in words without anything of its body.
fn said(called: &Called, outcome: Outcome) -> String {
    let heard = match &called.heard {
        None => {
            "it was called by a former owner or an earlier attempt, and its key is not honoured any more".to_owned()
        }
        Some(HeardLast { status: Some(status), message: None, .. }) => format!("the provider answered {status}"),
        Some(HeardLast { status: Some(status), message: Some(message), .. }) => {
            format!("the provider answered {status}: {message}")
        }
        Some(HeardLast { status: None, message, .. }) => {
            message.clone().unwrap_or_else(|| "the provider did not answer".to_owned())
        }
    };
    match outcome {
        Outcome::InDoubt => format!("it is not known whether it has happened: {heard}"),
        Outcome::Unavailable => format!("{} attempts have failed: {heard}", called.call.attempts()),
        Outcome::Done | Outcome::Rejected | Outcome::Conflict => heard,
    }
}

/// The beginning of a text, as long as may be remembered.
fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}
