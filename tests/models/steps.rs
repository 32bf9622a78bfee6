//! The protocol of a handler's steps: journal, mark, act, undo. For the records of one identity, the instances that own
//! their task in turn, a provider, and a database.
//!
//! - `state`: what distinguishes one moment from another; `promises`: what may never be
//! - `owner`: what an instance does: restoring, judging, beginning, leaving; `running`: what becomes of a handler's run;
//!   `writing`: its transactions
//! - `provider`: what becomes of a step that was begun; `outside`: what the group and time do, and what goes wrong
//! - `mistake`: what could be done wrong; `traces`: each mistake, and how it is found
//! - `worlds`: which worlds hold; `large`: those of millions of states
//!
//! A handler has up to three steps: calls and transactions, which may be rejected, and which it may have something
//! registered to undo. It is run for a record and for its duplicates; a newer version may come between them. A Kafka
//! transaction is one step: committed, aborted, or of unknown outcome. A clock has a few ticks: the provider honours a
//! key for two of them, and a call is over within one. The commit of a database's transaction may be decided at any time.
//!
//! The ordinary worlds have up to 0.2 million states each, 3.5 million together; `large` ones some millions each.
//!
//! What is promised, in each of the four ways in which a topology can be written (with a key or without one; in doubt to
//! the dead letters, or called again):
//!
//! - a step that is a transaction happens once, and is never in doubt
//! - a call happens once at most; where a call in doubt is made again, and a key is honoured, once more only after the
//!   reservation has said so; without a key, there, at least once
//! - a step begins only after the results of all before it are committed, and a run of the handler sees those results;
//!   what is recorded never changes and never vanishes
//! - what is recorded as rejected has not acted, and never will
//! - what is registered to undo the steps of a handler that is finally rejected happens as often as any step, in reverse
//!   order, and never for one that ends well, or whose rejection is in doubt
//! - every record is settled, once; nothing counts as done or duplicate that never happened; a call that nobody has made
//!   is not in doubt, unless an instance died, froze or had to restore
//! - everything is settled once the faults stop
//!
//! Two limits stay: a handler that decides otherwise on the same results, but at its end; and a command to run again what
//! was undone, which has the keys of before.
//!
//! What is not in it: what the model of calls has (several identities, the window of records, grants, the position record,
//! other commands); a handler whose steps are others than the journal's, after which nothing happens.

mod large;
mod mistake;
mod outside;
mod owner;
mod promises;
mod provider;
mod running;
mod state;
mod traces;
mod worlds;
mod writing;

use std::fmt::{self, Display};

use crate::search::{World, Wrong};
use mistake::Mistake;
use state::{Effect, Journal, State, StepResult, Work};

/// How many ticks the provider honours a key for.
const HONOURED: u8 = 2;
/// After how many attempts a handler is exhausted, where that is in the world.
const ATTEMPTS: u8 = 2;

/// A step of the handler.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Whether it is a transaction of the database's; else it is a call. What undoes it is of the same kind.
    is_transaction: bool,
    /// Whether it may be rejected; unless it is optional, the handler is rejected then.
    may_be_rejected: bool,
    is_optional: bool,
    /// Whether something is registered to undo it, once it is done.
    has_undo: bool,
}

/// What is done with a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InDoubt {
    DeadLetter,
    Retry,
}

/// What may go wrong, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Instances are killed.
    pub kills: u8,
    /// Instances freeze, lose the task meanwhile, and go on.
    pub freezes: u8,
    /// An instance loses the task, and knows it.
    pub revocations: u8,
    /// A step fails: its answer is lost, it certainly has not acted, or it is rejected.
    pub answers: u8,
    /// The outcome of a Kafka transaction is unknown.
    pub commits: u8,
    /// A Kafka transaction is aborted, and its owner knows it.
    pub aborts: u8,
    /// A handler's run fails of itself.
    pub fails: u8,
    /// The record that is next vanishes from the input.
    pub vanish: u8,
    /// How far the clock goes.
    pub ticks: u8,
    /// Attempts are bounded.
    pub exhausts: bool,
    /// Rows of what is settled are removed from the database.
    pub removals: bool,
    /// A person orders that what has failed is run again.
    pub orders: bool,
}

impl Faults {
    const NONE: Self = Self {
        kills: 0,
        freezes: 0,
        revocations: 0,
        answers: 0,
        commits: 0,
        aborts: 0,
        fails: 0,
        vanish: 0,
        ticks: 0,
        exhausts: false,
        removals: false,
        orders: false,
    };
}

/// A world.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    pub steps: &'static [Step],
    /// The version of each record, from 0 on.
    pub records: &'static [u8],
    /// Whether the provider honours a key.
    pub has_key: bool,
    pub in_doubt: InDoubt,
    /// Whether the handler may reject what has been done when all its steps are, one way or the other at each run.
    pub decides: bool,
    /// Whether it may do so before each step, which it must not.
    pub wavers: bool,
    pub faults: Faults,
    pub mistakes: &'static [Mistake],
}

/// What a handler does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Work(Work),
    /// It has heard of all its steps.
    End,
    /// A step was rejected that is not optional, and the handler with it.
    Rejected,
    /// Everything is undone.
    Undone,
}

impl Steps {
    fn errs(&self, mistake: Mistake) -> bool {
        self.mistakes.contains(&mistake)
    }

    fn count(&self) -> u8 {
        self.records.len() as u8
    }

    /// Whether a call of this age may still be made under its key.
    fn is_honoured(&self, state: &State, first: u8) -> bool {
        state.now - first < HONOURED
    }

    fn is_transaction(&self, work: Work) -> bool {
        self.steps[usize::from(work.step())].is_transaction
    }

    /// Whether a mark has to be committed before it begins.
    fn is_marked(&self, work: Work) -> bool {
        !self.has_key && !self.is_transaction(work) && !self.errs(Mistake::NoMark)
    }

    /// The steps that something is registered to undo.
    fn registered(&self, journal: &Journal) -> impl Iterator<Item = u8> {
        let is_done = |step: &u8| matches!(journal.results[usize::from(*step)], Some(StepResult::Done(_)));
        let registered: Vec<u8> = (0..self.steps.len() as u8)
            .filter(is_done)
            .filter(|step| self.steps[usize::from(*step)].has_undo)
            .collect();
        registered.into_iter().rev()
    }

    fn next(&self, journal: &Journal) -> Next {
        if journal.is_rejected {
            let is_open = |step: &u8| journal.undone >> step & 1 == 0;
            let mut open = self.registered(journal).filter(is_open);
            let next = if self.errs(Mistake::UndoneInOrder) { open.last() } else { open.next() };
            return next.map_or(Next::Undone, |step| Next::Work(Work::Undo(step)));
        }
        let count = journal.count();
        let is_final =
            |step: usize| journal.results[step] == Some(StepResult::Rejected) && !self.steps[step].is_optional;
        match usize::from(count) {
            0 => Next::Work(Work::Step(0)),
            count if is_final(count - 1) => Next::Rejected,
            all if all == self.steps.len() => Next::End,
            _ => Next::Work(Work::Step(count)),
        }
    }
}

/// A step of the world's: whose, which, and of which effect.
#[derive(Clone, Copy)]
pub struct Label {
    who: Option<u8>,
    what: &'static str,
    effect: Option<Effect>,
}

impl Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(who) = self.who {
            write!(f, "{}: ", char::from(b'A' + who))?;
        }
        write!(f, "{}", self.what)?;
        match self.effect {
            Some(Effect { version, work: Work::Step(step) }) => write!(f, " (version {version}, step {step})"),
            Some(Effect { version, work: Work::Undo(step) }) => write!(f, " (version {version}, undoing step {step})"),
            None => Ok(()),
        }
    }
}

impl World for Steps {
    type State = State;
    type Label = Label;

    fn initial(&self) -> State {
        State::new(&self.faults)
    }

    fn steps(&self, state: &State, report: &mut dyn FnMut(Label, State, Option<Wrong>)) {
        let mut go = |label: Label, mut to: State| {
            if !self.errs(Mistake::NotFenced) {
                to.forget();
            }
            report(label, to, to.wrong);
        };
        for who in 0..state.owners.len() as u8 {
            self.owner_steps(state, who, &mut go);
        }
        self.provider_steps(state, &mut go);
        self.outside_steps(state, &mut go);
    }

    fn judge(&self, state: &State) -> Option<Wrong> {
        if self.is_end(state) { self.judge_end(state) } else { None }
    }

    fn is_end(&self, state: &State) -> bool {
        state.offset == self.count()
    }

    fn is_fault(&self, label: &Label) -> bool {
        outside::FAULTS.contains(&label.what)
    }

    fn situation(&self, label: &Label) -> Option<&'static str> {
        Some(label.what)
    }
}
