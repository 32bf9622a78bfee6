//! Replaying a function's journal: the recorded steps in order, and the function's position among them.
//!
//! A function is the user's code that works on a record, in steps. If the function is run again for the record, a step
//! with a recorded outcome returns that outcome; any other step is carried out. The journal also holds **marks**: the
//! entry [`OwnedStepState::Begun`] of a step says that the step may have been carried out, although its outcome is not
//! known. The entry under the name [`REJECTION_MARK`] says that the function itself has rejected the record.
//!
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::sync::Arc;

use crate::effect::provider::{OwnedStep, OwnedStepState};
use crate::format::{JOURNAL_BYTES_MAX, JournalWriter, RESULT_BYTES_MAX, Step, StepState};
use crate::sabotage::{self, Sabotage};

/// The journal's entry for the step that begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The step was recorded, with this outcome.
    Recorded(OwnedStepState),
    /// No outcome was recorded: the step is carried out now.
    Acts {
        /// Whether its mark is recorded: the step may have been carried out before.
        has_begun_mark: bool,
    },
    /// The recorded step at this position has another name: the function does not repeat its steps.
    Differs,
}

/// The name of the mark for a record that its function has rejected: no step can have this name.
pub(super) const REJECTION_MARK: &str = "";

/// A journal, and the position of a function in it.
#[derive(Debug)]
pub(super) struct Replay {
    journal: Arc<JournalWriter>,
    recorded: Vec<OwnedStep>,
    /// The index of the recorded step that the function reaches next.
    position: usize,
    /// The names of the steps that the function has begun in this attempt.
    begun: Vec<String>,
}

impl Replay {
    pub fn of(journal: Arc<JournalWriter>) -> Self {
        let recorded = journal.as_journal().steps().map(OwnedStep::from).collect();
        Self { journal, recorded, position: 0, begun: Vec::new() }
    }

    /// Whether the function has begun a step of this name in this attempt.
    pub fn has_begun(&self, name: &str) -> bool {
        self.begun.iter().any(|other| other == name)
    }

    /// Begins a step. Returns the journal's entry for it.
    pub fn begin(&mut self, name: &str) -> NextStep {
        self.begun.push(name.to_owned());
        let mut has_begun_mark = false;
        while let Some(step) = self.recorded.get(self.position) {
            if step.name != name {
                return NextStep::Differs;
            }
            self.position += 1;
            match &step.state {
                OwnedStepState::Begun => has_begun_mark = true,
                outcome => return NextStep::Recorded(self.outcome_of(outcome)),
            }
        }
        NextStep::Acts { has_begun_mark }
    }

    /// A recorded outcome, unchanged; with a sabotage, the outcome of the first step that is done.
    fn outcome_of(&self, outcome: &OwnedStepState) -> OwnedStepState {
        let is_done = |outcome: &OwnedStepState| matches!(outcome, OwnedStepState::Done(_));
        let first = || self.recorded.iter().find(|step| is_done(&step.state));
        match first().filter(|_| is_done(outcome) && sabotage::is_on(Sabotage::ResultOfOtherStep)) {
            Some(first) => first.state.clone(),
            None => outcome.clone(),
        }
    }

    /// Whether the function has passed all recorded steps.
    pub fn is_at_end(&self) -> bool {
        self.position == self.recorded.len()
    }

    /// Whether nothing is recorded so far.
    pub fn is_empty(&self) -> bool {
        self.journal.is_empty()
    }

    /// Whether there is room for these steps, and beyond them for two results of the greatest length: one for the next
    /// step, and one for the compensations, which undo the steps if the record is rejected.
    pub fn has_room(&self, steps: &[OwnedStep]) -> bool {
        let mut journal = (*self.journal).clone();
        let fits = steps.iter().all(|step| journal.push(step.as_step()));
        fits && journal.bytes() + 2 * RESULT_BYTES_MAX <= JOURNAL_BYTES_MAX
    }

    /// Whether the next recorded step is the mark that the function has rejected its record.
    pub fn is_at_rejection(&self) -> bool {
        self.recorded.get(self.position).is_some_and(|step| step.name == REJECTION_MARK)
    }

    /// Whether the last recorded step was rejected, or the function has rejected the record.
    pub fn ends_with_rejection(&self) -> bool {
        let is_rejected = |step: &OwnedStep| matches!(step.state, OwnedStepState::Rejected(_));
        self.recorded.last().is_some_and(is_rejected) || self.recorded.iter().any(|step| step.name == REJECTION_MARK)
    }

    /// Adds these steps. If there is no room for all of them, adds none and returns `false`.
    pub fn push(&mut self, steps: &[OwnedStep]) -> bool {
        let mut journal = (*self.journal).clone();
        let fits = steps.iter().all(|step| journal.push(step.as_step()));
        if fits {
            self.journal = Arc::new(journal);
        }
        fits
    }

    /// Whether this step, with its name and its result, is short enough for a journal.
    pub fn fits_empty_journal(step: Step<'_>) -> bool {
        JournalWriter::default().push(step)
    }

    /// A message that the steps differ from the recorded ones, with both lists.
    pub fn difference_message(&self) -> String {
        let mut recorded: Vec<&str> = Vec::new();
        for step in &self.recorded {
            if recorded.last() != Some(&step.name.as_str()) {
                recorded.push(&step.name);
            }
        }
        format!(
            "its steps differ from the remembered ones: remembered are {}; now there are {}. Run the program that has \
             begun the record, or settle the record manually (`ratchet settle`)",
            list(&recorded),
            list(&self.begun.iter().map(String::as_str).collect::<Vec<_>>())
        )
    }
}

/// The names as a list for a message.
fn list(names: &[&str]) -> String {
    let quoted = |name: &&str| if *name == REJECTION_MARK { "(rejected)".to_owned() } else { format!("`{name}`") };
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(quoted).collect::<Vec<_>>().join(", "),
    }
}

/// Whether a step can have this name.
pub(super) fn is_valid_name(name: &str) -> bool {
    name != REJECTION_MARK && Replay::fits_empty_journal(Step { name, state: StepState::Begun })
}

#[cfg(test)]
mod tests {
    //! Goal: a function that is run again gets its recorded outcomes, in order, and no others.

    use super::*;

    fn replay(steps: &[(&str, OwnedStepState)]) -> Replay {
        let mut journal = JournalWriter::default();
        for (name, state) in steps {
            assert!(journal.push(OwnedStep { name: (*name).to_owned(), state: state.clone() }.as_step()));
        }
        Replay::of(Arc::new(journal))
    }

    fn done(result: &[u8]) -> OwnedStepState {
        OwnedStepState::Done(result.to_vec())
    }

    #[test]
    fn recorded_outcomes_are_returned_in_order_before_new_steps_act() {
        let rejected = OwnedStepState::Rejected("no".to_owned());
        let mut replay = replay(&[
            ("a", OwnedStepState::Begun),
            ("a", done(b"1")),
            ("b", rejected.clone()),
            ("c", OwnedStepState::Begun),
        ]);
        assert_eq!(replay.begin("a"), NextStep::Recorded(done(b"1")));
        assert_eq!(replay.begin("b"), NextStep::Recorded(rejected));
        assert!(!replay.is_at_end());
        assert_eq!(replay.begin("c"), NextStep::Acts { has_begun_mark: true });
        assert!(replay.is_at_end());
        assert_eq!(replay.begin("d"), NextStep::Acts { has_begun_mark: false });
    }

    #[test]
    fn different_step_is_reported_with_both_lists() {
        let mut replay =
            replay(&[("a", done(b"1")), ("b", OwnedStepState::Begun), ("b", done(b"2")), (REJECTION_MARK, done(b""))]);
        assert_eq!(replay.begin("a"), NextStep::Recorded(done(b"1")));
        assert_eq!(replay.begin("x"), NextStep::Differs);
        let message = replay.difference_message();
        assert!(message.contains("remembered are `a`, `b`, (rejected); now there are `a`, `x`"), "{message}");
    }

    #[test]
    fn empty_and_overlong_names_are_invalid() {
        assert!(is_valid_name("charge") && is_valid_name(&"n".repeat(255)));
        assert!(!is_valid_name("") && !is_valid_name(&"n".repeat(256)));
    }
}
