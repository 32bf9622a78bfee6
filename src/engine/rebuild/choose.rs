//! Chooses the store that a partition's changelog is rewritten from, and whether an existing changelog has to be: pure.

use std::path::PathBuf;

use crate::cluster::{CommittedOffset, TopicId};
use crate::engine::resume::{self, ANEW, FOREIGN_OFFSET_HELP};
use crate::format::{CHANGELOG_LOST, ChangelogOffset, OffsetMetadata, PositionRecord, StoreMeta};

/// What is known about a store that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its folder.
    pub path: PathBuf,
    /// Its meta record.
    pub meta: StoreMeta,
    /// Its position record.
    pub position: PositionRecord,
    /// Whether its changelog, though long enough, no longer holds its position record where that was.
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

/// What every store is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The input's id.
    pub input_id: TopicId,
    /// The changelog's, if there is one.
    pub changelog_id: Option<TopicId>,
    /// The rules' digest.
    pub rules_digest: [u8; 32],
    /// The input's partition count.
    pub task_count: u32,
    /// Whether to trust a store where the group says nothing.
    pub without_group: bool,
}

/// The facts for one partition's choice.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The partition.
    pub partition: i32,
    /// What the group has committed for it.
    pub committed: Option<&'a CommittedOffset>,
    /// The contents of its changelog, if there is one.
    pub contents: Option<&'a Contents>,
    /// The stores of its topic.
    pub candidates: &'a [Candidate],
    /// What is the same for all partitions.
    pub known: Known,
}

/// What to do for a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Keep its changelog: it is the one that the group knows or, if the group knows none, the store, and it holds what
    /// they name.
    Keep,
    /// Nothing was ever processed, as far as anybody knows.
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
    /// Its changelog, known to the group or a store, has lost what they name: the evidence.
    Lost(String),
    /// Something else.
    Other(String),
}

impl From<String> for Problem {
    fn from(words: String) -> Self {
        Self::Other(words)
    }
}

/// Decides from what the group has committed, the changelog holds and the stores remember; or says why nothing can be
/// written.
pub fn choose(facts: Facts<'_>) -> Result<Choice, Problem> {
    let text = text(facts.committed)?;
    if let (Some(id), Some(contents)) = (facts.known.changelog_id, facts.contents) {
        let named = match (&text, furthest(facts)) {
            (Some(text), _) => Some(text.token.changelog_id),
            (None, Some(store)) => Some(store.meta.changelog_id),
            (None, None) => contents.last.as_ref().map(|_| id.0),
        };
        if named == Some(id.0) {
            return keep(facts, text.as_ref(), contents);
        }
    }
    Ok(choose_anew(facts)?)
}

/// The text beside the committed offset, if ratchet wrote it.
fn text(committed: Option<&CommittedOffset>) -> Result<Option<OffsetMetadata>, String> {
    let text = committed.map_or(Ok(None), |committed| OffsetMetadata::parse(&committed.metadata));
    text.map_err(|error| format!("{error}; {FOREIGN_OFFSET_HELP}"))
}

/// The partition's stores that are the result of a transaction.
fn complete_stores<'a>(facts: Facts<'a>) -> impl Iterator<Item = &'a Candidate> + Clone {
    facts.candidates.iter().filter(move |found| {
        found.meta.partition == facts.partition
            && found.meta.token == Some(found.position.token)
            && found.position.token.partition == facts.partition
    })
}

/// Those that have applied more of the changelog than it holds now, however long it is, or that say so themselves.
fn stores_beyond<'a>(facts: Facts<'a>) -> impl Iterator<Item = &'a Candidate> {
    let there = facts.known.changelog_id.zip(facts.contents);
    complete_stores(facts).filter(move |found| {
        there.is_some_and(|(id, contents)| {
            let is_unknown = |last: &PositionRecord| !covers(last, &found.position);
            found.meta.changelog_id == id.0
                && (found.meta.changelog_offset > contents.end
                    || found.is_missed
                    || contents.last.as_ref().is_some_and(is_unknown))
        })
    })
}

/// Whether a store at the first position knows everything that the other covers.
fn covers(one: &PositionRecord, other: &PositionRecord) -> bool {
    let within = |(from, to): &(i64, i64)| one.processed.iter().any(|(start, end)| start <= from && to <= end);
    // An empty range says where the input continues, but covers nothing processed.
    let mut ranges = other.processed.iter().filter(|(from, to)| from < to);
    one.token == other.token || (one.input_id == other.input_id && ranges.all(within))
}

/// Whether the changelog named by the group or a store is usable, by the rules of [`resume`].
fn keep(facts: Facts<'_>, text: Option<&OffsetMetadata>, contents: &Contents) -> Result<Choice, Problem> {
    let last = contents.last.as_ref();
    if let Some(found) = stores_beyond(facts).find(|found| !last.is_some_and(|last| covers(last, &found.position))) {
        return Err(Problem::Lost(format!(
            "the store {} has applied the transaction {}, which it does not hold",
            found.path.display(),
            found.position.token
        )));
    }
    // If its first records were removed, a store that has seen them can continue.
    let was_cut = contents.start > ChangelogOffset(0) && last.is_none();
    if let (Some(text), Some(committed)) = (text, facts.committed)
        && !was_cut
        && !resume::is_held(last, &text.token, committed.offset)
    {
        return Err(Problem::Lost(format!(
            "it does not hold the transaction {} that the group has committed",
            text.token
        )));
    }
    match stores_beyond(facts).next() {
        Some(found) => Err(Problem::Other(format!(
            "the changelog holds what the store {} has applied, but the store {}: move its folder away, and it is rebuilt \
             from the changelog",
            found.path.display(),
            match found.meta.changelog_offset {
                CHANGELOG_LOST => "says that records were lost".to_owned(),
                _ if found.is_missed =>
                    "has applied a transaction that was lost, and whose records were processed again".to_owned(),
                stands => format!("stands beyond its end, at offset {stands}"),
            }
        ))),
        None => Ok(Choice::Keep),
    }
}

/// What to write if there is no changelog, or once the existing one is deleted: nothing that it holds may be lost by
/// that.
pub fn choose_anew(facts: Facts<'_>) -> Result<Choice, String> {
    let choice = from_stores(facts)?;
    let from = match &choice {
        Choice::Write { from, .. } => Some(&from.position),
        _ => None,
    };
    let last = facts.contents.and_then(|contents| contents.last.as_ref());
    if let Some(last) = last.filter(|last| !from.is_some_and(|from| covers(from, last))) {
        return Err(format!(
            "its changelog holds the transaction {}, and no store does that could take its place",
            last.token
        ));
    }
    if let Some(more) = stores_beyond(facts).find(|found| !from.is_some_and(|from| covers(from, &found.position))) {
        return Err(format!(
            "the store {} stands at the transaction {}, beyond what the group has committed: the group has lost offsets too; \
             {ANEW}",
            more.path.display(),
            more.position.token
        ));
    }
    Ok(choice)
}

fn from_stores(facts: Facts<'_>) -> Result<Choice, String> {
    let (committed, known) = (facts.committed, facts.known);
    let Some(text) = text(committed)? else { return from_furthest(facts) };
    if text.digest != OffsetMetadata::short_digest(&known.rules_digest) {
        return Err("its offset was committed under other rules: bring the topology's former rules back".to_owned());
    }
    let Some(from) = complete_stores(facts).find(|found| found.position.token == text.token) else {
        let others: Vec<String> = complete_stores(facts)
            .map(|found| format!("{} stands at {}", found.path.display(), found.position.token))
            .collect();
        let found = if others.is_empty() { "there is no other either".to_owned() } else { others.join(", ") };
        return Err(format!(
            "no store stands at the transaction {} that the group has committed ({found}): bring the state folder that \
             holds it here, as another slot of this one",
            text.token
        ));
    };
    check(from, known)?;
    let offset = committed.map_or(0, |committed| committed.offset);
    Ok(Choice::Write { from: Box::new(from.clone()), offset })
}

/// How far a store has processed the input.
fn processed_up_to(found: &Candidate, known: Known) -> Option<i64> {
    resume::processed_of(&found.position, known.input_id)
}

/// The store that has got furthest.
fn furthest<'a>(facts: Facts<'a>) -> Option<&'a Candidate> {
    let known = complete_stores(facts).filter(|found| processed_up_to(found, facts.known).is_some());
    known.max_by_key(|found| (processed_up_to(found, facts.known), found.position.stream_time))
}

/// The group names no transaction: it was reset or deleted, or nothing was ever committed. A store's own position then
/// cannot be compared with anything: another machine may have got further.
fn from_furthest(facts: Facts<'_>) -> Result<Choice, String> {
    let Some(from) = furthest(facts) else { return Ok(Choice::Nothing) };
    let processed = processed_up_to(from, facts.known).unwrap_or_default();
    if !facts.known.without_group {
        return Err(format!(
            "the group has no transaction to compare the stores with, and {} has come furthest, to offset {processed}: if no \
             other machine has gone further, say --without-group; what one has forwarded beyond is forwarded again",
            from.path.display()
        ));
    }
    check(from, facts.known)?;
    let went = from.position.processed.last().map_or(processed, |last| last.1);
    let offset = facts.committed.map_or(went, |found| found.offset);
    Ok(Choice::Write { from: Box::new(from.clone()), offset })
}

/// Whether a store can be continued from, its changelog aside.
fn check(found: &Candidate, known: Known) -> Result<(), String> {
    let (path, position) = (found.path.display(), &found.position);
    if position.input_id != known.input_id.0 {
        let (theirs, ours) = (TopicId(position.input_id), known.input_id);
        return Err(format!(
            "the store {path} is of an input with the id {theirs}, and the input's is {ours}: it was recreated"
        ));
    }
    if position.rules_digest != known.rules_digest {
        return Err(format!("the store {path} was written with other rules: bring the topology's former rules back"));
    }
    if position.task_count != known.task_count {
        let (theirs, ours) = (position.task_count, known.task_count);
        return Err(format!("the store {path} is of an input with a partition count of {theirs}, and it is {ours}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
