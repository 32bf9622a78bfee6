//! Chooses the store that a partition's changelog is rewritten from, and whether an existing changelog has to be
//! rewritten. Pure logic, without input or output.

use std::path::PathBuf;

use crate::cluster::{CommittedOffset, TopicId};
use crate::engine::resume::{self, ANEW, FOREIGN_OFFSET_HELP};
use crate::format::{CHANGELOG_LOST, ChangelogOffset, OffsetMetadata, PositionRecord, StoreMeta};

/// A store that was found, with its records.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its folder.
    pub path: PathBuf,
    /// Its meta record.
    pub meta: StoreMeta,
    /// Its position record.
    pub position: PositionRecord,
    /// Whether its changelog reaches the offset of its position record, but no longer holds the record there.
    pub is_missed: bool,
}

/// The contents of a partition's changelog.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Its first retained offset.
    pub start: ChangelogOffset,
    /// Its end.
    pub end: ChangelogOffset,
    /// Its last position record.
    pub last: Option<PositionRecord>,
}

/// The values that every store is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The input's id.
    pub input_id: TopicId,
    /// The changelog's id, if there is a changelog.
    pub changelog_id: Option<TopicId>,
    /// The rules' digest.
    pub rules_digest: [u8; 32],
    /// The input's partition count.
    pub task_count: u32,
    /// Whether to trust a store if the group has committed no transaction.
    pub without_group: bool,
}

/// The facts for one partition's choice.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The partition.
    pub partition: i32,
    /// The offset that the group has committed for it.
    pub committed: Option<&'a CommittedOffset>,
    /// The contents of its changelog, if there is one.
    pub contents: Option<&'a Contents>,
    /// The stores of its topic.
    pub candidates: &'a [Candidate],
    /// The values that are the same for all partitions.
    pub expected: Expected,
}

/// What to do for a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Keep its changelog: the group names it or, if the group names no changelog, the store does, and it holds the
    /// transaction that they name.
    Keep,
    /// Nothing to do: neither the group nor a store nor the changelog shows that any record was ever processed.
    Nothing,
    /// Write its changelog from this store, and commit this offset for the group.
    Write {
        /// The store.
        from: Box<Candidate>,
        /// The next offset of the input to read.
        offset: i64,
    },
}

/// Why nothing can be written for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Its changelog, named by the group or a store, has lost the transaction that they name. Contains the evidence.
    Lost(String),
    /// Another problem.
    Other(String),
}

impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self::Other(message)
    }
}

/// Decides by the group's committed offset, the contents of the changelog and the stores. Fails if nothing can be
/// written.
pub fn choose(facts: Facts<'_>) -> Result<Choice, Problem> {
    let metadata = parse_metadata(facts.committed)?;
    if let (Some(id), Some(contents)) = (facts.expected.changelog_id, facts.contents) {
        let named_id = match (&metadata, furthest(facts)) {
            (Some(metadata), _) => Some(metadata.token.changelog_id),
            (None, Some(store)) => Some(store.meta.changelog_id),
            (None, None) => contents.last.as_ref().map(|_| id.0),
        };
        if named_id == Some(id.0) {
            return check_existing(facts, metadata.as_ref(), contents);
        }
    }
    Ok(choose_anew(facts)?)
}

/// The metadata of the committed offset, if ratchet wrote it.
fn parse_metadata(committed: Option<&CommittedOffset>) -> Result<Option<OffsetMetadata>, String> {
    let metadata = committed.map_or(Ok(None), |committed| OffsetMetadata::parse(&committed.metadata));
    metadata.map_err(|error| format!("{error}; {FOREIGN_OFFSET_HELP}"))
}

/// The partition's stores that are the result of a transaction.
fn complete_stores<'a>(facts: Facts<'a>) -> impl Iterator<Item = &'a Candidate> + Clone {
    facts.candidates.iter().filter(move |store| {
        store.meta.partition == facts.partition
            && store.meta.token == Some(store.position.token)
            && store.position.token.partition == facts.partition
    })
}

/// The partition's complete stores that have applied records which the changelog does not hold now, even if it has
/// become longer since, or that are marked as such.
fn stores_beyond<'a>(facts: Facts<'a>) -> impl Iterator<Item = &'a Candidate> {
    let changelog = facts.expected.changelog_id.zip(facts.contents);
    complete_stores(facts).filter(move |store| {
        changelog.is_some_and(|(id, contents)| {
            let is_unknown = |last: &PositionRecord| !covers(last, &store.position);
            store.meta.changelog_id == id.0
                && (store.meta.changelog_offset > contents.end
                    || store.is_missed
                    || contents.last.as_ref().is_some_and(is_unknown))
        })
    })
}

/// Whether a store at this position has processed everything that `other` covers.
fn covers(position: &PositionRecord, other: &PositionRecord) -> bool {
    let within = |(from, to): &(i64, i64)| position.processed.iter().any(|(start, end)| start <= from && to <= end);
    // An empty range says where the input continues, but covers nothing processed.
    let mut ranges = other.processed.iter().filter(|(from, to)| from < to);
    position.token == other.token || (position.input_id == other.input_id && ranges.all(within))
}

/// Whether the changelog named by the group or a store is usable, by the rules of [`resume`].
fn check_existing(facts: Facts<'_>, metadata: Option<&OffsetMetadata>, contents: &Contents) -> Result<Choice, Problem> {
    let last = contents.last.as_ref();
    if let Some(store) = stores_beyond(facts).find(|store| !last.is_some_and(|last| covers(last, &store.position))) {
        return Err(Problem::Lost(format!(
            "the store {} has applied the transaction {}, which the changelog does not hold",
            store.path.display(),
            store.position.token
        )));
    }
    // If the changelog's first records were removed, a store that has applied them can continue.
    let was_cut = contents.start > ChangelogOffset(0) && last.is_none();
    if let (Some(metadata), Some(committed)) = (metadata, facts.committed)
        && !was_cut
        && !resume::holds_transaction(last, &metadata.token, committed.offset)
    {
        return Err(Problem::Lost(format!(
            "it does not hold the transaction {} that the group has committed",
            metadata.token
        )));
    }
    match stores_beyond(facts).next() {
        Some(store) => Err(Problem::Other(format!(
            "the changelog holds everything that the store {} has applied, but the store {}: move its folder \
             away, and it is rebuilt from the changelog",
            store.path.display(),
            match store.meta.changelog_offset {
                CHANGELOG_LOST => "says that records were lost".to_owned(),
                _ if store.is_missed =>
                    "has applied a transaction that was lost, and whose records were processed again".to_owned(),
                offset => format!("is at offset {offset}, beyond the changelog's end"),
            }
        ))),
        None => Ok(Choice::Keep),
    }
}

/// Chooses what to write if there is no changelog, or once the existing changelog is deleted. Fails if the deletion
/// would lose any of its contents.
pub fn choose_anew(facts: Facts<'_>) -> Result<Choice, String> {
    let choice = choose_named_store(facts)?;
    let from = match &choice {
        Choice::Write { from, .. } => Some(&from.position),
        _ => None,
    };
    let last = facts.contents.and_then(|contents| contents.last.as_ref());
    if let Some(last) = last.filter(|last| !from.is_some_and(|from| covers(from, last))) {
        return Err(format!(
            "its changelog holds the transaction {}, and no store that could replace it does",
            last.token
        ));
    }
    if let Some(newer) = stores_beyond(facts).find(|store| !from.is_some_and(|from| covers(from, &store.position))) {
        return Err(format!(
            "the store {} is at the transaction {}, beyond what the group has committed: the group has lost \
             offsets too; {ANEW}",
            newer.path.display(),
            newer.position.token
        ));
    }
    Ok(choice)
}

/// Chooses the store that is at the transaction that the group has committed.
fn choose_named_store(facts: Facts<'_>) -> Result<Choice, String> {
    let (committed, expected) = (facts.committed, facts.expected);
    let Some(metadata) = parse_metadata(committed)? else { return choose_furthest_store(facts) };
    if metadata.digest != OffsetMetadata::short_digest(&expected.rules_digest) {
        return Err("its offset was committed under other rules: bring the topology's former rules back".to_owned());
    }
    let Some(from) = complete_stores(facts).find(|store| store.position.token == metadata.token) else {
        let others: Vec<String> = complete_stores(facts)
            .map(|store| format!("{} is at {}", store.path.display(), store.position.token))
            .collect();
        let found = if others.is_empty() { "there is no other store either".to_owned() } else { others.join(", ") };
        return Err(format!(
            "no store is at the transaction {} that the group has committed ({found}): copy the state folder that \
             holds such a store here, as another slot of this state folder",
            metadata.token
        ));
    };
    check_store(from, expected)?;
    let offset = committed.map_or(0, |committed| committed.offset);
    Ok(Choice::Write { from: Box::new(from.clone()), offset })
}

/// How far a store has processed the input.
fn processed_up_to(store: &Candidate, expected: Expected) -> Option<i64> {
    resume::processed_of(&store.position, expected.input_id)
}

/// The store that has processed most of the input.
fn furthest<'a>(facts: Facts<'a>) -> Option<&'a Candidate> {
    let comparable = complete_stores(facts).filter(|store| processed_up_to(store, facts.expected).is_some());
    comparable.max_by_key(|store| (processed_up_to(store, facts.expected), store.position.stream_time))
}

/// Chooses the store that has processed most of the input. The group names no transaction: it was reset or deleted, or
/// nothing was ever committed. So there is nothing to compare a store's position with: a store on another machine may
/// have processed more.
fn choose_furthest_store(facts: Facts<'_>) -> Result<Choice, String> {
    let Some(from) = furthest(facts) else { return Ok(Choice::Nothing) };
    let processed = processed_up_to(from, facts.expected).unwrap_or_default();
    if !facts.expected.without_group {
        return Err(format!(
            "the group has no transaction to compare the stores with, and {} has come furthest, to offset {processed}: \
             if no other machine has come further, use --without-group; records that another machine has forwarded \
             beyond that offset are forwarded again",
            from.path.display()
        ));
    }
    check_store(from, facts.expected)?;
    let processed_end = from.position.processed.last().map_or(processed, |last| last.1);
    let offset = facts.committed.map_or(processed_end, |committed| committed.offset);
    Ok(Choice::Write { from: Box::new(from.clone()), offset })
}

/// Checks that a changelog can be written from a store, whatever changelog the store belongs to.
fn check_store(store: &Candidate, expected: Expected) -> Result<(), String> {
    let (path, position) = (store.path.display(), &store.position);
    if position.input_id != expected.input_id.0 {
        let (theirs, ours) = (TopicId(position.input_id), expected.input_id);
        return Err(format!(
            "the store {path} belongs to an input with the id {theirs}, but the input's id is {ours}: it was recreated"
        ));
    }
    if position.rules_digest != expected.rules_digest {
        return Err(format!("the store {path} was written with other rules: bring the topology's former rules back"));
    }
    if position.task_count != expected.task_count {
        let (theirs, ours) = (position.task_count, expected.task_count);
        return Err(format!(
            "the store {path} belongs to an input with a partition count of {theirs}, but it is {ours} now"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
