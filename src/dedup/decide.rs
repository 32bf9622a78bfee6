//! The decision: what becomes of a record, given what its identity's entry says and what the task has seen.
//!
//! For each record, in this order:
//!
//! 1. [`Progress::is_replayed`]: a duplicate; nothing else is looked at ([`Decision::REPLAYED`]).
//! 2. [`check_time`]: a timestamp that cannot be believed is refused, and moves nothing.
//! 3. [`Progress::advance`]: every other record moves stream time and horizon, whatever becomes of it.
//! 4. [`super::Reader::read`]; what it refuses goes to [`refuse`].
//! 5. [`decide`]: late, expired, new, duplicate, stale.

use std::cmp::Ordering;

use crate::format::{EntryRef, NO_TIME};

use super::progress::Progress;
use super::reader::Refusal;
use super::rules::{OnNull, Retention, Rules};
use super::vocabulary::{Action, Reason, Verdict};

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
        /// Whether the candidate's version belongs to it; else it has none.
        keep_version: bool,
        /// [`EntryRef::key_hash`].
        key_hash: Option<u32>,
    },
}

impl Decision {
    /// The decision on a record whose offset was processed before.
    pub const REPLAYED: Decision = Decision::dropped(Verdict::Duplicate, Reason::Replayed);

    const fn dropped(verdict: Verdict, reason: Reason) -> Self {
        Self { verdict, reason, action: Action::Drop, remember: Remember::Nothing }
    }

    /// A record about which the rules ask what to do.
    fn by_action(action: Action, otherwise: Verdict, reason: Reason) -> Self {
        let verdict = if action == Action::Forward { Verdict::Forwarded } else { otherwise };
        Self { verdict, reason, action, remember: Remember::Nothing }
    }

    /// Appends the entry to remember to `out`: whether there is one. `version` is the candidate's.
    pub fn encode_entry(&self, version: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
        let Remember::Entry { last_seen, keep_version, key_hash } = self.remember else { return false };
        let version = version.filter(|_| keep_version);
        EntryRef { last_seen, version, scope: None, from_read: false, owes_tombstone: false, key_hash }.encode(out);
        true
    }
}

/// Whether a timestamp may be believed: `None` if so. One further beyond the wall clock than the rules
/// allow may not, since it could expire everything, unless stream time is already there.
pub fn check_time(rules: &Rules, progress: &Progress, timestamp: Option<i64>, wall_ms: i64) -> Option<Refusal> {
    let timestamp = timestamp?;
    if timestamp <= wall_ms.saturating_add(rules.future_max_ms) || timestamp <= progress.stream_time {
        return None;
    }
    let ahead = timestamp.saturating_sub(wall_ms);
    let message = format!(
        "the timestamp {timestamp} is {ahead} ms beyond the wall clock, more than the limit of {} ms",
        rules.future_max_ms
    );
    Some(Refusal::new(Reason::TimestampInFuture, message))
}

/// What becomes of a record that cannot be judged.
pub fn refuse(rules: &Rules, refusal: &Refusal) -> Decision {
    let actions = &rules.actions;
    let action = match refusal.reason {
        Reason::NullValue => match actions.null_value {
            OnNull::Act(action) => action,
            OnNull::FollowDelete => Action::Drop,
        },
        Reason::IdentityMissing => actions.missing_identity,
        Reason::VersionMissing => actions.missing_version,
        Reason::Late => actions.late,
        Reason::Unsendable => actions.unsendable,
        _ => actions.invalid,
    };
    Decision::by_action(action, Verdict::Invalid, refusal.reason)
}

/// What becomes of a record, `progress` being that after [`Progress::advance`] with it. `entry` is what is
/// remembered of its identity, expired or not; `version` the candidate's; `key_hash` that of the record's
/// key ([`crate::format::key_hash`]), to be remembered.
pub fn decide(
    rules: &Rules,
    progress: &Progress,
    entry: Option<EntryRef<'_>>,
    version: Option<&[u8]>,
    timestamp: Option<i64>,
    key_hash: Option<u32>,
) -> Decision {
    if timestamp.is_some_and(|timestamp| timestamp < progress.horizon) {
        return Decision::by_action(rules.actions.late, Verdict::Invalid, Reason::Late);
    }
    let expired = entry.is_some_and(|entry| is_expired(rules, progress, entry.last_seen));
    let entry = entry.filter(|_| !expired);
    let first = if expired { Reason::Expired } else { Reason::First };
    let remembered = |reason| Decision {
        verdict: Verdict::Forwarded,
        reason,
        action: Action::Forward,
        remember: Remember::Entry {
            last_seen: timestamp.unwrap_or(NO_TIME).max(progress.stream_time),
            keep_version: rules.version.is_some(),
            key_hash,
        },
    };
    if rules.version.is_none() {
        return match entry {
            Some(_) => Decision::dropped(Verdict::Duplicate, Reason::Seen),
            None => remembered(first),
        };
    }
    let Some(version) = version else {
        return Decision::by_action(rules.actions.missing_version, Verdict::Invalid, Reason::VersionMissing);
    };
    let Some(entry) = entry else { return remembered(first) };
    match entry.version.map(|known| version.cmp(known)) {
        None | Some(Ordering::Greater) => remembered(Reason::Newer),
        Some(Ordering::Less) => Decision::dropped(Verdict::Stale, Reason::VersionOlder),
        Some(Ordering::Equal) => match rules.actions.equal_version {
            Action::Forward => remembered(Reason::VersionEqual),
            action => Decision::by_action(action, Verdict::Duplicate, Reason::VersionEqual),
        },
    }
}

/// Whether an entry that was last seen then counts no more. The sweeper asks the same.
pub fn is_expired(rules: &Rules, progress: &Progress, last_seen: i64) -> bool {
    match rules.retention {
        Retention::Forever => false,
        Retention::For { ms } => last_seen != NO_TIME && last_seen.saturating_add(ms) < progress.stream_time,
    }
}

#[cfg(test)]
mod tests;
