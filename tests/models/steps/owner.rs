//! What an instance does with its task, but for what it writes.

use super::mistake::Mistake;
use super::state::{Acted, Effect, Entry, Life, Outcome, Owner, Reservation, Run, Settled, Stage, State};
use super::{InDoubt, Label, Next, Steps};

pub const TAKES_OVER: &str = "takes the task over";
pub const WAKES: &str = "wakes up";
pub const GIVES_UP: &str = "is fenced, and gives up";
pub const JUDGES: &str = "judges the record";
pub const RESUMES: &str = "goes on with a journal";
pub const GIVEN_UP: &str = "meets what was given up";
pub const HALF_WAY: &str = "meets what was given up half-way";
pub const BEGINS: &str = "begins";
pub const BEGINS_LATE: &str = "begins, though it has lost the task";
pub const TOO_LATE: &str = "the key's window has passed before it begins";
pub const ENDS_WELL: &str = "the handler goes on, or ends well";
pub const REJECTS: &str = "the handler rejects what was done";
pub const REVOKED: &str = "its task is revoked";
pub const RUN_FAILS: &str = "the handler's run fails";

pub type Go<'a> = &'a mut dyn FnMut(Label, State);

impl Steps {
    pub(super) fn owner_steps(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        match owner.life {
            Life::Down => self.take_over(state, who, go),
            Life::Frozen => {
                let mut to = *state;
                to.owner_mut(who).life = Life::Live;
                go(label(who, WAKES), to);
            }
            Life::Live if owner.is_current => {
                match owner.run.stage {
                    Stage::New => self.judge_record(state, who, go),
                    Stage::Chooses => self.choose(state, who, go),
                    Stage::Ready => self.begin(state, who, go),
                    Stage::Unwritten | Stage::Decided(_) => self.write(state, who, go),
                    Stage::Begun => {}
                }
                self.be_revoked(state, who, go);
                self.fail_run(state, who, go);
            }
            Life::Live => self.go_on_without(state, who, go),
        }
    }

    /// A former owner may begin what it may begin; whatever it wants to write is refused.
    fn go_on_without(&self, state: &State, who: u8, go: Go<'_>) {
        let mut to = *state;
        self.lose(&mut to, who);
        go(label(who, GIVES_UP), to);
        match state.run(who).stage {
            Stage::Ready => self.begin(state, who, go),
            Stage::Unwritten | Stage::Decided(_) if self.errs(Mistake::NotFenced) => self.write(state, who, go),
            _ => {}
        }
    }

    fn take_over(&self, state: &State, who: u8, go: Go<'_>) {
        let other = state.owner(1 - who);
        let is_owned = other.life == Life::Live && other.is_current;
        // The second instance is there for what has happened to the first.
        let is_wanted = who == 0 || *other != Owner::default();
        if is_owned || !is_wanted || state.offset == self.count() {
            return;
        }
        let mut to = *state;
        to.owner_mut(1 - who).is_current = false;
        *to.owner_mut(who) = Owner { life: Life::Live, is_current: true, run: Run::default() };
        go(label(who, TAKES_OVER), to);
    }

    /// Judges the first record that is not settled, by what is remembered.
    fn judge_record(&self, state: &State, who: u8, go: Go<'_>) {
        let Some(&version) = self.records.get(usize::from(state.offset)) else { return };
        let mut to = *state;
        let run = to.run_mut(who);
        *run = Run { version, ..Run::default() };
        let Entry { settled, reserved } = state.entry;
        let mut what = JUDGES;
        match (reserved, settled) {
            (Some(Reservation { version: of, .. }), _) if version < of => run.stage = Stage::Decided(Outcome::Stale),
            (Some(reserved), _) if version == reserved.version => {
                what = RESUMES;
                self.resume(state, run, &reserved);
            }
            (None, Some((of, _))) if version < of => run.stage = Stage::Decided(Outcome::Stale),
            (None, Some((of, settled))) if version == of => what = self.meet_settled(run, settled),
            _ => self.proceed(run),
        }
        go(label(who, what), to);
    }

    /// A former run has come as far as the journal says, and may have begun what is next.
    fn resume(&self, state: &State, run: &mut Run, reserved: &Reservation) {
        let Reservation { first, journal, .. } = *reserved;
        let may_have_begun = if self.has_key { first.is_some() } else { journal.mark };
        let acted = if may_have_begun { Acted::Before } else { Acted::No };
        *run = Run { known: journal, is_reserved: true, first, acted, ..*run };
        let is_late = self.has_key && first.is_some_and(|first| !self.is_honoured(state, first));
        match () {
            () if is_late && self.errs(Mistake::DoubtWhenJudged) => run.stage = Stage::Decided(Outcome::InDoubt),
            () if journal.mark => self.meet_mark(run),
            () => self.proceed(run),
        }
    }

    fn meet_settled(&self, run: &mut Run, settled: Settled) -> &'static str {
        match settled {
            Settled::Done | Settled::Failed => {
                run.stage = Stage::Decided(Outcome::Duplicate);
                JUDGES
            }
            // Its journal is lost, and nobody knows what was done.
            Settled::GivenUp { first: None } => {
                run.stage = Stage::Decided(Outcome::InDoubt);
                HALF_WAY
            }
            Settled::GivenUp { first } => {
                *run = Run { first, acted: Acted::Before, is_reserved: true, ..*run };
                if self.has_key || self.in_doubt == InDoubt::Retry {
                    self.proceed(run);
                } else {
                    run.stage = Stage::Decided(Outcome::InDoubt);
                }
                GIVEN_UP
            }
        }
    }

    fn choose(&self, state: &State, who: u8, go: Go<'_>) {
        let mut to = *state;
        self.go_on(to.run_mut(who));
        go(label(who, ENDS_WELL), to);
        let mut to = *state;
        self.reject(to.run_mut(who));
        go(label(who, REJECTS), to);
    }

    /// Begins what is next, as a former owner too: nobody can fence that.
    fn begin(&self, state: &State, who: u8, go: Go<'_>) {
        let run = state.run(who);
        let Next::Work(work) = self.next(&run.known) else { unreachable!("something is ready") };
        let effect = Effect { version: run.version, work };
        let is_call = !self.is_transaction(work);
        let what = if state.owner(who).is_current { BEGINS } else { BEGINS_LATE };
        let label = |what| Label { who: Some(who), what, effect: Some(effect) };
        let is_honoured = !self.has_key || run.first.is_none_or(|first| self.is_honoured(state, first));
        let mut to = *state;
        if is_call && !is_honoured && !self.errs(Mistake::NoLookAtWindow) {
            self.be_too_late(to.run_mut(who));
            return go(label(TOO_LATE), to);
        }
        self.check_begin(&mut to, who, effect);
        to.begun |= 1 << effect.at();
        let run = to.run_mut(who);
        run.stage = Stage::Begun;
        run.attempts += u8::from(self.faults.exhausts);
        if is_call && run.acted == Acted::No {
            run.acted = Acted::Now;
        }
        go(label(what), to);
    }

    /// Settles what is decided, or writes what is known and takes back what has certainly not begun; goes on without the
    /// task.
    fn be_revoked(&self, state: &State, who: u8, go: Go<'_>) {
        if state.left.revocations == 0 || !state.owner(who).is_current {
            return;
        }
        let mut to = *state;
        to.left.revocations -= 1;
        match state.run(who).stage {
            Stage::Decided(outcome) => self.settle(&mut to, who, outcome),
            // What nobody has looked at may have been begun by another.
            Stage::New if !self.errs(Mistake::UnjudgedReleased) => {}
            Stage::Begun if !self.errs(Mistake::BegunReleased) => {}
            _ => self.release(&mut to, who),
        }
        self.lose(&mut to, who);
        go(label(who, REVOKED), to);
    }

    /// The owner forgets the task; what it has begun goes on without it.
    pub(super) fn lose(&self, state: &mut State, who: u8) {
        let owner = std::mem::take(state.owner_mut(who));
        if let (Stage::Begun, Next::Work(work)) = (owner.run.stage, self.next(&owner.run.known)) {
            state.leave(Effect { version: owner.run.version, work });
        }
    }

    /// The handler's run ends with an error, between two steps or with a result that is not written.
    fn fail_run(&self, state: &State, who: u8, go: Go<'_>) {
        let owner = state.owner(who);
        let may_fail = match owner.run.stage {
            Stage::Unwritten | Stage::Chooses => owner.run.has_news,
            Stage::Decided(Outcome::Done | Outcome::Rejected) => true,
            _ => false,
        };
        if state.left.fails == 0 || !owner.is_current || !may_fail {
            return;
        }
        let mut to = *state;
        to.left.fails -= 1;
        self.run_again(&mut to, who);
        go(label(who, RUN_FAILS), to);
    }
}

fn label(who: u8, what: &'static str) -> Label {
    Label { who: Some(who), what, effect: None }
}
