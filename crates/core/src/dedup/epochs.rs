//! The scopes in which versions are comparable, and which of two versions in different scopes is newer.
//!
//! A scope is a server, a timeline, a binlog's base name: whatever the topology's `epoch` names. Versions in one scope
//! are compared as they are. Between scopes, *segments* decide: each scope has one that holds all its versions,
//! numbered by the source offset at which it began, the lowest at which one of its versions was ever seen. Of two
//! segments, the later one is newer.
//!
//! A scope comes back (a *failback*) when one of its records meets what another scope's segment has written, lies after
//! the start of that segment in the input, and has a version above everything its own scope had reached there. Then a
//! new segment begins, for the versions above what the scope had reached when the last segment of another scope began.
//! So redelivered records stay old on both sides: they belong to the same segments as before. A scope may come back
//! unnoticed, with records that meet nothing of another scope. That is found when one of them is met; what meets it is
//! newer if it is above everything its own scope had reached until then.
//!
//! To know what a scope had reached where another's segment began, each scope keeps a staircase of offsets and versions
//! ([`Reached`]), with one step between any two starts. If the group was reset to before a segment's start, which
//! lowers `began`, a step may be too wide to tell; then the lower version counts, or the lowest known one.
//!
//! **Failure.** The scopes are bounded in number and size; [`Error`] says what to do at a bound, and nothing has
//! changed then.

use super::progress::Bounds;
use crate::format::{Reached, Scope, Segment};

/// Maximum number of scopes: an epoch is something that changes a few times in a topology's life.
pub const SCOPES_MAX: usize = 256;
/// Maximum number of segments, over all scopes.
pub const SEGMENTS_MAX: usize = 1024;
/// Maximum size of all scopes together, since each transaction's position record holds them.
pub const BYTES_MAX: usize = 512 << 10;

/// Why scopes cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The epoch names something that changes all the time.
    #[error(
        "the records are of more than {0} scopes: `epoch` must name what changes seldom, such as a server or a \
         timeline; correct it and give the topology a new name and a new output topic, or say what else to do with `on_epoch_change`"
    )]
    TooManyScopes(usize),
    /// Two scopes keep alternating.
    #[error(
        "the scopes of the records have taken turns more than {0} times: two sources write to this partition \
         at once; separate them by a part of the identity under a new topology name, or say what else to do with \
         `on_epoch_change`"
    )]
    TooManySegments(usize),
    /// The scopes' parts or the versions are too long.
    #[error(
        "the scopes of the records and their versions take more than {BYTES_MAX} bytes: name shorter parts for `epoch` \
         under a new topology name, or say what else to do with `on_epoch_change`"
    )]
    TooLong,
}

/// How a version in one scope relates to one in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Its segment began later.
    Newer,
    /// Its segment began earlier.
    Older,
    /// Its segment began earlier, but it is above everything its scope had reached when the other's began: its scope
    /// has come back.
    Failback {
        /// Where the other's segment began.
        since: i64,
    },
}

/// A record's effect on the scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// None: it has no scope or no version, or was not accepted.
    Nothing,
    /// Its scope has reached its version.
    Seen {
        /// The scope's number.
        scope: u16,
    },
    /// It is the first of its scope.
    Scope {
        /// The number assigned to the scope.
        scope: u16,
    },
    /// Its scope has come back.
    Segment {
        /// The scope's number.
        scope: u16,
        /// Where the other scope's segment began.
        since: i64,
    },
}

impl Step {
    /// The number of the record's scope.
    pub fn scope(self) -> Option<u16> {
        match self {
            Step::Nothing => None,
            Step::Seen { scope } | Step::Scope { scope } | Step::Segment { scope, .. } => Some(scope),
        }
    }

    /// Whether one scope has followed another, so that versions are no longer compared as before.
    pub fn is_change(self) -> bool {
        match self {
            Step::Nothing | Step::Seen { .. } => false,
            Step::Scope { scope } => scope > 0,
            Step::Segment { .. } => true,
        }
    }
}

/// The scopes that a task has seen.
#[derive(Debug)]
pub struct Epochs {
    scopes: Vec<Scope>,
    scopes_max: usize,
    segments_max: usize,
    /// The greatest `began` of all segments, or more.
    newest: i64,
    /// The scope seen last: most likely the next record's.
    latest: usize,
}

impl PartialEq for Epochs {
    fn eq(&self, other: &Self) -> bool {
        self.scopes == other.scopes
    }
}

impl Clone for Epochs {
    fn clone(&self) -> Self {
        Self { scopes: self.scopes.clone(), ..*self }
    }

    fn clone_from(&mut self, source: &Self) {
        let Self { scopes, scopes_max, segments_max, newest, latest } = source;
        self.scopes.clone_from(scopes);
        (self.scopes_max, self.segments_max) = (*scopes_max, *segments_max);
        (self.newest, self.latest) = (*newest, *latest);
    }
}

impl Default for Epochs {
    fn default() -> Self {
        let Bounds { scopes_max, segments_max, .. } = Bounds::DEFAULT;
        Self { scopes: Vec::new(), scopes_max, segments_max, newest: 0, latest: 0 }
    }
}

impl Epochs {
    /// The scopes in a position record. A scope without a segment, which is never written, counts as one that has just
    /// begun.
    pub fn from_scopes(mut scopes: Vec<Scope>, bounds: &Bounds) -> Self {
        for scope in scopes.iter_mut().filter(|scope| scope.segments.is_empty()) {
            scope.segments.push(Segment { above: None, began: i64::MAX });
        }
        let Bounds { scopes_max, segments_max, .. } = *bounds;
        let mut epochs = Self { scopes, scopes_max, segments_max, newest: i64::MIN, latest: 0 };
        epochs.update_newest();
        epochs
    }

    /// The scopes, by their numbers.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Whether no scope has been seen yet.
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }

    /// The number that the next new scope would get.
    pub(super) fn next(&self) -> u16 {
        // `note` refuses more than SCOPES_MAX, so this fits into a u16.
        self.scopes.len() as u16
    }

    /// A scope's bytes, encoded like an identity.
    pub fn scope(&self, number: u16) -> Option<&[u8]> {
        self.scopes.get(usize::from(number)).map(|scope| scope.bytes.as_slice())
    }

    /// A scope's number, if it has been seen.
    #[inline]
    pub fn number(&self, scope: &[u8]) -> Option<u16> {
        match self.scopes.get(self.latest) {
            Some(latest) if latest.bytes == scope => Some(self.latest as u16),
            _ => self.scopes.iter().position(|known| known.bytes == scope).map(|number| number as u16),
        }
    }

    /// How `version` at `offset`, in the scope with this number (`None` for a new one), relates to a version in the
    /// different scope `other`.
    pub fn relation(&self, number: Option<u16>, version: &[u8], offset: i64, other: (u16, &[u8])) -> Relation {
        let (theirs, their_version) = (&self.scopes[usize::from(other.0)], other.1);
        let since = theirs.segments[segment(theirs, their_version)].began;
        let Some(ours) = number.map(|number| &self.scopes[usize::from(number)]) else {
            return if offset > since { Relation::Newer } else { Relation::Older };
        };
        let began = ours.segments[segment(ours, version)].began.min(offset);
        if began > since {
            match unnoticed_failback(theirs, their_version, began) {
                None => Relation::Newer,
                Some(at) if offset > at && version > self.reached_until_change(ours, at) => {
                    Relation::Failback { since: at }
                }
                Some(_) => Relation::Older,
            }
        } else if offset > since && reached(ours, since).is_none_or(|reached| version > reached) {
            Relation::Failback { since }
        } else {
            Relation::Older
        }
    }

    /// The highest version that a scope had reached when the next segment of any scope began after `offset`, or by now.
    fn reached_until_change<'a>(&self, scope: &'a Scope, offset: i64) -> &'a [u8] {
        let begins = self.scopes.iter().flat_map(|scope| &scope.segments).map(|segment| segment.began);
        let change = begins.filter(|&began| began > offset).min();
        reached(scope, change.unwrap_or(i64::MAX)).unwrap_or_default()
    }

    /// Records what a record says about its scope; `step` is the decision's.
    pub(super) fn note(&mut self, step: Step, scope: &[u8], version: &[u8], offset: i64) -> Result<(), Error> {
        let number = match step {
            Step::Nothing => return Ok(()),
            Step::Seen { scope } => scope,
            Step::Scope { .. } => match self.number(scope) {
                // Added by an earlier row of the same record.
                Some(number) => number,
                None => self.add_scope(scope, version, offset)?,
            },
            Step::Segment { scope, since } => {
                self.start_segment(usize::from(scope), since, version, offset)?;
                scope
            }
        };
        self.seen(number, version, offset);
        Ok(())
    }

    /// Records that a scope has reached a version; all that [`Epochs::note`] does for a step that starts nothing.
    #[inline]
    pub(super) fn seen(&mut self, scope: u16, version: &[u8], offset: i64) {
        self.latest = usize::from(scope);
        self.note_version(version, offset);
    }

    fn add_scope(&mut self, scope: &[u8], version: &[u8], offset: i64) -> Result<u16, Error> {
        if self.scopes.len() >= self.scopes_max {
            return Err(Error::TooManyScopes(self.scopes_max));
        }
        self.check_room(scope.len() + version.len())?;
        self.scopes.push(Scope {
            bytes: scope.to_vec(),
            segments: vec![Segment { above: None, began: offset }],
            reached: vec![Reached { offset, version: version.to_vec() }],
        });
        self.newest = if self.scopes.len() == 1 { offset } else { self.newest.max(offset) };
        Ok((self.scopes.len() - 1) as u16)
    }

    /// Starts the segment that `version` belongs to, its scope having come back after `since`. If another scope's
    /// segment began after this scope had reached the version unnoticed, the new segment goes before that one.
    fn start_segment(&mut self, number: usize, since: i64, version: &[u8], offset: i64) -> Result<(), Error> {
        let ours = &self.scopes[number];
        let others = self.scopes.iter().enumerate().filter(|(other, _)| *other != number);
        let begins = others.flat_map(|(_, scope)| &scope.segments).map(|segment| segment.began);
        let had_reached = |step: &&Reached| step.offset > since && step.version.as_slice() >= version;
        let followed = |step: &Reached| begins.clone().filter(|&begin| begin > step.offset).min();
        let follower = ours.reached.iter().find(had_reached).and_then(followed);
        let began = follower.map_or(offset, |follower| offset.min(follower - 1));
        let above = match begins.filter(|&begin| begin <= began).max() {
            // The other scope came back there unnoticed, without a new segment.
            Some(before) if before < since => Some(self.reached_until_change(ours, since)),
            before => reached(ours, before.unwrap_or(since)),
        };
        let above = above.map(<[u8]>::to_vec);
        let at = ours.segments.partition_point(|segment| segment.above < above);
        if ours.segments.get(at).is_some_and(|segment| segment.above == above) {
            self.scopes[number].segments[at].began = began;
        } else {
            self.check_room(above.as_ref().map_or(0, Vec::len))?;
            self.scopes[number].segments.insert(at, Segment { above, began });
        }
        self.newest = self.newest.max(began);
        Ok(())
    }

    /// Checks that one more segment and this many bytes fit.
    fn check_room(&self, bytes: usize) -> Result<(), Error> {
        let segments = || self.scopes.iter().flat_map(|scope| &scope.segments);
        if segments().count() >= self.segments_max {
            return Err(Error::TooManySegments(self.segments_max));
        }
        let bounds: usize = segments().filter_map(|segment| segment.above.as_ref()).map(Vec::len).sum();
        let reached = self.scopes.iter().flat_map(|scope| &scope.reached).map(|reached| reached.version.len());
        let scopes = self.scopes.iter().map(|scope| scope.bytes.len());
        if bounds + reached.chain(scopes).sum::<usize>() + bytes > BYTES_MAX {
            return Err(Error::TooLong);
        }
        Ok(())
    }

    /// Records a version of the latest scope.
    #[inline]
    fn note_version(&mut self, version: &[u8], offset: i64) {
        let scope = &mut self.scopes[self.latest];
        let at = segment(scope, version);
        if offset < scope.segments[at].began {
            scope.segments[at].began = offset;
            self.update_newest();
        }
        let scope = &mut self.scopes[self.latest];
        match scope.reached.last_mut() {
            Some(last) if offset >= last.offset && version <= last.version.as_slice() => {}
            // No segment has begun since: still the same step.
            Some(last) if offset >= last.offset && self.newest < last.offset => {
                last.offset = offset;
                last.version.clear();
                last.version.extend_from_slice(version);
            }
            _ => self.add_step(version, offset),
        }
    }

    /// Adds a step to the latest scope's staircase.
    fn add_step(&mut self, version: &[u8], offset: i64) {
        let mut begins: Vec<i64> = self.scopes.iter().flat_map(|scope| &scope.segments).map(|s| s.began).collect();
        begins.sort_unstable();
        let reached = &mut self.scopes[self.latest].reached;
        let at = reached.partition_point(|step| step.offset <= offset);
        if at.checked_sub(1).is_some_and(|before| reached[before].version.as_slice() >= version) {
            return;
        }
        let after = at + reached[at..].partition_point(|step| step.version.as_slice() <= version);
        reached.splice(at..after, [Reached { offset, version: version.to_vec() }]);
        // If no segment began between two steps, the second is enough.
        for i in [at + 1, at] {
            let Some([before, step]) = i.checked_sub(1).and_then(|from| reached.get(from..=i)) else { continue };
            let between = begins.partition_point(|&began| began < before.offset)
                < begins.partition_point(|&began| began <= step.offset);
            if !between {
                reached.remove(i - 1);
            }
        }
    }

    fn update_newest(&mut self) {
        let begins = self.scopes.iter().flat_map(|scope| &scope.segments).map(|segment| segment.began);
        self.newest = begins.max().unwrap_or(i64::MIN);
    }
}

/// The index of the segment that a version belongs to.
#[inline]
fn segment(scope: &Scope, version: &[u8]) -> usize {
    let starts_below = |segment: &Segment| segment.above.as_deref().is_none_or(|above| above < version);
    scope.segments.partition_point(starts_below).saturating_sub(1)
}

/// Where a scope reached a version after `began` that it had not reached there: it had come back unnoticed, since no
/// record of it met anything written by the scope that began there.
fn unnoticed_failback(scope: &Scope, version: &[u8], began: i64) -> Option<i64> {
    reached(scope, began).filter(|reached| *reached < version)?;
    let step = scope.reached.iter().find(|step| step.offset > began && step.version.as_slice() >= version)?;
    Some(step.offset)
}

/// The highest version that a scope is known to have reached at `offset`.
fn reached(scope: &Scope, offset: i64) -> Option<&[u8]> {
    let below = scope.reached.partition_point(|step| step.offset <= offset);
    let step = scope.reached.get(below.saturating_sub(1))?;
    Some(&step.version)
}

#[cfg(test)]
mod tests;
