//! Goal: each rule of the decision works on its own, with every action.

mod contents;

use super::*;
use crate::dedup::Kinds;
use crate::dedup::tests::{paths, rules};

const HASH: Option<u32> = Some(7);
const ACTIONS: [Action; 4] = [Action::Forward, Action::Drop, Action::DeadLetter, Action::Fail];

fn progress(stream_time: i64, horizon: i64) -> Progress {
    Progress { stream_time, horizon, ..Progress::default() }
}

const ENTRY: EntryRef<'static> = EntryRef {
    last_seen: 1,
    version: None,
    scope: None,
    from_read: false,
    streamed: None,
    owes_tombstone: false,
    key_hash: None,
    contents: crate::format::Contents::NONE,
};

fn entry(last_seen: i64, version: Option<&[u8]>) -> Option<EntryRef<'_>> {
    Some(EntryRef { last_seen, version, ..ENTRY })
}

const CANDIDATE: Candidate<'static> = Candidate {
    version: None,
    scope: None,
    kind: Kind::Change,
    timestamp: None,
    key_hash: HASH,
    offset: 100,
    contents: None,
};

fn at(timestamp: Option<i64>) -> Candidate<'static> {
    Candidate { timestamp, ..CANDIDATE }
}

fn versioned_by(version: &[u8]) -> Candidate<'_> {
    Candidate { version: Some(version), ..CANDIDATE }
}

fn known(entry: Option<EntryRef<'_>>) -> Known<'_> {
    Known { entry, table: None }
}

fn plain() -> Rules {
    let mut rules = rules(&["value"], None);
    rules.retention = Retention::For { ms: 100 };
    rules
}

fn versioned() -> Rules {
    rules(&["value.k"], Some("value.v"))
}

fn is(decision: Decision, verdict: Verdict, reason: Reason, action: Action) -> bool {
    (decision.verdict, decision.reason, decision.action) == (verdict, reason, action)
}

fn forwarded(decision: Decision, reason: Reason) -> bool {
    is(decision, Verdict::Forwarded, reason, Action::Forward)
}

fn dropped(decision: Decision, verdict: Verdict, reason: Reason) -> bool {
    is(decision, verdict, reason, Action::Drop) && decision.remember == Remember::Nothing
}

/// The words do not matter, since what is judged here already has its kind.
fn by_version() -> Kinds {
    let (delete, read, truncate, message, table) = Default::default();
    let of = paths(&["value.op"]);
    Kinds { of, delete, read, reads: Reads::ByVersion, truncate, message, none: Vec::new(), table }
}

/// The entry that the decision leaves.
fn remembered(decision: Decision, version: Option<&[u8]>, before: Option<EntryRef<'_>>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    decision.encode_entry(&Candidate { version, ..CANDIDATE }, before, &mut out).then_some(out)
}

fn by(action: Action, otherwise: Verdict) -> Verdict {
    if action == Action::Forward { Verdict::Forwarded } else { otherwise }
}

#[test]
fn first_record_is_forwarded_and_remembered_at_stream_time() {
    for (timestamp, stream_time, expected) in [(Some(5), 9, 9), (None, 9, 9), (None, NO_TIME, NO_TIME), (Some(9), 9, 9)]
    {
        let decision = decide(&plain(), &progress(stream_time, i64::MIN), &at(timestamp), Known::default());
        assert!(forwarded(decision, Reason::First));
        let bytes = remembered(decision, None, None).unwrap();
        assert_eq!(EntryRef::decode(&bytes), Ok(EntryRef { last_seen: expected, key_hash: HASH, ..ENTRY }));
    }
}

#[test]
fn without_a_version_anything_seen_is_a_duplicate() {
    let decision = decide(&plain(), &progress(100, 0), &at(Some(100)), known(entry(50, None)));
    assert!(dropped(decision, Verdict::Duplicate, Reason::Seen));
    assert_eq!(decision.compared_with(known(entry(50, None))), entry(50, None));
}

#[test]
fn entry_expires_after_the_retention_unless_its_time_is_unknown() {
    let seen = |stream_time, last_seen| {
        decide(&plain(), &progress(stream_time, i64::MIN), &CANDIDATE, known(entry(last_seen, None)))
    };
    assert_eq!(seen(150, 50).reason, Reason::Seen);
    assert!(forwarded(seen(151, 50), Reason::Expired));
    assert_eq!(seen(151, 50).against, Against::Nothing);
    assert_eq!(seen(151, NO_TIME).reason, Reason::Seen);
    assert_eq!(seen(i64::MAX, i64::MAX).reason, Reason::Seen);
    let forever = Rules { retention: Retention::Forever, ..plain() };
    let decision = decide(&forever, &progress(i64::MAX, i64::MIN), &CANDIDATE, known(entry(0, None)));
    assert_eq!(decision.reason, Reason::Seen);
}

#[test]
fn expired_entry_counts_as_none_in_every_rule() {
    let rules = Rules { retention: Retention::For { ms: 100 }, ..versioned() };
    let old = EntryRef { last_seen: 10, version: Some(b"\x81\x09"), owes_tombstone: true, ..ENTRY };
    let with = |candidate: Candidate<'_>, known| decide(&rules, &progress(500, 400), &candidate, known);
    let older = versioned_by(b"\x81\x01");
    assert!(forwarded(with(older, known(Some(old))), Reason::Expired));
    assert!(forwarded(with(older, Known { entry: None, table: Some(old) }), Reason::First), "a truncate, too");
    let tombstone = Candidate { kind: Kind::Tombstone, ..CANDIDATE };
    assert!(dropped(with(tombstone, known(Some(old))), Verdict::Duplicate, Reason::TombstoneNotOwed));
}

#[test]
fn record_older_than_the_horizon_is_late_whatever_is_remembered() {
    for action in ACTIONS {
        let mut rules = plain();
        rules.actions.late = action;
        for kind in Kind::ALL {
            for entry in [None, entry(1000, None)] {
                let late = Candidate { kind: *kind, ..at(Some(899)) };
                let decision = decide(&rules, &progress(1000, 900), &late, known(entry));
                assert!(is(decision, by(action, Verdict::Invalid), Reason::Late, action));
                assert_eq!((decision.remember, decision.step), (Remember::Nothing, Step::Nothing));
            }
        }
        assert_eq!(decide(&rules, &progress(1000, 900), &at(Some(900)), Known::default()).reason, Reason::First);
        assert_eq!(decide(&rules, &progress(1000, 900), &at(None), Known::default()).reason, Reason::First);
    }
}

#[test]
fn versions_are_compared_by_their_bytes() {
    let with = |before: Option<&[u8]>, version: &[u8]| {
        decide(&versioned(), &Progress::default(), &versioned_by(version), known(entry(NO_TIME, before)))
    };
    let newer = with(Some(b"\x81\x05"), b"\x82\x01\x00");
    assert!(forwarded(newer, Reason::Newer));
    let bytes = remembered(newer, Some(b"\x82\x01\x00"), None).unwrap();
    let expected = EntryRef { last_seen: NO_TIME, version: Some(b"\x82\x01\x00"), key_hash: HASH, ..ENTRY };
    assert_eq!(EntryRef::decode(&bytes), Ok(expected));
    assert!(dropped(with(Some(b"\x81\x05"), b"\x81\x04"), Verdict::Stale, Reason::VersionOlder));
    assert!(forwarded(with(None, b"\x81\x04"), Reason::Newer));
}

#[test]
fn equal_version_gets_its_action() {
    for action in ACTIONS {
        let mut rules = versioned();
        rules.actions.equal_version = action;
        let equal = versioned_by(b"\x80");
        let decision = decide(&rules, &Progress::default(), &equal, known(entry(1, Some(b"\x80"))));
        assert!(is(decision, by(action, Verdict::Duplicate), Reason::VersionEqual, action));
        assert_eq!(decision.remember != Remember::Nothing, action == Action::Forward);
    }
}

#[test]
fn duplicate_refreshes_only_last_seen_if_the_rules_say_so() {
    let rules = Rules { refresh: Refresh::OnDuplicate, retention: Retention::For { ms: 100 }, ..versioned() };
    let before = EntryRef { version: Some(b"\x80"), scope: Some(3), owes_tombstone: true, from_read: true, ..ENTRY };
    let equal = Candidate { kind: Kind::Read, timestamp: Some(40), ..versioned_by(b"\x80") };
    let decision = decide(&rules, &progress(50, -50), &equal, known(Some(before)));
    assert!(is(decision, Verdict::Duplicate, Reason::VersionEqual, Action::Drop));
    let bytes = remembered(decision, equal.version, Some(before)).unwrap();
    assert_eq!(EntryRef::decode(&bytes), Ok(EntryRef { last_seen: 50, ..before }));
    let stale = Candidate { kind: Kind::Read, ..versioned_by(b"\x7e\xfe") };
    assert!(dropped(
        decide(&rules, &progress(50, -50), &stale, known(Some(before))),
        Verdict::Stale,
        Reason::VersionOlder
    ));
    let seen = Rules { refresh: Refresh::OnDuplicate, ..plain() };
    let decision = decide(&seen, &progress(50, -50), &CANDIDATE, known(Some(before)));
    let bytes = remembered(decision, None, Some(before)).unwrap();
    assert_eq!(EntryRef::decode(&bytes), Ok(EntryRef { last_seen: 50, ..before }));
    // A missing timestamp never takes back what is known.
    let decision = decide(&seen, &progress(NO_TIME, i64::MIN), &CANDIDATE, known(Some(before)));
    assert_eq!(EntryRef::decode(&remembered(decision, None, Some(before)).unwrap()), Ok(before));
}

#[test]
fn record_without_a_version_gets_its_action_and_changes_nothing() {
    for action in ACTIONS {
        let mut rules = versioned();
        rules.actions.missing_version = action;
        for before in [None, entry(1, Some(b"\x81\x05"))] {
            for kind in [Kind::Change, Kind::Read, Kind::Truncate, Kind::Message] {
                let candidate = Candidate { kind, scope: Some(b"new"), ..CANDIDATE };
                let decision = decide(&rules, &Progress::default(), &candidate, known(before));
                assert!(is(decision, by(action, Verdict::Invalid), Reason::VersionMissing, action));
                assert_eq!((decision.remember, decision.step), (Remember::Nothing, Step::Nothing));
            }
        }
    }
}

#[test]
fn forwarded_delete_owes_a_tombstone_until_the_next_forward() {
    let delete = Candidate { kind: Kind::Delete, ..versioned_by(b"\x81\x05") };
    let decision = decide(&versioned(), &progress(9, i64::MIN), &delete, Known::default());
    let owing = remembered(decision, delete.version, None).unwrap();
    let owing = EntryRef::decode(&owing).unwrap();
    assert!(owing.owes_tombstone);
    let tombstone = Candidate { kind: Kind::Tombstone, timestamp: Some(20), ..CANDIDATE };
    let decision = decide(&versioned(), &progress(20, i64::MIN), &tombstone, known(Some(owing)));
    assert!(forwarded(decision, Reason::Tombstone));
    let paid = remembered(decision, None, Some(owing)).unwrap();
    let paid = EntryRef::decode(&paid).unwrap();
    assert_eq!(paid, EntryRef { owes_tombstone: false, last_seen: 20, ..owing });
    let again = decide(&versioned(), &progress(20, i64::MIN), &tombstone, known(Some(paid)));
    assert!(dropped(again, Verdict::Duplicate, Reason::TombstoneNotOwed));
    let unknown = decide(&versioned(), &progress(20, i64::MIN), &tombstone, Known::default());
    assert!(dropped(unknown, Verdict::Duplicate, Reason::TombstoneNotOwed));
    let change = versioned_by(b"\x81\x06");
    let decision = decide(&versioned(), &progress(20, i64::MIN), &change, known(Some(owing)));
    assert!(!EntryRef::decode(&remembered(decision, change.version, Some(owing)).unwrap()).unwrap().owes_tombstone);
    // A stale delete owes nothing.
    let stale = Candidate { kind: Kind::Delete, ..versioned_by(b"\x81\x04") };
    let decision = decide(&versioned(), &Progress::default(), &stale, known(entry(1, Some(b"\x81\x05"))));
    assert!(dropped(decision, Verdict::Stale, Reason::VersionOlder));
}

#[test]
fn delete_without_a_version_owes_a_tombstone_and_keeps_the_version() {
    let delete = Candidate { kind: Kind::Delete, ..CANDIDATE };
    let before = EntryRef { version: Some(b"\x81\x05"), scope: Some(0), from_read: true, ..ENTRY };
    let decision = decide(&versioned(), &progress(9, i64::MIN), &delete, known(Some(before)));
    assert!(forwarded(decision, Reason::VersionMissing));
    let owing = remembered(decision, None, Some(before)).unwrap();
    let owing = EntryRef::decode(&owing).unwrap();
    assert_eq!(owing, EntryRef { owes_tombstone: true, last_seen: 9, ..before });
    let decision = decide(&versioned(), &progress(9, i64::MIN), &CANDIDATE, known(Some(owing)));
    let cleared = remembered(decision, None, Some(owing)).unwrap();
    assert_eq!(EntryRef::decode(&cleared), Ok(EntryRef { last_seen: 9, ..before }));
    // If nothing is known, the new entry says no more than that.
    let decision = decide(&versioned(), &progress(9, i64::MIN), &delete, Known::default());
    let made = remembered(decision, None, None).unwrap();
    let made = EntryRef::decode(&made).unwrap();
    assert_eq!(made, EntryRef { last_seen: 9, owes_tombstone: true, key_hash: HASH, ..ENTRY });
    let decision = decide(&versioned(), &progress(9, i64::MIN), &versioned_by(b"\x80"), known(Some(made)));
    assert!(forwarded(decision, Reason::Newer), "any version is newer than none");
}

#[test]
fn snapshot_read_always_loses_to_a_streamed_change() {
    let read = |version| Candidate { kind: Kind::Read, ..versioned_by(version) };
    let with = |candidate: Candidate<'_>, from_read| {
        let before = EntryRef { version: Some(b"\x81\x05"), from_read, ..ENTRY };
        decide(&versioned(), &Progress::default(), &candidate, known(Some(before)))
    };
    for version in [b"\x81\x04", b"\x81\x05", b"\x81\x06"] {
        assert!(dropped(with(read(version), false), Verdict::Stale, Reason::SnapshotRead));
        assert!(forwarded(with(versioned_by(version), true), Reason::Newer));
    }
    assert!(dropped(with(read(b"\x81\x04"), true), Verdict::Stale, Reason::VersionOlder));
    assert!(dropped(with(read(b"\x81\x05"), true), Verdict::Duplicate, Reason::VersionEqual));
    let newer = with(read(b"\x81\x06"), true);
    assert!(forwarded(newer, Reason::Newer));
    assert!(EntryRef::decode(&remembered(newer, Some(b"\x81\x06"), None).unwrap()).unwrap().from_read);
}

#[test]
fn reads_by_version_win_only_with_a_greater_version() {
    let mut rules = versioned();
    rules.kinds = Some(by_version());
    let (changed, read) = (entry(1, Some(b"\x81\x05")), Kind::Read);
    let both = Some(EntryRef { streamed: Some(b"\x81\x05"), version: Some(b"\x81\x08"), from_read: true, ..ENTRY });
    let one_read = Some(EntryRef { version: Some(b"\x81\x08"), from_read: true, ..ENTRY });
    let with = |kind, version, entry| {
        let candidate = Candidate { kind, ..versioned_by(version) };
        decide(&rules, &Progress::default(), &candidate, known(entry))
    };
    let kept = |kind, version, before| {
        let decision = with(kind, version, before);
        assert!(forwarded(decision, Reason::Newer), "{decision:?}");
        let bytes = remembered(decision, Some(version), before).unwrap();
        let after = EntryRef::decode(&bytes).unwrap();
        (after.version.unwrap()[1], after.streamed.map(|version| version[1]), after.from_read)
    };
    for version in [b"\x81\x04", b"\x81\x05"] {
        assert!(dropped(with(read, version, changed), Verdict::Stale, Reason::SnapshotRead));
        assert!(dropped(with(read, version, both), Verdict::Stale, Reason::SnapshotRead));
    }
    assert!(dropped(with(read, b"\x81\x07", both), Verdict::Stale, Reason::VersionOlder));
    assert!(dropped(with(read, b"\x81\x08", both), Verdict::Duplicate, Reason::VersionEqual));
    assert_eq!(kept(read, b"\x81\x06", changed), (6, Some(5), true));
    assert_eq!(kept(read, b"\x81\x09", both), (9, Some(5), true));
    // A read stays remembered above a later, lower change, so that it is not forwarded again.
    assert_eq!(kept(Kind::Change, b"\x81\x06", both), (8, Some(6), true));
    assert_eq!(kept(Kind::Delete, b"\x81\x06", one_read), (8, Some(6), true));
    assert_eq!(kept(Kind::Change, b"\x81\x08", both), (8, None, false));
    assert_eq!(kept(Kind::Change, b"\x81\x09", one_read), (9, None, false));
    for (version, verdict) in [(b"\x81\x04", Verdict::Stale), (b"\x81\x05", Verdict::Duplicate)] {
        let decision = with(Kind::Change, version, both);
        assert_eq!(decision.verdict, verdict);
        assert_eq!(decision.compared_with(known(both)), changed, "it lost to the change");
    }
}

#[test]
fn entry_with_both_counts_as_streamed_once_reads_lose_again() {
    let both = Some(EntryRef { streamed: Some(b"\x81\x05"), version: Some(b"\x81\x08"), from_read: true, ..ENTRY });
    let with = |kind, version| {
        let candidate = Candidate { kind, ..versioned_by(version) };
        decide(&versioned(), &Progress::default(), &candidate, known(both))
    };
    assert!(dropped(with(Kind::Read, b"\x81\x09"), Verdict::Stale, Reason::SnapshotRead));
    assert!(dropped(with(Kind::Change, b"\x81\x04"), Verdict::Stale, Reason::VersionOlder));
    let newer = with(Kind::Change, b"\x81\x06");
    assert!(forwarded(newer, Reason::Newer));
    let bytes = remembered(newer, Some(b"\x81\x06"), both).unwrap();
    let after = EntryRef { last_seen: -1, key_hash: HASH, version: Some(b"\x81\x06"), ..ENTRY };
    assert_eq!(EntryRef::decode(&bytes), Ok(after), "a read that cannot win is not kept");
}

#[test]
fn row_below_its_tables_truncate_is_stale() {
    let table = EntryRef { version: Some(b"\x81\x05"), ..ENTRY };
    for entry in [None, entry(1, Some(b"\x81\x01"))] {
        let with = |candidate: Candidate<'_>| {
            decide(&versioned(), &Progress::default(), &candidate, Known { entry, table: Some(table) })
        };
        for kind in [Kind::Change, Kind::Delete, Kind::Read] {
            let below = with(Candidate { kind, ..versioned_by(b"\x81\x04") });
            assert!(dropped(below, Verdict::Stale, Reason::TableTruncated), "{kind}");
            assert_eq!(below.compared_with(Known { entry, table: Some(table) }), Some(table));
        }
        assert_eq!(with(versioned_by(b"\x81\x05")).verdict, Verdict::Forwarded);
        assert_eq!(with(versioned_by(b"\x81\x06")).verdict, Verdict::Forwarded);
        let message = Candidate { kind: Kind::Message, ..versioned_by(b"\x81\x04") };
        assert_ne!(with(message).reason, Reason::TableTruncated);
    }
}

#[test]
fn truncate_is_judged_by_its_tables_entry() {
    let with = |version: &[u8], before| {
        let truncate = Candidate { kind: Kind::Truncate, ..versioned_by(version) };
        decide(&versioned(), &Progress::default(), &truncate, known(before))
    };
    assert!(forwarded(with(b"\x81\x05", None), Reason::First));
    let before = entry(1, Some(b"\x81\x05"));
    assert!(dropped(with(b"\x81\x05", before), Verdict::Duplicate, Reason::VersionEqual));
    assert!(dropped(with(b"\x81\x04", before), Verdict::Stale, Reason::VersionOlder));
    assert!(forwarded(with(b"\x81\x06", before), Reason::Newer));
}

#[test]
fn message_is_new_or_a_duplicate_never_stale() {
    let message = Candidate { kind: Kind::Message, ..versioned_by(b"\x81\x04") };
    let first = decide(&versioned(), &Progress::default(), &message, Known::default());
    assert!(forwarded(first, Reason::First));
    let bytes = remembered(first, message.version, None).unwrap();
    let made = EntryRef::decode(&bytes).unwrap();
    let again = decide(&versioned(), &Progress::default(), &message, known(Some(made)));
    assert!(dropped(again, Verdict::Duplicate, Reason::Seen));
    let before = entry(1, Some(b"\x81\x05"));
    let again = decide(&versioned(), &Progress::default(), &message, known(before));
    assert!(dropped(again, Verdict::Duplicate, Reason::Seen));
}

/// The decision on a record of `scope` at `offset`, with `before` remembered; applied to the progress.
fn in_scope(
    rules: &Rules,
    progress: &mut Progress,
    candidate: Candidate<'_>,
    before: Option<EntryRef<'_>>,
) -> Decision {
    let decision = decide(rules, progress, &candidate, known(before));
    if let (Some(scope), Some(version)) = (candidate.scope, candidate.version)
        && decision.action != Action::Fail
    {
        progress.epochs.note(decision.step, scope, version, candidate.offset).unwrap();
    }
    decision
}

#[test]
fn new_epoch_is_accepted_only_if_forwarded() {
    for action in ACTIONS {
        let mut rules = versioned();
        rules.actions.epoch_change = action;
        let mut progress = Progress::default();
        let a = Candidate { scope: Some(b"a"), offset: 1, ..versioned_by(b"\x81\x09") };
        // The very first scope follows no other one.
        assert!(forwarded(in_scope(&rules, &mut progress, a, None), Reason::First));
        let before = EntryRef { version: a.version, scope: Some(0), ..ENTRY };
        let b = Candidate { scope: Some(b"b"), offset: 2, ..versioned_by(b"\x81\x01") };
        let decision = in_scope(&rules, &mut progress, b, Some(before));
        assert!(is(decision, by(action, Verdict::Invalid), Reason::EpochChanged, action));
        let accepted = action == Action::Forward;
        assert_eq!(progress.epochs.scopes().len(), if accepted { 2 } else { 1 });
        assert_eq!(decision.step.is_change(), accepted);
        assert_eq!(decision.remember != Remember::Nothing, accepted);
        assert_eq!(decision.compared_with(known(Some(before))), Some(before));
        // Without an entry to meet, it is simply the first.
        let c = Candidate { scope: Some(b"c"), offset: 3, ..b };
        let reason = if accepted { Reason::First } else { Reason::EpochChanged };
        let decision = in_scope(&rules, &mut progress, c, None);
        assert!(is(decision, by(action, Verdict::Invalid), reason, action));
    }
}

#[test]
fn failback_is_accepted_only_if_forwarded() {
    for action in ACTIONS {
        let mut rules = versioned();
        let mut progress = Progress::default();
        let a = Candidate { scope: Some(b"a"), offset: 1, ..versioned_by(b"\x81\x09") };
        let b = Candidate { scope: Some(b"b"), offset: 2, ..versioned_by(b"\x81\x01") };
        in_scope(&rules, &mut progress, a, None);
        in_scope(&rules, &mut progress, b, None);
        rules.actions.epoch_change = action;
        let before = EntryRef { version: b.version, scope: Some(1), ..ENTRY };
        let back = Candidate { offset: 3, version: Some(b"\x81\x0a"), ..a };
        let segments = progress.epochs.scopes()[0].segments.len();
        let decision = in_scope(&rules, &mut progress, back, Some(before));
        assert!(is(decision, by(action, Verdict::Invalid), Reason::EpochChanged, action));
        let opened = progress.epochs.scopes()[0].segments.len() - segments;
        assert_eq!(opened, usize::from(action == Action::Forward));
        assert_eq!(decision.step.is_change(), action == Action::Forward);
    }
}

#[test]
fn record_without_a_scope_is_compared_within_its_entrys() {
    let mut progress = Progress::default();
    let a = Candidate { scope: Some(b"a"), ..versioned_by(b"\x81\x05") };
    in_scope(&versioned(), &mut progress, a, None);
    let before = EntryRef { version: a.version, scope: Some(0), ..ENTRY };
    let newer = versioned_by(b"\x81\x06");
    let decision = in_scope(&versioned(), &mut progress, newer, Some(before));
    assert!(forwarded(decision, Reason::Newer));
    let bytes = remembered(decision, newer.version, Some(before)).unwrap();
    assert_eq!(EntryRef::decode(&bytes).unwrap().scope, Some(0));
    let older = versioned_by(b"\x81\x04");
    assert!(dropped(in_scope(&versioned(), &mut progress, older, Some(before)), Verdict::Stale, Reason::VersionOlder));
    // And conversely: the entry has no scope, whatever the record has.
    let before = entry(1, Some(b"\x81\x05"));
    let b = Candidate { scope: Some(b"b"), offset: 200, ..versioned_by(b"\x81\x04") };
    assert!(is(in_scope(&versioned(), &mut progress, b, before), Verdict::Stale, Reason::VersionOlder, Action::Drop));
    let b = Candidate { version: Some(b"\x81\x06"), ..b };
    let decision = in_scope(&versioned(), &mut progress, b, before);
    assert!(forwarded(decision, Reason::Newer));
    assert_eq!(EntryRef::decode(&remembered(decision, b.version, before).unwrap()).unwrap().scope, Some(1));
}

#[test]
fn first_forwarded_row_decides_else_the_first() {
    let (stale, equal) = (
        Decision::dropped(Verdict::Stale, Reason::VersionOlder),
        Decision::dropped(Verdict::Duplicate, Reason::VersionEqual),
    );
    let (newer, first) = (Decision::forwarded(Reason::Newer), Decision::forwarded(Reason::First));
    assert_eq!(combine([stale, newer, first]), Some(newer));
    assert_eq!(combine([equal, stale]), Some(equal));
    assert_eq!(combine([first, stale]), Some(first));
    assert_eq!(combine([]), None);
    let letter = Decision::by_action(Action::DeadLetter, Verdict::Invalid, Reason::VersionTied);
    let stop = Decision::by_action(Action::Fail, Verdict::Invalid, Reason::VersionTied);
    assert_eq!(combine([stale, letter]), Some(letter), "nothing is dropped that somebody should look at");
    assert_eq!(combine([letter, stop]), Some(stop));
    assert_eq!(combine([letter, first]), Some(first));
    let conflict = Decision::dropped(Verdict::Duplicate, Reason::VersionTied);
    assert_eq!(combine([equal, stale, conflict]), Some(conflict), "no other contents are dropped without a trace");
    assert_eq!(combine([conflict, letter]), Some(letter));
    let kept = Decision::forwarded(Reason::VersionEqual);
    assert_eq!(combine([kept, stale]), Some(stale), "an old record of several rows, redelivered");
    for noticed in [conflict, letter, stop] {
        assert_eq!(combine([kept, stale, noticed]), Some(noticed), "and what is new in it is told");
    }
    assert_eq!(combine([kept, stale, newer]), Some(kept));
    assert_eq!(combine([kept, equal]), Some(kept));
}

#[test]
fn each_refusal_gets_its_own_action() {
    let mut rules = plain();
    for i in 0..4 {
        let action = |n: usize| ACTIONS[(i + n) % 4];
        rules.actions.null_value = OnNull::Act(action(0));
        rules.actions.missing_identity = action(1);
        rules.actions.unsendable = action(2);
        rules.actions.invalid = action(3);
        let cases = [Reason::NullValue, Reason::IdentityMissing, Reason::Unsendable, Reason::ValueMalformed];
        for (n, reason) in cases.into_iter().enumerate() {
            let decision = reject(&rules, &Rejection::new(reason, ""));
            assert!(is(decision, by(action(n), Verdict::Invalid), reason, action(n)));
        }
    }
    rules.actions.invalid = Action::DeadLetter;
    let with = |reason| reject(&rules, &Rejection::new(reason, ""));
    for reason in [
        Reason::IdentityNotScalar,
        Reason::IdentityTooLong,
        Reason::KeyMalformed,
        Reason::ValueMalformed,
        Reason::VersionMalformed,
        Reason::TimestampInFuture,
        Reason::RecordTooLarge,
    ] {
        assert!(is(with(reason), Verdict::Invalid, reason, Action::DeadLetter), "{reason}");
    }
}

#[test]
fn timestamp_far_ahead_of_the_wall_clock_is_refused() {
    let rules = Rules { future_max_ms: 10, ..plain() };
    let check = |timestamp, stream_time| check_time(&rules, &progress(stream_time, 0), timestamp, 1000);
    assert_eq!(check(None, NO_TIME), None);
    assert_eq!(check(Some(1010), NO_TIME), None);
    let rejection = check(Some(1011), NO_TIME).unwrap();
    assert_eq!(rejection.reason, Reason::TimestampInFuture);
    assert_eq!(rejection.message, "the timestamp 1011 is 11 ms beyond the wall clock, more than the limit of 10 ms");
    // Stream time is already there, so the wall clock must have been set back.
    assert_eq!(check(Some(1011), 1011), None);
    assert!(check(Some(i64::MAX), 1011).is_some());
    assert!(check_time(&rules, &progress(0, 0), Some(i64::MAX), i64::MIN).is_some());
}
