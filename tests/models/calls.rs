//! The protocol of calls to the outside (`sink: http` and handlers): reserve, act, settle. For one task, the instances
//! that own it in turn, and a provider.
//!
//! - `state`: what distinguishes one moment from another; `promises`: what may never be
//! - `owner`: what an instance does: restoring, sending, leaving; `judging`: what it makes of a record; `writing`: its
//!   transactions; `control`: commands that it carries out
//! - `provider`: what becomes of requests; `outside`: what the group, time and people do, and what goes wrong
//! - `mistake`: what could be done wrong; `traces`: each mistake, and how it is found
//! - `worlds`: which worlds hold; `large`: those of millions of states
//!
//! An input of up to four records is worked through, within a window in which two calls are under way. A transaction
//! is one step, or two where the world says so, with requests and answers between them; its answer may be lost,
//! whatever it did. A clock has a few ticks: the provider honours a key for two of them, and a call is over within one.
//!
//! The ordinary worlds have up to 0.4 million states each, 10 million together; `large` ones up to 5.8 million each (an
//! owner that freezes, a commit of unknown outcome and an answer that is lost at once, without a key, called again).
//!
//! What is promised, in each of the six ways in which a topology can be written (with a key, reserved always or where a
//! grant does not do; without one; in doubt to the dead letters, or called again):
//!
//! - an effect happens once at most; where a call in doubt is made again, and a key is honoured, once more only after a
//!   reservation has said so; without a key, there, at least once
//! - every record is settled, once, by the current owner; none is passed over; nothing counts as done, duplicate or
//!   stale that never happened, and nothing as rejected that did
//! - a result is written once for a record, and is the first one's
//! - a call that nobody has made is not in doubt, unless a grant is all that is known of it; no call is given up
//!   because the provider is down
//! - a command is carried out once and acknowledged once
//! - everything is worked through once the faults stop
//!
//! What is not in it: a duplicate that is settled in the transaction of its original (two steps here); a request that
//! is withdrawn (it was never sent); `on_in_doubt: fail`, after which nothing happens; other tasks of the lane; segments
//! of a scope, and truncates; how long anything waits.

mod control;
mod judging;
mod large;
mod mistake;
mod outside;
mod owner;
mod promises;
mod provider;
mod state;
mod traces;
mod worlds;
mod writing;

use std::fmt::{self, Display};

use crate::search::{World, Wrong};
use mistake::Mistake;
use state::{Entry, Keys, State};

/// How many ticks the provider honours a key for.
const HONOURED: u8 = 2;
/// How long a grant counts without a reservation.
const GRANTED: u8 = 1;
/// How long identities are remembered, in stream time.
const RETENTION: u8 = 3;
/// How many calls may be under way.
const IN_FLIGHT: usize = 2;
/// After how many attempts a call is exhausted, where that is in the world.
const ATTEMPTS: u8 = 2;

/// A record of the input.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// What is recognised.
    identity: u8,
    /// The scope of its version, in the order in which they start; the first one is known from before.
    scope: u8,
    version: u8,
    /// The effect: identity and version have one.
    effect: u8,
    /// Its place in stream time; `None` if it says nothing about that.
    time: Option<u8>,
    /// Whether it cannot be judged at all; with `early`, only before the first tick, as a time in the future is.
    is_invalid: bool,
    early: bool,
}

/// A record of this identity, version and effect.
const fn record(identity: u8, version: u8, effect: u8) -> Record {
    Record { identity, scope: 0, version, effect, time: Some(0), is_invalid: false, early: false }
}

/// Whether reservations are written before each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    Always,
    /// Only where the position record's grant does not do.
    Auto,
}

/// What is done with a call in doubt, and with whatever may have acted where no key is honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InDoubt {
    DeadLetter,
    Retry,
}

/// What a person orders for the first identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// It has happened.
    Done,
    /// It has not, and is not to.
    Drop,
    /// It has not, and is to be called again.
    Retry,
}

/// What may go wrong, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Instances are killed.
    pub kills: u8,
    /// Instances freeze, lose the task meanwhile, and go on.
    pub freezes: u8,
    /// The group is reset to the beginning.
    pub resets: u8,
    /// An answer is lost, or is a failure.
    pub answers: u8,
    /// A transaction's answer is lost.
    pub commits: u8,
    /// An instance is asked to stop.
    pub stops: u8,
    /// An instance loses the task, and knows it.
    pub revocations: u8,
    /// The provider goes down.
    pub downs: u8,
    /// Input records vanish, from the beginning on.
    pub vanish: u8,
    /// How far the clock goes.
    pub ticks: u8,
    /// The provider refuses a request for good.
    pub rejects: bool,
    /// Attempts are bounded.
    pub exhausts: bool,
    /// Entries that have expired are removed.
    pub sweeps: bool,
    /// A request lingers in the network for longer than a call may take.
    pub lingers: bool,
    /// What a limit of the design brings about is no fault of the protocol.
    pub excuses_limits: bool,
}

impl Faults {
    const NONE: Self = Self {
        kills: 0,
        freezes: 0,
        resets: 0,
        answers: 0,
        commits: 0,
        stops: 0,
        revocations: 0,
        downs: 0,
        vanish: 0,
        ticks: 2,
        rejects: false,
        exhausts: false,
        sweeps: false,
        lingers: false,
        excuses_limits: false,
    };
}

/// A world.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub records: &'static [Record],
    /// Whether the provider honours a key.
    pub has_key: bool,
    pub reserve: Reserve,
    pub in_doubt: InDoubt,
    /// Whether calls wait while the provider is down.
    pub holds: bool,
    /// Whether a transaction is two steps.
    pub apart: bool,
    /// What is ordered, at any time.
    pub command: Option<Command>,
    /// What is remembered of the first identity from before.
    pub before: Option<Entry>,
    pub faults: Faults,
    pub mistakes: &'static [Mistake],
}

impl Calls {
    fn errs(&self, mistake: Mistake) -> bool {
        self.mistakes.contains(&mistake)
    }

    fn count(&self) -> u8 {
        self.records.len() as u8
    }

    fn record(&self, at: u8) -> &Record {
        &self.records[usize::from(at)]
    }

    /// Whether a request of this age may still be made under its key.
    fn is_honoured(&self, state: &State, first: u8) -> bool {
        state.now - first < HONOURED
    }

    /// What keys are made of.
    fn keys(&self) -> Keys {
        match () {
            () if !self.has_key || self.errs(Mistake::KeyOfAttempt) => Keys::None,
            () if self.errs(Mistake::KeyOfCoordinates) => Keys::Records,
            () => Keys::Effects,
        }
    }
}

/// A step: whose, which, and of which record.
#[derive(Clone, Copy)]
pub struct Label {
    who: Option<u8>,
    what: &'static str,
    record: Option<u8>,
}

impl Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(who) = self.who {
            write!(f, "{}: ", char::from(b'A' + who))?;
        }
        write!(f, "{}", self.what)?;
        self.record.map_or(Ok(()), |record| write!(f, " (record {record})"))
    }
}

impl World for Calls {
    type State = State;
    type Label = Label;

    fn initial(&self) -> State {
        State::new(self)
    }

    fn steps(&self, state: &State, report: &mut dyn FnMut(Label, State, Option<Wrong>)) {
        let mut go = |label: Label, mut to: State| {
            to.forget();
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
        self.is_done(state)
    }

    fn is_fault(&self, label: &Label) -> bool {
        outside::FAULTS.contains(&label.what)
    }

    fn situation(&self, label: &Label) -> Option<&'static str> {
        Some(label.what)
    }
}
