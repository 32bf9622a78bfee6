//! What an instance does.

use super::state::{Acted, Entry, Local, Outcome, Owner, Reservation, Run, Settled, Settlement, Slot, State, Verdict};
use super::{ATTEMPTS, Calls, GRANTED, IN_FLIGHT, Label, Mistake};

pub const TAKES_OVER: &str = "takes the task over and restores";
pub const WAKES: &str = "wakes up";
pub const JUDGES: &str = "judges";
pub const PASSES: &str = "passes over what is settled";
pub const GRANTS: &str = "grants";
pub const COMMITS: &str = "commits one";
pub const COMMITS_ALL: &str = "commits all there is";
pub const COMMIT_LOST: &str = "commits, and does not hear of it; restores";
pub const ABORTED: &str = "its transaction is aborted; restores";
pub const SENDS: &str = "sends";
pub const TOO_LATE: &str = "the key's window has passed before it sends";
pub const GIVES_UP: &str = "is fenced, and gives up";
pub const ZOMBIE_COMMITS: &str = "commits though another owns the task";
pub const STOPS: &str = "stops in order";

pub type Go<'a> = &'a mut dyn FnMut(Label, State);

impl Calls {
    pub(super) fn owner_steps(&self, state: &State, who: u8, go: Go<'_>) {
        let label = |what| Label { who: Some(who), what, record: None };
        let owner = state.owner(who);
        match owner.run {
            Run::Down => self.take_over(state, who, go),
            Run::Frozen => {
                let mut to = *state;
                to.owner_mut(who).run = Run::Live;
                go(label(WAKES), to);
            }
            Run::Live => {
                self.send(state, who, go);
                if owner.is_current {
                    self.judge_next(state, who, go);
                    self.grant(state, who, go);
                    self.commit(state, who, go);
                    self.stop(state, who, go);
                } else {
                    self.be_fenced(state, who, go);
                }
            }
        }
    }

    fn take_over(&self, state: &State, who: u8, go: Go<'_>) {
        let other = state.owner(1 - who);
        let is_owned = other.run == Run::Live && other.is_current;
        // The second instance is there for what has happened to the first.
        let is_wanted = who == 0 || other.run != Run::Down;
        if is_owned || !is_wanted || self.is_done(state) {
            return;
        }
        let mut to = *state;
        to.owner_mut(1 - who).is_current = false;
        self.restore(&mut to, who);
        go(Label { who: Some(who), what: TAKES_OVER, record: None }, to);
    }

    fn is_done(&self, state: &State) -> bool {
        state.prefix >= self.count() && state.offset >= self.count()
    }

    /// Begins anew with what is committed.
    fn restore(&self, state: &mut State, who: u8) {
        let (start, time, granted_before) = (state.offset.max(state.input), state.time, state.granted);
        let slots = Default::default();
        *state.owner_mut(who) = Owner { run: Run::Live, is_current: true, start, time, granted_before, slots };
        // By the transaction that names the new owner.
        self.advance(state, who);
    }

    /// The position record says up to where calls may go from now on.
    fn grant(&self, state: &State, who: u8, go: Go<'_>) {
        for at in 0..self.count() {
            if state.slot(who, at).local != Local::Ungranted {
                continue;
            }
            let mut to = *state;
            if to.prefix >= to.granted {
                to.since = to.now;
            }
            to.granted = to.granted.max(at + 1).max(self.count().min(to.prefix + 2));
            let first = to.since;
            let local = if to.now - first < GRANTED { Local::Ready } else { Local::Unreserved };
            let first = if local == Local::Ready { first } else { to.now };
            *to.slot_mut(who, at) = Slot { local, first, ..Slot::default() };
            go(Label { who: Some(who), what: GRANTS, record: Some(at) }, to);
        }
    }

    /// What is to be written, in one transaction: one of it, or all.
    fn commit(&self, state: &State, who: u8, go: Go<'_>) {
        let is_pending = |at: &u8| matches!(state.slot(who, *at).local, Local::Unreserved | Local::Decided(_));
        let pending: Vec<u8> = (0..self.count()).filter(is_pending).collect();
        let one = pending.iter().map(|at| (COMMITS, vec![*at]));
        let all = (pending.len() > 1).then(|| (COMMITS_ALL, pending.clone()));
        for (what, records) in one.chain(all) {
            let label = |what| Label { who: Some(who), what, record: (records.len() == 1).then(|| records[0]) };
            let mut to = *state;
            self.write(&mut to, who, &records);
            go(label(what), to);
            if state.left.commits == 0 {
                continue;
            }
            for (what, mut to) in [(COMMIT_LOST, to), (ABORTED, *state)] {
                to.left.commits -= 1;
                to.orphan(who);
                self.restore(&mut to, who);
                go(label(what), to);
            }
        }
    }

    fn write(&self, state: &mut State, who: u8, records: &[u8]) {
        for &at in records {
            match state.slot(who, at).local {
                Local::Decided(outcome) => self.settle(state, who, at, outcome),
                _ => self.reserve(state, who, at),
            }
        }
        self.advance(state, who);
    }

    fn reserve(&self, state: &mut State, who: u8, at: u8) {
        let (record, now) = (*self.record(at), state.now);
        let slot = state.slot_mut(who, at);
        if slot.acted == Acted::No {
            slot.first = now;
        }
        slot.local = Local::Ready;
        let first = slot.first;
        let entry = state.entry(record.identity);
        entry.reserved = Some(Reservation { version: record.version, record: at, is_of_old_topic: false, first });
        if self.errs(Mistake::ReservationOverSettlement) {
            entry.settled = None;
        }
    }

    fn settle(&self, state: &mut State, who: u8, at: u8, outcome: Outcome) {
        let (record, slot) = (*self.record(at), *state.slot(who, at));
        let seen = self.stream_time(state, who, at);
        let settlement = |what| Some(Settlement { what, version: record.version, record: Some(at), seen });
        self.check_settlement(state, at, outcome);
        let entry = *state.entry(record.identity);
        let is_own = entry.reserved.is_some_and(|reserved| reserved.record == at && !reserved.is_of_old_topic);
        let settled = match outcome {
            Outcome::Done => settlement(Settled::Done),
            Outcome::Rejected | Outcome::InDoubt => settlement(Settled::Failed),
            Outcome::Exhausted if self.errs(Mistake::ExhaustedIsDone) => settlement(Settled::Failed),
            Outcome::Exhausted if slot.acted != Acted::No && !self.errs(Mistake::ExhaustedForgotten) => {
                settlement(Settled::GivenUp { first: slot.first })
            }
            // Nothing has happened, and what was there before stays.
            Outcome::Exhausted => entry.settled,
            Outcome::Duplicate | Outcome::Stale | Outcome::Invalid | Outcome::Late => {
                return self.note(state, who, at, outcome, &entry);
            }
        };
        let reserved = entry.reserved.filter(|_| !is_own && settled == entry.settled);
        *state.entry(record.identity) = Entry { settled, reserved };
        self.note(state, who, at, outcome, &entry);
    }

    /// Notes what became of a record, and what was written for it.
    fn note(&self, state: &mut State, who: u8, at: u8, outcome: Outcome, entry: &Entry) {
        let place = usize::from(at);
        let is_done = entry.settled.is_some_and(|settled| settled.what == Settled::Done);
        match outcome {
            Outcome::Done => state.results[place] += 1,
            Outcome::Duplicate if is_done => state.results[place] += 1,
            Outcome::Rejected | Outcome::InDoubt | Outcome::Exhausted | Outcome::Invalid | Outcome::Late => {
                state.letters[place] += 1;
            }
            Outcome::Duplicate | Outcome::Stale => {}
        }
        if state.verdicts[place].replace(Verdict::Settled(outcome)).is_some() {
            state.fail("TWICE: a record is settled a second time");
        }
        *state.slot_mut(who, at) = Slot { local: Local::Settled, ..Slot::default() };
        state.list |= 1 << at;
    }

    /// What may not be settled so.
    fn check_settlement(&self, state: &mut State, at: u8, outcome: Outcome) {
        let record = self.record(at);
        let has_acted = state.acts[usize::from(record.effect)] > 0;
        let has_left = state.sent >> at & 1 == 1;
        let others: Vec<Outcome> = (0..self.count())
            .filter(|other| *other != at && self.record(*other).effect == record.effect)
            .filter_map(|other| match state.verdicts[usize::from(other)] {
                Some(Verdict::Settled(outcome)) => Some(outcome),
                _ => None,
            })
            .collect();
        let is_first = others.is_empty() && state.entry(record.identity).settled.is_none_or(|of| of.record.is_some());
        let was_undisturbed = state.left.kills == self.faults.kills
            && state.left.freezes == self.faults.freezes
            && state.left.commits == self.faults.commits;
        match outcome {
            Outcome::Rejected if has_acted => state.fail("REJECTED AFTER ALL: what has acted is settled as rejected"),
            Outcome::InDoubt if !has_left && was_undisturbed && !self.has_key && self.before.is_none() => {
                state.fail("NEVER SENT: a call that nobody has made is in doubt");
            }
            Outcome::Late if has_left => state.fail("LATE: a record that was called is late"),
            Outcome::Duplicate if is_first => state.fail("FIRST: a record is a duplicate of what was never settled"),
            Outcome::Duplicate if others.iter().all(|of| *of == Outcome::Exhausted) && !others.is_empty() => {
                state.fail("FORGOTTEN: a record is a duplicate of a call that was given up");
            }
            _ => {}
        }
    }

    /// Writes the end of the settled prefix, with stream time there.
    pub(super) fn advance(&self, state: &mut State, who: u8) {
        let owner = *state.owner(who);
        let is_settled = |at: &u8| owner.slots[usize::from(*at)].local == Local::Settled;
        let end = if self.errs(Mistake::OffsetBeyond) {
            (owner.start..self.count()).filter(is_settled).map(|at| at + 1).max().unwrap_or(owner.start)
        } else {
            (owner.start..self.count()).find(|at| !is_settled(at)).unwrap_or(self.count().max(owner.start))
        };
        state.offset = end;
        state.prefix = state.prefix.max(end);
        if state.verdicts[..usize::from(state.prefix)].contains(&None) {
            state.fail("SKIPPED: the offset has passed a record that is not settled");
        }
        let counts = |at: &u8| match self.errs(Mistake::StreamTimeBeyond) {
            true => owner.slots[usize::from(*at)].local != Local::New,
            false => *at < end,
        };
        let time = (owner.start..self.count()).filter(counts).filter_map(|at| self.record(at).time).max();
        state.time = state.time.max(owner.time).max(time.unwrap_or(0));
        if self.errs(Mistake::NoList) {
            state.list = 0;
        }
    }

    /// Sends what is ready, as a zombie too: nobody can fence a request.
    fn send(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        let under_way = owner.slots.iter().filter(|slot| slot.local == Local::Sent).count();
        for at in 0..self.count() {
            let slot = *state.slot(who, at);
            if slot.local != Local::Ready || under_way >= IN_FLIGHT {
                continue;
            }
            let mut to = *state;
            let looks = self.has_key && !self.errs(Mistake::NoLookAtWindow);
            if looks && !self.is_honoured(state, slot.first) {
                match slot.acted {
                    Acted::No if owner.is_current => to.slot_mut(who, at).local = Local::Unreserved,
                    // An heir may have sent it.
                    Acted::No => {
                        to.orphan(who);
                        *to.owner_mut(who) = Owner::default();
                    }
                    _ => to.slot_mut(who, at).local = Local::Decided(Outcome::InDoubt),
                }
                go(Label { who: Some(who), what: TOO_LATE, record: Some(at) }, to);
                continue;
            }
            let is_same = |other: u8| {
                other != at
                    && state.slot(who, other).local == Local::Sent
                    && self.record(other).identity == self.record(at).identity
            };
            if (0..self.count()).any(is_same) {
                to.fail("TWO AT ONCE: two calls of one identity are under way");
            }
            to.sent |= 1 << at;
            let to_slot = to.slot_mut(who, at);
            to_slot.local = Local::Sent;
            to_slot.acted = to_slot.acted.max(Acted::Now);
            to_slot.attempts = ATTEMPTS.min(slot.attempts + 1);
            go(Label { who: Some(who), what: SENDS, record: Some(at) }, to);
        }
    }

    /// Whatever a former owner wants to write is refused.
    fn be_fenced(&self, state: &State, who: u8, go: Go<'_>) {
        let mut to = *state;
        to.orphan(who);
        *to.owner_mut(who) = Owner::default();
        go(Label { who: Some(who), what: GIVES_UP, record: None }, to);
        if !self.errs(Mistake::ZombieSettles) {
            return;
        }
        for at in 0..self.count() {
            if let Local::Decided(outcome) = state.slot(who, at).local {
                let mut to = *state;
                self.settle(&mut to, who, at, outcome);
                go(Label { who: Some(who), what: ZOMBIE_COMMITS, record: Some(at) }, to);
            }
        }
    }

    /// Waits for calls that are under way, then releases, in one transaction, what was reserved and never sent.
    fn stop(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = *state.owner(who);
        if state.left.stops == 0 || owner.slots.iter().any(|slot| slot.local == Local::Sent) {
            return;
        }
        let mut to = *state;
        to.left.stops -= 1;
        if !self.errs(Mistake::NoRelease) {
            for at in 0..self.count() {
                let slot = owner.slots[usize::from(at)];
                let entry = to.entry(self.record(at).identity);
                let is_own = entry.reserved.is_some_and(|reserved| reserved.record == at && !reserved.is_of_old_topic);
                if slot.local == Local::Ready && slot.acted == Acted::No && is_own {
                    entry.reserved = None;
                }
            }
        }
        *to.owner_mut(who) = Owner::default();
        go(Label { who: Some(who), what: STOPS, record: None }, to);
    }
}
