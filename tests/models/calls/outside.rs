//! What the provider, the group, time and people do.

use super::owner::{ABORTED, COMMIT_LOST, STOPS};
use super::state::{Acted, Keys, Local, Outcome, Owner, Run, State, Verdict};
use super::{ATTEMPTS, Calls, InDoubt, Label, Mistake, RETENTION};

pub const ANSWERS: &str = "the provider answers";
pub const ANSWER_LOST: &str = "the provider has acted, and its answer is lost";
pub const TIMED_OUT: &str = "the provider has not acted, and does not answer";
pub const NOT_SENT: &str = "the request was not sent, or comes too early";
pub const REJECTED: &str = "the provider rejects it";
pub const ARRIVES: &str = "a request of an instance that is gone arrives";
pub const LOST: &str = "a request of an instance that is gone is lost";
pub const TICKS: &str = "time passes";
pub const KILLED: &str = "is killed";
pub const FREEZES: &str = "freezes";
pub const RESET: &str = "the group is reset to the beginning";
pub const VANISHES: &str = "the input loses its first record";
pub const SWEPT: &str = "what has expired is removed";

/// What an end has to be reached without.
pub const FAULTS: [&str; 12] =
    [ANSWER_LOST, TIMED_OUT, NOT_SENT, REJECTED, KILLED, FREEZES, RESET, VANISHES, COMMIT_LOST, ABORTED, STOPS, TICKS];

type Go<'a> = &'a mut dyn FnMut(Label, State);

impl Calls {
    pub(super) fn outside_steps(&self, state: &State, go: Go<'_>) {
        for who in 0..state.owners.len() as u8 {
            if state.owner(who).run != Run::Down {
                (0..self.count()).for_each(|at| self.answer(state, who, at, go));
            }
            self.strike(state, who, go);
        }
        for at in 0..self.count() {
            if state.orphans[usize::from(at)] > 0 {
                let mut lost = *state;
                lost.orphans[usize::from(at)] -= 1;
                let mut arrived = lost;
                self.act(&mut arrived, at);
                go(Label { who: None, what: ARRIVES, record: Some(at) }, arrived);
                go(Label { who: None, what: LOST, record: Some(at) }, lost);
            }
        }
        self.pass_time(state, go);
    }

    /// A request is carried out, unless its key is known.
    fn act(&self, state: &mut State, at: u8) {
        let effect = self.record(at).effect;
        let key = match self.keys() {
            Keys::None => None,
            Keys::Records => Some(usize::from(at)),
            Keys::Effects => Some(usize::from(effect)),
        };
        if let Some(key) = key {
            if state.keys[key].is_some_and(|seen| self.is_honoured(state, seen)) {
                return;
            }
            state.keys[key] = Some(state.now);
        }
        let acts = &mut state.acts[usize::from(effect)];
        *acts = (*acts + 1).min(3);
        if *acts > 1 && self.promises_once() {
            state.fail("TWICE: an effect has happened a second time");
        }
    }

    fn answer(&self, state: &State, who: u8, at: u8, go: Go<'_>) {
        if state.slot(who, at).local != Local::Sent {
            return;
        }
        let label = |what| Label { who: Some(who), what, record: Some(at) };
        let decide = |to: &mut State, outcome| to.slot_mut(who, at).local = Local::Decided(outcome);
        let mut to = *state;
        self.act(&mut to, at);
        decide(&mut to, Outcome::Done);
        go(label(ANSWERS), to);
        if state.left.answers == 0 {
            return;
        }
        let mut failed = *state;
        failed.left.answers -= 1;
        let mut to = failed;
        self.act(&mut to, at);
        self.take_ambiguous(&mut to, who, at);
        go(label(ANSWER_LOST), to);
        let mut to = failed;
        self.take_ambiguous(&mut to, who, at);
        go(label(TIMED_OUT), to);
        let mut to = failed;
        let slot = to.slot_mut(who, at);
        if slot.acted == Acted::Now {
            slot.acted = Acted::No;
        }
        slot.local = match self.faults.exhausts && slot.attempts >= ATTEMPTS {
            true => Local::Decided(Outcome::Exhausted),
            false => Local::Ready,
        };
        go(label(NOT_SENT), to);
        if self.faults.rejects {
            let mut to = failed;
            let may_have_acted = state.slot(who, at).acted == Acted::Before && !self.errs(Mistake::RejectedAfterAll);
            decide(&mut to, if may_have_acted { Outcome::InDoubt } else { Outcome::Rejected });
            go(label(REJECTED), to);
        }
    }

    /// An answer that does not say whether the provider has acted.
    fn take_ambiguous(&self, state: &mut State, who: u8, at: u8) {
        let is_honoured = self.is_honoured(state, state.slot(who, at).first);
        let asks = !self.has_key && self.in_doubt == InDoubt::DeadLetter && !self.errs(Mistake::AmbiguousAgain);
        let slot = state.slot_mut(who, at);
        slot.acted = Acted::Before;
        slot.local = match () {
            () if asks => Local::Decided(Outcome::InDoubt),
            () if self.faults.exhausts && slot.attempts >= ATTEMPTS => Local::Decided(Outcome::Exhausted),
            () if self.has_key && !is_honoured => Local::Decided(Outcome::InDoubt),
            () => Local::Ready,
        };
    }

    fn strike(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        let label = |what| Label { who: Some(who), what, record: None };
        if owner.run == Run::Live && state.left.kills > 0 {
            let mut to = *state;
            to.left.kills -= 1;
            to.orphan(who);
            *to.owner_mut(who) = Owner::default();
            go(label(KILLED), to);
        }
        if owner.run == Run::Live && owner.is_current && state.left.freezes > 0 {
            let mut to = *state;
            to.left.freezes -= 1;
            to.owner_mut(who).run = Run::Frozen;
            go(label(FREEZES), to);
        }
    }

    fn pass_time(&self, state: &State, go: Go<'_>) {
        let label = |what| Label { who: None, what, record: None };
        // A call is over within a tick.
        if state.now < self.faults.ticks && (self.faults.lingers || !state.has_requests()) {
            let mut to = *state;
            to.now += 1;
            go(label(TICKS), to);
        }
        let is_owned = state.owners.iter().any(|owner| owner.run == Run::Live && owner.is_current);
        // The group has to be without members then: one that is frozen is one no more.
        if state.left.resets > 0 && !is_owned && state.offset > 0 {
            let mut to = *state;
            to.left.resets -= 1;
            to.offset = 0;
            to.owners.iter_mut().for_each(|owner| owner.is_current = false);
            go(label(RESET), to);
        }
        if state.left.vanish > 0
            && state.input < self.count()
            && state.owners.iter().all(|owner| owner.run == Run::Down)
        {
            let mut to = *state;
            to.left.vanish -= 1;
            to.verdicts[usize::from(to.input)].get_or_insert(Verdict::Gone);
            to.input += 1;
            go(label(VANISHES), to);
        }
        if self.faults.sweeps && is_owned {
            for (number, entry) in state.entries.iter().enumerate() {
                let has_expired = entry.settled.is_some_and(|settled| settled.seen + RETENTION < state.time);
                if has_expired && entry.reserved.is_none() {
                    let mut to = *state;
                    to.entries[number].settled = None;
                    go(label(SWEPT), to);
                }
            }
        }
    }
}
