//! What the group, time and people do.

use super::control::ORDERED;
use super::owner::{Go, REVOKED, STOPS};
use super::provider::{ANSWER_LOST, GOES_DOWN, NOT_SENT, REJECTED, TIMED_OUT};
use super::state::{Run, State, Verdict};
use super::writing::{ABORTED, COMMIT_LOST, TAKEN_BACK};
use super::{Calls, Label, RETENTION};

pub const TICKS: &str = "time passes";
pub const KILLED: &str = "is killed";
pub const FREEZES: &str = "freezes";
pub const RESET: &str = "the group is reset to the beginning";
pub const VANISHES: &str = "the input loses its first record";
pub const SWEPT: &str = "what has expired is removed";

/// What an end has to be reached without.
pub const FAULTS: [&str; 16] = [
    ANSWER_LOST,
    TIMED_OUT,
    NOT_SENT,
    REJECTED,
    GOES_DOWN,
    KILLED,
    FREEZES,
    RESET,
    VANISHES,
    COMMIT_LOST,
    ABORTED,
    TAKEN_BACK,
    STOPS,
    REVOKED,
    ORDERED,
    TICKS,
];

impl Calls {
    pub(super) fn outside_steps(&self, state: &State, go: Go<'_>) {
        (0..state.owners.len() as u8).for_each(|who| self.strike(state, who, go));
        self.pass_time(state, go);
        self.lose_input(state, go);
        self.sweep(state, go);
        if self.command.is_some() && !state.order.is_given {
            let mut to = *state;
            to.order.is_given = true;
            go(Label { who: None, what: ORDERED, record: None }, to);
        }
    }

    fn strike(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        let label = |what| Label { who: Some(who), what, record: None };
        if owner.run == Run::Live && state.left.kills > 0 {
            let mut to = *state;
            to.left.kills -= 1;
            to.die(who);
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
    }

    fn lose_input(&self, state: &State, go: Go<'_>) {
        if state.left.vanish > 0
            && state.input < self.count()
            && state.owners.iter().all(|owner| owner.run == Run::Down)
        {
            let mut to = *state;
            to.left.vanish -= 1;
            to.verdicts[usize::from(to.input)].get_or_insert(Verdict::Gone);
            to.input += 1;
            go(Label { who: None, what: VANISHES, record: None }, to);
        }
    }

    fn sweep(&self, state: &State, go: Go<'_>) {
        let is_owned = state.owners.iter().any(|owner| owner.run == Run::Live && owner.is_current);
        if self.faults.sweeps && is_owned {
            for (number, entry) in state.entries.iter().enumerate() {
                let has_expired = entry.settled.is_some_and(|settled| settled.seen + RETENTION < state.time);
                if has_expired && entry.reserved.is_none() {
                    let mut to = *state;
                    to.entries[number].settled = None;
                    go(Label { who: None, what: SWEPT, record: None }, to);
                }
            }
        }
    }
}
