//! What the group and time do, and what goes wrong.

use super::mistake::Mistake;
use super::owner::{Go, REVOKED, RUN_FAILS};
use super::provider::{PUT_OFF, REJECTED, TIMED_OUT};
use super::state::{Effect, Journal, Life, Outcome, Settled, Stage, State};
use super::writing::{ABORT_LOST, ABORTED, COMMIT_LOST};
use super::{Label, Next, Steps};

pub const TICKS: &str = "time passes";
pub const KILLED: &str = "is killed";
pub const FREEZES: &str = "freezes";
pub const VANISHES: &str = "the input loses its next record";
pub const ORDERED: &str = "it is ordered to run again what has failed";
pub const REMOVED: &str = "a row is removed from the database";

/// What an end has to be reached without.
pub const FAULTS: [&str; 14] = [
    TICKS,
    KILLED,
    FREEZES,
    VANISHES,
    ORDERED,
    REMOVED,
    REVOKED,
    RUN_FAILS,
    TIMED_OUT,
    PUT_OFF,
    REJECTED,
    COMMIT_LOST,
    ABORT_LOST,
    ABORTED,
];

impl Steps {
    pub(super) fn outside_steps(&self, state: &State, go: Go<'_>) {
        (0..state.owners.len() as u8).for_each(|who| self.strike(state, who, go));
        if state.now < self.faults.ticks && !self.has_calls(state) {
            let mut to = *state;
            to.now += 1;
            go(Label { who: None, what: TICKS, effect: None }, to);
        }
        let is_owned = state.owners.iter().any(|owner| owner.life == Life::Live && owner.is_current);
        if state.left.vanish > 0 && !is_owned && state.offset < self.count() {
            let mut to = *state;
            to.left.vanish -= 1;
            to.verdicts[usize::from(to.offset)] = Some(Outcome::Gone);
            to.offset += 1;
            // One that is frozen is a former owner by now.
            to.owners.iter_mut().for_each(|owner| owner.is_current = false);
            go(Label { who: None, what: VANISHES, effect: None }, to);
        }
        if self.faults.orders
            && let Some((version, Settled::Failed)) = state.entry.settled
        {
            let mut to = *state;
            to.entry.settled = None;
            let of_version = Effect::all().filter(|effect| effect.version == version);
            of_version.for_each(|effect| to.allowed[effect.at()] = (to.allowed[effect.at()] + 1).min(3));
            to.recorded[usize::from(version)] = Journal::default();
            go(Label { who: None, what: ORDERED, effect: None }, to);
        }
        if self.faults.removals && state.offset == self.count() {
            self.remove_rows(state, go);
        }
    }

    fn strike(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        let label = |what| Label { who: Some(who), what, effect: None };
        if owner.life == Life::Live && state.left.kills > 0 {
            let mut to = *state;
            to.left.kills -= 1;
            self.lose(&mut to, who);
            go(label(KILLED), to);
        }
        if owner.life == Life::Live && owner.is_current && state.left.freezes > 0 {
            let mut to = *state;
            to.left.freezes -= 1;
            to.owner_mut(who).life = Life::Frozen;
            go(label(FREEZES), to);
        }
    }

    /// What a run has begun, or may begin without another transaction.
    pub(super) fn at_hand(&self, state: &State, who: u8) -> Option<Effect> {
        let run = state.run(who);
        match (run.stage, self.next(&run.known)) {
            (Stage::Ready | Stage::Begun, Next::Work(work)) => Some(Effect { version: run.version, work }),
            _ => None,
        }
    }

    /// Whether a call is under way: it is over within a tick.
    fn has_calls(&self, state: &State) -> bool {
        let is_call = |effect: &Effect| !self.is_transaction(effect.work);
        let is_begun = |who: u8| state.run(who).stage == Stage::Begun;
        let owners = 0..state.owners.len() as u8;
        owners.filter(|who| is_begun(*who)).filter_map(|who| self.at_hand(state, who)).any(|effect| is_call(&effect))
            || Effect::all().filter(|effect| state.orphans[effect.at()] > 0).any(|effect| is_call(&effect))
    }

    /// A row is kept for as long as somebody may still come to its step.
    fn remove_rows(&self, state: &State, go: Go<'_>) {
        for effect in Effect::all().filter(|effect| state.rows[effect.at()].is_some()) {
            let is_at_hand = |who: u8| self.at_hand(state, who) == Some(effect);
            let may_come = state.orphans[effect.at()] > 0 || (0..state.owners.len() as u8).any(is_at_hand);
            if !may_come || self.errs(Mistake::RowRemovedEarly) {
                let mut to = *state;
                to.rows[effect.at()] = None;
                go(Label { who: None, what: REMOVED, effect: Some(effect) }, to);
            }
        }
    }
}
