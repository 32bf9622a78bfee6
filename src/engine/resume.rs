//! How a task resumes from the state that it finds: pure decisions, made once the former owner's transaction is
//! settled. There are two questions: how far the store has applied the changelog ([`examine_store`]) and, once it is
//! current, the offset at which the input continues ([`resumption`]).
//!
//! Source offsets alone prove nothing: groups are reset, topics recreated, folders exchanged. The token decides.

use crate::cluster::{Settled, TopicId};
use crate::dedup::{Bounds, Epochs, Progress, Ranges};
use crate::format::{self, Calls, ChangelogOffset, OffsetMetadata, PositionRecord, StoreMeta, Token};
use crate::sabotage::{self, Sabotage};
use crate::topology::Start;

mod refusal;
mod witness;

pub use refusal::{ANEW, FOREIGN_OFFSET_HELP, LOST_HELP, REBUILD_HELP, Refusal};
pub use witness::check_witness;

/// How a store compares with the changelog, and so what it needs before it can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    /// It is the result of the transaction that the group has committed.
    Current,
    /// It lacks the changelog from this offset on.
    Behind {
        /// The first changelog offset to read.
        from: ChangelogOffset,
        /// When the store was last synced. The store keeps this time until the load has ended, since until then it may
        /// still hold entries whose tombstones are gone.
        synced_at: i64,
    },
    /// It cannot be updated: another store has to be built in its place, from this changelog offset on.
    Unusable {
        /// The first changelog offset to read.
        from: ChangelogOffset,
        /// The reason, for the log.
        reason: String,
    },
    /// It has applied records that the changelog no longer holds: the changelog has lost its last records, and the
    /// store may hold the only copy.
    Beyond {
        /// How far it has applied the changelog.
        applied: ChangelogOffset,
        /// The changelog's end.
        end: ChangelogOffset,
    },
}

/// Compares the store with the changelog. `meta` is the store's meta record, `None` for an empty store; `is_latest` is
/// whether the store is known to hold everything that was committed; `committed` is the token beside the committed
/// offset.
pub fn examine_store(
    settled: &Settled,
    partition: i32,
    (meta, is_latest): (Option<&StoreMeta>, bool),
    committed: Option<&Token>,
    wall_ms: i64,
    delete_retention_ms: i64,
) -> StoreStatus {
    let from = settled.changelog_start;
    let unusable = |reason: String| StoreStatus::Unusable { from, reason };
    let Some(meta) = meta else {
        return if from == ChangelogOffset(0) {
            StoreStatus::Behind { from, synced_at: wall_ms }
        } else {
            unusable("it is empty".to_owned())
        };
    };
    if meta.changelog_id != settled.changelog_id.0 {
        return unusable(format!("it belongs to a changelog with the id {}", TopicId(meta.changelog_id)));
    }
    if meta.partition != partition {
        return unusable(format!("it belongs to partition {}", meta.partition));
    }
    if meta.changelog_offset > settled.changelog_end && !sabotage::is_on(Sabotage::ChangelogEndNotCompared) {
        return StoreStatus::Beyond { applied: meta.changelog_offset, end: settled.changelog_end };
    }
    // The store's last transaction ends with one marker. Later records are from aborted transactions of this task, from
    // other owners, or from a transaction with an unknown outcome; and if the group shows an offset that it had before,
    // the store may be as old as that offset.
    let is_latest = is_latest || meta.changelog_offset.next() >= settled.changelog_end;
    if meta.token.is_some() && meta.token.as_ref() == committed && is_latest {
        return StoreStatus::Current;
    }
    if meta.changelog_offset < settled.changelog_start {
        let (applied, start) = (meta.changelog_offset, settled.changelog_start);
        return unusable(format!("it stands at changelog offset {applied}, before the changelog's start {start}"));
    }
    // Tombstones that the store has not read may have been compacted away: removed entries would stay in the store.
    if meta.changelog_offset < settled.changelog_end && wall_ms.saturating_sub(meta.synced_at) >= delete_retention_ms {
        return unusable("it was last written longer ago than the changelog keeps tombstones".to_owned());
    }
    // Retention may have removed records up to the store's offset.
    StoreStatus::Behind { from: applied(meta).max(settled.changelog_start), synced_at: meta.synced_at }
}

/// How far a store has applied committed records. Records that it has read beyond its position record were aborted; if
/// the changelog has lost them and has grown again, other records may be there now.
fn applied(meta: &StoreMeta) -> ChangelogOffset {
    let after_position = meta.position_offset.filter(|_| meta.token.is_some()).map(ChangelogOffset::next);
    after_position.map_or(meta.changelog_offset, |offset| offset.min(meta.changelog_offset))
}

/// Whether a store belongs to this task and this changelog, however old it is.
pub fn is_store_of(meta: &StoreMeta, settled: &Settled, partition: i32) -> bool {
    meta.changelog_id == settled.changelog_id.0 && meta.partition == partition
}

/// Refuses to rebuild a store from a changelog that does not start at offset 0. The cleaner does not move a compacted
/// topic's start; if it is not 0, records were deleted, and with them entries that only they held.
pub fn check_rebuild(from: ChangelogOffset, reason: &str) -> Result<(), Refusal> {
    if from == ChangelogOffset(0) {
        Ok(())
    } else {
        Err(Refusal::ChangelogTruncated { start: from, reason: reason.to_owned() })
    }
}

/// How a task continues reading its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumption {
    /// The next source offset to read.
    pub next: i64,
    /// The state besides the entries that decisions depend on.
    pub progress: Progress,
    /// The state of calls.
    pub calls: Calls,
    /// Where the position comes from.
    pub origin: Origin,
}

impl Resumption {
    /// Adds the `calls` of the position record. Records that were settled beyond the prefix and are skipped by a reset
    /// count as processed: another reset may return to them.
    pub fn with_calls(mut self, calls: Calls) -> Result<Self, Refusal> {
        let next = self.next;
        for (from, to) in &calls.beyond {
            self.progress.processed.add_range(*from, (*to).min(next))?;
        }
        let ahead = calls.beyond.iter().map(|(from, to)| (*from.max(&next), *to)).filter(|(from, to)| from < to);
        Ok(Self { calls: Calls { beyond: ahead.collect(), ..calls }, ..self })
    }
}

/// Where a position comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A start without a former position: no record was ever processed.
    Fresh,
    /// The offset that the group has committed with the changelog's last transaction.
    Committed,
    /// The group was reset to another offset.
    Reset,
    /// The group's offset is gone; the position record says where it was.
    GroupDeleted,
}

/// What a task knows about itself when it resumes.
#[derive(Clone, Copy, Debug)]
pub struct TaskFacts<'a> {
    /// The digest of the current rules.
    pub rules_digest: &'a [u8; 32],
    /// The input's partition count.
    pub task_count: u32,
    /// Where to start if no record was ever processed.
    pub start: Start,
    /// The bounds of its progress.
    pub bounds: &'a Bounds,
}

/// The text beside the committed offset, if ratchet wrote it. Refuses the text of another program, of other rules or of
/// another changelog. Called before the store is changed.
pub fn check_committed(settled: &Settled, facts: TaskFacts<'_>) -> Result<Option<OffsetMetadata>, Refusal> {
    let parsed = settled.committed.as_ref().map(|committed| OffsetMetadata::parse(&committed.metadata));
    let Some(metadata) = parsed.transpose().map_err(Refusal::of_metadata)?.flatten() else { return Ok(None) };
    let ours = OffsetMetadata::short_digest(facts.rules_digest);
    if metadata.digest != ours {
        return Err(Refusal::OtherRules { found: metadata.digest.clone(), ours });
    }
    check_changelog(settled, &metadata.token)?;
    Ok(Some(metadata))
}

/// Refuses a changelog without a transaction if the store remembers processed records. `former` is the position record
/// of the store that was set aside.
pub fn check_former_store(settled: &Settled, partition: i32, former: Option<&PositionRecord>) -> Result<(), Refusal> {
    // After a reset there is no text, and the offset does not tell which records were processed.
    let text = settled.committed.as_ref().map(|committed| OffsetMetadata::parse(&committed.metadata));
    let has_text = text.is_some_and(|text| !matches!(text, Ok(None)));
    let former = former.filter(|former| former.token.partition == partition && !has_text);
    match former.and_then(|former| processed_of(former, settled.input_id)) {
        Some(processed) => Err(Refusal::StoreOutlived { processed }),
        None => Ok(()),
    }
}

/// The offset up to which a position record covers this input: the end of the processed records, or the start of
/// reading.
pub fn processed_of(position: &PositionRecord, input_id: TopicId) -> Option<i64> {
    let processed = position.processed.iter().filter(|(_, to)| *to > 0 && position.input_id == input_id.0);
    processed.map(|&(_, to)| to).max()
}

/// Where the input continues, once the store is current. `position` is the store's position record, the last one in the
/// changelog.
pub fn resumption(
    settled: &Settled,
    position: Option<&PositionRecord>,
    facts: TaskFacts<'_>,
) -> Result<Resumption, Refusal> {
    let metadata = check_committed(settled, facts)?;
    let recorded = position.map(|p| p.processed.as_slice()).unwrap_or_default();
    let recorded_end = recorded.last().map(|&(_, end)| end);
    let processed = Ranges::from_pairs(recorded.iter().copied(), facts.bounds)?;
    if let Some(metadata) = &metadata {
        let offset = settled.committed.as_ref().map_or(0, |committed| committed.offset);
        if !holds_transaction(position, &metadata.token, offset) && !sabotage::is_on(Sabotage::ChangelogAdopted) {
            let found = position.map_or("nothing".to_owned(), |position| position.token.to_string());
            return Err(Refusal::ChangelogLost { committed: metadata.token, found });
        }
    }
    if let Some(position) = position {
        check_position(settled, position, facts)?;
    }
    let (next, origin) = match (&settled.committed, recorded_end) {
        (Some(committed), Some(end)) if metadata.is_some() && committed.offset == end => (end, Origin::Committed),
        (Some(committed), Some(_)) => (committed.offset, Origin::Reset),
        (Some(committed), None) => (committed.offset, Origin::Fresh),
        (None, Some(end)) => (end, Origin::GroupDeleted),
        (None, None) => match facts.start {
            Start::Earliest => (settled.input_start, Origin::Fresh),
            Start::Latest => (settled.input_end, Origin::Fresh),
        },
    };
    // If the group's offset went back, records that were processed long ago may be gone; they are not needed.
    let next = if processed.contains_all(next, settled.input_start) { next.max(settled.input_start) } else { next };
    if next < settled.input_start {
        return Err(Refusal::InputTruncated { next, start: settled.input_start });
    }
    if next > settled.input_end {
        return Err(Refusal::InputShrunk { next, end: settled.input_end });
    }
    let progress = Progress {
        stream_time: position.map_or(format::NO_TIME, |position| position.stream_time),
        horizon: position.map_or(i64::MIN, |position| position.horizon),
        processed,
        truncates: position.map_or(0, |position| position.truncates),
        epochs: Epochs::from_scopes(position.map(|position| position.scopes.clone()).unwrap_or_default(), facts.bounds),
    };
    Ok(Resumption { next, progress, calls: Calls::default(), origin })
}

/// Whether the changelog with this last position record holds the transaction that the group has committed with
/// `offset`.
///
/// Late requests of an earlier transaction can commit its offset once more (KIP-890), and a coordinator can show an old
/// one. A changelog whose position record covers the record before that offset, or shows that processing started there,
/// holds that transaction and later ones; a transaction of the sweeper changes the token but not the offset.
pub fn holds_transaction(position: Option<&PositionRecord>, committed: &Token, offset: i64) -> bool {
    let covers = |&(from, to): &(i64, i64)| from == offset || (from < offset && offset <= to);
    position.is_some_and(|position| position.token == *committed || position.processed.iter().any(covers))
}

/// Refuses a changelog that was recreated: under a task at work it holds only that task's later transactions.
fn check_changelog(settled: &Settled, token: &Token) -> Result<(), Refusal> {
    let (known, found) = (TopicId(token.changelog_id), settled.changelog_id);
    if known == found || sabotage::is_on(Sabotage::ChangelogAdopted) {
        Ok(())
    } else {
        Err(Refusal::ChangelogRecreated { known, found })
    }
}

fn check_position(settled: &Settled, position: &PositionRecord, facts: TaskFacts<'_>) -> Result<(), Refusal> {
    check_changelog(settled, &position.token)?;
    if position.input_id != settled.input_id.0 {
        return Err(Refusal::InputRecreated { known: TopicId(position.input_id), found: settled.input_id });
    }
    if position.rules_digest != *facts.rules_digest {
        let short = OffsetMetadata::short_digest;
        return Err(Refusal::OtherRules { found: short(&position.rules_digest), ours: short(facts.rules_digest) });
    }
    if position.task_count != facts.task_count {
        return Err(Refusal::Rescaled { known: position.task_count, found: facts.task_count });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
