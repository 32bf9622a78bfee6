//! What is remembered of an identity whose records are called for: what was settled last, and beside it what is under way.
//!
//! A reservation never overwrites a settlement: if its call is given up, or taken back, what was settled before is what
//! is remembered. So both are kept, and each holds an entry of format 1 whole: versions, scopes, reads and tombstones
//! have one encoding, and either part can be judged against as if it were alone.
//!
//! | an entry of format 2 | bytes |
//! |---|---|
//! | format | 1: [`ENTRY_FORMAT_CALLS`] |
//! | parts | 1: 1 something is settled, 2 something is under way; one of them at least |
//! | settled | as below, if there is something |
//! | under way | as below, if there is something |
//!
//! | settled | bytes |
//! |---|---|
//! | entry | length (4), an entry of format 1: what is remembered |
//! | how | 1: 0 done, 1 rejected, 2 conflict, 3 in doubt, 4 given up, 5 dropped by hand |
//! | first attempt | 8, signed: milliseconds since the epoch; only of what was given up |
//! | place | optional: the input topic's id (16), the offset (8, signed) |
//! | fingerprint | optional: 20 |
//! | kind of result | 1: 0 none, 1 whole, 2 its digest, 3 a reason |
//! | a whole result | status (2), length (4), bytes |
//! | a result's digest | status (2), SHA-256 (32), length (8) |
//! | a reason | length (2), UTF-8 |
//!
//! | under way | bytes |
//! |---|---|
//! | entry | length (4), an entry of format 1: what will be remembered once it is done |
//! | place | the input topic's id (16), the offset (8, signed) |
//! | first attempt | 8, signed: milliseconds since the epoch |
//! | attempts | 4 |
//! | flags | 1: 1 an attempt may have acted, 2 one was sent |
//! | fingerprint | optional: 20 |
//! | journal | the number of its steps (2), then the steps as in [`Journal`] |
//!
//! All numbers are big-endian; `optional` is `00`, or `01` and the value. The partition of a place is the changelog's.
//!
//! An entry of format 1 is one that is settled, done, without a place, a fingerprint or a result. What says no more than
//! that is written in format 1.

use super::redo::{take, take_array};
use super::{ENTRY_FORMAT, ENTRY_FORMAT_CALLS, EntryRef, Error};

// By its path, since fuzzing takes these files by theirs.
#[path = "remembered/journal.rs"]
mod journal;
#[path = "remembered/result.rs"]
mod result;

pub use journal::{JOURNAL_BYTES_MAX, Journal, JournalWriter, STEP_NAME_BYTES_MAX, Step, StepState};
pub use result::{REASON_BYTES_MAX, RESULT_BYTES_MAX, ResultRef};

/// The bytes of a request's fingerprint.
pub const FINGERPRINT_BYTES: usize = 20;

const WHAT: &str = "an entry";

const PART_SETTLED: u8 = 1;
const PART_UNDER_WAY: u8 = 2;
const PARTS: u8 = PART_SETTLED | PART_UNDER_WAY;

const HOW_DONE: u8 = 0;
const HOW_REJECTED: u8 = 1;
const HOW_CONFLICT: u8 = 2;
const HOW_IN_DOUBT: u8 = 3;
const HOW_GIVEN_UP: u8 = 4;
const HOW_DROPPED: u8 = 5;

const FLAG_MAY_HAVE_ACTED: u8 = 1;
const FLAG_WAS_SENT: u8 = 2;
const FLAGS: u8 = FLAG_MAY_HAVE_ACTED | FLAG_WAS_SENT;

/// What is remembered of an identity, read in place. One of its parts is there; where nothing is, there is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered<'a> {
    /// What was settled last.
    pub settled: Option<Settled<'a>>,
    /// The call that is under way.
    pub reservation: Option<Reservation<'a>>,
}

/// What was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled<'a> {
    /// What records of this identity are judged against.
    pub entry: EntryRef<'a>,
    /// What it came to.
    pub how: How,
    /// The record's place; `None` if it was settled without a call.
    pub place: Option<Place>,
    /// The fingerprint of its request; `None` if it has none.
    pub fingerprint: Option<[u8; FINGERPRINT_BYTES]>,
    /// What a duplicate is answered with; `None` if nothing is known.
    pub result: Option<ResultRef<'a>>,
}

/// What something that is settled came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is done.
    Done,
    /// The provider will not do it.
    Rejected,
    /// The provider knows its key from another request.
    Conflict,
    /// It may have happened.
    InDoubt,
    /// It may have happened; a duplicate goes on.
    GivenUp {
        /// When its first attempt may have been written, by the wall clock: milliseconds since the epoch.
        first_attempt_at_ms: i64,
    },
    /// Somebody has decided that it will not be done.
    Dropped,
}

/// Where a record is, in the partition that the changelog's is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The input topic's id.
    pub topic_id: [u8; 16],
    /// The record's offset.
    pub offset: i64,
}

/// A call that is reserved, and may have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// What records of this identity are judged against once it is done.
    pub entry: EntryRef<'a>,
    /// The record's place.
    pub place: Place,
    /// When its first attempt may have been written, by the wall clock: milliseconds since the epoch.
    pub first_attempt_at_ms: i64,
    /// How many attempts count.
    pub attempts: u32,
    /// Whether one of them may have acted.
    pub may_have_acted: bool,
    /// Whether one was sent at all.
    pub was_sent: bool,
    /// The fingerprint of its request; `None` if it has none.
    pub fingerprint: Option<[u8; FINGERPRINT_BYTES]>,
    /// The steps of a handler so far.
    pub journal: Journal<'a>,
}

impl<'a> Settled<'a> {
    /// What an entry of format 1 says: it is done.
    pub fn done(entry: EntryRef<'a>) -> Self {
        Self { entry, how: How::Done, place: None, fingerprint: None, result: None }
    }

    fn decode(rest: &mut &'a [u8]) -> Result<Self, Error> {
        Ok(Self {
            entry: take_entry(rest)?,
            how: How::decode(rest)?,
            place: take_optional(rest, Place::decode)?,
            fingerprint: take_optional(rest, array)?,
            result: ResultRef::decode(rest)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_entry(out, &self.entry);
        self.how.encode(out);
        put_optional(out, self.place.map(Place::to_bytes));
        put_optional(out, self.fingerprint);
        ResultRef::encode(self.result, out);
    }
}

impl How {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Rejected => "rejected",
            Self::Conflict => "conflict",
            Self::InDoubt => "in_doubt",
            Self::GivenUp { .. } => "given_up",
            Self::Dropped => "dropped",
        }
    }

    fn decode(rest: &mut &[u8]) -> Result<Self, Error> {
        Ok(match array(rest)? {
            [HOW_DONE] => Self::Done,
            [HOW_REJECTED] => Self::Rejected,
            [HOW_CONFLICT] => Self::Conflict,
            [HOW_IN_DOUBT] => Self::InDoubt,
            [HOW_GIVEN_UP] => Self::GivenUp { first_attempt_at_ms: i64::from_be_bytes(array(rest)?) },
            [HOW_DROPPED] => Self::Dropped,
            _ => return Err(damaged("it is settled in an unknown way")),
        })
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Done => HOW_DONE,
            Self::Rejected => HOW_REJECTED,
            Self::Conflict => HOW_CONFLICT,
            Self::InDoubt => HOW_IN_DOUBT,
            Self::GivenUp { .. } => HOW_GIVEN_UP,
            Self::Dropped => HOW_DROPPED,
        });
        if let Self::GivenUp { first_attempt_at_ms } = self {
            out.extend_from_slice(&first_attempt_at_ms.to_be_bytes());
        }
    }
}

impl Place {
    fn decode(rest: &mut &[u8]) -> Result<Self, Error> {
        Ok(Self { topic_id: array(rest)?, offset: i64::from_be_bytes(array(rest)?) })
    }

    fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.topic_id);
        bytes[16..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }
}

impl<'a> Reservation<'a> {
    fn decode(rest: &mut &'a [u8]) -> Result<Self, Error> {
        let (entry, place) = (take_entry(rest)?, Place::decode(rest)?);
        let (first_attempt_at_ms, attempts) = (i64::from_be_bytes(array(rest)?), u32::from_be_bytes(array(rest)?));
        let [flags] = array(rest)?;
        if flags & !FLAGS != 0 {
            return Err(damaged("it has flags of a later release"));
        }
        Ok(Self {
            entry,
            place,
            first_attempt_at_ms,
            attempts,
            may_have_acted: flags & FLAG_MAY_HAVE_ACTED != 0,
            was_sent: flags & FLAG_WAS_SENT != 0,
            fingerprint: take_optional(rest, array)?,
            journal: Journal::decode(rest)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_entry(out, &self.entry);
        out.extend_from_slice(&self.place.to_bytes());
        out.extend_from_slice(&self.first_attempt_at_ms.to_be_bytes());
        out.extend_from_slice(&self.attempts.to_be_bytes());
        out.push(u8::from(self.may_have_acted) * FLAG_MAY_HAVE_ACTED + u8::from(self.was_sent) * FLAG_WAS_SENT);
        put_optional(out, self.fingerprint);
        self.journal.encode(out);
    }
}

impl<'a> Remembered<'a> {
    /// Reads an entry of either format; all of it is checked.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut rest = bytes;
        match take_array(&mut rest) {
            None => return Err(damaged("it is empty")),
            Some([ENTRY_FORMAT]) => {
                let settled = Some(Settled::done(EntryRef::decode(bytes)?));
                return Ok(Self { settled, reservation: None });
            }
            Some([ENTRY_FORMAT_CALLS]) => {}
            Some([later]) => {
                return Err(Error::Format { what: WHAT, found: later.into(), expected: ENTRY_FORMAT_CALLS.into() });
            }
        }
        let [parts] = array(&mut rest)?;
        match parts {
            0 => return Err(damaged("it has neither part")),
            parts if parts & !PARTS != 0 => return Err(damaged("it has parts of a later release")),
            _ => {}
        }
        let settled = (parts & PART_SETTLED != 0).then(|| Settled::decode(&mut rest)).transpose()?;
        let reservation = (parts & PART_UNDER_WAY != 0).then(|| Reservation::decode(&mut rest)).transpose()?;
        if !rest.is_empty() {
            return Err(damaged("bytes follow its end"));
        }
        Ok(Self { settled, reservation })
    }

    /// What records are judged against, of an entry of either format: what was settled last, if anything was.
    #[inline]
    pub fn decode_settled(bytes: &'a [u8]) -> Result<Option<EntryRef<'a>>, Error> {
        match bytes.first() {
            Some(&ENTRY_FORMAT) => EntryRef::decode(bytes).map(Some),
            _ => Self::decode(bytes).map(|remembered| remembered.settled.map(|settled| settled.entry)),
        }
    }

    /// Appends its bytes to `out`: in format 1 where that says all of it.
    ///
    /// # Panics
    /// It has neither part, or a result or a reason that is too long.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self { settled, reservation } = self;
        assert!(settled.is_some() || reservation.is_some(), "nothing is remembered by a tombstone, not by an entry");
        if let (Some(settled), None) = (settled, reservation)
            && *settled == Settled::done(settled.entry)
        {
            return settled.entry.encode(out);
        }
        let parts = u8::from(settled.is_some()) * PART_SETTLED + u8::from(reservation.is_some()) * PART_UNDER_WAY;
        out.extend_from_slice(&[ENTRY_FORMAT_CALLS, parts]);
        settled.iter().for_each(|settled| settled.encode(out));
        reservation.iter().for_each(|reservation| reservation.encode(out));
    }
}

fn damaged(reason: &str) -> Error {
    Error::Damaged { what: WHAT, reason: reason.to_owned() }
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Error> {
    take_array(rest).ok_or_else(|| damaged("it ends early"))
}

fn bounded<'a>(rest: &mut &'a [u8], length: usize, max: usize) -> Result<&'a [u8], Error> {
    if length > max {
        return Err(damaged("it is longer than was ever written"));
    }
    take(rest, length).ok_or_else(|| damaged("it ends early"))
}

/// An entry of format 1 and its length. Its format is not one of this entry, so another one there is damage.
fn take_entry<'a>(rest: &mut &'a [u8]) -> Result<EntryRef<'a>, Error> {
    let length = u32::from_be_bytes(array(rest)?) as usize;
    EntryRef::decode(bounded(rest, length, usize::MAX)?).map_err(|error| match error {
        Error::Format { .. } => damaged("it holds an entry of another format than 1"),
        Error::Damaged { .. } => error,
    })
}

fn put_entry(out: &mut Vec<u8>, entry: &EntryRef<'_>) {
    let before = out.len();
    out.extend_from_slice(&[0; 4]);
    entry.encode(out);
    // A version is part of a record, so it is shorter than 4 GiB.
    let length = (out.len() - before - 4) as u32;
    out[before..before + 4].copy_from_slice(&length.to_be_bytes());
}

fn take_optional<'a, T>(
    rest: &mut &'a [u8],
    item: impl FnOnce(&mut &'a [u8]) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    match array(rest)? {
        [0] => Ok(None),
        [1] => item(rest).map(Some),
        _ => Err(damaged("something is neither there nor missing")),
    }
}

fn put_optional<const N: usize>(out: &mut Vec<u8>, item: Option<[u8; N]>) {
    out.push(item.is_some().into());
    out.extend_from_slice(item.as_ref().map_or(&[], |item| item));
}

#[cfg(test)]
#[path = "remembered/tests.rs"]
mod tests;
