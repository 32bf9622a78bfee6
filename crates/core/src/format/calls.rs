//! What a position record says about calls, beside everything that it always says: its format 2.
//!
//! Calls are settled in any order, and the group's offset is the end of the prefix that is settled. What was settled
//! beyond it is listed, so that a redelivery passes over it, whatever it was: not every record has an entry of its own.
//! A call that has no reservation of its own is covered by a grant, which says since when it may have been sent.
//!
//! The fields of format 1 (see [`super`]), then these, as bincode 2 writes them in its standard configuration:
//!
//! | position record, calls | bytes |
//! |---|---|
//! | beyond | list of: from zigzag, to zigzag |
//! | grants | list of: to zigzag, since zigzag |
//! | control | optional: topic id 16 bytes, next zigzag |
//!
//! Where there is nothing to say about calls, the record is written in format 1, byte for byte as ever. The ranges of
//! `beyond` are not part of `processed`, whose last end says where reading goes on.

use super::{Error, POSITION_FORMAT, POSITION_FORMAT_CALLS, PositionRecord, decode_struct, encode_struct};

const WHAT: &str = "a position record";

/// What a position record says about calls.
#[derive(Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Calls {
    /// The ranges of source offsets, start and end (exclusive), that were settled beyond the settled prefix: ascending,
    /// disjoint and not empty.
    pub beyond: Vec<(i64, i64)>,
    /// The grants, each beginning where the one before it ends: in ascending order of their ends.
    pub grants: Vec<Grant>,
    /// How far the control topic was obeyed; `None` if it was never read.
    pub control: Option<Control>,
}

/// A grant: calls that have no reservations of their own may have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Grant {
    /// Of all records before this source offset.
    pub to: i64,
    /// Since when, by the writer's wall clock: milliseconds since the epoch.
    pub since_ms: i64,
}

/// A place in the control topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Control {
    /// The control topic's id.
    pub topic_id: [u8; 16],
    /// The next offset to read.
    pub next: i64,
}

impl Clone for Calls {
    fn clone(&self) -> Self {
        Self { beyond: self.beyond.clone(), grants: self.grants.clone(), control: self.control }
    }

    /// Reuses memory, since this happens in each transaction.
    fn clone_from(&mut self, source: &Self) {
        self.beyond.clone_from(&source.beyond);
        self.grants.clone_from(&source.grants);
        self.control = source.control;
    }
}

impl Calls {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.beyond.is_empty() && self.grants.is_empty() && self.control.is_none()
    }

    /// What is impossible in it, if something is.
    fn contradiction(&self) -> Option<&'static str> {
        let disjoint = |pair: &[(i64, i64)]| pair[0].1 <= pair[1].0;
        if !self.beyond.iter().all(|(from, to)| from < to) || !self.beyond.windows(2).all(disjoint) {
            return Some("its ranges are not in order");
        }
        if !self.grants.windows(2).all(|pair| pair[0].to < pair[1].to) {
            return Some("its grants are not in order");
        }
        None
    }
}

impl PositionRecord {
    /// The record's bytes together with what is said about calls: in format 1 if that is nothing. How many ranges and
    /// grants there can be is what [`PositionRecord::is_readable`] says, which is to be asked before they are written.
    ///
    /// # Panics
    /// The ranges or the grants are not in order.
    pub fn encode_with(&self, calls: &Calls) -> Vec<u8> {
        if calls.is_empty() {
            return self.encode();
        }
        assert_eq!(calls.contradiction(), None, "{calls:?}");
        encode_struct(POSITION_FORMAT_CALLS, (self, calls))
    }

    /// Reads a position record of either format without what it says about calls: for a reader that does not go on with
    /// its task.
    pub fn decode_either(bytes: &[u8]) -> Result<Self, Error> {
        Self::decode_with_calls(bytes).map(|(position, _)| position)
    }

    /// Reads a position record of either format, and what it says about calls: in format 1, nothing.
    pub fn decode_with_calls(bytes: &[u8]) -> Result<(Self, Calls), Error> {
        if bytes.first() == Some(&POSITION_FORMAT) {
            return Self::decode(bytes).map(|position| (position, Calls::default()));
        }
        let (position, calls): (Self, Calls) = decode_struct(WHAT, POSITION_FORMAT_CALLS, bytes)?;
        match calls.contradiction() {
            Some(reason) => Err(Error::Damaged { what: WHAT, reason: reason.to_owned() }),
            None => Ok((position, calls)),
        }
    }
}

#[cfg(test)]
#[path = "calls/tests.rs"]
mod tests;
