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

fn known() -> Known {
    Known { input_id: INPUT, changelog_id: None, rules_digest: DIGEST, task_count: 4, without_group: false }
}

fn committed(transaction: u64, offset: i64) -> CommittedOffset {
    let digest = OffsetMetadata::short_digest(&DIGEST);
    CommittedOffset { offset, metadata: OffsetMetadata { token: token(transaction), digest, owner: None }.to_string() }
}

/// Facts without a changelog.
fn facts<'a>(committed: Option<&'a CommittedOffset>, candidates: &'a [Candidate], known: Known) -> Facts<'a> {
    Facts { partition: 2, committed, contents: None, candidates, known }
}

fn chosen(committed: Option<&CommittedOffset>, stores: &[Candidate], known: Known) -> Choice {
    choose(facts(committed, stores, known)).expect("something can be done")
}

fn refused(committed: Option<&CommittedOffset>, stores: &[Candidate], known: Known) -> String {
    match choose(facts(committed, stores, known)) {
        Err(Problem::Other(words)) => words,
        other => panic!("something can be written: {other:?}"),
    }
}

/// The choice with the stores' own changelog, given its `contents`.
fn with(contents: &Contents, committed: Option<&CommittedOffset>, stores: &[Candidate]) -> Result<Choice, Problem> {
    let known = Known { changelog_id: Some(TopicId(LOST)), without_group: true, ..known() };
    choose(Facts { contents: Some(contents), ..facts(committed, stores, known) })
}

/// The choice if that changelog were deleted.
fn without(contents: &Contents, committed: Option<&CommittedOffset>, stores: &[Candidate]) -> Result<Choice, String> {
    let known = Known { changelog_id: Some(TopicId(LOST)), without_group: true, ..known() };
    choose_anew(Facts { contents: Some(contents), ..facts(committed, stores, known) })
}

fn contents(end: i64, transaction: u64, processed: i64) -> Contents {
    Contents {
        start: ChangelogOffset(0),
        end: ChangelogOffset(end),
        last: Some(store("", transaction, processed).position),
    }
}

fn write(from: &Candidate, offset: i64) -> Choice {
    Choice::Write { from: Box::new(from.clone()), offset }
}

#[test]
fn only_the_store_at_the_committed_transaction_is_taken() {
    let stores = [store("old", 8, 80), store("right", 9, 90), store("restored", 10, 100)];
    assert_eq!(chosen(Some(&committed(9, 91)), &stores, known()), write(&stores[1], 91));
    let words = refused(Some(&committed(11, 91)), &stores, known());
    assert!(words.contains(&token(11).to_string()) && words.contains("old stands at"), "{words}");
    assert!(refused(Some(&committed(11, 91)), &[], known()).contains("no other either"));
    // One of another partition, in a folder that was swapped, and one that is being restored.
    let mut swapped = store("swapped", 9, 90);
    swapped.meta.partition = 1;
    let mut restoring = store("restoring", 9, 90);
    restoring.meta.token = None;
    assert!(refused(Some(&committed(9, 91)), &[swapped, restoring], known()).contains("no store stands"));
}

#[test]
fn changelog_that_holds_what_the_group_names_is_kept() {
    let at = committed(9, 91);
    let stores = [store("s", 9, 90)];
    assert_eq!(with(&contents(9, 9, 91), Some(&at), &stores), Ok(Choice::Keep));
    assert_eq!(with(&contents(50, 9, 91), Some(&at), &[]), Ok(Choice::Keep), "no store is needed");
    // An earlier transaction's offset, committed once more.
    assert_eq!(with(&contents(50, 12, 120), Some(&at), &[]), Ok(Choice::Keep));
    // The group was reset or is gone: the changelog may be newer than any store, and is never overwritten.
    for (held, stores) in
        [(contents(9, 9, 90), &stores[..]), (contents(50, 12, 120), &stores[..]), (contents(50, 12, 120), &[])]
    {
        assert_eq!(with(&held, None, stores), Ok(Choice::Keep));
    }
    let another = Known { changelog_id: Some(TopicId([4; 16])), ..known() };
    let empty = Contents::default();
    let chosen = choose(Facts { contents: Some(&empty), ..facts(Some(&at), &stores, another) });
    assert_eq!(chosen, Ok(write(&stores[0], 91)));
}

#[test]
fn changelog_that_has_lost_its_tail_is_not_kept() {
    let (at, stores) = (committed(9, 91), [store("s", 9, 91)]);
    let lost = |held: &Contents, committed, stores: &[Candidate]| match with(held, committed, stores) {
        Err(Problem::Lost(words)) => words,
        other => panic!("it does not count as lost: {other:?}"),
    };
    // Evidence is the group, whatever was written since, or a store that is beyond its end or has noted the loss.
    assert!(lost(&contents(7, 8, 80), Some(&at), &[]).contains("that the group has committed"));
    assert!(lost(&contents(70, 8, 80), Some(&at), &stores).contains("the store s has applied"));
    // Somebody has continued without what was lost, after a reset of the group.
    let gone_on = committed(12, 85);
    assert!(lost(&contents(70, 12, 85), Some(&gone_on), &stores).contains("the store s has applied"));
    let words = without(&contents(70, 12, 85), Some(&gone_on), &[store("s", 9, 91), store("t", 12, 85)]);
    assert!(words.expect_err("one knows more").contains("the store s stands at"));
    let words = lost(&contents(7, 8, 80), Some(&at), &stores);
    assert!(words.contains("the store s has applied") && words.contains(&token(9).to_string()), "{words}");
    let mut marked = stores.clone();
    marked[0].meta.changelog_offset = CHANGELOG_LOST;
    for committed in [Some(&at), None] {
        assert!(lost(&contents(70, 8, 80), committed, &marked).contains("the store s has applied"));
        assert_eq!(without(&contents(70, 8, 80), committed, &marked), Ok(write(&marked[0], 91)));
    }
    assert!(
        lost(&Contents { end: ChangelogOffset(5), ..Contents::default() }, Some(&at), &[])
            .contains("that the group has committed")
    );
    // Records removed from its start are another matter: a store that has seen them can continue.
    assert_eq!(
        with(&Contents { start: ChangelogOffset(9), end: ChangelogOffset(9), last: None }, Some(&at), &stores),
        Ok(Choice::Keep)
    );
    // The records are back, but the store would still be refused.
    let Err(Problem::Other(words)) = with(&contents(9, 9, 91), Some(&at), &marked) else { panic!("it stands") };
    assert!(
        words.contains("what the store s has applied")
            && words.contains("says that records were lost: move its folder away"),
        "{words}"
    );
}

/// The group was reset to before what was lost, and another instance has processed it again.
#[test]
fn store_is_to_be_moved_if_lost_records_were_processed_again() {
    let mut stores = [store("s", 9, 91)];
    stores[0].meta.changelog_offset = ChangelogOffset(40);
    let (at, held) = (committed(12, 120), contents(50, 12, 120));
    assert_eq!(with(&held, Some(&at), &stores), Ok(Choice::Keep));
    stores[0].is_missed = true;
    let Err(Problem::Other(words)) = with(&held, Some(&at), &stores) else { panic!("the store would be refused") };
    assert!(words.contains("processed again: move its folder away"), "{words}");
    // Records that nobody has processed again are lost.
    let Err(Problem::Lost(words)) = with(&contents(50, 12, 85), Some(&committed(12, 85)), &stores) else {
        panic!("the store knows more")
    };
    assert!(words.contains("the store s has applied"), "{words}");
}

/// Where its input was to start says nothing about what was processed.
#[test]
fn store_that_has_processed_nothing_proves_no_loss() {
    let mut idle = store("idle", 3, 0);
    idle.position.processed = vec![(700, 700)];
    for changelog_offset in [9, 50].map(ChangelogOffset) {
        idle.meta.changelog_offset = changelog_offset;
        let chosen = with(&contents(50, 12, 300), Some(&committed(12, 300)), std::slice::from_ref(&idle));
        assert_eq!(chosen, Ok(Choice::Keep));
    }
}

#[test]
fn changelog_is_given_up_only_if_a_store_holds_all_of_it() {
    let (at, held) = (committed(9, 91), contents(50, 9, 91));
    let right = [store("right", 9, 91)];
    assert_eq!(without(&held, Some(&at), &right), Ok(write(&right[0], 91)));
    // The disk is gone, or the store is behind after a crash.
    for stores in [&[][..], &[store("behind", 8, 80)]] {
        let words = without(&held, Some(&at), stores).expect_err("the changelog is the only copy");
        assert!(words.contains(&format!("no store stands at the transaction {}", token(9))), "{words}");
    }
    // The group names nothing, or an earlier transaction: what the changelog holds counts.
    for (committed, stores) in
        [(None, &[][..]), (None, &[store("behind", 8, 80)]), (Some(&committed(8, 80)), &[store("at", 8, 80)])]
    {
        let words = without(&held, committed, stores).expect_err("the changelog is the only copy");
        assert!(words.contains(&format!("its changelog holds the transaction {}", token(9))), "{words}");
    }
    assert_eq!(without(&held, None, &right), Ok(write(&right[0], 91)));
    assert_eq!(without(&Contents::default(), None, &[]), Ok(Choice::Nothing));
    // Two have lost their last records, and the group is one of them.
    let stores = [store("at", 8, 80), store("further", 9, 91)];
    let words = without(&contents(7, 8, 80), Some(&committed(8, 80)), &stores).expect_err("one knows more");
    assert!(words.contains("the store further stands at"), "{words}");
}

#[test]
fn store_of_another_input_or_other_rules_is_refused() {
    let (at, stores) = (committed(9, 91), [store("s", 9, 90)]);
    assert!(refused(Some(&at), &stores, Known { input_id: TopicId([6; 16]), ..known() }).contains("recreated"));
    assert!(refused(Some(&at), &stores, Known { rules_digest: [8; 32], ..known() }).contains("other rules"));
    assert!(refused(Some(&at), &stores, Known { task_count: 5, ..known() }).contains("partition count of 4"));
    let foreign = CommittedOffset { offset: 1, metadata: "mine".to_owned() };
    assert!(refused(Some(&foreign), &stores, known()).contains("stop the program"));
}

#[test]
fn furthest_store_is_taken_without_the_group_only_on_request() {
    let stores = [store("near", 9, 90), store("far", 3, 120)];
    let reset = CommittedOffset { offset: 40, metadata: String::new() };
    for (committed, offset) in [(None, 120), (Some(&reset), 40)] {
        assert!(refused(committed, &stores, known()).contains("far has come furthest, to offset 120"));
        let alone = Known { without_group: true, ..known() };
        assert_eq!(chosen(committed, &stores, alone), write(&stores[1], offset));
        assert_eq!(chosen(committed, &[], known()), Choice::Nothing);
    }
}
