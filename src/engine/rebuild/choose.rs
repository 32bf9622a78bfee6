//! Which store a partition's changelog is written anew from: pure.

use std::path::PathBuf;

use crate::cluster::{CommittedOffset, TopicId};
use crate::engine::plan::{self, FOREIGN_OFFSET_HELP};
use crate::format::{OffsetMetadata, PositionRecord, StoreMeta};

/// What is known of a store that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its folder.
    pub path: PathBuf,
    /// Where it stands.
    pub meta: StoreMeta,
    /// Its position record.
    pub position: PositionRecord,
}

/// What every store is held against.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The input's id.
    pub input_id: TopicId,
    /// The changelog's, where there is one.
    pub changelog_id: Option<TopicId>,
    /// The rules' digest.
    pub rules_digest: &'a [u8; 32],
    /// The input's partition count.
    pub task_count: u32,
    /// Whether a store may be taken at its own word where the group has none.
    pub without_group: bool,
}

/// What is to be done for a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Its changelog is the one that the group knows, or, where that knows none, the store.
    Stands,
    /// Nothing was ever processed of it, as far as anybody knows.
    Nothing,
    /// Its changelog is written from this store, and the group then stands at this offset.
    Write {
        /// The store.
        from: Box<Candidate>,
        /// The next offset of the input to read.
        offset: i64,
    },
}

/// Decides by what the group has committed for `partition` and by the stores of its topic; or says why nothing can be
/// written.
pub fn choose(
    partition: i32,
    committed: Option<&CommittedOffset>,
    candidates: &[Candidate],
    known: Known<'_>,
) -> Result<Choice, String> {
    let text = committed.map_or(Ok(None), |committed| OffsetMetadata::parse(&committed.metadata));
    let text = text.map_err(|error| format!("{error}; {FOREIGN_OFFSET_HELP}"))?;
    let whole = candidates.iter().filter(|found| {
        found.meta.partition == partition
            && found.meta.token == Some(found.position.token)
            && found.position.token.partition == partition
    });
    let Some(text) = text else { return by_its_own_word(committed, whole, known) };
    if known.changelog_id.is_some_and(|id| id.0 == text.token.changelog_id) {
        return Ok(Choice::Stands);
    }
    if text.digest != OffsetMetadata::short_digest(known.rules_digest) {
        return Err("its offset was committed under other rules: bring the topology's former rules back".to_owned());
    }
    let at = whole.clone().find(|found| found.position.token == text.token);
    let Some(from) = at else {
        let others: Vec<String> =
            whole.map(|found| format!("{} stands at {}", found.path.display(), found.position.token)).collect();
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

/// The group says nothing of a transaction: it was reset or deleted, or nothing was ever committed. What a store says
/// of itself cannot be compared with anything then: another machine may have gone further.
fn by_its_own_word<'a>(
    committed: Option<&CommittedOffset>,
    whole: impl Iterator<Item = &'a Candidate>,
    known: Known<'_>,
) -> Result<Choice, String> {
    let far = |found: &&Candidate| plan::processed_of(&found.position, known.input_id);
    let Some(from) =
        whole.filter(|found| far(found).is_some()).max_by_key(|found| (far(found), found.position.stream_time))
    else {
        return Ok(Choice::Nothing);
    };
    let processed = far(&from).unwrap_or_default();
    if known.changelog_id == Some(TopicId(from.meta.changelog_id)) {
        return Ok(Choice::Stands);
    }
    if !known.without_group {
        return Err(format!(
            "the group has no transaction to compare the stores with, and {} has come furthest, to offset {processed}: if no \
             other machine has gone further, say --without-group; what one has forwarded beyond is forwarded again",
            from.path.display()
        ));
    }
    check(from, known)?;
    let offset =
        committed.map_or(from.position.processed.last().map_or(processed, |last| last.1), |found| found.offset);
    Ok(Choice::Write { from: Box::new(from.clone()), offset })
}

/// Whether a store can be gone on with, its changelog aside.
fn check(found: &Candidate, known: Known<'_>) -> Result<(), String> {
    let (path, position) = (found.path.display(), &found.position);
    if position.input_id != known.input_id.0 {
        let (theirs, ours) = (TopicId(position.input_id), known.input_id);
        return Err(format!(
            "the store {path} is of an input with the id {theirs}, and the input's is {ours}: it was recreated"
        ));
    }
    if position.rules_digest != *known.rules_digest {
        return Err(format!("the store {path} was written with other rules: bring the topology's former rules back"));
    }
    if position.task_count != known.task_count {
        let (theirs, ours) = (position.task_count, known.task_count);
        return Err(format!("the store {path} is of an input with a partition count of {theirs}, and it is {ours}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{NO_TIME, Token};

    const DIGEST: [u8; 32] = [7; 32];
    const INPUT: TopicId = TopicId([5; 16]);
    const LOST: [u8; 16] = [3; 16];

    fn token(transaction: u64) -> Token {
        Token { lane: 1, transaction, changelog_id: LOST, partition: 2 }
    }

    fn store(name: &str, transaction: u64, processed: i64) -> Candidate {
        let position = PositionRecord {
            token: token(transaction),
            owner: "o".to_owned(),
            input_id: INPUT.0,
            processed: vec![(0, processed)],
            stream_time: NO_TIME,
            horizon: i64::MIN,
            rules_digest: DIGEST,
            generation: 1,
            task_count: 4,
            truncates: 0,
            scopes: Vec::new(),
        };
        let token = Some(token(transaction));
        let meta = StoreMeta { changelog_id: LOST, partition: 2, changelog_offset: 9, token, synced_at: 0 };
        Candidate { path: name.into(), meta, position }
    }

    fn known() -> Known<'static> {
        Known { input_id: INPUT, changelog_id: None, rules_digest: &DIGEST, task_count: 4, without_group: false }
    }

    fn committed(transaction: u64, offset: i64) -> CommittedOffset {
        let digest = OffsetMetadata::short_digest(&DIGEST);
        CommittedOffset {
            offset,
            metadata: OffsetMetadata { token: token(transaction), digest, owner: None }.to_string(),
        }
    }

    fn refused(committed: Option<&CommittedOffset>, stores: &[Candidate], known: Known<'_>) -> String {
        choose(2, committed, stores, known).expect_err("nothing can be written")
    }

    #[test]
    fn the_store_at_the_committed_transaction_is_taken_and_no_other() {
        let stores = [store("old", 8, 80), store("right", 9, 90), store("restored", 10, 100)];
        let chosen = choose(2, Some(&committed(9, 91)), &stores, known());
        assert_eq!(chosen, Ok(Choice::Write { from: Box::new(stores[1].clone()), offset: 91 }));
        let words = refused(Some(&committed(11, 91)), &stores, known());
        assert!(words.contains(&token(11).to_string()) && words.contains("old stands at"), "{words}");
        assert!(refused(Some(&committed(11, 91)), &[], known()).contains("no other either"));
        // Another partition's, in a folder that was swapped; and one that is being restored.
        let mut swapped = store("swapped", 9, 90);
        swapped.meta.partition = 1;
        let mut restoring = store("restoring", 9, 90);
        restoring.meta.token = None;
        assert!(refused(Some(&committed(9, 91)), &[swapped, restoring], known()).contains("no store stands"));
    }

    #[test]
    fn a_changelog_that_the_group_knows_stands() {
        let there = Known { changelog_id: Some(TopicId(LOST)), ..known() };
        assert_eq!(choose(2, Some(&committed(9, 91)), &[store("s", 9, 90)], there), Ok(Choice::Stands));
        // A group that was reset, or is gone: the changelog may be newer than any store, and is never written over.
        for without_group in [false, true] {
            let known = Known { without_group, ..there };
            assert_eq!(choose(2, None, &[store("s", 9, 90)], known), Ok(Choice::Stands));
        }
        let another = Known { changelog_id: Some(TopicId([4; 16])), ..known() };
        assert!(matches!(choose(2, Some(&committed(9, 91)), &[store("s", 9, 90)], another), Ok(Choice::Write { .. })));
    }

    #[test]
    fn a_store_of_another_input_or_of_other_rules_is_refused() {
        let (at, stores) = (committed(9, 91), [store("s", 9, 90)]);
        assert!(refused(Some(&at), &stores, Known { input_id: TopicId([6; 16]), ..known() }).contains("recreated"));
        assert!(refused(Some(&at), &stores, Known { rules_digest: &[8; 32], ..known() }).contains("other rules"));
        assert!(refused(Some(&at), &stores, Known { task_count: 5, ..known() }).contains("partition count of 4"));
        let foreign = CommittedOffset { offset: 1, metadata: "mine".to_owned() };
        assert!(refused(Some(&foreign), &stores, known()).contains("stop the program"));
    }

    #[test]
    fn without_the_group_s_word_the_store_that_came_furthest_is_taken_if_that_is_said() {
        let stores = [store("near", 9, 90), store("far", 3, 120)];
        let reset = CommittedOffset { offset: 40, metadata: String::new() };
        for (committed, offset) in [(None, 120), (Some(&reset), 40)] {
            assert!(refused(committed, &stores, known()).contains("far has come furthest, to offset 120"));
            let chosen = choose(2, committed, &stores, Known { without_group: true, ..known() });
            assert_eq!(chosen, Ok(Choice::Write { from: Box::new(stores[1].clone()), offset }));
            assert_eq!(choose(2, committed, &[], known()), Ok(Choice::Nothing));
        }
    }
}
