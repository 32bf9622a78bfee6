//! A function's journal as it is run again: what it has recorded, in order, and where the function is in it.

use std::sync::Arc;

use crate::effect::provider::{OwnedHow, OwnedStep};
use crate::format::{JOURNAL_BYTES_MAX, JournalWriter, RESULT_BYTES_MAX, Step, StepHow};
use crate::sabotage::{self, Sabotage};

/// What is next of what was recorded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The step was recorded: its outcome.
    Recorded(OwnedHow),
    /// It was not: it acts now.
    Acts {
        /// Whether its mark stands there already.
        is_marked: bool,
    },
    /// Another step was recorded.
    Differs,
}

/// The name of the mark that a function has rejected its record.
pub(super) const REJECTED: &str = "";

/// A journal, and where a function is in it.
#[derive(Debug)]
pub(super) struct Replay {
    journal: Arc<JournalWriter>,
    recorded: Vec<OwnedStep>,
    at: usize,
    /// The steps that the function has come to in this attempt, the one that it begins included.
    now: Vec<String>,
}

impl Replay {
    pub fn of(journal: Arc<JournalWriter>) -> Self {
        let recorded = journal.as_journal().steps().map(OwnedStep::from).collect();
        Self { journal, recorded, at: 0, now: Vec::new() }
    }

    /// Whether the function has come to a step of this name in this attempt.
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

    /// What a step that was recorded gives.
    fn given(&self, how: &OwnedHow) -> OwnedHow {
        let is_done = |how: &OwnedHow| matches!(how, OwnedHow::Done(_));
        let first = || self.recorded.iter().find(|step| is_done(&step.how));
        match first().filter(|_| is_done(how) && sabotage::is_on(Sabotage::ResultOfOtherStep)) {
            Some(first) => first.how.clone(),
            None => how.clone(),
        }
    }

    /// Whether everything that was recorded has come.
    pub fn is_over(&self) -> bool {
        self.at == self.recorded.len()
    }

    /// Whether nothing is remembered so far.
    pub fn is_empty(&self) -> bool {
        self.journal.is_empty()
    }

    /// Whether there is room for these steps and one that begins now, and beside it for what undoes the others.
    pub fn has_room(&self, steps: &[OwnedStep]) -> bool {
        let mut journal = (*self.journal).clone();
        let fits = steps.iter().all(|step| journal.push(step.as_step()));
        fits && journal.bytes() + 2 * RESULT_BYTES_MAX <= JOURNAL_BYTES_MAX
    }

    /// Whether the next of what was recorded is that the function has rejected its record.
    pub fn is_rejected(&self) -> bool {
        self.recorded.get(self.at).is_some_and(|step| step.name == REJECTED)
    }

    /// Whether a step was refused, or the record, and nothing but what undoes it was recorded since.
    pub fn ends_refused(&self) -> bool {
        let is_refused = |step: &OwnedStep| matches!(step.how, OwnedHow::Rejected(_));
        self.recorded.last().is_some_and(is_refused) || self.recorded.iter().any(|step| step.name == REJECTED)
    }

    /// Adds these steps. `false` if there is no room for them: nothing is added then.
    pub fn push(&mut self, steps: &[OwnedStep]) -> bool {
        let mut journal = (*self.journal).clone();
        let fits = steps.iter().all(|step| journal.push(step.as_step()));
        if fits {
            self.journal = Arc::new(journal);
        }
        fits
    }

    /// Whether a journal has room for this step, if it is the first one.
    pub fn takes(step: Step<'_>) -> bool {
        JournalWriter::default().push(step)
    }

    /// Both lists, for a person.
    pub fn differs(&self) -> String {
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
    //! Goal: a function that is run again meets what it has recorded, in order, and nothing else.

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
    fn recorded_steps_come_in_order_and_then_new_ones_act() {
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
    fn other_step_is_told_with_both_lists() {
        let mut replay = replay(&[("a", done(b"1")), ("b", OwnedHow::Begun), ("b", done(b"2")), (REJECTED, done(b""))]);
        assert_eq!(replay.next("a"), Next::Recorded(done(b"1")));
        assert_eq!(replay.next("x"), Next::Differs);
        let words = replay.differs();
        assert!(words.contains("remembered are `a`, `b`, (rejected); now there are `a`, `x`"), "{words}");
    }

    #[test]
    fn names_are_neither_empty_nor_too_long() {
        assert!(is_name("charge") && is_name(&"n".repeat(255)));
        assert!(!is_name("") && !is_name(&"n".repeat(256)));
    }
}
