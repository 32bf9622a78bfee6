//! The commit protocol of `sink: postgres` for two tasks in one lane's transaction, and two lanes that take them from
//! each other.
//!
//! What one task's world leaves out: rows that are locked one after the other, a count of 0 for one task of several,
//! tasks that restore while the lane works on, a redo for each task. What that world is about is kept short here: a
//! Kafka transaction is one step until its commit is asked for, stores are rebuilt, nothing goes back in time.

mod state;
mod steps;

use std::fmt::{self, Display};

use crate::mistakes::Mistake;
use crate::search::{World, Wrong};
use state::{State, TASKS};

/// A world of two tasks and two lanes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lanes {
    /// How many records each task has.
    pub records: u8,
    /// How often a task moves from one lane to the other.
    pub moves: u8,
    /// How often an instance is killed.
    pub kills: u8,
    /// What is done wrong on purpose.
    pub mistakes: &'static [Mistake],
}

impl Lanes {
    fn errs(&self, mistake: Mistake) -> bool {
        self.mistakes.contains(&mistake)
    }
}

/// A step: whose, which, and of which tasks.
#[derive(Clone, Copy)]
pub struct Label {
    who: u8,
    what: &'static str,
    set: u8,
}

impl Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.who != state::NOBODY {
            write!(f, "{}: ", char::from(b'A' + self.who))?;
        }
        let of = ["", " (task 0)", " (task 1)", " (both tasks)"][usize::from(self.set)];
        write!(f, "{}{of}", self.what)
    }
}

impl World for Lanes {
    type State = State;
    type Label = Label;

    fn initial(&self) -> State {
        State::new(self)
    }

    fn steps(&self, state: &State, report: &mut dyn FnMut(Label, State, Option<Wrong>)) {
        let mut go = |label: Label, mut to: State, wrong: Option<Wrong>| {
            to.renumber();
            report(label, to, wrong);
        };
        (0..2).for_each(|who| self.lane_steps(state, who, &mut go));
        self.outside_steps(state, &mut go);
    }

    fn judge(&self, state: &State) -> Option<Wrong> {
        for task in TASKS {
            let (row, log) = (state.rows[task], state.logs[task]);
            let past = (1_u8 << log.at) - 1;
            if past & !row.done != 0 {
                return Some("EFFECT LOST: Kafka is past a record whose effect is not in the database");
            }
            if past & !state.letters[task] != 0 {
                return Some("STEP 4 LOST: Kafka is past a record whose dead letter was not written");
            }
            if row.redo.token != log.token && row.redo.former != log.token {
                return Some("APART: a row and Kafka differ by more than one transaction");
            }
        }
        state.is_deadlocked(self).then_some("DEADLOCK: two lanes wait for each other's rows")
    }

    fn is_end(&self, state: &State) -> bool {
        TASKS.iter().all(|&task| {
            let (row, log) = (state.rows[task], state.logs[task]);
            log.at == self.records && log.token == row.redo.token && state.letters[task] == (1 << self.records) - 1
        })
    }

    fn is_fault(&self, label: &Label) -> bool {
        steps::FAULTS.contains(&label.what)
    }

    fn situation(&self, label: &Label) -> Option<&'static str> {
        Some(label.what)
    }
}
