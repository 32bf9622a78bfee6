//! Replaying a function's journal: the recorded steps in order, and how far the function has come in them.

use std::sync::Arc;

use crate::effect::provider::{OwnedHow, OwnedStep};
use crate::format::{JOURNAL_BYTES_MAX, JournalWriter, RESULT_BYTES_MAX, Step, StepHow};
use crate::sabotage::{self, Sabotage};

/// What the journal holds for the step that begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The step was recorded: its outcome.
    Recorded(OwnedHow),
    /// The step was not recorded: it acts now.
    Acts {
        /// Whether its mark is already recorded.
        is_marked: bool,
    },
    /// A different step was recorded.
    Differs,
}

/// The name of the mark for a record that its function has rejected.
pub(super) const REJECTED: &str = "";

/// A journal, and how far a function has come in it.
#[derive(Debug)]
pub(super) struct Replay {
    journal: Arc<JournalWriter>,
    recorded: Vec<OwnedStep>,
    at: usize,
    /// The names of the steps that the function has begun in this attempt.
    now: Vec<String>,
}

impl Replay {
    pub fn of(journal: Arc<JournalWriter>) -> Self {
        let recorded = journal.as_journal().steps().map(OwnedStep::from).collect();
        Self { journal, recorded, at: 0, now: Vec::new() }
    }

    /// Whether the function has begun a step of this name in this attempt.
    pub fn has(&self, name: &str) -> bool {
        self.now.iter().any(|other| other == name)
    }

    /// The function begins this step.
    pub fn next(&mut self, name: &str) -> Next {
        self.now.push(name.to_owned());
        let mut is_marked = false;
        while let Some(step) = self.recorded.get(self.at) {
            if step.name != name {
                return Next::Differs;
            }
            self.at += 1;
            match &step.how {
                OwnedHow::Begun => is_marked = true,
                how => return Next::Recorded(self.given(how)),
            }
        }
        Next::Acts { is_marked }
    }

    /// What a recorded step gives.
    fn given(&self, how: &OwnedHow) -> OwnedHow {
        let is_done = |how: &OwnedHow| matches!(how, OwnedHow::Done(_));
        let first = || self.recorded.iter().find(|step| is_done(&step.how));
        match first().filter(|_| is_done(how) && sabotage::is_on(Sabotage::ResultOfOtherStep)) {
            Some(first) => first.how.clone(),
            None => how.clone(),
        }
    }

    /// Whether the function has passed everything that was recorded.
    pub fn is_over(&self) -> bool {
        self.at == self.recorded.len()
    }

    /// Whether nothing is recorded so far.
    pub fn is_empty(&self) -> bool {
        self.journal.is_empty()
    }

    /// Whether there is room for these steps, for one that begins now, and for those that undo the others.
    pub fn has_room(&self, steps: &[OwnedStep]) -> bool {
        let mut journal = (*self.journal).clone();
        let fits = steps.iter().all(|step| journal.push(step.as_step()));
        fits && journal.bytes() + 2 * RESULT_BYTES_MAX <= JOURNAL_BYTES_MAX
    }

    /// Whether the next recorded step is the mark that the function has rejected its record.
    pub fn is_rejected(&self) -> bool {
        self.recorded.get(self.at).is_some_and(|step| step.name == REJECTED)
    }

    /// Whether the last recorded step was refused, or the function has rejected the record.
    pub fn ends_refused(&self) -> bool {
        let is_refused = |step: &OwnedStep| matches!(step.how, OwnedHow::Rejected(_));
        self.recorded.last().is_some_and(is_refused) || self.recorded.iter().any(|step| step.name == REJECTED)
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

    /// Whether an empty journal has room for this step.
    pub fn takes(step: Step<'_>) -> bool {
        JournalWriter::default().push(step)
    }

    /// A message that the steps differ from the recorded ones, with both lists.
    pub fn difference(&self) -> String {
        let mut recorded: Vec<&str> = Vec::new();
        for step in &self.recorded {
            if recorded.last() != Some(&step.name.as_str()) {
                recorded.push(&step.name);
            }
        }
        format!(
            "its steps are not those that are remembered: remembered are {}; now there are {}. Run the program that has \
             begun it, or decide it by hand (`ratchet settle`)",
            list(&recorded),
            list(&self.now.iter().map(String::as_str).collect::<Vec<_>>())
        )
    }
}

fn list(names: &[&str]) -> String {
    let named = |name: &&str| if *name == REJECTED { "(rejected)".to_owned() } else { format!("`{name}`") };
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(named).collect::<Vec<_>>().join(", "),
    }
}

/// Whether a step can have this name.
pub(super) fn is_name(name: &str) -> bool {
    name != REJECTED && Replay::takes(Step { name, how: StepHow::Begun })
}

#[cfg(test)]
mod tests {
    //! Goal: a function that is run again gets what it has recorded, in order, and nothing else.

    use super::*;

    fn replay(steps: &[(&str, OwnedHow)]) -> Replay {
        let mut journal = JournalWriter::default();
        for (name, how) in steps {
            assert!(journal.push(OwnedStep { name: (*name).to_owned(), how: how.clone() }.as_step()));
        }
        Replay::of(Arc::new(journal))
    }

    fn done(result: &[u8]) -> OwnedHow {
        OwnedHow::Done(result.to_vec())
    }

    #[test]
    fn recorded_steps_are_given_in_order_before_new_ones_act() {
        let refused = OwnedHow::Rejected("no".to_owned());
        let mut replay =
            replay(&[("a", OwnedHow::Begun), ("a", done(b"1")), ("b", refused.clone()), ("c", OwnedHow::Begun)]);
        assert_eq!(replay.next("a"), Next::Recorded(done(b"1")));
        assert_eq!(replay.next("b"), Next::Recorded(refused));
        assert!(!replay.is_over());
        assert_eq!(replay.next("c"), Next::Acts { is_marked: true });
        assert!(replay.is_over());
        assert_eq!(replay.next("d"), Next::Acts { is_marked: false });
    }

    #[test]
    fn different_step_is_reported_with_both_lists() {
        let mut replay = replay(&[("a", done(b"1")), ("b", OwnedHow::Begun), ("b", done(b"2")), (REJECTED, done(b""))]);
        assert_eq!(replay.next("a"), Next::Recorded(done(b"1")));
        assert_eq!(replay.next("x"), Next::Differs);
        let words = replay.difference();
        assert!(words.contains("remembered are `a`, `b`, (rejected); now there are `a`, `x`"), "{words}");
    }

    #[test]
    fn empty_and_overlong_names_are_invalid() {
        assert!(is_name("charge") && is_name(&"n".repeat(255)));
        assert!(!is_name("") && !is_name(&"n".repeat(256)));
    }
}
