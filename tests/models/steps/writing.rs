//! What an instance writes, each in one transaction that its generation fences: journals and settlements.

use super::mistake::Mistake;
use super::owner::Go;
use super::state::{Acted, Effect, Journal, Outcome, Reservation, Run, Settled, Stage, State};
use super::{Label, Next, Steps};

pub const JOURNALS: &str = "commits its journal";
pub const SETTLES: &str = "commits the settlement";
pub const COMMIT_LOST: &str = "commits, and does not hear of it; restores";
pub const ABORT_LOST: &str = "its transaction is aborted, and it does not hear of it; restores";
pub const ABORTED: &str = "its transaction is aborted";

impl Steps {
    /// A transaction is committed, aborted, or nobody knows.
    pub(super) fn write(&self, state: &State, who: u8, go: Go<'_>) {
        let label = |what| Label { who: Some(who), what, effect: None };
        let mut written = *state;
        let what = match state.run(who).stage {
            Stage::Decided(outcome) => {
                self.settle(&mut written, who, outcome);
                SETTLES
            }
            _ => {
                self.write_journal(&mut written, who, true);
                JOURNALS
            }
        };
        go(label(what), written);
        if state.left.commits > 0 {
            for (what, mut to) in [(COMMIT_LOST, written), (ABORT_LOST, *state)] {
                to.left.commits -= 1;
                *to.run_mut(who) =
                    if self.errs(Mistake::KeptAfterUnknown) { *written.run(who) } else { Run::default() };
                go(label(what), to);
            }
        }
        if state.left.aborts > 0 {
            let mut to = *state;
            to.left.aborts -= 1;
            if self.errs(Mistake::ClearedUncommitted) {
                to.run_mut(who).acted = Acted::No;
            }
            if self.errs(Mistake::RenewedUncommitted) {
                to.run_mut(who).first = Some(state.now);
            }
            go(label(ABORTED), to);
        }
    }

    /// Writes what is known, and, if it opens, that what is next may begin. Nobody can have begun that before the result
    /// of what came before is written: so its window begins here.
    fn write_journal(&self, state: &mut State, who: u8, opens: bool) {
        let (now, run) = (state.now, *state.run(who));
        let next = self.next(&run.known);
        let mut journal = run.known;
        journal.mark = opens && matches!(next, Next::Work(work) if self.is_marked(work));
        let renews = run.has_news && !self.errs(Mistake::NotRenewed);
        let first = match (opens, renews) {
            (false, _) => None,
            (true, true) => Some(now),
            (true, false) => run.first.or(Some(now)),
        };
        if let Next::Work(work) = next
            && (opens && !run.has_news && run.acted == Acted::Before && run.first.is_none())
        {
            let allowed = &mut state.allowed[Effect { version: run.version, work }.at()];
            *allowed = (*allowed + 1).min(3);
        }
        let (acted, attempts) = if run.has_news { (Acted::No, 0) } else { (run.acted, run.attempts) };
        let known = run.known;
        self.forge(state, &run, &mut journal);
        self.check_journal(state, run.version, &journal);
        self.overtake(state, run.version);
        state.entry.reserved = Some(Reservation { version: run.version, first, journal });
        let mut run = Run { known, has_news: false, is_reserved: true, first, acted, attempts, ..run };
        run.known.mark = journal.mark;
        self.go_on(&mut run);
        *state.run_mut(who) = run;
    }

    /// Leaves out of a journal what is left out by mistake.
    fn forge(&self, state: &State, run: &Run, journal: &mut Journal) {
        let before = state.entry.reserved.filter(|reserved| reserved.version == run.version);
        if self.errs(Mistake::ResultLeftOut) {
            journal.results = before.map(|reserved| reserved.journal.results).unwrap_or_default();
        }
        journal.is_rejected &= !self.errs(Mistake::NoMarker);
        if self.errs(Mistake::UndoneUnrecorded) {
            journal.undone = 0;
        }
    }

    /// An older reservation whose place is taken is remembered as given up, and if its journal is lost with it, so that
    /// nobody begins it anew.
    fn overtake(&self, state: &mut State, version: u8) {
        let Some(older) = state.entry.reserved.filter(|reserved| reserved.version < version) else { return };
        let is_at_first_step = older.journal.count() == 0 || self.errs(Mistake::OvertakenAtFirstStep);
        let first = older.first.filter(|_| is_at_first_step);
        // With its first step, and that not begun: nothing has happened.
        if first.is_some() || !is_at_first_step {
            state.entry.settled = Some((older.version, Settled::GivenUp { first }));
        }
    }

    pub(super) fn settle(&self, state: &mut State, who: u8, outcome: Outcome) {
        let run = *state.run(who);
        self.check_settlement(state, &run, outcome);
        let settled = match outcome {
            Outcome::Done => Some(Settled::Done),
            Outcome::Rejected | Outcome::InDoubt => Some(Settled::Failed),
            Outcome::Exhausted if self.errs(Mistake::GivenUpIsFailed) => Some(Settled::Failed),
            Outcome::Exhausted | Outcome::Duplicate | Outcome::Stale | Outcome::Gone => None,
        };
        if let Some(settled) = settled {
            state.entry.settled = Some((run.version, settled));
            state.entry.reserved = None;
        }
        if outcome == Outcome::Exhausted && !self.errs(Mistake::GivenUpIsFailed) {
            self.give_up(state, &run);
        }
        if state.verdicts[usize::from(state.offset)].replace(outcome).is_some() {
            state.fail("TWICE: a record is settled a second time");
        }
        state.offset += 1;
        *state.run_mut(who) = Run::default();
    }

    /// The reservation stays, and a duplicate goes on with its journal. Where there is none, it is as for a single call.
    fn give_up(&self, state: &mut State, run: &Run) {
        self.put_to_rest(state, run);
        let Some(reserved) = &mut state.entry.reserved else { return };
        if self.errs(Mistake::RenewedByGivingUp) {
            reserved.first = Some(state.now);
        }
        if reserved.journal.count() == 0 || self.errs(Mistake::GivenUpLosesJournal) {
            let first = reserved.first;
            state.entry.settled = Some((run.version, Settled::GivenUp { first }));
            state.entry.reserved = None;
        }
    }

    /// Takes back that what is next may begin, if it certainly has not.
    fn put_to_rest(&self, state: &mut State, run: &Run) {
        let is_begun = run.acted != Acted::No && !(run.acted == Acted::Now && self.errs(Mistake::BegunReleased));
        let Some(reserved) = &mut state.entry.reserved else { return };
        if reserved.version != run.version || is_begun {
            return;
        }
        if !self.errs(Mistake::KeptByGivingUp) {
            reserved.first = None;
        }
        if !self.errs(Mistake::MarkLeft) {
            reserved.journal.mark = false;
        }
        if reserved.journal.count() == 0 && reserved.first.is_none() && !reserved.journal.mark {
            state.entry.reserved = None;
        }
    }

    /// Writes what is known before the task goes.
    pub(super) fn release(&self, state: &mut State, who: u8) {
        if state.run(who).has_news {
            self.write_journal(state, who, false);
        }
        let run = *state.run(who);
        self.put_to_rest(state, &run);
    }
}
