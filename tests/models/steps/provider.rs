//! What becomes of a step that was begun: what the provider or the database does, and what it answers.

use super::mistake::Mistake;
use super::owner::Go;
use super::state::{Acted, Effect, Run, Stage, State, StepResult, Work};
use super::{Label, Next, Steps};

pub const ACTS: &str = "it is done";
pub const TIMED_OUT: &str = "nothing is heard of it";
pub const PUT_OFF: &str = "it has certainly not been done";
pub const REJECTED: &str = "it is rejected";
pub const ARRIVES: &str = "what nobody waits for is done";
pub const LOST: &str = "what nobody waits for is lost";

impl Steps {
    pub(super) fn provider_steps(&self, state: &State, go: Go<'_>) {
        for who in 0..state.owners.len() as u8 {
            let Run { stage: Stage::Begun, version, known, .. } = *state.run(who) else { continue };
            let Next::Work(work) = self.next(&known) else { unreachable!("something was begun") };
            let effect = Effect { version, work };
            self.answer(state, who, effect, go);
            self.fail(state, who, effect, go);
        }
        for effect in Effect::all().filter(|effect| state.orphans[effect.at()] > 0) {
            let label = |what| Label { who: None, what, effect: Some(effect) };
            let mut to = *state;
            to.orphans[effect.at()] -= 1;
            go(label(LOST), to);
            self.act(&mut to, effect);
            go(label(ARRIVES), to);
        }
    }

    /// It happens, unless its row is there or its key is known; the result is a new one, unless it does not happen.
    fn act(&self, state: &mut State, effect: Effect) -> StepResult {
        let at = effect.at();
        let is_transaction = self.is_transaction(effect.work);
        if let Some(row) = state.rows[at] {
            return row;
        }
        if let Some((seen, result)) = state.keys[at]
            && self.is_honoured(state, seen)
        {
            return StepResult::Done(result);
        }
        self.check_act(state, effect);
        let acts = (state.acts[at] + 1).min(3);
        state.acts[at] = acts;
        if is_transaction && !self.errs(Mistake::NoRow) {
            state.rows[at] = Some(StepResult::Done(acts));
        }
        if !is_transaction && self.has_key {
            state.keys[at] = Some((state.now, acts));
        }
        StepResult::Done(acts)
    }

    fn answer(&self, state: &State, who: u8, effect: Effect, go: Go<'_>) {
        let mut to = *state;
        let result = self.act(&mut to, effect);
        self.hear(to.run_mut(who), effect.work, result);
        go(Label { who: Some(who), what: ACTS, effect: Some(effect) }, to);
    }

    /// What may go wrong with a step.
    fn fail(&self, state: &State, who: u8, effect: Effect, go: Go<'_>) {
        if state.left.answers == 0 {
            return;
        }
        let label = |what| Label { who: Some(who), what, effect: Some(effect) };
        let mut failed = *state;
        failed.left.answers -= 1;
        let mut to = failed;
        to.leave(effect);
        self.be_ambiguous(to.run_mut(who), effect.work);
        go(label(TIMED_OUT), to);
        let mut to = failed;
        self.be_put_off(to.run_mut(who));
        let may_another = to.orphans[effect.at()] > 0 || self.at_hand(state, 1 - who) == Some(effect);
        if to.run(who).acted == Acted::No && !may_another {
            to.begun &= !(1 << effect.at());
        }
        go(label(PUT_OFF), to);
        let step = &self.steps[usize::from(effect.work.step())];
        let may_be_rejected = match effect.work {
            Work::Step(_) => step.may_be_rejected,
            Work::Undo(_) => !step.is_transaction && self.steps.iter().any(|step| step.may_be_rejected),
        };
        if may_be_rejected {
            let mut to = failed;
            match self.reject_by_row(&mut to, effect) {
                Some(row) => self.hear(to.run_mut(who), effect.work, row),
                None => self.be_rejected(to.run_mut(who), effect.work),
            }
            go(label(REJECTED), to);
        }
    }

    /// A transaction that is rejected leaves a row that says so, unless there is one: then that is what counts.
    fn reject_by_row(&self, state: &mut State, effect: Effect) -> Option<StepResult> {
        if !self.is_transaction(effect.work) {
            return None;
        }
        if self.errs(Mistake::RejectedWithoutRow) || self.errs(Mistake::NoRow) {
            return state.rows[effect.at()];
        }
        Some(*state.rows[effect.at()].get_or_insert(StepResult::Rejected))
    }
}
