//! Goal: each rule of the decision, alone, with every action.

use super::*;
use crate::dedup::tests::rules;

const HASH: Option<u32> = Some(7);

fn progress(stream_time: i64, horizon: i64) -> Progress {
    Progress { stream_time, horizon, ..Progress::default() }
}

fn entry(last_seen: i64, version: Option<&[u8]>) -> Option<EntryRef<'_>> {
    Some(EntryRef { last_seen, version, scope: None, from_read: false, owes_tombstone: false, key_hash: None })
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

#[test]
fn a_first_record_is_forwarded_and_remembered_as_last_seen_in_stream_time() {
    for (timestamp, stream_time, expected) in [(Some(5), 9, 9), (None, 9, 9), (None, NO_TIME, NO_TIME), (Some(9), 9, 9)]
    {
        let decision = decide(&plain(), &progress(stream_time, i64::MIN), None, None, timestamp, HASH);
        assert!(is(decision, Verdict::Forwarded, Reason::First, Action::Forward));
        let remember = Remember::Entry { last_seen: expected, keep_version: false, key_hash: HASH };
        assert_eq!(decision.remember, remember);
    }
}

#[test]
fn without_a_version_whatever_was_seen_is_a_duplicate() {
    let decision = decide(&plain(), &progress(100, 0), entry(50, None), None, Some(100), HASH);
    assert!(is(decision, Verdict::Duplicate, Reason::Seen, Action::Drop));
    assert_eq!(decision.remember, Remember::Nothing);
}

#[test]
fn an_entry_expires_after_the_retention_unless_its_time_is_unknown() {
    let at = |stream_time, last_seen| {
        decide(&plain(), &progress(stream_time, i64::MIN), entry(last_seen, None), None, None, HASH)
    };
    assert_eq!(at(150, 50).reason, Reason::Seen);
    assert_eq!(at(151, 50).reason, Reason::Expired);
    assert_eq!(at(151, 50).verdict, Verdict::Forwarded);
    assert_eq!(at(151, NO_TIME).reason, Reason::Seen);
    assert_eq!(at(i64::MAX, i64::MAX).reason, Reason::Seen);
    let forever = Rules { retention: Retention::Forever, ..plain() };
    assert_eq!(decide(&forever, &progress(i64::MAX, i64::MIN), entry(0, None), None, None, HASH).reason, Reason::Seen);
}

#[test]
fn an_expired_entry_hides_nothing_of_a_versions_order() {
    let rules = Rules { retention: Retention::For { ms: 100 }, ..versioned() };
    let decision =
        decide(&rules, &progress(500, 400), entry(10, Some(b"\x81\x09")), Some(b"\x81\x01"), Some(500), HASH);
    assert!(is(decision, Verdict::Forwarded, Reason::Expired, Action::Forward));
}

#[test]
fn what_is_older_than_the_horizon_is_late_whatever_is_remembered() {
    for (action, verdict) in [(Action::DeadLetter, Verdict::Invalid), (Action::Forward, Verdict::Forwarded)] {
        let mut rules = plain();
        rules.actions.late = action;
        for entry in [None, entry(1000, None)] {
            let decision = decide(&rules, &progress(1000, 900), entry, None, Some(899), HASH);
            assert!(is(decision, verdict, Reason::Late, action));
            assert_eq!(decision.remember, Remember::Nothing);
        }
        assert_eq!(decide(&rules, &progress(1000, 900), None, None, Some(900), HASH).reason, Reason::First);
        assert_eq!(decide(&rules, &progress(1000, 900), None, None, None, HASH).reason, Reason::First);
    }
}

#[test]
fn versions_are_compared_by_their_bytes() {
    let with = |known: Option<&[u8]>, version: &[u8]| {
        decide(&versioned(), &Progress::default(), entry(NO_TIME, known), Some(version), None, HASH)
    };
    let newer = with(Some(b"\x81\x05"), b"\x82\x01\x00");
    assert!(is(newer, Verdict::Forwarded, Reason::Newer, Action::Forward));
    assert_eq!(newer.remember, Remember::Entry { last_seen: NO_TIME, keep_version: true, key_hash: HASH });
    let older = with(Some(b"\x81\x05"), b"\x81\x04");
    assert!(is(older, Verdict::Stale, Reason::VersionOlder, Action::Drop));
    assert_eq!(older.remember, Remember::Nothing);
    assert!(is(with(None, b"\x81\x04"), Verdict::Forwarded, Reason::Newer, Action::Forward));
}

#[test]
fn an_equal_version_is_dropped_or_what_the_rules_say() {
    for (action, verdict, remembered) in [
        (Action::Drop, Verdict::Duplicate, false),
        (Action::Forward, Verdict::Forwarded, true),
        (Action::DeadLetter, Verdict::Duplicate, false),
        (Action::Fail, Verdict::Duplicate, false),
    ] {
        let mut rules = versioned();
        rules.actions.equal_version = action;
        let decision = decide(&rules, &Progress::default(), entry(1, Some(b"\x80")), Some(b"\x80"), None, HASH);
        assert!(is(decision, verdict, Reason::VersionEqual, action));
        assert_eq!(decision.remember != Remember::Nothing, remembered);
    }
}

#[test]
fn a_record_without_a_version_passes_and_changes_nothing() {
    for known in [None, entry(1, Some(b"\x81\x05"))] {
        let decision = decide(&versioned(), &Progress::default(), known, None, None, HASH);
        assert!(is(decision, Verdict::Forwarded, Reason::VersionMissing, Action::Forward));
        assert_eq!(decision.remember, Remember::Nothing);
    }
    let mut strict = versioned();
    strict.actions.missing_version = Action::DeadLetter;
    let decision = decide(&strict, &Progress::default(), None, None, None, HASH);
    assert!(is(decision, Verdict::Invalid, Reason::VersionMissing, Action::DeadLetter));
}

#[test]
fn each_refusal_gets_its_own_action() {
    let mut rules = plain();
    rules.actions.null_value = crate::dedup::OnNull::Act(Action::Forward);
    rules.actions.missing_identity = Action::Drop;
    rules.actions.unsendable = Action::Fail;
    let with = |reason| refuse(&rules, &Refusal::new(reason, ""));
    assert!(is(with(Reason::NullValue), Verdict::Forwarded, Reason::NullValue, Action::Forward));
    assert!(is(with(Reason::IdentityMissing), Verdict::Invalid, Reason::IdentityMissing, Action::Drop));
    assert!(is(with(Reason::Unsendable), Verdict::Invalid, Reason::Unsendable, Action::Fail));
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
fn a_timestamp_far_beyond_the_wall_clock_is_not_believed() {
    let rules = Rules { future_max_ms: 10, ..plain() };
    let check = |timestamp, stream_time| check_time(&rules, &progress(stream_time, 0), timestamp, 1000);
    assert_eq!(check(None, NO_TIME), None);
    assert_eq!(check(Some(1010), NO_TIME), None);
    let refusal = check(Some(1011), NO_TIME).unwrap();
    assert_eq!(refusal.reason, Reason::TimestampInFuture);
    assert_eq!(refusal.message, "the timestamp 1011 is 11 ms beyond the wall clock, more than the limit of 10 ms");
    // Stream time has been there already: the wall clock must have been set back.
    assert_eq!(check(Some(1011), 1011), None);
    assert!(check(Some(i64::MAX), 1011).is_some());
    assert!(check_time(&rules, &progress(0, 0), Some(i64::MAX), i64::MIN).is_some());
}

#[test]
fn entries_are_encoded_as_they_are_to_be_remembered() {
    let mut out = Vec::new();
    let decision = decide(&versioned(), &progress(9, 0), None, Some(b"\x81\x05"), None, HASH);
    assert!(decision.encode_entry(Some(b"\x81\x05"), &mut out));
    let expected = EntryRef {
        last_seen: 9,
        version: Some(b"\x81\x05"),
        scope: None,
        from_read: false,
        owes_tombstone: false,
        key_hash: HASH,
    };
    assert_eq!(EntryRef::decode(&out), Ok(expected));
    assert!(!Decision::REPLAYED.encode_entry(Some(b"x"), &mut out));
    out.clear();
    assert!(decide(&plain(), &progress(9, 0), None, None, None, None).encode_entry(None, &mut out));
    let expected =
        EntryRef { last_seen: 9, version: None, scope: None, from_read: false, owes_tombstone: false, key_hash: None };
    assert_eq!(EntryRef::decode(&out), Ok(expected));
}
