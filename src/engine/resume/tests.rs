//! Goal: a store that only looks current is distinguished from a current one, and every position that a task must not
//! continue from is refused.

use super::*;
use crate::cluster::{CommittedOffset, Seen, SeenRecord};
use crate::format::{ChangelogOffset, Reached, Scope, Segment};

const CHANGELOG: TopicId = TopicId([1; 16]);
const INPUT: TopicId = TopicId([2; 16]);
const DIGEST: [u8; 32] = [3; 32];
const DAY_MS: i64 = 86_400_000;

fn token(transaction: u64) -> Token {
    Token { lane: 7, transaction, changelog_id: CHANGELOG.0, partition: 0 }
}

fn metadata(token: Token) -> String {
    let digest = OffsetMetadata::short_digest(&DIGEST);
    OffsetMetadata { token, digest, owner: Some("ratchet.t.1.0".to_owned()) }.to_string()
}

fn committed(offset: i64, metadata: String) -> Option<CommittedOffset> {
    Some(CommittedOffset { offset, metadata })
}

fn settled(committed: Option<CommittedOffset>) -> Settled {
    Settled {
        committed,
        input_id: INPUT,
        input_start: 0,
        input_end: 1000,
        changelog_id: CHANGELOG,
        changelog_start: ChangelogOffset(0),
        changelog_end: ChangelogOffset(500),
        changelog_time: None,
        seen: None,
    }
}

/// A changelog that ends with the store's transaction and its marker.
fn ending_with_the_store() -> Settled {
    Settled { changelog_end: ChangelogOffset(401), ..settled(None) }
}

fn meta(transaction: Option<u64>) -> StoreMeta {
    StoreMeta {
        changelog_id: CHANGELOG.0,
        partition: 0,
        changelog_offset: ChangelogOffset(400),
        token: transaction.map(token),
        synced_at: 0,
        position_offset: None,
    }
}

fn position(transaction: u64, processed: &[(i64, i64)]) -> PositionRecord {
    PositionRecord {
        token: token(transaction),
        owner: "ratchet.t.1.0".to_owned(),
        input_id: INPUT.0,
        processed: processed.to_vec(),
        stream_time: 77,
        horizon: 5,
        rules_digest: DIGEST,
        generation: 1,
        task_count: 4,
        truncates: 3,
        scopes: vec![Scope {
            bytes: b"a".to_vec(),
            segments: vec![Segment { above: None, began: 5 }],
            reached: vec![Reached { offset: 5, version: vec![0x81, 1] }],
        }],
    }
}

fn store_status(settled: &Settled, meta: &StoreMeta, committed: Option<&Token>) -> StoreStatus {
    examine_store(settled, 0, (Some(meta), false), committed, 1_000, DAY_MS)
}

fn resume(settled: &Settled, position: Option<&PositionRecord>) -> Result<Resumption, Refusal> {
    super::resumption(
        settled,
        position,
        TaskFacts { rules_digest: &DIGEST, task_count: 4, start: Start::Earliest, bounds: &Bounds::DEFAULT },
    )
}

#[test]
fn only_the_committed_token_makes_a_store_current() {
    let settled = ending_with_the_store();
    assert_eq!(store_status(&settled, &meta(Some(9)), Some(&token(9))), StoreStatus::Current);
    assert_eq!(
        store_status(&settled, &meta(Some(8)), Some(&token(9))),
        StoreStatus::Behind { from: ChangelogOffset(400), synced_at: 0 }
    );
    assert_eq!(
        store_status(&settled, &meta(Some(9)), None),
        StoreStatus::Behind { from: ChangelogOffset(400), synced_at: 0 }
    );
    assert_eq!(
        store_status(&settled, &meta(None), None),
        StoreStatus::Behind { from: ChangelogOffset(400), synced_at: 0 },
        "no token is not a match"
    );
    assert_eq!(
        examine_store(&settled, 0, (None, false), Some(&token(9)), 7, DAY_MS),
        StoreStatus::Behind { from: ChangelogOffset(0), synced_at: 7 }
    );
}

#[test]
fn store_of_another_changelog_or_partition_is_unusable() {
    let mut foreign = settled(None);
    foreign.changelog_id = TopicId([9; 16]);
    assert!(matches!(
        store_status(&foreign, &meta(Some(9)), Some(&token(9))),
        StoreStatus::Unusable { from: ChangelogOffset(0), .. }
    ));
    let swapped = examine_store(&settled(None), 1, (Some(&meta(Some(9))), false), Some(&token(9)), 0, DAY_MS);
    assert!(matches!(swapped, StoreStatus::Unusable { .. }));
}

#[test]
fn store_beyond_the_changelogs_end_proves_a_loss() {
    let mut short = settled(None);
    short.changelog_end = ChangelogOffset(399);
    let beyond = StoreStatus::Beyond { applied: ChangelogOffset(400), end: ChangelogOffset(399) };
    for meta in [meta(Some(9)), meta(None)] {
        assert_eq!(store_status(&short, &meta, Some(&token(9))), beyond);
    }
    // A store of another changelog, or of another partition, proves nothing.
    let foreign = StoreMeta { changelog_id: [9; 16], ..meta(Some(9)) };
    assert!(matches!(store_status(&short, &foreign, Some(&token(9))), StoreStatus::Unusable { .. }));
    let swapped = StoreMeta { partition: 1, ..meta(Some(9)) };
    assert!(matches!(store_status(&short, &swapped, Some(&token(9))), StoreStatus::Unusable { .. }));
}

#[test]
fn position_record_in_the_changelog_witnesses_its_tail() {
    let seen = |first: Option<(i64, &[u8], &[u8])>| {
        let first = first.map(|(offset, key, value)| SeenRecord {
            offset: ChangelogOffset(offset),
            key: Some(key.to_vec()),
            value: Some(value.to_vec()),
        });
        check_witness(&Seen { from: ChangelogOffset(398), first }, Some(b"its own"))
    };
    let rewritten = Err(Refusal::ChangelogRewritten { at: ChangelogOffset(398) });
    assert_eq!(seen(Some((398, format::POSITION_KEY, b"its own"))), Ok(()));
    assert_eq!(seen(Some((398, format::POSITION_KEY, b"another's"))), rewritten);
    assert_eq!(seen(Some((398, b"other", b"its own"))), rewritten);
    assert_eq!(seen(None), rewritten, "nothing is there that could have superseded it");
    assert_eq!(seen(Some((399, b"other", b"later"))), Ok(()), "it may have been superseded");
}

#[test]
fn store_before_the_changelogs_start_is_unusable() {
    let mut late = settled(None);
    late.changelog_start = ChangelogOffset(401);
    assert!(
        matches!(store_status(&late, &meta(None), None), StoreStatus::Unusable { from: ChangelogOffset(401), .. }),
        "before the start"
    );
}

#[test]
fn store_at_the_changelogs_end_is_used_even_if_the_start_was_removed() {
    let status = |start: i64, end: i64| {
        let late =
            Settled { changelog_start: ChangelogOffset(start), changelog_end: ChangelogOffset(end), ..settled(None) };
        store_status(&late, &meta(Some(9)), Some(&token(9)))
    };
    for start in [0, 400, 401] {
        assert_eq!(status(start, 401), StoreStatus::Current, "{start}");
    }
    // The records after its transaction are gone, and may have been another transaction.
    for (start, end) in [(401, 500), (500, 500)] {
        assert!(matches!(status(start, end), StoreStatus::Unusable { .. }), "{start}, {end}");
    }
}

#[test]
fn changelog_without_its_first_records_cannot_rebuild_a_store() {
    let mut late = settled(None);
    late.changelog_start = ChangelogOffset(400);
    assert!(
        matches!(store_status(&late, &meta(None), None), StoreStatus::Behind { from: ChangelogOffset(400), .. }),
        "it holds the rest"
    );
    late.changelog_start = ChangelogOffset(401);
    let empty = examine_store(&late, 0, (None, false), None, 0, DAY_MS);
    for status in [empty, store_status(&late, &meta(None), None)] {
        let StoreStatus::Unusable { from, reason } = status else { panic!("{status:?}") };
        assert_eq!(
            check_rebuild(from, &reason),
            Err(Refusal::ChangelogTruncated { start: ChangelogOffset(401), reason })
        );
    }
    assert_eq!(check_rebuild(ChangelogOffset(0), "it is another changelog's"), Ok(()));
}

/// Records between the store's position record and its offset were aborted or were written since, and may be gone.
#[test]
fn store_is_updated_from_after_its_position_record_if_that_is_retained() {
    let from = |start, token, position_offset: Option<i64>| {
        let position_offset = position_offset.map(ChangelogOffset);
        let store = StoreMeta { position_offset, ..meta(token) };
        match store_status(&Settled { changelog_start: ChangelogOffset(start), ..settled(None) }, &store, None) {
            StoreStatus::Behind { from, .. } => from.0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(from(0, Some(9), Some(390)), 391);
    assert_eq!(from(395, Some(9), Some(390)), 395);
    assert_eq!(from(0, Some(9), Some(399)), 400);
    assert_eq!(from(0, Some(9), None), 400, "a store of a former release");
    assert_eq!(from(0, None, Some(390)), 400, "a store that is being restored");
}

#[test]
fn store_that_may_lack_tombstones_is_unusable_unless_current() {
    fn old(settled: &Settled, committed: Option<&Token>) -> StoreStatus {
        examine_store(settled, 0, (Some(&meta(Some(9))), false), committed, DAY_MS, DAY_MS)
    }
    let settled = ending_with_the_store();
    assert!(matches!(old(&settled, None), StoreStatus::Unusable { .. }));
    assert_eq!(old(&settled, Some(&token(9))), StoreStatus::Current);
    let all_read = Settled { changelog_end: ChangelogOffset(400), ..settled };
    assert!(
        matches!(old(&all_read, None), StoreStatus::Behind { from: ChangelogOffset(400), .. }),
        "there was nothing to miss"
    );
}

/// Late requests of an earlier transaction have committed its offset once more, or a coordinator shows an old offset. A
/// store as old as that offset would forward again the records of later transactions.
#[test]
fn offset_that_went_back_neither_revives_an_old_store_nor_forwards_again() {
    let back = settled(committed(250, metadata(token(9))));
    assert_eq!(
        store_status(&back, &meta(Some(9)), Some(&token(9))),
        StoreStatus::Behind { from: ChangelogOffset(400), synced_at: 0 }
    );
    let status = examine_store(&back, 0, (Some(&meta(Some(9))), true), Some(&token(9)), 1_000, DAY_MS);
    assert_eq!(status, StoreStatus::Current, "after an abort, no later record counts");
    let resumption = resume(&back, Some(&position(12, &[(0, 300)]))).unwrap();
    assert_eq!((resumption.next, resumption.origin), (250, Origin::Reset));
    assert!(resumption.progress.processed.contains(299), "what was processed is not forwarded again");
}

#[test]
fn offset_that_went_back_over_a_sweep_is_resumed_from() {
    let back = settled(committed(300, metadata(token(9))));
    let resumption = resume(&back, Some(&position(12, &[(0, 300)]))).unwrap();
    assert_eq!((resumption.next, resumption.origin), (300, Origin::Committed));
}

#[test]
fn offset_that_went_back_to_the_start_is_resumed_from() {
    // A first transaction that has processed nothing: a start at the end, or a stop before the first record.
    let facts = TaskFacts { rules_digest: &DIGEST, task_count: 4, start: Start::Latest, bounds: &Bounds::DEFAULT };
    for (recorded, next, origin) in [
        (&[(0, 300)][..], 0, Origin::Reset),
        (&[(700, 700)], 700, Origin::Committed),
        (&[(0, 100), (150, 160)], 150, Origin::Reset),
    ] {
        let back = settled(committed(next, metadata(token(9))));
        let resumption = super::resumption(&back, Some(&position(12, recorded)), facts).unwrap();
        assert_eq!((resumption.next, resumption.origin), (next, origin), "{recorded:?}");
    }
    let elsewhere = settled(committed(140, metadata(token(9))));
    let refused = super::resumption(&elsewhere, Some(&position(12, &[(0, 100), (150, 160)])), facts).unwrap_err();
    assert!(matches!(refused, Refusal::ChangelogLost { .. }), "{refused}");
}

#[test]
fn empty_changelog_is_refused_if_a_store_remembers_processed_records() {
    let remembers = |processed: &[(i64, i64)], committed| {
        check_former_store(&settled(committed), 0, Some(&position(9, processed))).is_err()
    };
    let reset = || committed(0, String::new());
    // A group that was reset tells no more than a deleted one; that includes a start at the end of an idle input.
    for group in [None, reset()] {
        assert!(remembers(&[(0, 300)], group.clone()) && remembers(&[(100, 100)], group.clone()), "{group:?}");
        assert!(!remembers(&[(0, 0)], group.clone()), "{group:?}");
    }
    assert!(
        !remembers(&[(0, 300)], committed(300, metadata(token(9)))),
        "that transaction is looked for in the changelog"
    );
    assert!(
        check_former_store(&settled(reset()), 1, Some(&position(9, &[(0, 300)]))).is_ok(),
        "the store of another partition"
    );
}

#[test]
fn fresh_task_starts_at_the_topologys_start() {
    let settled = settled(None);
    let resumption = resume(&settled, None).unwrap();
    assert_eq!((resumption.next, resumption.origin), (0, Origin::Fresh));
    let facts = TaskFacts { rules_digest: &DIGEST, task_count: 4, start: Start::Latest, bounds: &Bounds::DEFAULT };
    assert_eq!(super::resumption(&settled, None, facts).unwrap().next, 1000);
}

#[test]
fn fresh_task_starts_at_an_offset_that_an_operator_has_set() {
    let resumption = resume(&settled(committed(40, String::new())), None).unwrap();
    assert_eq!((resumption.next, resumption.origin), (40, Origin::Fresh));
}

#[test]
fn task_resumes_at_the_committed_offset_with_its_progress() {
    let resumption = resume(&settled(committed(300, metadata(token(9)))), Some(&position(9, &[(0, 300)]))).unwrap();
    assert_eq!((resumption.next, resumption.origin), (300, Origin::Committed));
    assert_eq!((resumption.progress.stream_time, resumption.progress.horizon), (77, 5));
    assert_eq!(resumption.progress.truncates, 3);
    assert_eq!(resumption.progress.epochs.scopes(), position(9, &[]).scopes);
    assert!(resumption.progress.is_replayed(299) && !resumption.progress.is_replayed(300));
}

#[test]
fn reset_group_is_read_from_its_offset_as_replayed() {
    let resumption = resume(&settled(committed(0, String::new())), Some(&position(9, &[(0, 300)]))).unwrap();
    assert_eq!((resumption.next, resumption.origin), (0, Origin::Reset));
    assert!(resumption.progress.is_replayed(0) && resumption.progress.is_replayed(299));
}

#[test]
fn deleted_group_resumes_from_the_position_record() {
    let facts = TaskFacts { rules_digest: &DIGEST, task_count: 4, start: Start::Latest, bounds: &Bounds::DEFAULT };
    let resumption = super::resumption(&settled(None), Some(&position(9, &[(0, 300)])), facts).unwrap();
    assert_eq!((resumption.next, resumption.origin), (300, Origin::GroupDeleted));
}

#[test]
fn position_is_known_even_if_nothing_before_it_was_processed() {
    let facts = TaskFacts { rules_digest: &DIGEST, task_count: 4, start: Start::Latest, bounds: &Bounds::DEFAULT };
    // A first start on an idle input; a reset back into what had been skipped, or forward over more.
    let cases: [(&[(i64, i64)], i64); 4] = [
        (&[(700, 700)], 700),
        (&[(0, 100), (150, 160), (200, 300), (160, 160)], 160),
        (&[(0, 300), (500, 500)], 500),
        (&[], 1000),
    ];
    for (processed, next) in cases {
        let record = position(9, processed);
        let lost = super::resumption(&settled(None), Some(&record), facts).unwrap();
        assert_eq!(lost.next, next, "{processed:?}");
        assert_eq!(lost.origin == Origin::GroupDeleted, !processed.is_empty(), "{processed:?}");
        let there = super::resumption(&settled(committed(next, metadata(token(9)))), Some(&record), facts).unwrap();
        assert_eq!((there.next, there.origin == Origin::Committed), (next, !processed.is_empty()), "{processed:?}");
        // The record at a position is not processed yet.
        assert!(!lost.progress.is_replayed(next));
        assert!(lost.progress.processed.as_pairs().iter().all(|(from, to)| from < to));
    }
}

#[test]
fn changelog_without_the_committed_transaction_is_refused() {
    let settled = settled(committed(300, metadata(token(9))));
    assert!(matches!(resume(&settled, None), Err(Refusal::ChangelogLost { .. })), "recreated and empty");
    let older = position(8, &[(0, 299)]);
    assert!(matches!(resume(&settled, Some(&older)), Err(Refusal::ChangelogLost { .. })), "its end is gone");
    // Reset from 300 to 400, processed up to 500, then reset to 250: the transaction at 300 is gone, and earlier ones
    // are there.
    let holed = position(8, &[(0, 250), (400, 500)]);
    assert!(matches!(resume(&settled, Some(&holed)), Err(Refusal::ChangelogLost { .. })), "its end is gone, in a hole");
}

#[test]
fn changelog_recreated_under_a_task_at_work_is_refused() {
    let mut recreated = settled(committed(300, metadata(token(9))));
    recreated.changelog_id = TopicId([8; 16]);
    let refused = resume(&recreated, Some(&position(9, &[(0, 300)])));
    assert!(matches!(refused, Err(Refusal::ChangelogRecreated { .. })));
    recreated.committed = None;
    let refused = resume(&recreated, Some(&position(9, &[(0, 300)])));
    assert!(matches!(refused, Err(Refusal::ChangelogRecreated { .. })), "also with the group gone");
}

#[test]
fn recreated_input_is_refused_even_at_the_same_offset() {
    let mut settled = settled(committed(300, metadata(token(9))));
    settled.input_id = TopicId([8; 16]);
    let refused = resume(&settled, Some(&position(9, &[(0, 300)])));
    assert!(matches!(refused, Err(Refusal::InputRecreated { .. })));
}

#[test]
fn other_rules_and_another_partition_count_are_refused() {
    let facts = |digest, task_count| TaskFacts {
        rules_digest: digest,
        task_count,
        start: Start::Earliest,
        bounds: &Bounds::DEFAULT,
    };
    let settled_now = settled(committed(300, metadata(token(9))));
    let position = position(9, &[(0, 300)]);
    let other = super::resumption(&settled_now, Some(&position), facts(&[4; 32], 4));
    assert!(matches!(other, Err(Refusal::OtherRules { .. })));
    let other = super::resumption(&settled(None), Some(&position), facts(&[4; 32], 4));
    assert!(matches!(other, Err(Refusal::OtherRules { .. })), "also with the group gone");
    let grown = super::resumption(&settled_now, Some(&position), facts(&DIGEST, 6));
    assert_eq!(grown, Err(Refusal::Rescaled { known: 4, found: 6 }));
}

#[test]
fn gap_at_either_end_of_the_input_is_refused() {
    let mut input = settled(committed(300, metadata(token(9))));
    input.input_start = 301;
    let known = position(9, &[(0, 300)]);
    assert_eq!(resume(&input, Some(&known)), Err(Refusal::InputTruncated { next: 300, start: 301 }));
    input.input_start = 300;
    assert!(resume(&input, Some(&known)).is_ok());
    input.input_end = 299;
    assert_eq!(resume(&input, Some(&known)), Err(Refusal::InputShrunk { next: 300, end: 299 }));
}

#[test]
fn group_may_be_reset_to_removed_records_if_they_were_processed() {
    let mut input = settled(committed(19, String::new()));
    input.input_start = 41;
    let known = position(9, &[(0, 30), (31, 300)]);
    assert_eq!(resume(&input, Some(&known)), Err(Refusal::InputTruncated { next: 19, start: 41 }), "30 was skipped");
    let resumption = resume(&input, Some(&position(9, &[(0, 300)]))).unwrap();
    assert_eq!((resumption.next, resumption.origin), (41, Origin::Reset));
    input.input_start = 301;
    let refused = resume(&input, Some(&position(9, &[(0, 300)])));
    assert_eq!(refused, Err(Refusal::InputTruncated { next: 19, start: 301 }), "300 was never read");
}

#[test]
fn foreign_metadata_is_refused() {
    let settled = settled(committed(300, "someone else".to_owned()));
    let refused = resume(&settled, None).unwrap_err();
    assert!(matches!(refused, Refusal::ForeignOffset(_)) && refused.to_string().ends_with(FOREIGN_OFFSET_HELP));
}

#[test]
fn refusal_of_unreadable_bytes_names_their_writer() {
    let later = || format::Error::Format { what: "an entry", found: 2, expected: 1 };
    let damaged = || format::Error::Damaged { what: "an entry", reason: "it is empty".to_owned() };
    assert_eq!(Refusal::of_metadata(later()), Refusal::LaterFormat(later()));
    assert_eq!(Refusal::of_record(later()), Refusal::LaterFormat(later()));
    let release = Refusal::of_record(later()).to_string();
    assert!(release.contains("start the release that wrote it or a later one"), "{release}");
    let program = Refusal::of_record(damaged()).to_string();
    assert!(program.contains("another program writes to the changelog: stop it"), "{program}");
    assert!(!program.contains("release"), "{program}");
}
