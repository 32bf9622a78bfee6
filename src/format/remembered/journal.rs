//! The journal of a handler: what the steps of its work that are done have come to, in their order. A handler that is
//! run again gets these results, and goes on after them.
//!
//! | a step | bytes |
//! |---|---|
//! | name | length (1), UTF-8 |
//! | result | optional: length (4), bytes |
//!
//! All numbers are big-endian; `optional` is `00`, or `01` and the value. A journal that has no room for a step is left
//! as it was ([`JournalWriter::push`]).

use super::{Error, RESULT_BYTES_MAX, array, bounded, damaged, take_optional};

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

/// A step that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Its name, of at most [`STEP_NAME_BYTES_MAX`] bytes.
    pub name: &'a str,
    /// What it came to, in at most [`RESULT_BYTES_MAX`] bytes; `None` if it has no result.
    pub result: Option<&'a [u8]>,
}

impl<'a> Journal<'a> {
    /// Whether no step is done.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many steps are done.
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// The steps that are done, in their order.
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

    /// What was written so far.
    pub fn as_journal(&self) -> Journal<'_> {
        Journal { count: self.count, steps: &self.steps }
    }

    /// Adds a step. `false` if its name, its result or the journal would be too long: nothing is added then.
    #[must_use]
    pub fn push(&mut self, step: Step<'_>) -> bool {
        let Step { name, result } = step;
        let bytes = 1 + name.len() + 1 + result.map_or(0, |result| 4 + result.len());
        let fits = name.len() <= STEP_NAME_BYTES_MAX
            && result.is_none_or(|result| result.len() <= RESULT_BYTES_MAX)
            && COUNT_BYTES + self.steps.len() + bytes <= JOURNAL_BYTES_MAX;
        let Some(count) = self.count.checked_add(1).filter(|_| fits) else { return false };
        self.count = count;
        self.steps.push(name.len() as u8);
        self.steps.extend_from_slice(name.as_bytes());
        self.steps.push(result.is_some().into());
        if let Some(result) = result {
            self.steps.extend_from_slice(&(result.len() as u32).to_be_bytes());
            self.steps.extend_from_slice(result);
        }
        true
    }
}

fn take_step<'a>(rest: &mut &'a [u8]) -> Result<Step<'a>, Error> {
    let [length] = array(rest)?;
    let name = bounded(rest, length.into(), STEP_NAME_BYTES_MAX)?;
    let name = str::from_utf8(name).map_err(|_| damaged("a step's name is not UTF-8"))?;
    let result = take_optional(rest, |rest| {
        let length = u32::from_be_bytes(array(rest)?) as usize;
        bounded(rest, length, RESULT_BYTES_MAX)
    })?;
    Ok(Step { name, result })
}

#[cfg(test)]
mod tests {
    //! Goal: a journal is read in its order, and takes what there is room for.

    use super::*;

    fn encoded(journal: Journal<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        journal.encode(&mut bytes);
        bytes
    }

    #[test]
    fn journal_is_read_in_order_and_goes_on() {
        let (charge, mail) = (Step { name: "charge", result: Some(b"ch_1") }, Step { name: "mail", result: None });
        let mut writer = JournalWriter::default();
        assert!(writer.push(charge) && writer.push(mail));
        let bytes = encoded(writer.as_journal());
        let read = Journal::decode(&mut &bytes[..]).unwrap();
        assert_eq!(read.steps().collect::<Vec<_>>(), [charge, mail]);
        assert_eq!((read.len(), read.is_empty(), Journal::default().is_empty()), (2, false, true));
        let mut after = JournalWriter::after(read);
        let undo = Step { name: "undo.charge", result: Some(b"") };
        assert!(after.push(undo) && writer.push(undo));
        assert_eq!(after.as_journal(), writer.as_journal());
        assert_eq!(after.as_journal().steps().last(), Some(undo));
    }

    #[test]
    fn journal_without_room_is_left_as_it_was() {
        let (name, result) = ("n".repeat(STEP_NAME_BYTES_MAX), vec![7; RESULT_BYTES_MAX + 1]);
        let longest = Step { name: &name, result: Some(&result[1..]) };
        let mut journal = JournalWriter::default();
        assert!(!journal.push(Step { name: &format!("{name}n"), result: None }));
        assert!(!journal.push(Step { name: "", result: Some(&result) }));
        assert!(journal.as_journal().is_empty());
        while journal.push(longest) {}
        let before = journal.clone();
        assert!(!journal.push(longest));
        assert_eq!(journal.as_journal(), before.as_journal());
        // Up to the last byte: a step takes six beside its name and its result.
        let left = JOURNAL_BYTES_MAX - encoded(journal.as_journal()).len() - 6;
        assert!(!journal.push(Step { name: "", result: Some(&result[..left + 1]) }));
        assert!(journal.push(Step { name: "", result: Some(&result[..left]) }));
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
    fn steps_are_at_most_as_many_as_can_be_counted() {
        let (mut journal, step) = (JournalWriter::default(), Step { name: "", result: None });
        (0..u16::MAX).for_each(|_| assert!(journal.push(step)));
        assert!(!journal.push(step));
        assert_eq!(Journal::decode(&mut &encoded(journal.as_journal())[..]), Ok(journal.as_journal()));
    }
}
