//! Commands of the control topic, which the owner carries out.

use super::mistake::Mistake;
use super::owner::Go;
use super::state::{Entry, Local, Reservation, Settled, Settlement, State};
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
        let is_open = |at: u8| match state.slot(who, at).local {
            Local::Settled => false,
            // The record is still to come, and its call goes on then.
            Local::New => {
                let is_its = |reserved: &Reservation| reserved.is_of(at) && self.is_to_come(state, who, reserved);
                state.entries[0].reserved.as_ref().is_some_and(is_its) && !self.errs(Mistake::CommandOverReservation)
            }
            _ => self.record(at).identity == 0 && !self.record(at).is_invalid && !self.errs(Mistake::CommandOverCall),
        };
        if owner.obeyed || (0..self.count()).any(is_open) {
            return;
        }
        let mut to = *state;
        self.carry_out(&mut to, who, command);
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

    /// Whether a reservation's record is not settled, and will be.
    fn is_to_come(&self, state: &State, who: u8, reserved: &Reservation) -> bool {
        let at = reserved.record;
        let is_ahead = at >= state.owner(who).start.max(state.input);
        is_ahead && !reserved.is_of_old_topic && state.slot(who, at).local != Local::Settled
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
                // What the command settles, or leaves to nobody, is its sender's decision.
                let is_at_rest = entry.reserved.is_none_or(|reserved| !self.is_to_come(state, who, &reserved));
                for record in self.records.iter().filter(|record| record.identity == 0 && is_at_rest) {
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
