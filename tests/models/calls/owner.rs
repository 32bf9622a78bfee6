//! What an instance does with its task, but for what it writes.

use super::mistake::Mistake;
use super::state::{Acted, Local, Outcome, Owner, Run, State};
use super::{ATTEMPTS, Calls, IN_FLIGHT, InDoubt, Label};

pub const TAKES_OVER: &str = "takes the task over and restores";
pub const WAKES: &str = "wakes up";
pub const SENDS: &str = "sends";
pub const GOES_ON: &str = "judges while its transaction is being committed";
pub const TOO_LATE: &str = "the key's window has passed before it sends";
pub const GIVES_UP: &str = "is fenced, and gives up";
pub const ZOMBIE_COMMITS: &str = "commits though another owns the task";
pub const STOPS: &str = "stops in order";
pub const REVOKED: &str = "its task is revoked";

pub type Go<'a> = &'a mut dyn FnMut(Label, State);

impl Calls {
    pub(super) fn owner_steps(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        match owner.run {
            Run::Down => self.take_over(state, who, go),
            Run::Frozen => {
                let mut to = *state;
                to.owner_mut(who).run = Run::Live;
                go(Label { who: Some(who), what: WAKES, record: None }, to);
            }
            Run::Live => {
                self.send(state, who, go);
                match (owner.is_current, owner.writing) {
                    (true, 0) => {
                        self.judge_next(state, who, go);
                        self.write_steps(state, who, go);
                        self.obey(state, who, go);
                        self.stop(state, who, go);
                        self.be_revoked(state, who, go);
                    }
                    (true, _) => {
                        self.judge_next(state, who, &mut |label, to| go(Label { what: GOES_ON, ..label }, to));
                        self.end_transaction(state, who, go);
                    }
                    (false, _) => self.be_fenced(state, who, go),
                }
            }
        }
    }

    fn take_over(&self, state: &State, who: u8, go: Go<'_>) {
        let other = state.owner(1 - who);
        let is_owned = other.run == Run::Live && other.is_current;
        // The second instance is there for what has happened to the first.
        let is_wanted = who == 0 || *other != Owner::default();
        if is_owned || !is_wanted || self.is_done(state) {
            return;
        }
        let mut to = *state;
        to.owner_mut(1 - who).is_current = false;
        self.restore(&mut to, who);
        go(Label { who: Some(who), what: TAKES_OVER, record: None }, to);
    }

    /// Whether everything is worked through.
    pub(super) fn is_done(&self, state: &State) -> bool {
        let is_obeyed = state.order.is_noted || !state.order.is_given;
        let is_told = state.owners.iter().all(|owner| !owner.owes);
        state.prefix >= self.count() && state.offset >= self.count() && is_obeyed && is_told
    }

    /// Begins anew with what is committed.
    pub(super) fn restore(&self, state: &mut State, who: u8) {
        state.lose(who, self.errs(Mistake::RejectionOutlives));
        let (start, time, granted_before) = (state.offset.max(state.input), state.time, state.granted);
        let (run, scopes, left) = (Run::Live, state.scopes, *state.owner(who));
        *state.owner_mut(who) = Owner { run, is_current: true, start, time, granted_before, scopes, ..left };
        // By the transaction that names the new owner.
        self.advance(state, who);
    }

    /// Sends what is ready, as a zombie too: nobody can fence a request.
    fn send(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        let under_way = owner.slots.iter().filter(|slot| slot.local == Local::Sent).count();
        let room = match owner.is_holding {
            true if self.errs(Mistake::NoProbe) => 0,
            true => 1,
            false => IN_FLIGHT,
        };
        for at in 0..self.count() {
            let slot = *state.slot(who, at);
            if slot.local != Local::Ready || under_way >= room {
                continue;
            }
            let mut to = *state;
            let first = slot.first.expect("what is ready was permitted");
            if self.has_key && !self.errs(Mistake::NoLookAtWindow) && !self.is_honoured(state, first) {
                self.be_too_late(&mut to, who, at);
                go(Label { who: Some(who), what: TOO_LATE, record: Some(at) }, to);
                continue;
            }
            self.check_order(&mut to, at);
            to.sent |= 1 << at;
            let to_slot = to.slot_mut(who, at);
            to_slot.local = Local::Sent;
            to_slot.acted = to_slot.acted.max(Acted::Now);
            to_slot.attempts = ATTEMPTS.min(slot.attempts + 1);
            go(Label { who: Some(who), what: SENDS, record: Some(at) }, to);
        }
    }

    /// The key's window has passed before a request was written.
    fn be_too_late(&self, state: &mut State, who: u8, at: u8) {
        let is_current = state.owner(who).is_current;
        let slot = state.slot_mut(who, at);
        match slot.acted {
            Acted::No if self.errs(Mistake::HeldTimeCounts) => slot.local = Local::Decided(Outcome::InDoubt),
            Acted::No if is_current => (slot.local, slot.first) = (Local::Unreserved, None),
            // An heir may have sent it.
            Acted::No => state.lose(who, self.errs(Mistake::RejectionOutlives)),
            Acted::Now | Acted::Before => self.doubt_late(state, who, at),
        }
    }

    /// An attempt may have acted, and no key makes another one safe.
    pub(super) fn doubt_late(&self, state: &mut State, who: u8, at: u8) {
        let now = state.now;
        let slot = state.slot_mut(who, at);
        match self.in_doubt {
            InDoubt::DeadLetter => slot.local = Local::Decided(Outcome::InDoubt),
            InDoubt::Retry if self.errs(Mistake::RetryInDoubt) => slot.local = Local::Decided(Outcome::InDoubt),
            // Without a key there is no window to begin anew.
            InDoubt::Retry if !self.has_key => slot.local = Local::Ready,
            InDoubt::Retry if self.errs(Mistake::RetryKeepsFirst) => slot.local = Local::Unreserved,
            InDoubt::Retry if self.errs(Mistake::RetryUnreserved) => {
                (slot.local, slot.first) = (Local::Ready, Some(now))
            }
            InDoubt::Retry => (slot.local, slot.first) = (Local::Unreserved, None),
        }
    }

    /// Whatever a former owner wants to write is refused.
    fn be_fenced(&self, state: &State, who: u8, go: Go<'_>) {
        let mut to = *state;
        to.lose(who, self.errs(Mistake::RejectionOutlives));
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

    /// Waits for calls that are under way, releases, and ends.
    fn stop(&self, state: &State, who: u8, go: Go<'_>) {
        if state.left.stops == 0 || state.owner(who).slots.iter().any(|slot| slot.local == Local::Sent) {
            return;
        }
        let mut to = *state;
        to.left.stops -= 1;
        if !self.errs(Mistake::NoRelease) {
            self.release(&mut to, who);
        }
        to.die(who);
        go(Label { who: Some(who), what: STOPS, record: None }, to);
    }

    /// Waits for calls that are under way, but not for ever, releases, and goes on without the task.
    fn be_revoked(&self, state: &State, who: u8, go: Go<'_>) {
        if state.left.revocations == 0 {
            return;
        }
        let mut to = *state;
        to.left.revocations -= 1;
        if !self.errs(Mistake::RevokedUnreleased) {
            self.release(&mut to, who);
        }
        to.lose(who, self.errs(Mistake::RejectionOutlives));
        go(Label { who: Some(who), what: REVOKED, record: None }, to);
    }

    /// Settles what is decided and releases what was reserved and certainly never sent, in one transaction.
    fn release(&self, state: &mut State, who: u8) {
        for at in 0..self.count() {
            let slot = *state.slot(who, at);
            let may_be_released = match slot.local {
                Local::Decided(_) if self.errs(Mistake::DecidedLeft) => false,
                Local::Decided(outcome) => {
                    self.settle(state, who, at, outcome);
                    false
                }
                Local::Ready | Local::Unreserved => slot.acted == Acted::No,
                Local::Sent => self.errs(Mistake::SentReleased),
                _ => false,
            };
            let entry = state.entry(self.record(at).identity);
            if may_be_released && entry.reserved.is_some_and(|reserved| reserved.is_of(at)) {
                entry.reserved = None;
            }
        }
        self.advance(state, who);
        if !self.errs(Mistake::GrantLeft) {
            self.shrink(state, who);
        }
    }

    /// Has the grant end behind the last call that may have been sent and is not settled: what nobody can have called
    /// need not be doubted. What former owners were granted stays: they may still call there.
    fn shrink(&self, state: &mut State, who: u8) {
        let owner = state.owner(who);
        let is_open = |at: &u8| {
            let slot = &owner.slots[usize::from(*at)];
            slot.attempts > 0 && slot.acted != Acted::No && slot.local != Local::Settled
        };
        let open_to = match self.errs(Mistake::ShrunkToNothing) {
            true => 0,
            false => (0..self.count()).filter(is_open).max().map_or(0, |at| at + 1),
        };
        let former_to = if self.errs(Mistake::ShrunkBelowFormer) { 0 } else { owner.granted_before };
        state.granted = state.granted.min(open_to.max(former_to));
    }
}
