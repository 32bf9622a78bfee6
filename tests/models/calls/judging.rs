//! What an instance makes of a record, by what is remembered.

use super::owner::{Go, JUDGES, PASSES};
use super::state::{Acted, Local, Outcome, Reservation, Settled, Slot, State};
use super::{Calls, GRANTED, InDoubt, Label, Mistake, RETENTION, Reserve};

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
        let mut to = *state;
        self.judge_record(&mut to, who, at);
        let what = if to.slot(who, at).local == Local::Settled { PASSES } else { JUDGES };
        go(Label { who: Some(who), what, record: Some(at) }, to);
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
        let entry = *state.entry(record.identity);
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
            _ if record.version < settled.version => decided(state, Outcome::Stale),
            _ if record.version > settled.version => self.begin(state, who, at),
            Settled::GivenUp { first } => self.resume(state, who, at, first),
            Settled::Done | Settled::Failed => decided(state, Outcome::Duplicate),
        }
    }

    /// A reservation of before stands in the entry: its record's own, or another's.
    fn meet_reservation(&self, state: &mut State, who: u8, at: u8, reserved: &Reservation, is_itself: bool) {
        let version = self.record(at).version;
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
        let may_go_on = match (self.has_key, self.in_doubt) {
            (true, InDoubt::Retry) if self.errs(Mistake::RetryAfterWindow) => true,
            (true, _) => self.is_honoured(state, first),
            (false, in_doubt) => in_doubt == InDoubt::Retry,
        };
        let local = if may_go_on { Local::Ready } else { Local::Decided(Outcome::InDoubt) };
        let attempts = state.slot(who, at).attempts;
        *state.slot_mut(who, at) = Slot { local, first, attempts, acted: Acted::Before };
    }

    /// A call of which nothing is known.
    fn begin(&self, state: &mut State, who: u8, at: u8) {
        let now = state.now;
        let fresh = |local| Slot { local, first: now, ..Slot::default() };
        let slot = match () {
            () if self.errs(Mistake::ReservedAfter) => fresh(Local::Ready),
            () if self.reserve == Reserve::Always || !self.has_key => fresh(Local::Unreserved),
            // Its timestamp says that it is young.
            () if self.errs(Mistake::NoGrant) => fresh(if now <= GRANTED { Local::Ready } else { Local::Unreserved }),
            () if at >= state.granted => fresh(Local::Ungranted),
            () => {
                let since = state.since;
                let is_fresh = now - since < GRANTED;
                let may_have_left = at < state.owner(who).granted_before;
                match (may_have_left, is_fresh) {
                    (false, true) => Slot { local: Local::Ready, first: since, ..Slot::default() },
                    (false, false) => fresh(Local::Unreserved),
                    (true, _) => {
                        let local = match is_fresh {
                            _ if !self.is_honoured(state, since) => Local::Decided(Outcome::InDoubt),
                            true => Local::Ready,
                            false => Local::Unreserved,
                        };
                        Slot { local, first: since, attempts: 0, acted: Acted::Before }
                    }
                }
            }
        };
        *state.slot_mut(who, at) = slot;
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
