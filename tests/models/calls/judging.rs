//! What an instance makes of a record, by what is remembered.

use super::mistake::Mistake;
use super::owner::Go;
use super::state::{Acted, Answered, Local, Outcome, Reservation, Settled, Slot, State};
use super::{Calls, GRANTED, InDoubt, Label, RETENTION};

pub const JUDGES: &str = "judges";
pub const PASSES: &str = "passes over what is settled";
pub const KNOWS: &str = "was answered before it restored, and judges by that";

impl Calls {
    /// Judges the first record that is not yet; a record of the same identity that is under way holds it up.
    pub(super) fn judge_next(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        let from = owner.start.max(state.input);
        let is_held = |at: u8| {
            let same = |other: u8| self.record(other).identity == self.record(at).identity;
            let is_open = |other: u8| state.slot(who, other).local != Local::Settled;
            let counts = |other: u8| !self.record(other).is_invalid && same(other) && is_open(other);
            !self.errs(Mistake::TwoAtOnce) && !self.record(at).is_invalid && (from..at).any(counts)
        };
        let is_new = |at: &u8| state.slot(who, *at).local == Local::New;
        // In the order of the input, but for those that wait for others.
        let Some(at) = (from..self.count()).filter(is_new).find(|at| !is_held(*at)) else { return };
        let passes_others = |other: u8| is_new(&other) && self.record(other).identity != self.record(at).identity;
        if (from..at).any(|other| passes_others(other) && !is_held(other)) {
            return;
        }
        if self.is_barred(state, who, from, at) {
            return;
        }
        let mut to = *state;
        self.judge_record(&mut to, who, at);
        if self.errs(Mistake::NoBarrier) && to.slot(who, at).local != Local::Settled {
            self.note_scope(&mut to, who, at);
        }
        let what = match to.slot(who, at).local {
            Local::Settled => PASSES,
            Local::Decided(Outcome::Done) => KNOWS,
            _ => JUDGES,
        };
        go(Label { who: Some(who), what, record: Some(at) }, to);
    }

    /// A scope starts at the end of the settled prefix only, and nothing behind it is judged before it has.
    fn is_barred(&self, state: &State, who: u8, from: u8, at: u8) -> bool {
        let scopes = &state.owner(who).scopes;
        let is_open = |other: u8| state.slot(who, other).local != Local::Settled;
        let starts = |other: u8| scopes[usize::from(self.record(other).scope)].is_none();
        let is_behind = (from..at).any(|other| starts(other) && is_open(other));
        (is_behind || starts(at) && (from..at).any(is_open)) && !self.errs(Mistake::NoBarrier)
    }

    /// Stream time as an owner sees it at a record.
    pub(super) fn stream_time(&self, state: &State, who: u8, at: u8) -> u8 {
        let owner = state.owner(who);
        (owner.start..=at).filter_map(|at| self.record(at).time).fold(owner.time, u8::max)
    }

    fn judge_record(&self, state: &mut State, who: u8, at: u8) {
        let record = *self.record(at);
        if at < state.prefix || state.list >> at & 1 == 1 {
            return self.pass(state, who, at);
        }
        let decided = |state: &mut State, outcome| state.slot_mut(who, at).local = Local::Decided(outcome);
        if record.is_invalid || record.early && state.now == 0 {
            return decided(state, Outcome::Invalid);
        }
        let time = self.stream_time(state, who, at);
        if record.time.is_some_and(|of| of + RETENTION < time) {
            return decided(state, Outcome::Late);
        }
        let (entry, version) = (*state.entry(record.identity), self.version(state, who, at));
        let is_own_topic = |is_old: bool| !is_old || self.errs(Mistake::NoTopicId);
        if let Some(reserved) = entry.reserved {
            let is_itself = reserved.record == at && is_own_topic(reserved.is_of_old_topic);
            return self.meet_reservation(state, who, at, &reserved, is_itself);
        }
        let settled = entry.settled.filter(|settled| settled.seen + RETENTION >= time);
        let Some(settled) = settled else { return self.begin(state, who, at) };
        let is_itself = settled.record == Some(at) || settled.record.is_none() && self.errs(Mistake::NoTopicId);
        match settled.what {
            _ if is_itself && self.errs(Mistake::ItselfIsNew) => self.begin(state, who, at),
            _ if is_itself && !self.errs(Mistake::ItselfIsDuplicate) => self.pass(state, who, at),
            _ if version < settled.version => decided(state, Outcome::Stale),
            _ if version > settled.version => self.begin(state, who, at),
            Settled::GivenUp { first } => self.resume(state, who, at, first),
            Settled::Done | Settled::Failed => decided(state, Outcome::Duplicate),
        }
    }

    /// A reservation of before stands in the entry: its record's own, or another's.
    fn meet_reservation(&self, state: &mut State, who: u8, at: u8, reserved: &Reservation, is_itself: bool) {
        let version = self.version(state, who, at);
        let slot = state.slot_mut(who, at);
        match () {
            () if is_itself && self.errs(Mistake::ItselfIsDuplicate) => slot.local = Local::Decided(Outcome::Duplicate),
            () if is_itself && self.errs(Mistake::ItselfIsNew) => self.begin(state, who, at),
            () if is_itself => self.resume(state, who, at, reserved.first),
            () if self.errs(Mistake::ReservedIsDone) => slot.local = Local::Decided(Outcome::Duplicate),
            () if self.errs(Mistake::NoAdoption) => slot.local = Local::Waiting,
            () if version > reserved.version => self.begin(state, who, at),
            () if version < reserved.version => slot.local = Local::Decided(Outcome::Stale),
            () => self.resume(state, who, at, reserved.first),
        }
    }

    /// A request may have left before.
    fn resume(&self, state: &mut State, who: u8, at: u8, first: u8) {
        let is_honoured = self.is_honoured(state, first);
        let slot = Slot { local: Local::Ready, first: Some(first), acted: Acted::Before, ..Slot::default() };
        *state.slot_mut(who, at) = slot;
        let may_go_on = match (self.has_key, self.in_doubt) {
            (true, InDoubt::DeadLetter) => is_honoured || self.errs(Mistake::RetryAfterWindow),
            (true, InDoubt::Retry) => is_honoured,
            (false, in_doubt) => in_doubt == InDoubt::Retry,
        };
        if !self.settle_by_answer(state, who, at) && !may_go_on {
            self.doubt_late(state, who, at);
        }
    }

    /// What this instance was answered before it had to restore settles the record: that it is done is true whichever
    /// instance has owned the task since.
    fn settle_by_answer(&self, state: &mut State, who: u8, at: u8) -> bool {
        let answered = state.owner(who).answered[usize::from(at)];
        let slot = state.slot_mut(who, at);
        match answered {
            Some(Answered::Done { result }) => (slot.local, slot.result) = (Local::Decided(Outcome::Done), result),
            Some(Answered::Rejected) => slot.local = Local::Decided(Outcome::Rejected),
            None => {}
        }
        answered.is_some()
    }

    /// A call of which nothing is known.
    fn begin(&self, state: &mut State, who: u8, at: u8) {
        let (now, since) = (state.now, state.since);
        let is_fresh = now - since < GRANTED;
        let fresh = |local, first| Slot { local, first, ..Slot::default() };
        let slot = match () {
            () if self.errs(Mistake::ReservedAfter) => fresh(Local::Ready, Some(now)),
            () if self.reserves() => fresh(Local::Unreserved, None),
            // Its timestamp says that it is young.
            () if self.errs(Mistake::NoGrant) && now <= GRANTED => fresh(Local::Ready, Some(now)),
            () if self.errs(Mistake::NoGrant) => fresh(Local::Unreserved, None),
            () if at >= state.granted => fresh(Local::Ungranted, None),
            // A former owner may have sent it.
            () if at < state.owner(who).granted_before => return self.resume_granted(state, who, at, is_fresh),
            () if is_fresh => fresh(Local::Ready, Some(since)),
            () => fresh(Local::Unreserved, None),
        };
        *state.slot_mut(who, at) = slot;
    }

    /// A request may have left before under a grant, which serves no longer than it is fresh.
    fn resume_granted(&self, state: &mut State, who: u8, at: u8, is_fresh: bool) {
        self.resume(state, who, at, state.since);
        let slot = state.slot_mut(who, at);
        if slot.local == Local::Ready && !is_fresh {
            slot.local = Local::Unreserved;
        }
    }

    /// A record that was settled before.
    pub(super) fn pass(&self, state: &mut State, who: u8, at: u8) {
        if state.verdicts[usize::from(at)].is_none() {
            state.fail("SKIPPED: a record is passed over that was never settled");
        }
        state.slot_mut(who, at).local = Local::Settled;
        self.advance(state, who);
    }
}
