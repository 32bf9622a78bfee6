//! A decision as a value: the verdict with its reason, what to do with the record, and what to remember.

use crate::format::{ContentsList, EntryRef, KnownContents};

use super::{Candidate, Known};
use crate::dedup::epochs::Step;
use crate::dedup::vocabulary::{Action, Reason, Verdict};

/// What was decided on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for it.
    pub reason: Reason,
    /// What to do with the record.
    pub action: Action,
    /// What to remember of its identity, unless it is a conflict that [is set aside](Self::is_conflict_set_aside).
    pub remember: Remember,
    /// What it was compared with.
    pub against: Against,
    /// Its effect on the scopes.
    pub step: Step,
}

/// What a record was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Nothing.
    Nothing,
    /// Its identity's entry.
    Entry,
    /// Its identity's entry, by the version of the last streamed change rather than the read's.
    Streamed,
    /// Its table's entry.
    Table,
}

/// What to remember of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remember {
    /// Leave what was remembered before, if anything.
    Nothing,
    /// A new entry, in place of what was remembered before.
    Entry {
        /// [`EntryRef::last_seen`].
        last_seen: i64,
        /// Which versions go into it.
        versions: Versions,
        /// Whether it has the version that was remembered for its class, a read or anything else; without versions,
        /// whether its identity was seen.
        tied: bool,
        /// [`EntryRef::scope`].
        scope: Option<u16>,
        /// [`EntryRef::owes_tombstone`].
        owes_tombstone: bool,
        /// [`EntryRef::key_hash`].
        key_hash: Option<u32>,
    },
    /// The same entry, with these changed.
    Amended {
        /// [`EntryRef::last_seen`].
        last_seen: i64,
        /// [`EntryRef::owes_tombstone`].
        owes_tombstone: bool,
        /// Whether the candidate's contents join those that are known.
        joins: bool,
    },
}

/// Which versions go into a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// None.
    None,
    /// The candidate's, a streamed change.
    Streamed,
    /// The candidate's, a snapshot's read.
    Read,
    /// The candidate's, a read, above the known version of the last streamed change.
    ReadOverStreamed,
    /// The candidate's, a streamed change, below the known version of a read.
    StreamedUnderRead,
}

impl Versions {
    /// The version, the streamed change's version below it, and whether the version came from a read.
    fn of<'a>(
        self,
        candidate: Option<&'a [u8]>,
        known: Option<EntryRef<'a>>,
    ) -> (Option<&'a [u8]>, Option<&'a [u8]>, bool) {
        match self {
            Versions::None => (None, None, false),
            Versions::Streamed => (candidate, None, false),
            Versions::Read => (candidate, None, true),
            Versions::ReadOverStreamed => (candidate, known.and_then(|entry| entry.last_streamed()), true),
            Versions::StreamedUnderRead => (known.and_then(|entry| entry.version), candidate, true),
        }
    }

    /// Whether contents of reads, and of anything else, stay known in the new entry. `tied`: its version is the one
    /// remembered for the candidate's class.
    fn keeps(self, tied: bool) -> Kept {
        match self {
            Versions::None | Versions::Streamed => Kept { reads: false, streamed: tied },
            Versions::Read => Kept { reads: tied, streamed: false },
            Versions::ReadOverStreamed => Kept { reads: tied, streamed: true },
            Versions::StreamedUnderRead => Kept { reads: true, streamed: tied },
        }
    }
}

/// Which contents stay known.
#[derive(Clone, Copy)]
struct Kept {
    reads: bool,
    streamed: bool,
}

/// The contents that the entry knows after the candidate. If the known contents of the candidate's class stay but cannot be
/// compared with the candidate's, the class stays unchanged: a list that began in the middle of a version would make a
/// repetition of an earlier record look like a conflict.
fn contents_with(candidate: &Candidate<'_>, kept: Kept, known: Option<EntryRef<'_>>) -> ContentsList {
    let mut list = ContentsList::default();
    let of_known = known.iter().flat_map(|entry| entry.contents.digests());
    let stays = |is_of_read: bool| if is_of_read { kept.reads } else { kept.streamed };
    of_known.filter(|digest| stays(digest.is_of_read())).for_each(|digest| list.push(digest));
    if let Some(digest) = candidate.contents {
        let relation = known.map_or(KnownContents::Unknown, |entry| entry.contents.know(digest));
        if !stays(digest.is_of_read()) || relation == KnownContents::Other {
            list.push(digest);
        }
    }
    list
}

impl Decision {
    /// The decision on a record whose offset has already been processed.
    pub const REPLAYED: Decision = Decision::dropped(Verdict::Duplicate, Reason::Replayed);

    /// The decision on a record by the rule for its call's outcome: the rule specifies `action`.
    pub fn by_call_rule(action: Action, reason: Reason) -> Self {
        Self::by_action(action, Verdict::Invalid, reason)
    }

    pub(super) const fn new(verdict: Verdict, reason: Reason, action: Action) -> Self {
        let (remember, against, step) = (Remember::Nothing, Against::Nothing, Step::Nothing);
        Self { verdict, reason, action, remember, against, step }
    }

    pub(super) const fn dropped(verdict: Verdict, reason: Reason) -> Self {
        Self::new(verdict, reason, Action::Drop)
    }

    pub(super) const fn forwarded(reason: Reason) -> Self {
        Self::new(Verdict::Forwarded, reason, Action::Forward)
    }

    /// A decision whose action the rules specify.
    pub(super) fn by_action(action: Action, otherwise: Verdict, reason: Reason) -> Self {
        let verdict = if action == Action::Forward { Verdict::Forwarded } else { otherwise };
        Self::new(verdict, reason, action)
    }

    /// Whether this is a conflict that goes to the dead letters or stops the task. Nothing is remembered of it, unless another
    /// row forwards the record.
    pub fn is_conflict_set_aside(&self) -> bool {
        self.reason.is_conflict() && matches!(self.action, Action::DeadLetter | Action::Fail)
    }

    pub(super) fn against(self, against: Against) -> Self {
        Self { against, ..self }
    }

    /// The entry that the record was compared with, out of those given to [`super::decide`]; `None` if with none.
    pub fn compared_with<'a>(&self, known: Known<'a>) -> Option<EntryRef<'a>> {
        match self.against {
            Against::Nothing => None,
            Against::Entry => known.entry,
            Against::Streamed => known.entry.map(|entry| EntryRef {
                version: entry.last_streamed(),
                streamed: None,
                from_read: false,
                ..entry
            }),
            Against::Table => known.table,
        }
    }

    /// Appends the entry to remember to `out`; returns whether there is one. `known` is what is remembered so far.
    pub fn encode_entry(&self, candidate: &Candidate<'_>, known: Option<EntryRef<'_>>, out: &mut Vec<u8>) -> bool {
        match self.remember {
            Remember::Nothing => return false,
            Remember::Entry { last_seen, versions, tied, scope, owes_tombstone, key_hash } => {
                let (version, streamed, from_read) = versions.of(candidate.version, known);
                let list = contents_with(candidate, versions.keeps(tied), known);
                let contents = list.as_contents();
                EntryRef { last_seen, version, scope, from_read, streamed, owes_tombstone, key_hash, contents }
                    .encode(out);
            }
            Remember::Amended { last_seen, owes_tombstone, joins } => {
                let Some(known) = known else { return false };
                let list;
                let contents = if joins {
                    list = contents_with(candidate, Kept { reads: true, streamed: true }, Some(known));
                    list.as_contents()
                } else {
                    known.contents
                };
                EntryRef { last_seen, owes_tombstone, contents, ..known }.encode(out);
            }
        }
        true
    }
}
