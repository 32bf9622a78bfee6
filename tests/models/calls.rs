//! The protocol of calls to the outside (`sink: http` and handlers): reserve, act, settle. For one task, the instances
//! that own it in turn, and a provider.
//!
//! - `state`: what distinguishes one moment from another, and what may never be
//! - `owner`: what an instance does: reserving, sending, committing; `judging`: what it makes of a record
//! - `outside`: what the provider, the group, time and people do, and what goes wrong
//! - `worlds`: which worlds hold, and how large they are; `traces`: each mistake, and how it is found
//!
//! An input of up to four records is worked through, within a window in which two calls are under way. Every transaction
//! is one step; its answer may be lost, whatever it did. A clock has a few ticks: the provider honours a key for two of
//! them, and a call is over within one.

mod judging;
mod outside;
mod owner;
mod state;
mod traces;
mod worlds;

use std::fmt::{self, Display};

use crate::search::{World, Wrong};
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
    Record { identity, version, effect, time: Some(0), is_invalid: false, early: false }
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
        vanish: 0,
        ticks: 2,
        rejects: false,
        exhausts: false,
        sweeps: false,
        lingers: false,
        excuses_limits: false,
    };
}

/// What can be done wrong on purpose. Those from [`Mistake::NoList`] on leave out a sentence of the design that was found
/// to be needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A settlement is written by whoever has made the call.
    ZombieSettles,
    /// The reservation is written after the call.
    ReservedAfter,
    /// The key is made of the attempt.
    KeyOfAttempt,
    /// The key is made of the record's coordinates.
    KeyOfCoordinates,
    /// The group's offset is that of the last settled record.
    OffsetBeyond,
    /// Calls of one identity are under way at once.
    TwoAtOnce,
    /// An identity that is reserved counts as done.
    ReservedIsDone,
    /// A call whose attempts are exhausted is remembered as settled.
    ExhaustedIsDone,
    /// A record that comes again is a duplicate of itself.
    ItselfIsDuplicate,
    /// A record that comes again is called again.
    ItselfIsNew,
    /// Coordinates are compared without the topic's id.
    NoTopicId,
    /// Where no key is honoured, an ambiguous answer is tried again though nobody has asked for that.
    AmbiguousAgain,
    /// A call in doubt is tried again also where the key is no longer honoured.
    RetryAfterWindow,
    /// The position record does not list what is settled beyond its offset.
    NoList,
    /// Calls without a reservation are not preceded by a grant: the record's age decides.
    NoGrant,
    /// Stream time beyond the settled prefix is committed.
    StreamTimeBeyond,
    /// A reservation whose record does not come is waited for.
    NoAdoption,
    /// A reservation overwrites what was settled.
    ReservationOverSettlement,
    /// A stop leaves behind what was reserved and never sent.
    NoRelease,
    /// A call that is exhausted is forgotten, though an attempt may have acted.
    ExhaustedForgotten,
    /// A rejection counts although an attempt before it may have acted.
    RejectedAfterAll,
    /// The key's window is not looked at when a request is sent.
    NoLookAtWindow,
}

/// A world.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub records: &'static [Record],
    /// Whether the provider honours a key.
    pub has_key: bool,
    pub reserve: Reserve,
    pub in_doubt: InDoubt,
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

    /// Whether an effect is promised to happen once at most.
    fn promises_once(&self) -> bool {
        // A grant does not say whose records the calls were of: those that vanish take that with them.
        let forgets = self.reserve == Reserve::Auto && self.faults.vanish > 0 && self.faults.excuses_limits;
        !forgets && (self.has_key || self.in_doubt == InDoubt::DeadLetter)
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
        let mut go = |label: Label, to: State| report(label, to, to.wrong);
        for who in 0..state.owners.len() as u8 {
            self.owner_steps(state, who, &mut go);
        }
        self.outside_steps(state, &mut go);
    }

    fn judge(&self, state: &State) -> Option<Wrong> {
        if self.is_end(state) { self.judge_end(state) } else { None }
    }

    fn is_end(&self, state: &State) -> bool {
        state.prefix >= self.count() && state.offset >= self.count()
    }

    fn is_fault(&self, label: &Label) -> bool {
        outside::FAULTS.contains(&label.what)
    }

    fn situation(&self, label: &Label) -> Option<&'static str> {
        Some(label.what)
    }
}
