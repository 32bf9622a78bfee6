//! A handler's run: what it does next, and what it makes of a step's outcome.

use super::mistake::Mistake;
use super::state::{Acted, Outcome, Run, Stage, State, StepResult, Work};
use super::{ATTEMPTS, InDoubt, Next, Steps};

impl Steps {
    /// The handler has heard all that is known.
    pub(super) fn proceed(&self, run: &mut Run) {
        match self.next(&run.known) {
            Next::End if self.decides => run.stage = Stage::Chooses,
            Next::Work(Work::Step(1..)) if self.wavers => run.stage = Stage::Chooses,
            _ => self.go_on(run),
        }
    }

    /// What is next begins once all that is known is written, and that it may.
    pub(super) fn go_on(&self, run: &mut Run) {
        run.stage = match self.next(&run.known) {
            Next::End => Stage::Decided(Outcome::Done),
            Next::Undone => Stage::Decided(Outcome::Rejected),
            Next::Rejected => return self.reject(run),
            Next::Work(work) if self.may_begin(run, work) => Stage::Ready,
            Next::Work(_) => Stage::Unwritten,
        }
    }

    fn may_begin(&self, run: &Run, work: Work) -> bool {
        let is_early = match work {
            Work::Step(_) => self.errs(Mistake::JournalLate),
            Work::Undo(_) => self.errs(Mistake::UndoneUnwritten),
        };
        let is_permitted = self.is_transaction(work) || run.first.is_some();
        let is_marked = !self.is_marked(work) || run.known.mark;
        run.is_reserved && is_permitted && is_marked && !run.has_news || run.has_news && is_early
    }

    /// The handler is finally rejected: what is registered is undone, once that is written.
    pub(super) fn reject(&self, run: &mut Run) {
        if self.registered(&run.known).next().is_none() {
            run.stage = Stage::Decided(Outcome::Rejected);
            return;
        }
        (run.known.is_rejected, run.has_news) = (true, true);
        self.go_on(run);
    }

    /// The outcome of the next step.
    pub(super) fn hear(&self, run: &mut Run, work: Work, result: StepResult) {
        run.known.push(work, result);
        run.has_news = true;
        run.acted = match (run.acted, result) {
            (Acted::Now, StepResult::Rejected) => Acted::No,
            (Acted::Now, StepResult::Done(_)) => Acted::Before,
            (acted, _) => acted,
        };
        self.proceed(run);
    }

    /// A rejection says nothing about an attempt before, unless there is a row of it.
    pub(super) fn be_rejected(&self, run: &mut Run, work: Work) {
        let may_have_acted = run.acted == Acted::Before && !self.is_transaction(work);
        match (work, self.in_doubt) {
            // Nobody else can undo it.
            (Work::Undo(_), _) if self.errs(Mistake::UndoRejectedIsDone) => {
                self.hear(run, work, StepResult::Rejected);
            }
            (Work::Undo(_), _) => run.stage = Stage::Decided(Outcome::InDoubt),
            _ if !may_have_acted || self.errs(Mistake::RejectedAfterAll) => {
                self.hear(run, work, StepResult::Rejected);
            }
            (_, InDoubt::DeadLetter) if self.errs(Mistake::UndoneInDoubt) => self.reject(run),
            (_, InDoubt::DeadLetter) => run.stage = Stage::Decided(Outcome::InDoubt),
            (_, InDoubt::Retry) => self.go_again(run),
        }
    }

    /// Nobody knows whether it has acted; a transaction's row will say it.
    pub(super) fn be_ambiguous(&self, run: &mut Run, work: Work) {
        if self.is_transaction(work) {
            return self.go_again(run);
        }
        run.acted = Acted::Before;
        match (self.has_key, self.in_doubt) {
            (false, InDoubt::DeadLetter) => run.stage = Stage::Decided(Outcome::InDoubt),
            _ => self.go_again(run),
        }
    }

    /// It has certainly not acted.
    pub(super) fn be_put_off(&self, run: &mut Run) {
        if run.acted == Acted::Now {
            run.acted = Acted::No;
        }
        self.go_again(run);
    }

    /// The handler is run again from its journal on, unless that was often enough.
    fn go_again(&self, run: &mut Run) {
        if self.faults.exhausts && run.attempts >= ATTEMPTS {
            run.stage = Stage::Decided(Outcome::Exhausted);
        } else {
            self.proceed(run);
        }
    }

    /// The run has failed; the next one knows what is committed, and no more.
    pub(super) fn run_again(&self, state: &mut State, who: u8) {
        let reserved = state.entry.reserved;
        let run = state.run_mut(who);
        if !self.errs(Mistake::RunSeesUncommitted) {
            let reserved = reserved.filter(|reserved| reserved.version == run.version);
            run.known = reserved.map(|reserved| reserved.journal).unwrap_or_default();
        }
        run.has_news = false;
        run.acted = match run.acted {
            Acted::No => Acted::No,
            _ if self.errs(Mistake::FailedIsFresh) => Acted::No,
            Acted::Now | Acted::Before => Acted::Before,
        };
        match run.acted {
            Acted::Before if run.known.mark => self.meet_mark(run),
            _ => self.go_again(run),
        }
    }

    /// What is next may have begun, and no key makes another attempt safe.
    pub(super) fn meet_mark(&self, run: &mut Run) {
        match self.in_doubt {
            InDoubt::DeadLetter if !self.errs(Mistake::MarkUnread) => run.stage = Stage::Decided(Outcome::InDoubt),
            _ => self.proceed(run),
        }
    }

    /// The key's window has passed before a call begins: it needs another one, unless an attempt may have acted.
    pub(super) fn be_too_late(&self, run: &mut Run) {
        match (run.acted, self.in_doubt) {
            (Acted::Now | Acted::Before, InDoubt::DeadLetter) => run.stage = Stage::Decided(Outcome::InDoubt),
            (Acted::Now | Acted::Before, _) if self.errs(Mistake::RetryInDoubt) => {
                run.stage = Stage::Decided(Outcome::InDoubt);
            }
            _ if self.errs(Mistake::RetryKeepsFirst) => run.stage = Stage::Unwritten,
            _ => (run.stage, run.first) = (Stage::Unwritten, None),
        }
    }
}
