//! What an instance writes: transactions of reservations, grants and settlements.

use super::mistake::Mistake;
use super::owner::Go;
use super::state::{Acted, Entry, Local, Outcome, Reservation, Settled, Settlement, Slot, State, Verdict, Version};
use super::{Calls, GRANTED, Label, Reserve};

pub const BEGINS: &str = "begins a transaction";
pub const COMMITS: &str = "commits one";
pub const COMMITS_SEVERAL: &str = "commits several";
pub const COMMIT_LOST: &str = "commits, and does not hear of it; restores";
pub const ABORTED: &str = "its transaction is aborted, and it does not hear of it; restores";
pub const TAKEN_BACK: &str = "its transaction is aborted; goes on with its window";
pub const RENEWS: &str = "renews its grants";

impl Calls {
    /// What is to be written, in one transaction: any of it.
    pub(super) fn write_steps(&self, state: &State, who: u8, go: Go<'_>) {
        self.renew(state, who, go);
        let is_pending =
            |at: &u8| matches!(state.slot(who, *at).local, Local::Ungranted | Local::Unreserved | Local::Decided(_));
        let pending = (0..self.count()).filter(is_pending).fold(0_u8, |records, at| records | 1 << at);
        for records in (1..=pending).filter(|records| records & !pending == 0) {
            let mut to = *state;
            self.begin_transaction(&mut to, who, records);
            if self.apart {
                go(label(who, BEGINS, records), to);
            } else {
                self.end_transaction(&to, who, go);
            }
        }
    }

    /// What a transaction says of time is of when it is begun.
    fn begin_transaction(&self, state: &mut State, who: u8, records: u8) {
        let (now, renews) = (state.now, self.may_renew(state, who));
        let owner = state.owner_mut(who);
        (owner.writing, owner.begun, owner.renews) = (records, now, renews);
        for (at, slot) in owner.slots.iter_mut().enumerate() {
            if records >> at & 1 == 1 && slot.local == Local::Unreserved {
                slot.first.get_or_insert(now);
            }
        }
    }

    /// It is committed, aborted, or nobody knows.
    pub(super) fn end_transaction(&self, state: &State, who: u8, go: Go<'_>) {
        let records = state.owner(who).writing;
        let what = if records.count_ones() > 1 { COMMITS_SEVERAL } else { COMMITS };
        let mut written = *state;
        self.write(&mut written, who, records);
        if self.apart {
            let mut to = *state;
            self.take_back(&mut to, who);
            go(label(who, TAKEN_BACK, records), to);
        }
        if self.errs(Mistake::CalledAhead) {
            self.call_ahead(state, &written, who, go);
        }
        self.end_unheard(state, &written, who, label(who, what, records), go);
        go(label(who, what, records), written);
    }

    /// The transaction's answer is lost: the owner restores, once it is decided.
    pub(super) fn end_unheard(&self, state: &State, written: &State, who: u8, on: Label, go: Go<'_>) {
        if state.left.commits == 0 {
            return;
        }
        for (what, mut to) in [(COMMIT_LOST, *written), (ABORTED, *state)] {
            to.left.commits -= 1;
            if self.errs(Mistake::KeptAfterUnknown) {
                *to.owner_mut(who) = *state.owner(who);
                self.take_back(&mut to, who);
            } else {
                self.restore(&mut to, who);
            }
            go(Label { what, ..on }, to);
        }
    }

    /// The transaction has certainly not been committed: the window is as it was.
    fn take_back(&self, state: &mut State, who: u8) {
        let owner = state.owner_mut(who);
        for (at, slot) in owner.slots.iter_mut().enumerate() {
            if owner.writing >> at & 1 == 1 && slot.local == Local::Unreserved {
                match slot.acted {
                    _ if self.errs(Mistake::AbortedIsReserved) => slot.local = Local::Ready,
                    Acted::No => slot.first = None,
                    // It may have been made anew; if not, the first attempt was earlier.
                    Acted::Now | Acted::Before => slot.first = slot.first.filter(|first| *first < owner.begun),
                }
            }
        }
        (owner.writing, owner.begun, owner.renews) = (0, 0, false);
    }

    /// By mistake: a record that is judged by what an aborted transaction would have settled stays as it was judged.
    fn call_ahead(&self, state: &State, written: &State, who: u8, go: Go<'_>) {
        self.judge_next(written, who, &mut |label, judged| {
            let at = label.record.expect("a record is judged");
            let mut to = *state;
            *to.slot_mut(who, at) = *judged.slot(who, at);
            self.take_back(&mut to, who);
            go(Label { what: TAKEN_BACK, ..label }, to);
        });
    }

    fn write(&self, state: &mut State, who: u8, records: u8) {
        let is_in = |at: &u8| records >> at & 1 == 1;
        for at in (0..self.count()).filter(is_in) {
            match state.slot(who, at).local {
                Local::Decided(outcome) => self.settle(state, who, at, outcome),
                Local::Unreserved => self.reserve(state, who, at),
                _ => {}
            }
        }
        self.advance(state, who);
        self.grant(state, who, records);
        let owner = state.owner_mut(who);
        (owner.writing, owner.begun, owner.renews) = (0, 0, false);
    }

    /// The position record says up to where calls may go from now on.
    fn grant(&self, state: &mut State, who: u8, records: u8) {
        let begun = state.owner(who).begun;
        for at in 0..self.count() {
            if records >> at & 1 == 0 || state.slot(who, at).local != Local::Ungranted {
                continue;
            }
            if state.prefix >= state.granted || state.owner(who).renews {
                state.since = begun;
            }
            state.granted = state.granted.max(at + 1).max(self.count().min(state.prefix + 2));
            let is_fresh = state.now - state.since < GRANTED;
            let (local, first) = if is_fresh { (Local::Ready, Some(state.since)) } else { (Local::Unreserved, None) };
            *state.slot_mut(who, at) = Slot { local, first, ..Slot::default() };
        }
    }

    /// A grant may be renewed where nothing can have been sent under it: neither by this owner, nor by a former one.
    fn may_renew(&self, state: &State, who: u8) -> bool {
        let owner = state.owner(who);
        let is_unsent = |slot: &Slot| match slot.local {
            Local::New | Local::Settled | Local::Ungranted | Local::Waiting => true,
            Local::Unreserved => slot.acted == Acted::No,
            Local::Ready | Local::Sent | Local::Decided(_) => false,
        };
        let is_empty = owner.slots.iter().all(is_unsent) || self.errs(Mistake::RenewedForSent);
        is_empty && (state.prefix >= owner.granted_before || self.errs(Mistake::RenewedForFormer))
    }

    fn renew(&self, state: &State, who: u8, go: Go<'_>) {
        let is_of_use = self.reserve == Reserve::Auto && state.since < state.now && state.prefix < state.granted;
        if is_of_use && self.may_renew(state, who) {
            let mut to = *state;
            to.since = to.now;
            go(label(who, RENEWS, 0), to);
        }
    }

    fn reserve(&self, state: &mut State, who: u8, at: u8) {
        if !self.errs(Mistake::ScopeWithSettlement) {
            self.note_scope(state, who, at);
        }
        let (record, version) = (*self.record(at), self.version(state, who, at));
        let (begun, seen) = (state.owner(who).begun, self.stream_time(state, who, at));
        let slot = state.slot_mut(who, at);
        slot.local = Local::Ready;
        let first = slot.first.expect("said when the transaction was begun");
        if slot.acted != Acted::No && first == begun {
            let allowed = &mut state.allowed[usize::from(record.effect)];
            *allowed = (*allowed + 1).min(4);
        }
        let entry = state.entry(record.identity);
        let older = entry.reserved.filter(|reserved| !reserved.is_of(at) && reserved.version < version);
        if let Some(Reservation { version, first, .. }) = older.filter(|_| !self.errs(Mistake::ReservationDropped)) {
            let what = Settled::GivenUp { first };
            entry.settled = Some(Settlement { what, version, record: None, seen, result: 0 });
        }
        entry.reserved = Some(Reservation { version, record: at, is_of_old_topic: false, first });
        if self.errs(Mistake::ReservationOverSettlement) {
            entry.settled = None;
        }
    }

    pub(super) fn settle(&self, state: &mut State, who: u8, at: u8, outcome: Outcome) {
        if !matches!(outcome, Outcome::Invalid | Outcome::Late) {
            self.note_scope(state, who, at);
        }
        let (record, slot) = (*self.record(at), *state.slot(who, at));
        let (seen, version) = (self.stream_time(state, who, at), self.version(state, who, at));
        let result = if self.errs(Mistake::ResultNotKept) { 0 } else { slot.result };
        let settlement = |what| Some(Settlement { what, version, record: Some(at), seen, result });
        self.check_settlement(state, at, &slot, outcome);
        let entry = *state.entry(record.identity);
        let is_own = entry.reserved.is_some_and(|reserved| reserved.is_of(at));
        let settled = match outcome {
            Outcome::Done => settlement(Settled::Done),
            Outcome::Rejected | Outcome::InDoubt => settlement(Settled::Failed),
            Outcome::Exhausted if self.errs(Mistake::ExhaustedIsDone) => settlement(Settled::Failed),
            Outcome::Exhausted if slot.acted != Acted::No && !self.errs(Mistake::ExhaustedForgotten) => {
                settlement(Settled::GivenUp { first: slot.first.expect("it was sent") })
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

    /// Notes what became of a record, and writes its result.
    fn note(&self, state: &mut State, who: u8, at: u8, outcome: Outcome, entry: &Entry) {
        if state.verdicts[usize::from(at)].replace(Verdict::Settled(outcome)).is_some() {
            state.fail("TWICE: a record is settled a second time");
        }
        let done = entry.settled.filter(|settled| settled.what == Settled::Done && settled.record.is_some());
        match (outcome, done) {
            (Outcome::Done, _) if self.errs(Mistake::ResultAhead) => {}
            (Outcome::Done, _) => self.check_result(state, at, state.slot(who, at).result),
            (Outcome::Duplicate, Some(done)) => self.check_result(state, at, done.result),
            _ => {}
        }
        *state.slot_mut(who, at) = Slot { local: Local::Settled, ..Slot::default() };
        state.list |= 1 << at;
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
        self.write_scopes(state, who, end);
    }

    /// A record's version, as it is compared; a scope that starts with it has the next number.
    pub(super) fn version(&self, state: &State, who: u8, at: u8) -> Version {
        let (record, scopes) = (self.record(at), &state.owner(who).scopes);
        let next = scopes.iter().flatten().count() as u8;
        Version { scope: scopes[usize::from(record.scope)].unwrap_or(next), number: record.version }
    }

    pub(super) fn note_scope(&self, state: &mut State, who: u8, at: u8) {
        let scope = self.version(state, who, at).scope;
        state.owner_mut(who).scopes[usize::from(self.record(at).scope)] = Some(scope);
    }

    /// The position record's scopes are those at the end of the settled prefix. Whatever its owner knows of has started
    /// there.
    fn write_scopes(&self, state: &mut State, who: u8, end: u8) {
        for (scope, number) in state.owner(who).scopes.into_iter().enumerate() {
            let start = self.records.iter().position(|record| usize::from(record.scope) == scope);
            let is_beyond = start.is_some_and(|start| start >= usize::from(end));
            if number.is_some() && !(is_beyond && self.errs(Mistake::NoBarrier)) {
                state.scopes[scope] = number;
            }
        }
    }
}

fn label(who: u8, what: &'static str, records: u8) -> Label {
    let record = (records.count_ones() == 1).then(|| records.trailing_zeros() as u8);
    Label { who: Some(who), what, record }
}
