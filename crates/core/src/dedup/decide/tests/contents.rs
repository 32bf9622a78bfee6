//! Goal: a tie with other contents gets its action, and a repetition of any of them is a duplicate.

use super::*;
use crate::dedup::Actions;
use crate::format::ContentsList;

fn contents(hash: u64) -> Option<Digest> {
    Some(Digest::new(hash, 1, false))
}

/// Rules with this action for a conflict.
fn on_conflict(rules: Rules, conflict: Action) -> Rules {
    Rules { actions: Actions { conflict, ..rules.actions }, ..rules }
}

/// Judges contents of one identity, with these versions, one after the other; their reasons and whether each passes.
fn judge_contents(rules: &Rules, candidates: &[Candidate<'_>]) -> Vec<(Reason, bool)> {
    let mut bytes: Vec<u8> = Vec::new();
    let judge = |candidate: &Candidate<'_>| {
        let before = bytes.clone();
        let entry = (!before.is_empty()).then(|| EntryRef::decode(&before).unwrap());
        let decision = decide(rules, &progress(0, NO_TIME), candidate, known(entry));
        let mut after = Vec::new();
        if !decision.is_conflict_set_aside() && decision.encode_entry(candidate, entry, &mut after) {
            bytes = after;
        }
        (decision.reason, decision.action == Action::Forward)
    };
    candidates.iter().map(judge).collect()
}

#[test]
fn other_contents_of_a_known_version_are_a_conflict() {
    let of = |version: &'static [u8], hash| Candidate { contents: contents(hash), ..versioned_by(version) };
    for (action, passes) in [(Action::Forward, true), (Action::Drop, false)] {
        let rules = on_conflict(versioned(), action);
        let story = [of(b"5", 1), of(b"5", 1), of(b"5", 2), of(b"5", 1), of(b"5", 2), of(b"6", 1), of(b"5", 3)];
        let expected = [
            (Reason::First, true),
            (Reason::VersionEqual, false),
            (Reason::VersionTied, passes),
            (Reason::VersionEqual, false),
            (Reason::VersionEqual, false),
            (Reason::Newer, true),
            (Reason::VersionOlder, false),
        ];
        assert_eq!(judge_contents(&rules, &story), expected, "{action}");
    }
    for action in [Action::DeadLetter, Action::Fail] {
        let rules = on_conflict(versioned(), action);
        let tied = [(Reason::First, true), (Reason::VersionTied, false), (Reason::VersionTied, false)];
        assert_eq!(judge_contents(&rules, &[of(b"5", 1), of(b"5", 2), of(b"5", 2)]), tied, "{action} leaves no trace");
    }
}

#[test]
fn other_contents_of_a_known_identity_are_a_conflict() {
    let of = |hash| Candidate { contents: contents(hash), ..CANDIDATE };
    let rules = rules(&["value"], None);
    for (action, passes) in [(Action::Forward, true), (Action::Drop, false)] {
        let expected =
            [(Reason::First, true), (Reason::SeenOtherwise, passes), (Reason::Seen, false), (Reason::Seen, false)];
        let rules = on_conflict(rules.clone(), action);
        assert_eq!(judge_contents(&rules, &[of(1), of(2), of(1), of(2)]), expected, "{action}");
    }
}

#[test]
fn verdict_on_a_conflict_follows_its_action() {
    let candidate = Candidate { contents: contents(2), ..versioned_by(b"5") };
    let mut list = ContentsList::default();
    list.push(Digest::new(1, 1, false));
    let entry = EntryRef { version: Some(b"5"), contents: list.as_contents(), ..ENTRY };
    for (action, verdict) in [
        (Action::Forward, Verdict::Forwarded),
        (Action::Drop, Verdict::Duplicate),
        (Action::DeadLetter, Verdict::Invalid),
        (Action::Fail, Verdict::Invalid),
    ] {
        let decision = decide(&on_conflict(versioned(), action), &progress(0, NO_TIME), &candidate, known(Some(entry)));
        assert!(is(decision, verdict, Reason::VersionTied, action), "{decision:?}");
        assert_eq!(decision.against, Against::Entry);
    }
}

#[test]
fn entry_without_contents_takes_any_for_a_repetition() {
    let candidate = Candidate { contents: contents(2), ..versioned_by(b"5") };
    let entry = EntryRef { version: Some(b"5"), ..ENTRY };
    let rules = on_conflict(versioned(), Action::Forward);
    let decision = decide(&rules, &progress(0, NO_TIME), &candidate, known(Some(entry)));
    assert!(is(decision, Verdict::Duplicate, Reason::VersionEqual, Action::Drop), "{decision:?}");
    assert!(!decision.encode_entry(&candidate, Some(entry), &mut Vec::new()), "the entry stays as it is");
    let uncompared = Candidate { contents: None, ..candidate };
    let mut list = ContentsList::default();
    list.push(Digest::new(1, 1, false));
    let entry = EntryRef { contents: list.as_contents(), ..entry };
    let decision = decide(&rules, &progress(0, NO_TIME), &uncompared, known(Some(entry)));
    assert_eq!(decision.reason, Reason::VersionEqual, "contents are not compared any more");
}

/// What passes although ties pass anyway begins no list: an earlier record of the version would look like a conflict.
#[test]
fn list_does_not_begin_in_the_middle_of_a_version() {
    let candidate = Candidate { contents: contents(2), ..versioned_by(b"5") };
    let entry = EntryRef { version: Some(b"5"), ..ENTRY };
    let mut rules = on_conflict(versioned(), Action::Drop);
    rules.actions.equal_version = Action::Forward;
    let decision = decide(&rules, &progress(0, NO_TIME), &candidate, known(Some(entry)));
    assert!(forwarded(decision, Reason::VersionEqual));
    let mut bytes = Vec::new();
    assert!(decision.encode_entry(&candidate, Some(entry), &mut bytes));
    assert!(EntryRef::decode(&bytes).unwrap().contents.is_empty());
}

#[test]
fn delete_that_ties_passes_and_the_change_sent_again_does_not() {
    let of = |kind, hash| Candidate { kind, contents: contents(hash), ..versioned_by(b"5") };
    let tombstone = Candidate { kind: Kind::Tombstone, ..CANDIDATE };
    let rules = on_conflict(versioned(), Action::Forward);
    let story = [of(Kind::Change, 1), of(Kind::Delete, 2), tombstone, of(Kind::Change, 1), tombstone];
    let expected = [
        (Reason::First, true),
        (Reason::VersionTied, true),
        (Reason::Tombstone, true),
        (Reason::VersionEqual, false),
        (Reason::TombstoneNotOwed, false),
    ];
    assert_eq!(judge_contents(&rules, &story), expected);
}

#[test]
fn contents_of_reads_and_of_streamed_changes_are_kept_apart() {
    let mut rules = on_conflict(versioned(), Action::Forward);
    rules.kinds = Some(by_version());
    let change = |version: &'static [u8], hash| Candidate { contents: contents(hash), ..versioned_by(version) };
    let read = |version: &'static [u8], hash| Candidate {
        kind: Kind::Read,
        contents: Some(Digest::new(hash, 1, true)),
        ..versioned_by(version)
    };
    let story = [
        (change(b"5", 1), Reason::First),
        (read(b"7", 9), Reason::Newer),
        (read(b"7", 9), Reason::VersionEqual),
        // Another snapshot, and another row of it at the same position.
        (read(b"8", 9), Reason::Newer),
        (read(b"8", 10), Reason::VersionTied),
        // The change is sent again: its contents are still known, below those of the reads.
        (change(b"5", 1), Reason::VersionEqual),
        (change(b"5", 2), Reason::VersionTied),
        // The reads of that snapshot are still known, beside the change that won over them.
        (read(b"8", 10), Reason::VersionEqual),
        (change(b"9", 1), Reason::Newer),
        (change(b"9", 2), Reason::VersionTied),
    ];
    let candidates = story.map(|(candidate, _)| candidate);
    let reasons: Vec<_> = judge_contents(&rules, &candidates).into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, story.map(|(_, reason)| reason));
}

#[test]
fn dropped_conflict_moves_the_retention_only_as_a_duplicate_does() {
    let mut list = ContentsList::default();
    list.push(Digest::new(1, 1, false));
    let entry = EntryRef { last_seen: 20, contents: list.as_contents(), ..ENTRY };
    let candidate = Candidate { timestamp: Some(50), contents: contents(2), ..CANDIDATE };
    for (refresh, last_seen) in [(Refresh::OnForward, 20), (Refresh::OnDuplicate, 60)] {
        let rules = Rules { refresh, ..on_conflict(plain(), Action::Drop) };
        let decision = decide(&rules, &progress(60, NO_TIME), &candidate, known(Some(entry)));
        let mut bytes = Vec::new();
        assert!(decision.encode_entry(&candidate, Some(entry), &mut bytes));
        let after = EntryRef::decode(&bytes).unwrap();
        assert_eq!((after.last_seen, after.contents.digests().count()), (last_seen, 2));
    }
}
