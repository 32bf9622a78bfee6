//! The part of a task's past, besides the entries, that decisions depend on: the offsets processed, stream time, the
//! highest retention horizon ever in force, the scopes of versions, and whether a table was truncated.
//!
//! It is part of the task's state: a transaction works on a copy, which replaces the original on commit.

use crate::format::NO_TIME;
use crate::sabotage::{self, Sabotage};

use super::epochs::{self, Epochs};
use super::rules::{Retention, Rules};

/// Maximum number of ranges: more than resets of a group leave behind in practice.
pub const RANGES_MAX: usize = 1024;

/// The most of a task's past that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Ranges of processed offsets.
    pub ranges_max: usize,
    /// Scopes.
    pub scopes_max: usize,
    /// Segments, of all scopes together.
    pub segments_max: usize,
}

impl Bounds {
    /// The bounds in normal operation. Only the simulation sets others, in order to reach them.
    pub const DEFAULT: Self =
        Self { ranges_max: RANGES_MAX, scopes_max: epochs::SCOPES_MAX, segments_max: epochs::SEGMENTS_MAX };
}

/// Why a past cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Each group reset that skips records leaves one more range.
    #[error(
        "the processed offsets fall apart into more than {0} ranges, because the group was reset to skip records \
         again and again; start afresh under another topology name"
    )]
    TooManyRanges(usize),
}

/// Offsets, as ascending half-open ranges that neither overlap nor touch.
#[derive(Debug, PartialEq, Eq)]
pub struct Ranges {
    pairs: Vec<(i64, i64)>,
    ranges_max: usize,
}

impl Clone for Ranges {
    fn clone(&self) -> Self {
        Self { pairs: self.pairs.clone(), ranges_max: self.ranges_max }
    }

    fn clone_from(&mut self, source: &Self) {
        self.pairs.clone_from(&source.pairs);
        self.ranges_max = source.ranges_max;
    }
}

impl Default for Ranges {
    fn default() -> Self {
        Self::within(&Bounds::DEFAULT)
    }
}

impl Ranges {
    /// No offsets.
    pub fn new() -> Self {
        Self::default()
    }

    /// No offsets, and never more ranges than `bounds` allow.
    pub fn within(bounds: &Bounds) -> Self {
        Self { pairs: Vec::new(), ranges_max: bounds.ranges_max }
    }

    /// The offsets of these ranges, which may come in any order, overlap or be empty.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (i64, i64)>, bounds: &Bounds) -> Result<Self, Error> {
        let mut ranges = Self::within(bounds);
        for (from, to) in pairs {
            ranges.add_range(from, to)?;
        }
        Ok(ranges)
    }

    /// The ranges, ascending and disjoint.
    pub fn as_pairs(&self) -> &[(i64, i64)] {
        &self.pairs
    }

    /// Whether `offset` is among them.
    pub fn contains(&self, offset: i64) -> bool {
        // Almost always it is the offset right after the last range.
        match self.pairs.last() {
            None => false,
            Some(&(from, to)) if offset >= from => offset < to,
            Some(_) => {
                let after = self.pairs.partition_point(|&(from, _)| from <= offset);
                after.checked_sub(1).is_some_and(|i| offset < self.pairs[i].1)
            }
        }
    }

    /// Whether all offsets from `from` up to, and not including, `to` are among them.
    pub fn contains_all(&self, from: i64, to: i64) -> bool {
        let after = self.pairs.partition_point(|&(start, _)| start <= from);
        from >= to || after.checked_sub(1).is_some_and(|i| to <= self.pairs[i].1)
    }

    /// Adds one offset: the range that ends there grows, or a new one starts.
    pub fn add(&mut self, offset: i64) -> Result<(), Error> {
        self.add_range(offset, offset.saturating_add(1))
    }

    /// Adds the offsets from `from` up to, and not including, `to`. Use it for a read that continued from `from`:
    /// transaction markers and compacted gaps inside hold no record and never will. On an error nothing is added.
    pub fn add_range(&mut self, from: i64, to: i64) -> Result<(), Error> {
        if self.pairs.len() >= self.ranges_max && from < to && !self.touches(from, to) {
            return Err(Error::TooManyRanges(self.ranges_max));
        }
        self.insert(from, to);
        Ok(())
    }

    fn touches(&self, from: i64, to: i64) -> bool {
        let first = self.pairs.partition_point(|&(_, end)| end < from);
        self.pairs.get(first).is_some_and(|&(start, _)| start <= to)
    }

    /// [`Ranges::add_range`] without the bound.
    pub(super) fn insert(&mut self, from: i64, to: i64) {
        if from >= to {
            return;
        }
        if let Some((start, end)) = self.pairs.last_mut()
            && *start <= from
            && from <= *end
        {
            *end = to.max(*end);
            return;
        }
        // Merges all ranges that overlap or touch [from, to).
        let first = self.pairs.partition_point(|&(_, end)| end < from);
        let last = self.pairs.partition_point(|&(start, _)| start <= to);
        let merged = match self.pairs.get(first..last) {
            Some([(start, end)]) => ((*start).min(from), (*end).max(to)),
            Some([(start, _), .., (_, end)]) => ((*start).min(from), (*end).max(to)),
            _ => (from, to),
        };
        self.pairs.splice(first..last, [merged]);
    }
}

/// The part of a task's past, besides the entries, that decisions depend on.
#[derive(Debug, PartialEq)]
pub struct Progress {
    /// The highest timestamp seen, [`NO_TIME`] at first.
    pub stream_time: i64,
    /// The highest `stream time - retention` ever in force, `i64::MIN` at first.
    pub horizon: i64,
    /// The processed offsets.
    pub processed: Ranges,
    /// How many truncates were ever remembered. While it is 0, no table has an entry.
    pub truncates: u64,
    /// The scopes in which versions are comparable.
    pub epochs: Epochs,
}

impl Clone for Progress {
    fn clone(&self) -> Self {
        let Self { stream_time, horizon, processed, truncates, epochs } = self;
        let (processed, epochs) = (processed.clone(), epochs.clone());
        Self { stream_time: *stream_time, horizon: *horizon, processed, truncates: *truncates, epochs }
    }

    /// Reuses the allocations: this happens with each transaction.
    fn clone_from(&mut self, source: &Self) {
        let Self { stream_time, horizon, processed, truncates, epochs } = source;
        (self.stream_time, self.horizon, self.truncates) = (*stream_time, *horizon, *truncates);
        self.processed.clone_from(processed);
        self.epochs.clone_from(epochs);
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            stream_time: NO_TIME,
            horizon: i64::MIN,
            processed: Ranges::new(),
            truncates: 0,
            epochs: Epochs::default(),
        }
    }
}

impl Progress {
    /// Whether the record at `offset` has already been processed.
    pub fn is_replayed(&self, offset: i64) -> bool {
        self.processed.contains(offset)
    }

    /// Advances stream time and horizon by a record's timestamp; they never move back.
    pub fn advance(&mut self, rules: &Rules, timestamp: Option<i64>) {
        let Some(timestamp) = timestamp else { return };
        self.stream_time = self.stream_time.max(timestamp);
        if let Retention::For { ms } = rules.retention
            && self.stream_time != NO_TIME
        {
            let horizon = self.stream_time.saturating_sub(ms);
            let moves_back = sabotage::is_on(Sabotage::HorizonMovedBack);
            self.horizon = if moves_back { horizon } else { self.horizon.max(horizon) };
        }
    }
}

#[cfg(test)]
mod tests;
