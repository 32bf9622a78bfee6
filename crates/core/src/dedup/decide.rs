//! The decision: what to do with a record, given its identity's entry and what the task has seen.
//!
//! The steps for each record, in order:
//!
//! 1. [`Progress::is_replayed`]: it is a duplicate, and nothing else is looked at ([`Decision::REPLAYED`]).
//! 2. [`check_time`]: a timestamp that cannot be believed is rejected and moves nothing.
//! 3. [`Progress::advance`]: any other record moves stream time and horizon, whatever is decided.
//! 4. [`super::Reader::read`]; a rejected record goes to [`reject`].
//! 5. [`decide`] for the row that was read; for several rows, their decisions are [`combine`]d.
//! 6. Its effect on the scopes, and what to remember ([`Decision::encode_entry`]), unless the action is
//!    [`Action::Fail`], which leaves everything as it was, or the output refuses the record.
//!
//! [`super::evaluate`] runs all of them.
//!
//! What [`decide`] checks, in order; the first that applies counts:
//!
//! | question | result |
//! |---|---|
//! | Is it older than the horizon? | `on_late` |
//! | Is it a tombstone (`on_null_value: follow_delete`)? | forwarded if its entry owes one, else a duplicate |
//! | Is it a change, delete or read below its table's last truncate? | stale |
//! | Is it a message? | forwarded, or a duplicate if it was seen |
//! | Do the rules have no version? | forwarded, or a duplicate if it was seen |
//! | Does it have no version? | `on_missing_version`; its entry keeps its version |
//! | Does it start an epoch, or has its epoch come back ([`super::epochs`])? | `on_epoch_change` |
//! | Does it have no entry, or one without a version? | forwarded |
//! | Is its scope different from its entry's? | the later segment is newer |
//! | Is it a streamed change? | by version against the last streamed change; it always wins over a read |
//! | Is it a snapshot's read, and a streamed change is known? | stale, or with `reads: by_version` as below |
//! | | by version against everything known |
//!
//! "By version" and "if it was seen" do not end at an equal version or a known identity: if the contents are not among
//! those that the entry knows ([`Contents`](crate::format::Contents)), that is a conflict, and `on_conflict` applies.
//! Whether the conflict is forwarded or dropped, the contents are known from then on, so a repetition is a duplicate. An
//! entry that was written before contents were compared, or under another rule for contents, knows none; then a record with
//! any contents is a repetition.
//!
//! An expired entry counts as none throughout: whether the sweeper has already removed it makes no difference.

mod decision;

use std::cmp::Ordering;

use crate::format::{Digest, EntryRef, KnownContents, NO_TIME, key_hash};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};

use super::epochs::{Relation, Step};
use super::progress::Progress;
use super::reader::{Rejection, Row};
use super::rules::{OnNull, Retention, Rules};
use super::vocabulary::{Action, Kind, Reads, Reason, Refresh, Verdict};

pub use decision::{Against, Decision, Remember, Versions};

/// What is judged: a record, or one of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The version's bytes, if it has one.
    pub version: Option<&'a [u8]>,
    /// The scope's bytes, if it is in one.
    pub scope: Option<&'a [u8]>,
    /// The kind of change.
    pub kind: Kind,
    /// The record's timestamp.
    pub timestamp: Option<i64>,
    /// The hash of the record's key ([`crate::format::key_hash`]), to be remembered.
    pub key_hash: Option<u32>,
    /// The record's offset.
    pub offset: i64,
    /// The digest of its contents, if these are compared.
    pub contents: Option<Digest>,
}

impl<'a> Candidate<'a> {
    /// The candidate for a row that was read into `arena`.
    #[inline]
    pub fn of(row: &Row, arena: &'a [u8], record: &Record<'_>) -> Self {
        Self {
            version: row.version.clone().map(|range| &arena[range]),
            scope: row.scope.clone().map(|range| &arena[range]),
            kind: row.kind,
            timestamp: record.timestamp,
            key_hash: record.key.map(key_hash),
            offset: record.offset,
            contents: row.contents,
        }
    }
}

/// What is remembered, expired or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known<'a> {
    /// The identity's entry.
    pub entry: Option<EntryRef<'a>>,
    /// The entry of the table's truncates; always `None` while [`Progress::truncates`] is 0.
    pub table: Option<EntryRef<'a>>,
}

/// Combines the decisions on a record's rows into one for the record: the first that forwards it, else the first that
/// stops the task, else the first that sends it to the dead letters, else the first that drops other contents than those
/// known, which must not go unnoticed, else the first.
///
/// A row whose version equals the one remembered (`on_equal: forward`) does not forward a record that also holds a
/// stale row: that is an old record redelivered, and forwarding it would bring the stale row back.
pub fn combine(decisions: impl IntoIterator<Item = Decision> + Clone) -> Option<Decision> {
    let all = || decisions.clone().into_iter();
    let forwarded = || all().filter(|decision| decision.action == Action::Forward);
    let first = forwarded().next();
    let is_equal = first.is_some() && forwarded().all(|decision| decision.reason == Reason::VersionEqual);
    let stale = all().find(|decision| is_equal && decision.verdict == Verdict::Stale);
    if stale.is_none() && first.is_some() {
        return first;
    }
    let by = |action| all().find(|decision| decision.action == action);
    let conflict = || all().find(|decision| decision.reason.is_conflict());
    by(Action::Fail).or_else(|| by(Action::DeadLetter)).or_else(conflict).or(stale).or_else(|| all().next())
}

/// Checks whether a timestamp may be believed; `None` if it may. One further ahead of the wall clock than the rules
/// allow may not, since it could expire everything, unless stream time is already there.
pub fn check_time(rules: &Rules, progress: &Progress, timestamp: Option<i64>, wall_ms: i64) -> Option<Rejection> {
    let timestamp = timestamp?;
    if timestamp <= wall_ms.saturating_add(rules.future_max_ms) || timestamp <= progress.stream_time {
        return None;
    }
    let ahead = timestamp.saturating_sub(wall_ms);
    let message = format!(
        "the timestamp {timestamp} is {ahead} ms beyond the wall clock, more than the limit of {} ms",
        rules.future_max_ms
    );
    Some(Rejection::new(Reason::TimestampInFuture, message))
}

/// What to do with a record that cannot be judged.
pub fn reject(rules: &Rules, rejection: &Rejection) -> Decision {
    let actions = &rules.actions;
    let action = match rejection.reason {
        Reason::NullValue => match actions.null_value {
            OnNull::Act(action) => action,
            // A reader rejects none of these for its null.
            OnNull::FollowDelete | OnNull::Delete => Action::Drop,
        },
        Reason::IdentityMissing => actions.missing_identity,
        Reason::VersionMissing => actions.missing_version,
        Reason::Late => actions.late,
        Reason::Unsendable => actions.unsendable,
        Reason::Rejected => actions.rejected,
        Reason::Conflict | Reason::VersionTied | Reason::SeenOtherwise => actions.conflict,
        Reason::InDoubt => actions.in_doubt,
        Reason::Unavailable => actions.unavailable,
        _ => actions.invalid,
    };
    Decision::by_action(action, Verdict::Invalid, rejection.reason)
}

/// What to do with a candidate; `progress` has already been [advanced](Progress::advance) by its record.
pub fn decide(rules: &Rules, progress: &Progress, candidate: &Candidate<'_>, known: Known<'_>) -> Decision {
    if candidate.timestamp.is_some_and(|timestamp| timestamp < progress.horizon) {
        return Decision::by_action(rules.actions.late, Verdict::Invalid, Reason::Late);
    }
    let live = |entry: &EntryRef<'_>| !is_expired(rules, progress, entry.last_seen);
    let entry = known.entry.filter(live);
    let first = if entry.is_none() && known.entry.is_some() { Reason::Expired } else { Reason::First };
    let case = Case { rules, progress, candidate, entry, table: known.table.filter(live), first };
    match (rules.version.is_some(), candidate.version) {
        _ if candidate.kind == Kind::Tombstone => case.tombstone(),
        (false, _) => case.seen_or_first(),
        (true, None) => case.without_version(),
        (true, Some(version)) => case.versioned(version),
    }
}

/// A candidate that is not late, and the unexpired entries that it is compared with.
struct Case<'a> {
    rules: &'a Rules,
    progress: &'a Progress,
    candidate: &'a Candidate<'a>,
    entry: Option<EntryRef<'a>>,
    table: Option<EntryRef<'a>>,
    /// The reason to forward a candidate without an entry.
    first: Reason,
}

impl Case<'_> {
    /// The entry's new `last_seen`.
    fn now(&self) -> i64 {
        self.candidate.timestamp.unwrap_or(NO_TIME).max(self.progress.stream_time)
    }

    /// Forwards the candidate, with a new entry.
    fn forward(&self, reason: Reason, versions: Versions, scope: Option<u16>) -> Decision {
        self.forward_tied(reason, (versions, false), scope)
    }

    /// The same for one that may have a version that is remembered.
    fn forward_tied(&self, reason: Reason, (versions, tied): (Versions, bool), scope: Option<u16>) -> Decision {
        let remember = Remember::Entry {
            last_seen: self.now(),
            versions,
            tied,
            scope,
            owes_tombstone: self.candidate.kind == Kind::Delete,
            key_hash: self.candidate.key_hash,
        };
        Decision { remember, ..Decision::forwarded(reason) }
    }

    /// What a duplicate does to its entry.
    fn refresh(&self, entry: &EntryRef<'_>) -> Remember {
        match self.rules.refresh {
            Refresh::OnForward => Remember::Nothing,
            Refresh::OnDuplicate => {
                let (last_seen, owes_tombstone) = (self.now().max(entry.last_seen), entry.owes_tombstone);
                Remember::Amended { last_seen, owes_tombstone, joins: false }
            }
        }
    }

    /// Whether the candidate's contents are known not to be among the entry's.
    fn is_conflict(&self, entry: &EntryRef<'_>) -> bool {
        let is_other = |digest| entry.contents.know(digest) == KnownContents::Other;
        self.candidate.contents.is_some_and(is_other) && !sabotage::is_on(Sabotage::ContentsIgnored)
    }

    /// A candidate with a known identity and version, but new contents. These join those that are known, unless the record
    /// is set aside or stops the task: see [`super::evaluate`] for records of several rows.
    fn conflict(&self, entry: &EntryRef<'_>, reason: Reason, versions: Versions, scope: Option<u16>) -> Decision {
        let action = self.rules.actions.conflict;
        if action == Action::Forward {
            return self.forward_tied(reason, (versions, true), scope);
        }
        let last_seen = match self.rules.refresh {
            Refresh::OnForward => entry.last_seen,
            Refresh::OnDuplicate => self.now().max(entry.last_seen),
        };
        let remember = Remember::Amended { last_seen, owes_tombstone: entry.owes_tombstone, joins: true };
        let verdict = if action == Action::Drop { Verdict::Duplicate } else { Verdict::Invalid };
        Decision { remember, ..Decision::new(verdict, reason, action) }
    }

    fn tombstone(&self) -> Decision {
        match &self.entry {
            Some(entry) if entry.owes_tombstone => {
                let last_seen = self.now().max(entry.last_seen);
                let remember = Remember::Amended { last_seen, owes_tombstone: false, joins: false };
                Decision { remember, ..Decision::forwarded(Reason::Tombstone) }.against(Against::Entry)
            }
            Some(_) => Decision::dropped(Verdict::Duplicate, Reason::TombstoneNotOwed).against(Against::Entry),
            None => Decision::dropped(Verdict::Duplicate, Reason::TombstoneNotOwed),
        }
    }

    fn seen_or_first(&self) -> Decision {
        match &self.entry {
            Some(entry) if self.is_conflict(entry) => {
                self.conflict(entry, Reason::SeenOtherwise, Versions::None, None).against(Against::Entry)
            }
            Some(entry) => {
                let remember = self.refresh(entry);
                Decision { remember, ..Decision::dropped(Verdict::Duplicate, Reason::Seen) }.against(Against::Entry)
            }
            None => self.forward(self.first, Versions::None, None),
        }
    }

    /// A forwarded delete makes its entry owe a tombstone, any other forwarded record settles it; the entry is
    /// otherwise unchanged.
    fn without_version(&self) -> Decision {
        let decision =
            Decision::by_action(self.rules.actions.missing_version, Verdict::Invalid, Reason::VersionMissing);
        let is_delete = self.candidate.kind == Kind::Delete;
        let remember = match &self.entry {
            _ if decision.action != Action::Forward => Remember::Nothing,
            Some(entry) if entry.owes_tombstone == is_delete => Remember::Nothing,
            Some(entry) => {
                let last_seen = self.now().max(entry.last_seen);
                Remember::Amended { last_seen, owes_tombstone: is_delete, joins: false }
            }
            None if is_delete => self.forward(Reason::VersionMissing, Versions::None, None).remember,
            None => Remember::Nothing,
        };
        Decision { remember, ..decision }
    }

    /// Relates the candidate to its table's and its identity's entries, then decides on it and on the scopes.
    fn versioned(&self, version: &[u8]) -> Decision {
        let scope = self.candidate.scope.filter(|_| !sabotage::is_on(Sabotage::EpochIgnored));
        let number = scope.map(|scope| self.progress.epochs.number(scope));
        let table = self.table.as_ref().filter(|_| self.is_row());
        let of_table = table.and_then(|table| self.relate(number, version, table));
        let is_truncated = table.is_some_and(|table| match of_table {
            Some(relation) => relation == Relation::Older,
            None => table.version.is_some_and(|truncated| version < truncated),
        });
        let comparable = self.candidate.kind != Kind::Message && !is_truncated;
        let of_entry = self.entry.as_ref().filter(|_| comparable).and_then(|entry| self.relate(number, version, entry));
        let step = self.step(number, of_table, of_entry);
        let of = if self.entry.is_some() { Against::Entry } else { Against::Nothing };
        let action = self.rules.actions.epoch_change;
        if step.is_change() && action != Action::Forward {
            let against = if is_truncated { Against::Table } else { of };
            return Decision::new(Verdict::Invalid, Reason::EpochChanged, action).against(against);
        }
        let decision = if is_truncated {
            Decision::dropped(Verdict::Stale, Reason::TableTruncated).against(Against::Table)
        } else if self.candidate.kind == Kind::Message {
            self.seen_or_first().against(of)
        } else {
            self.compare(of_entry, version, step.scope())
        };
        Decision { step, ..decision }
    }

    /// What the candidate does to the scopes; `number` is its own scope's.
    fn step(&self, number: Option<Option<u16>>, of_table: Option<Relation>, of_entry: Option<Relation>) -> Step {
        let since = |relation: Option<Relation>| match relation {
            Some(Relation::Failback { since }) => Some(since),
            _ => None,
        };
        // What is above the version reached at the later start is above that at the earlier one.
        match (number, since(of_table).max(since(of_entry))) {
            (None, _) => Step::Nothing,
            (Some(None), _) => Step::Scope { scope: self.progress.epochs.next() },
            (Some(Some(scope)), Some(since)) => Step::Segment { scope, since },
            (Some(Some(scope)), None) => Step::Seen { scope },
        }
    }

    fn is_row(&self) -> bool {
        matches!(self.candidate.kind, Kind::Change | Kind::Delete | Kind::Read)
    }

    /// How the candidate relates to an entry of another scope; `None` where their versions are comparable.
    fn relate(&self, number: Option<Option<u16>>, version: &[u8], entry: &EntryRef<'_>) -> Option<Relation> {
        let (number, their_version) = (number?, entry.version?);
        let their_scope = entry.scope.filter(|&scope| self.progress.epochs.scope(scope).is_some())?;
        if number == Some(their_scope) {
            return None;
        }
        Some(self.progress.epochs.relation(number, version, self.candidate.offset, (their_scope, their_version)))
    }

    /// Compares the candidate with its entry, if there is one.
    fn compare(&self, relation: Option<Relation>, version: &[u8], scope: Option<u16>) -> Decision {
        let alone = if self.candidate.kind == Kind::Read { Versions::Read } else { Versions::Streamed };
        let forward = |reason| self.forward(reason, alone, scope);
        let Some(entry) = &self.entry else { return forward(self.first) };
        let decision = match (relation, entry.version) {
            (_, None) => forward(Reason::Newer),
            (Some(Relation::Older), _) => Decision::dropped(Verdict::Stale, Reason::EpochOlder),
            (Some(Relation::Newer | Relation::Failback { .. }), _) => forward(Reason::EpochChanged),
            // A candidate without a scope is compared as if it were in its entry's scope, and stays there.
            (None, Some(known)) if alone == Versions::Read => {
                self.compare_read(entry, version, known, scope.or(entry.scope))
            }
            (None, Some(known)) => return self.compare_streamed(entry, version, known, scope.or(entry.scope)),
        };
        decision.against(Against::Entry)
    }

    /// A streamed change is compared with streamed changes only; over a read it always wins.
    fn compare_streamed(&self, entry: &EntryRef<'_>, version: &[u8], known: &[u8], scope: Option<u16>) -> Decision {
        let is_under_read = entry.from_read && version < known && self.reads() == Reads::ByVersion;
        let versions = if is_under_read { Versions::StreamedUnderRead } else { Versions::Streamed };
        let against = if entry.streamed.is_some() { Against::Streamed } else { Against::Entry };
        let decision = match entry.last_streamed() {
            None => self.forward(Reason::Newer, versions, scope),
            Some(last) => self.by_version(entry, version.cmp(last), versions, scope),
        };
        decision.against(against)
    }

    fn compare_read(&self, entry: &EntryRef<'_>, version: &[u8], known: &[u8], scope: Option<u16>) -> Decision {
        let last = match (entry.last_streamed(), self.reads()) {
            (None, _) => return self.by_version(entry, version.cmp(known), Versions::Read, scope),
            (Some(_), Reads::Lose) => return Decision::dropped(Verdict::Stale, Reason::SnapshotRead),
            (Some(last), Reads::ByVersion) => last,
        };
        if version <= last {
            return Decision::dropped(Verdict::Stale, Reason::SnapshotRead);
        }
        self.by_version(entry, version.cmp(known), Versions::ReadOverStreamed, scope)
    }

    fn by_version(&self, entry: &EntryRef<'_>, order: Ordering, versions: Versions, scope: Option<u16>) -> Decision {
        match order {
            Ordering::Equal if sabotage::is_on(Sabotage::EqualVersionForwarded) => {
                self.forward_tied(Reason::Newer, (versions, true), scope)
            }
            Ordering::Greater => self.forward(Reason::Newer, versions, scope),
            Ordering::Less => Decision::dropped(Verdict::Stale, Reason::VersionOlder),
            Ordering::Equal if self.is_conflict(entry) => self.conflict(entry, Reason::VersionTied, versions, scope),
            Ordering::Equal => match self.rules.actions.equal_version {
                Action::Forward => self.forward_tied(Reason::VersionEqual, (versions, true), scope),
                action => Decision {
                    remember: self.refresh(entry),
                    ..Decision::by_action(action, Verdict::Duplicate, Reason::VersionEqual)
                },
            },
        }
    }

    fn reads(&self) -> Reads {
        self.rules.kinds.as_ref().map_or(Reads::Lose, |kinds| kinds.reads)
    }
}

/// Whether an entry last seen at that time has expired. The sweeper uses the same test.
pub fn is_expired(rules: &Rules, progress: &Progress, last_seen: i64) -> bool {
    match rules.retention {
        Retention::Forever => false,
        Retention::For { ms } => last_seen != NO_TIME && last_seen.saturating_add(ms) < progress.stream_time,
    }
}

#[cfg(test)]
mod tests;
