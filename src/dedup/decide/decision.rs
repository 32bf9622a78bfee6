//! A decision as a value: the verdict with its reason, what to do with the record, and what to remember.

use crate::format::EntryRef;

use super::Known;
use crate::dedup::epochs::Step;
use crate::dedup::vocabulary::{Action, Reason, Verdict};

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// What to do with the record.
    pub action: Action,
    /// What to remember of its identity.
    pub remember: Remember,
    /// What it was compared with.
    pub against: Against,
    /// What it does to the scopes.
    pub step: Step,
}

/// What a record was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Nothing.
    Nothing,
    /// Its identity's entry.
    Entry,
    /// Its identity's entry, by the last streamed change's version and not by the read's.
    Streamed,
    /// Its table's entry.
    Table,
}

/// What to remember of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remember {
    /// What was remembered before, if anything.
    Nothing,
    /// A new entry, in place of what was remembered before.
    Entry {
        /// [`EntryRef::last_seen`].
        last_seen: i64,
        /// Which versions belong to it.
        versions: Versions,
        /// [`EntryRef::scope`].
        scope: Option<u16>,
        /// [`EntryRef::owes_tombstone`].
        owes_tombstone: bool,
        /// [`EntryRef::key_hash`].
        key_hash: Option<u32>,
    },
    /// What was remembered before, but for this.
    Amended {
        /// [`EntryRef::last_seen`].
        last_seen: i64,
        /// [`EntryRef::owes_tombstone`].
        owes_tombstone: bool,
    },
}

/// The versions that belong to a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// None.
    None,
    /// The candidate's, which is a streamed change.
    Streamed,
    /// The candidate's, which is a snapshot's read.
    Read,
    /// The candidate's, a read, over the known one of the last streamed change.
    ReadOverStreamed,
    /// The candidate's, a streamed change, beneath the known one of a read.
    StreamedUnderRead,
}

impl Versions {
    /// The version, that of a streamed change beneath it, and whether it came from a read.
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
}

impl Decision {
    /// The decision on a record whose offset was processed before.
    pub const REPLAYED: Decision = Decision::dropped(Verdict::Duplicate, Reason::Replayed);

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

    /// A record about which the rules ask what to do.
    pub(super) fn by_action(action: Action, otherwise: Verdict, reason: Reason) -> Self {
        let verdict = if action == Action::Forward { Verdict::Forwarded } else { otherwise };
        Self::new(verdict, reason, action)
    }

    pub(super) fn against(self, against: Against) -> Self {
        Self { against, ..self }
    }

    /// What the record was compared with, out of what [`super::decide`] was given; `None` where it was with nothing.
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

    /// Appends the entry to remember to `out`: whether there is one. `version` is the candidate's, `known` what
    /// is remembered so far.
    pub fn encode_entry(&self, version: Option<&[u8]>, known: Option<EntryRef<'_>>, out: &mut Vec<u8>) -> bool {
        match self.remember {
            Remember::Nothing => return false,
            Remember::Entry { last_seen, versions, scope, owes_tombstone, key_hash } => {
                let (version, streamed, from_read) = versions.of(version, known);
                EntryRef { last_seen, version, scope, from_read, streamed, owes_tombstone, key_hash }.encode(out);
            }
            Remember::Amended { last_seen, owes_tombstone } => {
                let Some(known) = known else { return false };
                EntryRef { last_seen, owes_tombstone, ..known }.encode(out);
            }
        }
        true
    }
}
