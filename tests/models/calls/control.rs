//! Commands of the control topic, which the owner carries out.

use super::mistake::Mistake;
use super::owner::Go;
use super::state::{Entry, Local, Settled, Settlement, State};
use super::{Calls, Command, Label};

pub const ORDERED: &str = "a command is given";
pub const OBEYS: &str = "carries the command out";
pub const ACKNOWLEDGES: &str = "acknowledges the command";

impl Calls {
    /// Carries the command out, acknowledges it and notes that, in one transaction. It waits for calls that are open.
    pub(super) fn obey(&self, state: &State, who: u8, go: Go<'_>) {
        let label = |what| Label { who: Some(who), what, record: None };
        let owner = state.owner(who);
        if owner.owes {
            let mut to = *state;
            to.owner_mut(who).owes = false;
            acknowledge(&mut to);
            go(label(ACKNOWLEDGES), to);
        }
        let Some(command) = self.command.filter(|_| state.order.is_given && !state.order.is_noted) else { return };
        let is_open = |at: u8| {
            let is_settled = matches!(state.slot(who, at).local, Local::New | Local::Settled);
            self.record(at).identity == 0 && !self.record(at).is_invalid && !is_settled
        };
        let is_open = (0..self.count()).any(is_open);
        if owner.obeyed || is_open && !self.errs(Mistake::CommandOverCall) {
            return;
        }
        let mut to = *state;
        self.carry_out(&mut to, who, command);
        // Who orders it anew answers for it, unless the call is open.
        if is_open {
            (to.allowed, to.firsts) = (state.allowed, state.firsts);
        }
        to.order.times_obeyed += 1;
        if to.order.times_obeyed > 1 {
            to.fail("OBEYED TWICE: a command was carried out again");
        }
        match self.errs(Mistake::AcknowledgedApart) {
            true => to.owner_mut(who).owes = true,
            false => acknowledge(&mut to),
        }
        match self.errs(Mistake::CommandNotNoted) {
            true => to.owner_mut(who).obeyed = true,
            false => to.order.is_noted = true,
        }
        self.end_unheard(state, &to, who, label(OBEYS), go);
        go(label(OBEYS), to);
    }

    fn carry_out(&self, state: &mut State, who: u8, command: Command) {
        let seen = state.owner(who).time.max(state.time);
        let entry = *state.entry(0);
        let of_settled = entry.settled.map(|settled| settled.version);
        let of_reserved = entry.reserved.map(|reserved| reserved.version);
        let is_done = entry.reserved.is_none() && entry.settled.is_some_and(|settled| settled.what == Settled::Done);
        // Nothing is known of the identity.
        let Some(version) = of_settled.max(of_reserved) else { return };
        let what = match command {
            Command::Retry => {
                for record in self.records.iter().filter(|record| record.identity == 0) {
                    let effect = usize::from(record.effect);
                    (state.allowed[effect], state.firsts[effect]) = ((state.allowed[effect] + 1).min(4), 0);
                }
                *state.entry(0) = Entry::default();
                return;
            }
            _ if is_done => return,
            Command::Done => Settled::Done,
            Command::Drop => Settled::Failed,
        };
        let settled = Some(Settlement { what, version, record: None, seen, result: 0 });
        *state.entry(0) = Entry { settled, reserved: None };
    }
}

fn acknowledge(state: &mut State) {
    state.order.times_acknowledged += 1;
    if state.order.times_acknowledged > 1 {
        state.fail("ACKNOWLEDGED TWICE: a command was acknowledged again");
    }
}
