//! What becomes of requests: what the provider does, and what it answers.

use super::mistake::Mistake;
use super::owner::Go;
use super::state::{Acted, Answered, Keys, Local, Outcome, State};
use super::{ATTEMPTS, Calls, InDoubt, Label};

pub const ANSWERS: &str = "the provider answers";
pub const ANSWER_LOST: &str = "the provider has acted, and its answer is lost";
pub const TIMED_OUT: &str = "the provider has not acted, and does not answer";
pub const NOT_SENT: &str = "the request was not sent, or comes too early";
pub const REJECTED: &str = "the provider rejects it";
pub const ARRIVES: &str = "a request of an instance that is gone arrives";
pub const LOST: &str = "a request of an instance that is gone is lost";
pub const ANSWERED_LATE: &str = "the provider answers a request from before";
pub const LOST_LATE: &str = "a request from before is lost, or its answer is";
pub const GOES_DOWN: &str = "the provider goes down";
pub const COMES_UP: &str = "the provider comes up";

impl Calls {
    pub(super) fn provider_steps(&self, state: &State, go: Go<'_>) {
        for who in 0..state.owners.len() as u8 {
            for at in 0..self.count() {
                if state.slot(who, at).local == Local::Sent {
                    self.answer(state, who, at, go);
                    self.fail(state, who, at, go);
                }
                if state.owner(who).under_way >> at & 1 == 1 {
                    self.answer_late(state, who, at, go);
                }
            }
        }
        for at in (0..self.count()).filter(|at| state.orphans[usize::from(*at)] > 0) {
            let mut lost = *state;
            lost.orphans[usize::from(at)] -= 1;
            go(Label { who: None, what: LOST, record: Some(at) }, lost);
            if !state.is_down {
                self.act(&mut lost, at);
                go(Label { who: None, what: ARRIVES, record: Some(at) }, lost);
            }
        }
        let mut to = *state;
        if state.is_down {
            to.is_down = false;
            go(Label { who: None, what: COMES_UP, record: None }, to);
        } else if state.left.downs > 0 {
            to.left.downs -= 1;
            to.is_down = true;
            go(Label { who: None, what: GOES_DOWN, record: None }, to);
        }
    }

    /// A request is carried out, unless its key is known; the result is a new one, unless its key is known.
    fn act(&self, state: &mut State, at: u8) -> u8 {
        let effect = usize::from(self.record(at).effect);
        let key = match self.keys() {
            Keys::None => None,
            Keys::Records => Some(usize::from(at)),
            Keys::Effects => Some(effect),
        };
        if let Some((seen, result)) = key.and_then(|key| state.keys[key])
            && self.is_honoured(state, seen)
        {
            return result;
        }
        let acts = (state.acts[effect] + 1).min(4);
        state.acts[effect] = acts;
        if let Some(key) = key {
            state.keys[key] = Some((state.now, acts));
        }
        if acts > state.allowed[effect] && self.promises_once() {
            state.fail("TWICE: an effect has happened a second time");
        }
        acts
    }

    fn answer(&self, state: &State, who: u8, at: u8, go: Go<'_>) {
        if state.is_down {
            return;
        }
        let mut to = *state;
        let result = self.act(&mut to, at);
        self.hear(&mut to, who);
        let slot = to.slot_mut(who, at);
        (slot.local, slot.result) = (Local::Decided(Outcome::Done), result);
        if self.errs(Mistake::ResultAhead) {
            self.check_result(&mut to, at, result);
        }
        go(Label { who: Some(who), what: ANSWERS, record: Some(at) }, to);
    }

    /// What may go wrong with a request: at any time while the provider is down, else now and then.
    fn fail(&self, state: &State, who: u8, at: u8, go: Go<'_>) {
        let label = |what| Label { who: Some(who), what, record: Some(at) };
        let mut failed = *state;
        if !state.is_down {
            if state.left.answers == 0 {
                return;
            }
            failed.left.answers -= 1;
            failed.slot_mut(who, at).has_failed = true;
            let mut to = failed;
            self.act(&mut to, at);
            self.be_ambiguous(&mut to, who, at);
            go(label(ANSWER_LOST), to);
            if self.faults.rejects {
                let mut to = failed;
                self.be_rejected(&mut to, who, at);
                go(label(REJECTED), to);
            }
        }
        let mut to = failed;
        self.be_ambiguous(&mut to, who, at);
        go(label(TIMED_OUT), to);
        let mut to = failed;
        let is_alone = to.orphans[usize::from(at)] == 0 && to.owners.iter().all(|owner| owner.under_way >> at & 1 == 0);
        if to.slot(who, at).acted == Acted::Now {
            to.slot_mut(who, at).acted = Acted::No;
            if is_alone {
                to.sent &= !(1 << at);
            }
        }
        self.go_again(&mut to, who, at);
        go(label(NOT_SENT), to);
    }

    /// An answer that does not say whether the provider has acted.
    fn be_ambiguous(&self, state: &mut State, who: u8, at: u8) {
        let asks = !self.has_key && self.in_doubt == InDoubt::DeadLetter && !self.errs(Mistake::AmbiguousAgain);
        state.slot_mut(who, at).acted = Acted::Before;
        match asks {
            true => state.slot_mut(who, at).local = Local::Decided(Outcome::InDoubt),
            false => self.go_again(state, who, at),
        }
    }

    /// A rejection says nothing about an attempt before.
    fn be_rejected(&self, state: &mut State, who: u8, at: u8) {
        self.hear(state, who);
        let slot = state.slot_mut(who, at);
        match (slot.acted, self.in_doubt) {
            _ if self.errs(Mistake::RejectedAfterAll) => slot.local = Local::Decided(Outcome::Rejected),
            (Acted::No | Acted::Now, _) => slot.local = Local::Decided(Outcome::Rejected),
            (Acted::Before, InDoubt::DeadLetter) => slot.local = Local::Decided(Outcome::InDoubt),
            (Acted::Before, InDoubt::Retry) => self.go_again(state, who, at),
        }
    }

    /// The call is made again, unless that was often enough. What a provider that is down leaves undone does not count.
    fn go_again(&self, state: &mut State, who: u8, at: u8) {
        let slot = state.slot_mut(who, at);
        let is_exhausted = self.faults.exhausts && slot.attempts >= ATTEMPTS;
        let holds = self.holds && !slot.is_answering && !self.errs(Mistake::LetterWhileDown);
        slot.local = if is_exhausted && !holds { Local::Decided(Outcome::Exhausted) } else { Local::Ready };
        state.owner_mut(who).is_holding |= is_exhausted && holds;
    }

    /// A request that its instance has sent before it had to restore, or lost the task.
    fn answer_late(&self, state: &State, who: u8, at: u8, go: Go<'_>) {
        let label = |what| Label { who: Some(who), what, record: Some(at) };
        let mut to = *state;
        to.owner_mut(who).under_way &= !(1 << at);
        go(label(LOST_LATE), to);
        if state.is_down {
            return;
        }
        let result = self.act(&mut to, at);
        go(label(LOST_LATE), to);
        to.owner_mut(who).answered[usize::from(at)] = Some(Answered::Done { result });
        go(label(ANSWERED_LATE), to);
    }

    /// The provider is alive. That counts for a call from the end of its first failure on: it may have gone down since
    /// the attempt was sent.
    fn hear(&self, state: &mut State, who: u8) {
        let is_early = self.errs(Mistake::AliveSinceSent);
        let owner = state.owner_mut(who);
        owner.is_holding = false;
        for slot in &mut owner.slots {
            slot.is_answering |= match slot.local {
                Local::Ready => slot.attempts > 0,
                Local::Sent => slot.attempts > 1 || is_early,
                _ => false,
            };
        }
    }
}
