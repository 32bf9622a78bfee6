//! What is promised, and what may never be.

use super::state::{Outcome, Slot, State, Verdict};
use super::{Calls, InDoubt, Record, Reserve};
use crate::search::Wrong;

impl Calls {
    /// Whether an effect is promised to happen once at most, and once more whenever it was written before that it is
    /// called again.
    pub(super) fn promises_once(&self) -> bool {
        // A grant does not say whose records the calls were of: those that vanish take that with them.
        let forgets = self.reserve == Reserve::Auto && self.faults.vanish > 0 && self.faults.excuses_limits;
        !forgets && (self.has_key || self.in_doubt == InDoubt::DeadLetter)
    }

    /// Whether each call has a reservation of its own.
    pub(super) fn reserves(&self) -> bool {
        !self.has_key || self.reserve == Reserve::Always
    }

    /// What may not be settled so.
    pub(super) fn check_settlement(&self, state: &mut State, at: u8, slot: &Slot, outcome: Outcome) {
        let record = self.record(at);
        let has_acted = state.acts[usize::from(record.effect)] > 0;
        let is_same = |other: &u8| self.record(*other).effect == record.effect;
        let sent = state.sent;
        let has_left = |at: u8| sent >> at & 1 == 1;
        let has_any_left = (0..self.count()).filter(is_same).any(has_left);
        let others: Vec<Outcome> = (0..self.count())
            .filter(|other| *other != at && is_same(other))
            .filter_map(|other| match state.verdicts[usize::from(other)] {
                Some(Verdict::Settled(outcome)) => Some(outcome),
                _ => None,
            })
            .collect();
        let is_first = others.is_empty() && state.entry(record.identity).settled.is_none_or(|of| of.record.is_some());
        let was_undisturbed = state.left.kills == self.faults.kills
            && state.left.freezes == self.faults.freezes
            && state.left.commits == self.faults.commits;
        // A grant does not say of which records it was used: it reaches to the last of them.
        let may_have_been = !self.reserves() && (at..self.count()).any(has_left);
        match outcome {
            Outcome::Rejected if has_acted => state.fail("REJECTED AFTER ALL: what has acted is settled as rejected"),
            Outcome::InDoubt if self.in_doubt == InDoubt::Retry => state.fail("IN DOUBT: a call is not made again"),
            Outcome::InDoubt if !has_any_left && !may_have_been && was_undisturbed && self.before.is_none() => {
                state.fail("NEVER SENT: a call that nobody has made is in doubt");
            }
            Outcome::Exhausted if self.holds && !slot.has_failed => {
                state.fail("DOWN: a dead letter because the provider was down");
            }
            Outcome::Late if has_left(at) => state.fail("LATE: a record that was called is late"),
            Outcome::Duplicate if is_first => state.fail("FIRST: a record is a duplicate of what was never settled"),
            Outcome::Duplicate if others.iter().all(|of| *of == Outcome::Exhausted) && !others.is_empty() => {
                state.fail("FORGOTTEN: a record is a duplicate of a call that was given up");
            }
            _ => {}
        }
    }

    /// What may not be sent yet.
    pub(super) fn check_order(&self, state: &mut State, at: u8) {
        let is_same =
            |other: &u8| !self.record(*other).is_invalid && self.record(*other).identity == self.record(at).identity;
        let is_open = |other: u8| state.verdicts[usize::from(other)].is_none();
        if (0..at).filter(is_same).any(is_open) {
            state.fail("TWO AT ONCE: a call is made before what comes first of its identity is settled");
        }
    }

    /// A result is written for a record: it has to be the one that was written first for its effect.
    pub(super) fn check_result(&self, state: &mut State, at: u8, result: u8) {
        let (place, effect) = (usize::from(at), usize::from(self.record(at).effect));
        if state.results[place] != 0 {
            state.fail("TWICE: a result is written a second time");
        }
        state.results[place] = result;
        if state.firsts[effect] == 0 {
            state.firsts[effect] = result;
        }
        if state.firsts[effect] != result {
            state.fail("RESULT: a result is not the one that was written first");
        }
    }

    /// What is wrong once everything was worked through.
    pub(super) fn judge_end(&self, state: &State) -> Option<Wrong> {
        if state.order.is_given && state.order.times_acknowledged == 0 {
            return Some("UNACKNOWLEDGED: a command was carried out, and nobody is told");
        }
        for (at, record) in self.records.iter().enumerate() {
            let acts = state.acts[usize::from(record.effect)];
            let of = |other: usize| (self.records[other].effect == record.effect).then_some(state.verdicts[other])?;
            match state.verdicts[at] {
                None => return Some("SKIPPED: everything is past a record that was never settled"),
                Some(Verdict::Settled(Outcome::Done)) if acts == 0 => {
                    return Some("NOT ACTED: a record is done, nobody did it");
                }
                Some(Verdict::Settled(Outcome::Duplicate | Outcome::Stale)) if acts == 0 => {
                    let is_final = |verdict| {
                        matches!(
                            verdict,
                            Verdict::Gone | Verdict::Settled(Outcome::Rejected | Outcome::InDoubt | Outcome::Exhausted)
                        )
                    };
                    let newer = |other: &Record| {
                        other.identity == record.identity
                            && (other.scope, other.version) > (record.scope, record.version)
                    };
                    let is_excused = (0..self.records.len()).filter_map(of).any(is_final)
                        || self.records.iter().any(newer)
                        || self.before.is_some()
                        || record.identity == 0 && state.order.is_given;
                    if !is_excused {
                        return Some("NOT ACTED: a record counts as a duplicate of what never happened");
                    }
                }
                _ => {}
            }
        }
        None
    }
}
