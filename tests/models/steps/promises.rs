//! What is promised, and what may never be.

use super::state::{Effect, Journal, Outcome, Run, State, StepResult, VERSIONS, Work};
use super::{InDoubt, Next, Steps};
use crate::search::Wrong;

impl Steps {
    /// What may not begin yet.
    pub(super) fn check_begin(&self, state: &mut State, who: u8, effect: Effect) {
        let Run { known, version, .. } = *state.run(who);
        let recorded = state.recorded[usize::from(version)];
        let is_recorded = |(of, known): (&Option<StepResult>, &Option<StepResult>)| known.is_none() || of == known;
        let are_recorded = recorded.results.iter().zip(&known.results).all(is_recorded);
        if !are_recorded || known.undone & !recorded.undone != 0 {
            state.fail("AHEAD: a step begins on results that are not what is recorded");
        }
        let Work::Undo(step) = effect.work else { return };
        for later in step + 1..self.steps.len() as u8 {
            let result = known.results[usize::from(later)];
            let has_acted = state.acts_of(version, Work::Step(later)) > 0;
            let is_undone = state.acts_of(version, Work::Undo(later)) > 0 || !self.steps[usize::from(later)].has_undo;
            match result {
                Some(StepResult::Done(_)) if !is_undone => state.fail("ORDER: a step is undone before a later one"),
                None | Some(StepResult::Rejected) if has_acted => {
                    state.fail("REJECTED AFTER ALL: steps are undone, one of which has acted without a record");
                }
                _ => {}
            }
        }
    }

    /// What may not happen.
    pub(super) fn check_act(&self, state: &mut State, effect: Effect) {
        let Effect { version, work } = effect;
        let acts = state.acts[effect.at()];
        if self.is_transaction(work) && acts > 0 {
            state.fail("TWICE: a transaction has acted a second time");
        }
        let is_bounded = self.has_key || self.in_doubt == InDoubt::DeadLetter;
        if is_bounded && acts >= state.allowed[effect.at()] {
            state.fail("TWICE: a call has acted a second time");
        }
        let is_over = state.has_verdict(self.records, version, Outcome::Rejected);
        let is_undone = (0..self.steps.len() as u8).any(|step| state.acts_of(version, Work::Undo(step)) > 0);
        match work {
            Work::Step(step) => {
                let recorded = state.recorded[usize::from(version)].results[usize::from(step)];
                let is_done = matches!(recorded, Some(StepResult::Done(_)));
                let is_rejected = recorded == Some(StepResult::Rejected);
                // The result of a rejected handler's last step is in its settlement.
                let is_first = acts == 0;
                if is_rejected || is_first && !is_done && (is_over || is_undone) {
                    state.fail("REJECTED AFTER ALL: what is rejected acts");
                }
            }
            Work::Undo(_) if state.has_verdict(self.records, version, Outcome::Done) => {
                state.fail("UNDONE: a step of a handler that has ended well is undone");
            }
            Work::Undo(_) => {}
        }
    }

    /// What is recorded never changes and never vanishes.
    pub(super) fn check_journal(&self, state: &mut State, version: u8, journal: &Journal) {
        let recorded = &mut state.recorded[usize::from(version)];
        let before = *recorded;
        *recorded = Journal {
            results: std::array::from_fn(|step| recorded.results[step].or(journal.results[step])),
            is_rejected: recorded.is_rejected || journal.is_rejected,
            undone: recorded.undone | journal.undone,
            mark: false,
        };
        if before.results.iter().zip(&journal.results).any(|(of, now)| of.is_some() && of != now) {
            state.fail("RECORD: a recorded result has changed, or is lost");
        }
        if before.is_rejected && !journal.is_rejected || before.undone & !journal.undone != 0 {
            state.fail("RECORD: it is lost that a handler was rejected, or what was undone");
        }
    }

    /// What may not be settled so.
    pub(super) fn check_settlement(&self, state: &mut State, run: &Run, outcome: Outcome) {
        if matches!(outcome, Outcome::Done | Outcome::Rejected) {
            let recorded = state.recorded[usize::from(run.version)].results;
            let last = usize::from(run.known.count()).saturating_sub(1);
            if recorded[..last] != run.known.results[..last] {
                state.fail("AHEAD: a handler has ended on results that are not what is recorded");
            }
        }
        let has_all_but = |outcomes: &[Outcome]| {
            let of_version = self.records.iter().zip(state.verdicts).filter(|(of, _)| **of == run.version);
            let mut verdicts = of_version.filter_map(|(_, verdict)| verdict);
            verdicts.all(|verdict| outcomes.contains(&verdict))
        };
        match outcome {
            Outcome::Done => self.check_done(state, run),
            Outcome::Rejected => self.check_rejected(state, run),
            Outcome::InDoubt => self.check_doubt(state, run),
            Outcome::Duplicate if has_all_but(&[Outcome::Exhausted, Outcome::Gone]) => {
                state.fail("FORGOTTEN: a record is a duplicate of nothing, or of what was given up");
            }
            Outcome::Exhausted | Outcome::Duplicate | Outcome::Stale | Outcome::Gone => {}
        }
    }

    fn check_done(&self, state: &mut State, run: &Run) {
        for step in 0..self.steps.len() as u8 {
            let has_acted = state.acts_of(run.version, Work::Step(step)) > 0;
            match run.known.results[usize::from(step)] {
                Some(StepResult::Done(_)) if has_acted => {}
                Some(StepResult::Rejected) if !has_acted => {}
                Some(StepResult::Rejected) => state.fail("REJECTED AFTER ALL: a step that was rejected has acted"),
                _ => state.fail("NOT ACTED: a record is done, and a step of it is not"),
            }
            if state.acts_of(run.version, Work::Undo(step)) > 0 {
                state.fail("UNDONE: a handler ends well, and a step of it was undone");
            }
        }
    }

    fn check_rejected(&self, state: &mut State, run: &Run) {
        for step in 0..self.steps.len() as u8 {
            let is_done = matches!(run.known.results[usize::from(step)], Some(StepResult::Done(_)));
            let has_acted = state.acts_of(run.version, Work::Step(step)) > 0;
            if has_acted && !is_done {
                state.fail("REJECTED AFTER ALL: a step that was rejected, or never begun, has acted");
            }
            let is_undone = state.acts_of(run.version, Work::Undo(step)) > 0;
            if is_done && self.steps[usize::from(step)].has_undo && !is_undone {
                state.fail("NOT UNDONE: a handler is rejected, and a step of it is not undone");
            }
        }
    }

    fn check_doubt(&self, state: &mut State, run: &Run) {
        let was_lost = state.entry.reserved.is_none();
        let Next::Work(work) = self.next(&run.known) else {
            return state.fail("IN DOUBT: though no step is open");
        };
        let was_undisturbed = state.left.kills == self.faults.kills
            && state.left.freezes == self.faults.freezes
            && state.left.commits == self.faults.commits;
        let is_begun = state.begun >> (Effect { version: run.version, work }).at() & 1 == 1;
        match work {
            // Half-way through it a newer version has taken its place.
            _ if was_lost => {}
            _ if self.is_transaction(work) => state.fail("IN DOUBT: though the open step is a transaction"),
            Work::Step(_) if self.in_doubt == InDoubt::Retry => state.fail("IN DOUBT: a call is not made again"),
            _ if was_undisturbed && !is_begun => state.fail("NEVER BEGUN: a call that nobody has made is in doubt"),
            _ => {}
        }
    }

    /// What is wrong once everything is settled.
    pub(super) fn judge_end(&self, state: &State) -> Option<Wrong> {
        for version in 0..VERSIONS as u8 {
            let is = |outcome| state.has_verdict(self.records, version, outcome);
            let acts = |step: usize| state.acts_of(version, Work::Step(step as u8));
            let has_acted = (0..self.steps.len()).any(|step| acts(step) > 0);
            let is_told = is(Outcome::Done) || is(Outcome::Rejected) || is(Outcome::InDoubt) || is(Outcome::Exhausted);
            // Nobody has its record any more.
            if has_acted && !is_told && !is(Outcome::Gone) {
                return Some("SILENT: something has happened, and nobody is told");
            }
        }
        let is_settled = |record: &Option<Outcome>| record.is_some();
        let are_settled = state.verdicts[..self.records.len()].iter().all(is_settled);
        (!are_settled).then_some("SKIPPED: the offset has passed a record that is not settled")
    }
}
