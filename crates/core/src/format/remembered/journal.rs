//! The journal of a handler: the steps of its work that were begun, done or rejected, in their order. A handler that is
//! run again gets their results, and continues after them.
//!
//! | a step | bytes |
//! |---|---|
//! | name | length (1), UTF-8; empty for the mark that the handler has rejected its record |
//! | state | 1: 0 begun, 1 done, 2 rejected |
//! | result | length (4), bytes; only of what is done |
//! | reason | length (4), UTF-8; only of what is rejected |
//!
//! All numbers are big-endian. A step that was begun stands there twice once it is done. A journal that has no room for
//! a step is left as it was ([`JournalWriter::push`]).

use super::{Error, REASON_BYTES_MAX, RESULT_BYTES_MAX, array, bounded, damaged};

const STATE_BEGUN: u8 = 0;
const STATE_DONE: u8 = 1;
const STATE_REJECTED: u8 = 2;

/// The longest name of a step.
pub const STEP_NAME_BYTES_MAX: usize = 255;
/// The longest journal: with what stands beside it, an entry stays below what a topic takes by default (1 MiB).
pub const JOURNAL_BYTES_MAX: usize = 768 << 10;

/// The bytes of a journal before its steps.
const COUNT_BYTES: usize = 2;

/// A journal, read in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Journal<'a> {
    count: u16,
    steps: &'a [u8],
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Its name, of at most [`STEP_NAME_BYTES_MAX`] bytes.
    pub name: &'a str,
    /// How far it is.
    pub state: StepState<'a>,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState<'a> {
    /// It may have acted; its outcome, if known, is in another step of this name.
    Begun,
    /// It is done, with this result, in at most [`RESULT_BYTES_MAX`] bytes.
    Done(&'a [u8]),
    /// It has not acted, and never will: why, in at most [`REASON_BYTES_MAX`] bytes.
    Rejected(&'a str),
}

impl<'a> StepState<'a> {
    fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Begun => None,
            Self::Done(result) => Some(result),
            Self::Rejected(reason) => Some(reason.as_bytes()),
        }
    }

    const fn bytes_max(self) -> usize {
        match self {
            Self::Begun => 0,
            Self::Done(_) => RESULT_BYTES_MAX,
            Self::Rejected(_) => REASON_BYTES_MAX,
        }
    }
}

impl<'a> Journal<'a> {
    /// Whether it has no steps.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of its steps; a step that was begun and then done counts twice.
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Its steps, in their order.
    pub fn steps(&self) -> impl Iterator<Item = Step<'a>> + use<'a> {
        let mut rest = self.steps;
        (0..self.count).map(move |_| take_step(&mut rest).expect("a journal is checked as it is read"))
    }

    pub(super) fn decode(rest: &mut &'a [u8]) -> Result<Self, Error> {
        let count = u16::from_be_bytes(array(rest)?);
        let from = *rest;
        for _ in 0..count {
            take_step(rest)?;
        }
        let steps = &from[..from.len() - rest.len()];
        if COUNT_BYTES + steps.len() > JOURNAL_BYTES_MAX {
            return Err(damaged("it is longer than was ever written"));
        }
        Ok(Self { count, steps })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(self.steps);
    }
}

/// A journal being written.
#[derive(Clone, Debug, Default)]
pub struct JournalWriter {
    count: u16,
    steps: Vec<u8>,
}

impl JournalWriter {
    /// Goes on after what was read.
    pub fn after(journal: Journal<'_>) -> Self {
        Self { count: journal.count, steps: journal.steps.to_vec() }
    }

    /// Whether nothing was written so far.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        COUNT_BYTES + self.steps.len()
    }

    /// What was written so far.
    pub fn as_journal(&self) -> Journal<'_> {
        Journal { count: self.count, steps: &self.steps }
    }

    /// Adds a step. `false` if its name, its result or the journal would be too long: nothing is added then.
    #[must_use]
    pub fn push(&mut self, step: Step<'_>) -> bool {
        let Step { name, state } = step;
        let came = state.bytes();
        let bytes = 1 + name.len() + 1 + came.map_or(0, |came| 4 + came.len());
        let fits = name.len() <= STEP_NAME_BYTES_MAX
            && came.is_none_or(|came| came.len() <= state.bytes_max())
            && COUNT_BYTES + self.steps.len() + bytes <= JOURNAL_BYTES_MAX;
        let Some(count) = self.count.checked_add(1).filter(|_| fits) else { return false };
        self.count = count;
        self.steps.push(name.len() as u8);
        self.steps.extend_from_slice(name.as_bytes());
        self.steps.push(match state {
            StepState::Begun => STATE_BEGUN,
            StepState::Done(_) => STATE_DONE,
            StepState::Rejected(_) => STATE_REJECTED,
        });
        if let Some(came) = came {
            self.steps.extend_from_slice(&(came.len() as u32).to_be_bytes());
            self.steps.extend_from_slice(came);
        }
        true
    }
}

fn take_step<'a>(rest: &mut &'a [u8]) -> Result<Step<'a>, Error> {
    let [length] = array(rest)?;
    let name = bounded(rest, length.into(), STEP_NAME_BYTES_MAX)?;
    let name = str::from_utf8(name).map_err(|_| damaged("a step's name is not UTF-8"))?;
    let [state] = array(rest)?;
    let mut came = |most: usize| {
        let length = u32::from_be_bytes(array(rest)?) as usize;
        bounded(rest, length, most)
    };
    let state = match state {
        STATE_BEGUN => StepState::Begun,
        STATE_DONE => StepState::Done(came(RESULT_BYTES_MAX)?),
        STATE_REJECTED => {
            let reason = str::from_utf8(came(REASON_BYTES_MAX)?);
            StepState::Rejected(reason.map_err(|_| damaged("a step's reason is not UTF-8"))?)
        }
        _ => return Err(damaged("a step has come to something unknown")),
    };
    Ok(Step { name, state })
}

#[cfg(test)]
mod tests {
    //! Goal: a journal is read in its order, and takes what there is room for.

    use super::*;

    fn done<'a>(name: &'a str, result: &'a [u8]) -> Step<'a> {
        Step { name, state: StepState::Done(result) }
    }

    fn encoded(journal: Journal<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        journal.encode(&mut bytes);
        bytes
    }

    #[test]
    fn journal_is_read_in_order_and_goes_on() {
        let (charge, mail) = (done("charge", b"ch_1"), Step { name: "mail", state: StepState::Begun });
        let refused = Step { name: "mail", state: StepState::Rejected("no such address") };
        let mut writer = JournalWriter::default();
        assert!(writer.push(charge) && writer.push(mail) && writer.push(refused));
        let bytes = encoded(writer.as_journal());
        let read = Journal::decode(&mut &bytes[..]).unwrap();
        assert_eq!(read.steps().collect::<Vec<_>>(), [charge, mail, refused]);
        assert_eq!((read.len(), read.is_empty(), Journal::default().is_empty()), (3, false, true));
        let mut after = JournalWriter::after(read);
        let undo = done("undo.charge", b"");
        assert!(after.push(undo) && writer.push(undo));
        assert_eq!(after.as_journal(), writer.as_journal());
        assert_eq!(after.as_journal().steps().last(), Some(undo));
    }

    #[test]
    fn journal_without_room_is_left_as_it_was() {
        let (name, result) = ("n".repeat(STEP_NAME_BYTES_MAX), vec![7; RESULT_BYTES_MAX + 1]);
        let longest = done(&name, &result[1..]);
        let reason = "r".repeat(REASON_BYTES_MAX + 1);
        let mut journal = JournalWriter::default();
        assert!(!journal.push(Step { name: &format!("{name}n"), state: StepState::Begun }));
        assert!(!journal.push(done("", &result)));
        assert!(!journal.push(Step { name: "", state: StepState::Rejected(&reason) }));
        assert!(journal.as_journal().is_empty());
        while journal.push(longest) {}
        let before = journal.clone();
        assert!(!journal.push(longest));
        assert_eq!(journal.as_journal(), before.as_journal());
        // Up to the last byte: a step takes six beside its name and its result.
        let left = JOURNAL_BYTES_MAX - encoded(journal.as_journal()).len() - 6;
        assert!(!journal.push(done("", &result[..left + 1])));
        assert!(journal.push(done("", &result[..left])));
        let mut bytes = encoded(journal.as_journal());
        assert_eq!(bytes.len(), JOURNAL_BYTES_MAX);
        assert_eq!(Journal::decode(&mut &bytes[..]), Ok(journal.as_journal()));
        // One step more than there is room for.
        bytes.extend_from_slice(&[0, 0]);
        bytes[1] += 1;
        assert_eq!(Journal::decode(&mut &bytes[..]), Err(damaged("it is longer than was ever written")));
    }

    #[test]
    fn longer_result_of_a_step_is_damaged() {
        let length = RESULT_BYTES_MAX as u32 + 1;
        let body = vec![7; RESULT_BYTES_MAX + 1];
        let bytes = [&[0, 1, 1, b'a', 1][..], &length.to_be_bytes(), &body].concat();
        assert_eq!(Journal::decode(&mut &bytes[..]), Err(damaged("it is longer than was ever written")));
    }

    #[test]
    fn step_of_an_unknown_kind_is_damaged() {
        let bytes = [0, 1, 1, b'a', 3];
        assert_eq!(Journal::decode(&mut &bytes[..]), Err(damaged("a step has come to something unknown")));
    }

    #[test]
    fn steps_are_at_most_as_many_as_can_be_counted() {
        let (mut journal, step) = (JournalWriter::default(), Step { name: "", state: StepState::Begun });
        (0..u16::MAX).for_each(|_| assert!(journal.push(step)));
        assert!(!journal.push(step));
        assert_eq!(Journal::decode(&mut &encoded(journal.as_journal())[..]), Ok(journal.as_journal()));
    }
}
