//! The commit protocol of `sink: postgres`, for one task and the instances that own it in turn.
//!
//! - `state`: what distinguishes one moment from another; `names`: equal moments are equal states
//! - `owner`: what an instance does: restore, second look, a commit up to the database's; `kafka`: what comes after
//! - `outside`: what PostgreSQL, Kafka, the group and people do, and what goes wrong
//!
//! An input of up to four records is worked through; the third one is a duplicate of the first. Every record leaves
//! one thing in what step 4 writes (a dead letter, an audit record), every new identity one effect in the database.
//! Batches are of any size up to a bound.
//!
//! These need no bound, and every world has them: an instance is killed at any step, or loses its partition and goes on
//! as a zombie until something stops it; a claim waits; the answer of `COMMIT` and of Kafka's commit is lost, whatever
//! they did; PostgreSQL rolls back, Kafka aborts; a transaction's markers reach the changelog and the group apart from
//! each other and later than the answer. Other [`Faults`] are counted.

mod kafka;
mod names;
mod outside;
mod owner;
mod state;

use std::fmt::{self, Display};

use crate::mistakes::Mistake;
use crate::search::{World, Wrong};
use state::{Phase, State};

/// What may go wrong, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Instances lose their store with their life.
    pub disks: bool,
    /// A statement fails, the transaction with it; the group's generation changes under an owner that keeps its task.
    pub failures: bool,
    /// The group is reset to its beginning or deleted; with `forwards`, to the end in place of the beginning.
    pub resets: u8,
    /// See `resets`.
    pub forwards: bool,
    /// A late copy of a request sets the group's offset and text back.
    pub copies: u8,
    /// A transaction without records.
    pub sweeps: u8,
    /// An owner hands over its partition in order.
    pub releases: u8,
    /// The database goes back: to before its last commit, or to the backup if one was taken.
    pub database_back: u8,
    /// A backup of the database is taken.
    pub backups: u8,
    /// The changelog loses its last transaction.
    pub changelog_back: u8,
}

impl Faults {
    /// Only what every world has.
    pub const NONE: Self = Self {
        disks: false,
        failures: false,
        resets: 0,
        forwards: false,
        copies: 0,
        sweeps: 0,
        releases: 0,
        database_back: 0,
        backups: 0,
        changelog_back: 0,
    };
}

/// A world of one task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Postgres {
    /// How many records the input has: up to 4.
    pub records: u8,
    /// How many instances there are: up to 3.
    pub owners: u8,
    /// How many records a batch may have.
    pub batch_max: u8,
    /// Whether the group's text names transactional ids: owners claim and release it, heirs fence what it names.
    pub claims: bool,
    /// Whether a transaction's markers reach the changelog and the group apart from each other, after the answer.
    pub apart: bool,
    /// Whether the second look also wants the row's token to be the one that was claimed, not only the epoch.
    pub wary: bool,
    /// What goes wrong beside what always may.
    pub faults: Faults,
    /// What is done wrong on purpose.
    pub mistakes: &'static [Mistake],
}

/// The identities of the input's records.
const IDENTITIES: [u8; 4] = [0, 1, 0, 2];

impl Postgres {
    fn errs(&self, mistake: Mistake) -> bool {
        self.mistakes.contains(&mistake)
    }

    /// The situations that have to be reached in this world.
    pub fn expected(&self) -> Vec<&'static str> {
        use outside::*;
        let faults = &self.faults;
        let of = |is_on: bool, situations: &[&'static str]| if is_on { situations.to_vec() } else { Vec::new() };
        [
            vec![KILLED, ANSWER_LOST, OUTCOME_LOST, CLAIM_LOST, owner::ONE_AHEAD],
            of(self.owners > 1, &[MOVED, owner::FENCED, kafka::ANOTHER_GENERATION]),
            of(self.owners > 1 && self.records > 1, &[owner::LOOKED_AGAIN]),
            of(self.claims, &[kafka::CLAIMED]),
            of(faults.disks, &[KILLED_WITH_DISK]),
            of(faults.failures, &[STATEMENT_FAILS, NEW_GENERATION, ROLLED_BACK]),
            of(faults.resets > 0, &[RESET, DELETED]),
            of(faults.copies > 0, &[COPIED]),
            of(faults.sweeps > 0, &[owner::SWEEPS]),
            of(faults.releases > 0, &[kafka::RELEASED]),
            of(faults.database_back > 0, &[FAILED_OVER, owner::REFUSED]),
            of(faults.backups > 0, &[RESTORED]),
            of(faults.changelog_back > 0, &[TAIL_LOST, owner::REFUSED_CHANGELOG]),
        ]
        .concat()
    }

    /// All records, as a set.
    fn all(&self) -> u8 {
        (1 << self.records) - 1
    }

    /// The identities of a set of records, as a set.
    fn identities(&self, records: u8) -> u8 {
        let of = |at: usize| if records >> at & 1 == 1 { 1 << IDENTITIES[at] } else { 0 };
        (0..usize::from(self.records)).fold(0, |all, at| all | of(at))
    }
}

/// A step: whose, and which.
#[derive(Clone, Copy)]
pub struct Label {
    who: u8,
    what: &'static str,
    token: u8,
}

impl Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.who {
            state::NOBODY => write!(f, "{}", self.what)?,
            who => write!(f, "{}: {}", char::from(b'A' + who), self.what)?,
        }
        match self.token {
            0 => Ok(()),
            // Taken in this very step, and numbered after it.
            state::FRESH => write!(f, " (a new token)"),
            token => write!(f, " (token {token})"),
        }
    }
}

impl World for Postgres {
    type State = State;
    type Label = Label;

    fn initial(&self) -> State {
        let mut state = State::new(&self.faults);
        names::renumber(&mut state);
        state
    }

    fn steps(&self, state: &State, report: &mut dyn FnMut(Label, State, Option<Wrong>)) {
        let mut go = |label: Label, mut to: State, wrong: Option<Wrong>| {
            names::renumber(&mut to);
            report(label, to, wrong);
        };
        (0..self.owners).for_each(|who| self.owner_steps(state, who, &mut go));
        self.outside_steps(state, &mut go);
    }

    fn judge(&self, state: &State) -> Option<Wrong> {
        let kafka = state.decided();
        if !state.went_database && self.identities(state.changelog.past) & !state.row.done != 0 {
            return Some("EFFECT LOST: Kafka is past a record whose effect is not in the database");
        }
        if state.changelog.past & self.all() & !state.letters != 0 {
            return Some("STEP 4 LOST: Kafka is past a record whose dead letter was not written");
        }
        let went = state.went_database || state.went_changelog;
        if !went && !state.row.is_at(kafka) && !state.row.is_after(kafka) {
            return Some("APART: the row and Kafka differ by more than one transaction");
        }
        None
    }

    fn is_end(&self, state: &State) -> bool {
        if state.owners.iter().any(|owner| owner.phase == Phase::Refused) {
            return true;
        }
        let Some(owner) = state.owners.get(usize::from(state.current)) else { return false };
        // What the changelog has lost is noticed by the next transaction, and there is none to come.
        if owner.phase == Phase::Ready && owner.store.beyond && owner.offset == self.records {
            return true;
        }
        let all = if state.went_forward { state.changelog.past & self.all() } else { self.all() };
        owner.phase == Phase::Ready
            && owner.offset == self.records
            && state.changelog.past & self.all() == all
            && state.letters & all == all
            && state.row.done == self.identities(all)
            && state.row.is_at(state.changelog.token)
            && state.open.is_none()
            && state.pending.iter().all(Option::is_none)
    }

    fn is_fault(&self, label: &Label) -> bool {
        outside::FAULTS.contains(&label.what)
    }

    fn situation(&self, label: &Label) -> Option<&'static str> {
        Some(label.what)
    }
}
