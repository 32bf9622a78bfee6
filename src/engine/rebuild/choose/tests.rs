//! Goal: the store that the group names is chosen, and no changelog is wrongly kept or given up.

use super::*;
use crate::format::{ChangelogOffset, NO_TIME, Token};

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
    let meta = StoreMeta {
        changelog_id: LOST,
        partition: 2,
        changelog_offset: ChangelogOffset(9),
        token,
        synced_at: 0,
        position_offset: Some(ChangelogOffset(8)),
    };
    Candidate { path: name.into(), meta, position, is_missed: false }
}

fn expected() -> Expected {
    Expected { input_id: INPUT, changelog_id: None, rules_digest: DIGEST, task_count: 4, without_group: false }
}

fn committed(transaction: u64, offset: i64) -> CommittedOffset {
    let digest = OffsetMetadata::short_digest(&DIGEST);
    CommittedOffset { offset, metadata: OffsetMetadata { token: token(transaction), digest, owner: None }.to_string() }
}

/// Facts without a changelog.
fn facts<'a>(committed: Option<&'a CommittedOffset>, candidates: &'a [Candidate], expected: Expected) -> Facts<'a> {
    Facts { partition: 2, committed, contents: None, candidates, expected }
}

fn chosen(committed: Option<&CommittedOffset>, stores: &[Candidate], expected: Expected) -> Choice {
    choose(facts(committed, stores, expected)).expect("something can be done")
}

fn problem(committed: Option<&CommittedOffset>, stores: &[Candidate], expected: Expected) -> String {
    match choose(facts(committed, stores, expected)) {
        Err(Problem::Other(message)) => message,
        other => panic!("something can be written: {other:?}"),
    }
}

/// The choice if the stores' own changelog exists, with these contents.
fn choose_existing(
    contents: &Contents,
    committed: Option<&CommittedOffset>,
    stores: &[Candidate],
) -> Result<Choice, Problem> {
    let expected = Expected { changelog_id: Some(TopicId(LOST)), without_group: true, ..expected() };
    choose(Facts { contents: Some(contents), ..facts(committed, stores, expected) })
}

/// The choice if that changelog were deleted.
fn choose_after_deletion(
    contents: &Contents,
    committed: Option<&CommittedOffset>,
    stores: &[Candidate],
) -> Result<Choice, String> {
    let expected = Expected { changelog_id: Some(TopicId(LOST)), without_group: true, ..expected() };
    choose_anew(Facts { contents: Some(contents), ..facts(committed, stores, expected) })
}

fn contents(end: i64, transaction: u64, processed: i64) -> Contents {
    Contents {
        start: ChangelogOffset(0),
        end: ChangelogOffset(end),
        last: Some(store("", transaction, processed).position),
    }
}

fn write_from(from: &Candidate, offset: i64) -> Choice {
    Choice::Write { from: Box::new(from.clone()), offset }
}

#[test]
fn only_the_store_at_the_committed_transaction_is_chosen() {
    let stores = [store("old", 8, 80), store("named", 9, 90), store("restored", 10, 100)];
    assert_eq!(chosen(Some(&committed(9, 91)), &stores, expected()), write_from(&stores[1], 91));
    let message = problem(Some(&committed(11, 91)), &stores, expected());
    assert!(message.contains(&token(11).to_string()) && message.contains("old is at"), "{message}");
    assert!(problem(Some(&committed(11, 91)), &[], expected()).contains("no other store either"));
    // A store of another partition, in a swapped folder, and a store that is being restored.
    let mut swapped = store("swapped", 9, 90);
    swapped.meta.partition = 1;
    let mut restoring = store("restoring", 9, 90);
    restoring.meta.token = None;
    assert!(problem(Some(&committed(9, 91)), &[swapped, restoring], expected()).contains("no store is at"));
}

#[test]
fn changelog_that_holds_the_groups_transaction_is_kept() {
    let committed_offset = committed(9, 91);
    let stores = [store("s", 9, 90)];
    assert_eq!(choose_existing(&contents(9, 9, 91), Some(&committed_offset), &stores), Ok(Choice::Keep));
    assert_eq!(
        choose_existing(&contents(50, 9, 91), Some(&committed_offset), &[]),
        Ok(Choice::Keep),
        "no store is needed"
    );
    // An earlier transaction's offset, committed once more.
    assert_eq!(choose_existing(&contents(50, 12, 120), Some(&committed_offset), &[]), Ok(Choice::Keep));
    // The group was reset or is gone: the changelog may be newer than any store, and is never overwritten.
    for (held, stores) in
        [(contents(9, 9, 90), &stores[..]), (contents(50, 12, 120), &stores[..]), (contents(50, 12, 120), &[])]
    {
        assert_eq!(choose_existing(&held, None, stores), Ok(Choice::Keep));
    }
    let another = Expected { changelog_id: Some(TopicId([4; 16])), ..expected() };
    let empty = Contents::default();
    let chosen = choose(Facts { contents: Some(&empty), ..facts(Some(&committed_offset), &stores, another) });
    assert_eq!(chosen, Ok(write_from(&stores[0], 91)));
}

#[test]
fn changelog_that_has_lost_its_tail_is_not_kept() {
    let (committed_offset, stores) = (committed(9, 91), [store("s", 9, 91)]);
    let lost = |held: &Contents, committed, stores: &[Candidate]| match choose_existing(held, committed, stores) {
        Err(Problem::Lost(message)) => message,
        other => panic!("it does not count as lost: {other:?}"),
    };
    // The evidence is the group, whatever was written since, or a store beyond the changelog's end or marked as lost.
    assert!(lost(&contents(7, 8, 80), Some(&committed_offset), &[]).contains("that the group has committed"));
    assert!(lost(&contents(70, 8, 80), Some(&committed_offset), &stores).contains("the store s has applied"));
    // After a reset of the group, another instance has continued without the lost records.
    let continued = committed(12, 85);
    assert!(lost(&contents(70, 12, 85), Some(&continued), &stores).contains("the store s has applied"));
    let result =
        choose_after_deletion(&contents(70, 12, 85), Some(&continued), &[store("s", 9, 91), store("t", 12, 85)]);
    assert!(result.expect_err("one store holds more").contains("the store s is at"));
    let message = lost(&contents(7, 8, 80), Some(&committed_offset), &stores);
    assert!(message.contains("the store s has applied") && message.contains(&token(9).to_string()), "{message}");
    let mut marked = stores.clone();
    marked[0].meta.changelog_offset = CHANGELOG_LOST;
    for committed in [Some(&committed_offset), None] {
        assert!(lost(&contents(70, 8, 80), committed, &marked).contains("the store s has applied"));
        assert_eq!(choose_after_deletion(&contents(70, 8, 80), committed, &marked), Ok(write_from(&marked[0], 91)));
    }
    assert!(
        lost(&Contents { end: ChangelogOffset(5), ..Contents::default() }, Some(&committed_offset), &[])
            .contains("that the group has committed")
    );
    // Records removed from its start are no loss to a store that has applied them.
    assert_eq!(
        choose_existing(
            &Contents { start: ChangelogOffset(9), end: ChangelogOffset(9), last: None },
            Some(&committed_offset),
            &stores
        ),
        Ok(Choice::Keep)
    );
    // The lost records are back, but the store would still be refused.
    let Err(Problem::Other(message)) = choose_existing(&contents(9, 9, 91), Some(&committed_offset), &marked) else {
        panic!("the changelog is complete")
    };
    assert!(
        message.contains("everything that the store s has applied")
            && message.contains("says that records were lost: move its folder away"),
        "{message}"
    );
}

/// The group was reset to an offset before the lost records, and another instance has processed them again.
#[test]
fn store_has_to_be_moved_away_if_lost_records_were_processed_again() {
    let mut stores = [store("s", 9, 91)];
    stores[0].meta.changelog_offset = ChangelogOffset(40);
    let (committed_offset, held) = (committed(12, 120), contents(50, 12, 120));
    assert_eq!(choose_existing(&held, Some(&committed_offset), &stores), Ok(Choice::Keep));
    stores[0].is_missed = true;
    let Err(Problem::Other(message)) = choose_existing(&held, Some(&committed_offset), &stores) else {
        panic!("the store would be refused")
    };
    assert!(message.contains("processed again: move its folder away"), "{message}");
    // Records that were not processed again are lost.
    let Err(Problem::Lost(message)) = choose_existing(&contents(50, 12, 85), Some(&committed(12, 85)), &stores) else {
        panic!("the store holds more")
    };
    assert!(message.contains("the store s has applied"), "{message}");
}

/// The offset at which its input starts does not show what was processed.
#[test]
fn store_that_has_processed_nothing_proves_no_loss() {
    let mut idle = store("idle", 3, 0);
    idle.position.processed = vec![(700, 700)];
    for changelog_offset in [9, 50].map(ChangelogOffset) {
        idle.meta.changelog_offset = changelog_offset;
        let chosen = choose_existing(&contents(50, 12, 300), Some(&committed(12, 300)), std::slice::from_ref(&idle));
        assert_eq!(chosen, Ok(Choice::Keep));
    }
}

#[test]
fn changelog_is_given_up_only_if_a_store_holds_all_of_it() {
    let (committed_offset, held) = (committed(9, 91), contents(50, 9, 91));
    let named = [store("named", 9, 91)];
    assert_eq!(choose_after_deletion(&held, Some(&committed_offset), &named), Ok(write_from(&named[0], 91)));
    // The disk is gone, or the store is behind after a crash.
    for stores in [&[][..], &[store("behind", 8, 80)]] {
        let message =
            choose_after_deletion(&held, Some(&committed_offset), stores).expect_err("the changelog is the only copy");
        assert!(message.contains(&format!("no store is at the transaction {}", token(9))), "{message}");
    }
    // The group names no transaction, or an earlier one: the contents of the changelog decide.
    for (committed, stores) in
        [(None, &[][..]), (None, &[store("behind", 8, 80)]), (Some(&committed(8, 80)), &[store("at", 8, 80)])]
    {
        let message = choose_after_deletion(&held, committed, stores).expect_err("the changelog is the only copy");
        assert!(message.contains(&format!("its changelog holds the transaction {}", token(9))), "{message}");
    }
    assert_eq!(choose_after_deletion(&held, None, &named), Ok(write_from(&named[0], 91)));
    assert_eq!(choose_after_deletion(&Contents::default(), None, &[]), Ok(Choice::Nothing));
    // Both the group and the changelog have lost their last records.
    let stores = [store("at", 8, 80), store("further", 9, 91)];
    let message =
        choose_after_deletion(&contents(7, 8, 80), Some(&committed(8, 80)), &stores).expect_err("one store holds more");
    assert!(message.contains("the store further is at"), "{message}");
}

#[test]
fn store_of_another_input_or_other_rules_is_refused() {
    let (committed_offset, stores) = (committed(9, 91), [store("s", 9, 90)]);
    assert!(
        problem(Some(&committed_offset), &stores, Expected { input_id: TopicId([6; 16]), ..expected() })
            .contains("recreated")
    );
    assert!(
        problem(Some(&committed_offset), &stores, Expected { rules_digest: [8; 32], ..expected() })
            .contains("other rules")
    );
    assert!(
        problem(Some(&committed_offset), &stores, Expected { task_count: 5, ..expected() })
            .contains("partition count of 4")
    );
    let foreign = CommittedOffset { offset: 1, metadata: "mine".to_owned() };
    assert!(problem(Some(&foreign), &stores, expected()).contains("stop the program"));
}

#[test]
fn furthest_store_is_chosen_without_the_group_only_on_request() {
    let stores = [store("near", 9, 90), store("far", 3, 120)];
    let reset = CommittedOffset { offset: 40, metadata: String::new() };
    for (committed, offset) in [(None, 120), (Some(&reset), 40)] {
        assert!(problem(committed, &stores, expected()).contains("far has come furthest, to offset 120"));
        let without_group = Expected { without_group: true, ..expected() };
        assert_eq!(chosen(committed, &stores, without_group), write_from(&stores[1], offset));
        assert_eq!(chosen(committed, &[], expected()), Choice::Nothing);
    }
}
