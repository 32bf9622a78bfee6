//! What distinguishes one moment from another.

use super::Faults;
use crate::search::Wrong;

/// How many steps a handler may have.
pub const STEPS: usize = 3;
/// How many versions there may be.
pub const VERSIONS: usize = 2;
/// How many records there may be.
pub const RECORDS: usize = 3;
/// How many effects: of each version, those of its steps, and what undoes them.
pub const EFFECTS: usize = 2 * STEPS * VERSIONS;

/// What a step comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepResult {
    /// It has acted, with this result.
    Done(u8),
    /// It has not, and never will.
    Rejected,
}

/// A step, or what undoes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    Step(u8),
    Undo(u8),
}

impl Work {
    pub fn step(self) -> u8 {
        match self {
            Self::Step(step) | Self::Undo(step) => step,
        }
    }
}

/// What keys are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    pub version: u8,
    pub work: Work,
}

impl Effect {
    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..EFFECTS as u8).map(|at| {
            let (version, at) = (at / (2 * STEPS as u8), at % (2 * STEPS as u8));
            let work = if at < STEPS as u8 { Work::Step(at) } else { Work::Undo(at - STEPS as u8) };
            Self { version, work }
        })
    }

    /// Where it stands among all.
    pub fn at(self) -> usize {
        let first = usize::from(self.version) * 2 * STEPS;
        match self.work {
            Work::Step(step) => first + usize::from(step),
            Work::Undo(step) => first + STEPS + usize::from(step),
        }
    }
}

/// What was recorded of a handler's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Journal {
    /// The results of its steps.
    pub results: [Option<StepResult>; STEPS],
    /// Whether it is finally rejected.
    pub is_rejected: bool,
    /// The steps that are undone.
    pub undone: u8,
    /// Whether what is next may have begun.
    pub mark: bool,
}

impl Journal {
    /// How many steps have a result.
    pub fn count(&self) -> u8 {
        self.results.iter().flatten().count() as u8
    }

    /// Notes what came next.
    pub fn push(&mut self, work: Work, result: StepResult) {
        self.mark = false;
        match work {
            Work::Step(step) => self.results[usize::from(step)] = Some(result),
            Work::Undo(step) => self.undone |= 1 << step,
        }
    }
}

/// What was settled last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    Done,
    Failed,
    /// Given up, though an attempt may have acted: with its first step, since this time, or half-way through (`None`).
    GivenUp {
        first: Option<u8>,
    },
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    pub version: u8,
    /// Since when what is next may have begun; `None` if it certainly has not, and must not before this is written anew.
    pub first: Option<u8>,
    pub journal: Journal,
}

/// What is remembered of the identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    pub settled: Option<(u8, Settled)>,
    pub reserved: Option<Reservation>,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Done,
    Rejected,
    InDoubt,
    Exhausted,
    Duplicate,
    Stale,
    /// It vanished from the input before it was settled.
    Gone,
}

/// How far an owner is with a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    #[default]
    New,
    /// The handler decides how to go on.
    Chooses,
    /// What is known, and that the next step may begin, has to be written first.
    Unwritten,
    Ready,
    Begun,
    /// To be settled.
    Decided(Outcome),
}

/// Whether an attempt of the next step may have acted, as far as its owner knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Acted {
    #[default]
    No,
    /// The one that is under way.
    Now,
    /// One before.
    Before,
}

/// A handler's run for a record, in its owner's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Run {
    pub stage: Stage,
    pub version: u8,
    /// What the handler knows.
    pub known: Journal,
    /// Whether some of that is not written.
    pub has_news: bool,
    /// Whether a reservation is written, or needs not be.
    pub is_reserved: bool,
    /// Since when what is next may have begun, as it is written; `None` if that is still to be written.
    pub first: Option<u8>,
    pub acted: Acted,
    pub attempts: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Life {
    #[default]
    Down,
    Live,
    Frozen,
}

/// An instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    pub life: Life,
    /// Whether its group generation is the current one.
    pub is_current: bool,
    pub run: Run,
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u8,
    pub entry: Entry,
    /// The group's offset: all records before it are settled.
    pub offset: u8,
    pub owners: [Owner; 2],
    /// Steps under way that nobody waits for.
    pub orphans: [u8; EFFECTS],
    /// What happened, and when the provider saw each key, with the result; what the database has a row of.
    pub acts: [u8; EFFECTS],
    pub keys: [Option<(u8, u8)>; EFFECTS],
    pub rows: [Option<StepResult>; EFFECTS],
    /// How often each effect may happen: once, and once more whenever it was written that it is called again.
    pub allowed: [u8; EFFECTS],
    /// All that was ever recorded.
    pub recorded: [Journal; VERSIONS],
    /// The effects that somebody has begun.
    pub begun: u16,
    pub verdicts: [Option<Outcome>; RECORDS],
    pub left: Left,
    pub wrong: Option<Wrong>,
}

/// How often something may still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub kills: u8,
    pub freezes: u8,
    pub revocations: u8,
    pub answers: u8,
    pub commits: u8,
    pub aborts: u8,
    pub fails: u8,
    pub vanish: u8,
}

impl State {
    pub fn new(faults: &Faults) -> Self {
        let Faults { kills, freezes, revocations, answers, commits, aborts, fails, vanish, .. } = *faults;
        Self {
            now: 0,
            entry: Entry::default(),
            offset: 0,
            owners: [Owner::default(); 2],
            orphans: [0; EFFECTS],
            acts: [0; EFFECTS],
            keys: [None; EFFECTS],
            rows: [None; EFFECTS],
            allowed: [1; EFFECTS],
            recorded: [Journal::default(); VERSIONS],
            begun: 0,
            verdicts: [None; RECORDS],
            left: Left { kills, freezes, revocations, answers, commits, aborts, fails, vanish },
            wrong: None,
        }
    }

    /// Notes what is wrong, if nothing was before.
    pub fn fail(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    pub fn owner(&self, who: u8) -> &Owner {
        &self.owners[usize::from(who)]
    }

    pub fn owner_mut(&mut self, who: u8) -> &mut Owner {
        &mut self.owners[usize::from(who)]
    }

    pub fn run(&self, who: u8) -> &Run {
        &self.owner(who).run
    }

    pub fn run_mut(&mut self, who: u8) -> &mut Run {
        &mut self.owner_mut(who).run
    }

    pub fn acts_of(&self, version: u8, work: Work) -> u8 {
        self.acts[Effect { version, work }.at()]
    }

    /// What the version's records came to.
    pub fn has_verdict(&self, records: &[u8], version: u8, outcome: Outcome) -> bool {
        records.iter().zip(self.verdicts).any(|(of, verdict)| *of == version && verdict == Some(outcome))
    }

    /// Nobody waits any more for a step that was begun.
    pub fn leave(&mut self, effect: Effect) {
        let orphans = &mut self.orphans[effect.at()];
        *orphans = (*orphans + 1).min(2);
    }

    /// Forgets what nobody asks for any more, so that moments that differ in nothing else are one: all that a former
    /// owner knows but for the step that it is in.
    pub fn forget(&mut self) {
        for owner in &mut self.owners {
            if !owner.is_current && !matches!(owner.run.stage, Stage::Ready | Stage::Begun) {
                owner.run = Run::default();
            }
        }
    }
}
