//! Goal: the model keeps the order of the steps, and agrees with an evaluator written independently of it.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::dedup::tests::{record, rules};
use crate::dedup::{Reason, Retention, Verdict};
use crate::format::NO_TIME;

fn versioned() -> Rules {
    rules(&["value.k"], Some("value.v"))
}

#[test]
fn rereading_the_input_forwards_nothing() {
    let mut rules = rules(&["value"], None);
    rules.retention = Retention::For { ms: 10 };
    let mut model = Model::new(Arc::new(rules));
    let at = |offset, timestamp| Record { timestamp: Some(timestamp), ..record(offset, b"A") };
    assert_eq!(model.judge(&at(0, 0), 0).reason, Reason::First);
    assert_eq!(model.judge(&at(5, 100), 100).reason, Reason::Expired);
    let entries: Vec<_> = model.entries().map(|(key, entry)| (key.to_vec(), entry.to_vec())).collect();
    for offset in [0, 3, 5] {
        // An unbelievable timestamp no longer matters either.
        assert_eq!(model.judge(&at(offset, i64::MAX), 0), Decision::REPLAYED);
        assert_eq!(model.identity(), None);
    }
    assert_eq!(model.judge(&at(6, 100), 100).reason, Reason::Seen);
    assert_eq!(model.progress().processed.as_pairs(), [(0, 7)]);
    assert_eq!(model.entries().map(|(key, entry)| (key.to_vec(), entry.to_vec())).collect::<Vec<_>>(), entries);
}

#[test]
fn only_a_believable_timestamp_moves_stream_time() {
    let mut model = Model::new(Arc::new(versioned()));
    let day = 24 * 3_600_000;
    let future = Record { timestamp: Some(day), ..record(0, br#"{"k":1,"v":1}"#) };
    assert_eq!(model.judge(&future, 0).reason, Reason::TimestampInFuture);
    assert_eq!(model.progress().stream_time, NO_TIME);
    assert!(model.rejection().unwrap().message.contains("wall clock"));
    let malformed = Record { timestamp: Some(1000), ..record(1, b"{") };
    assert_eq!(model.judge(&malformed, 0).reason, Reason::ValueMalformed);
    assert_eq!(model.progress().stream_time, 1000);
    assert_eq!(model.entries().len(), 0);
}

#[test]
fn what_has_failed_for_good_is_remembered_and_what_was_refused_is_not() {
    for (reason, is_remembered) in [(Reason::Rejected, false), (Reason::InDoubt, true)] {
        let mut model = Model::new(Arc::new(versioned()));
        let rejection = Rejection { reason, message: "no".to_owned() };
        let carried = if is_remembered { Carried::Failed(rejection) } else { Carried::Refused(rejection) };
        let of = |offset| record(offset, br#"{"k":1,"v":1}"#);
        let decision = model.judge_and_carry(&of(0), 0, |_, _| carried);
        assert_eq!(
            (decision.verdict, decision.reason, decision.action),
            (Verdict::Invalid, reason, Action::DeadLetter)
        );
        assert_eq!(model.rejection().map(|rejection| rejection.reason), Some(reason));
        assert_eq!(model.entries().len(), usize::from(is_remembered));
        let again = model.judge(&of(1), 0).reason;
        assert_eq!(again, if is_remembered { Reason::VersionEqual } else { Reason::First });
    }
}

#[test]
fn call_that_stops_its_task_leaves_everything_as_it_was() {
    let mut rules = versioned();
    rules.actions.in_doubt = Action::Fail;
    let mut model = Model::new(Arc::new(rules));
    let rejection = Rejection { reason: Reason::InDoubt, message: "no".to_owned() };
    let failed = model.judge_and_carry(&record(0, br#"{"k":1,"v":1}"#), 0, |_, _| Carried::Failed(rejection));
    assert_eq!((failed.action, model.entries().len()), (Action::Fail, 0));
    assert_eq!(model.progress().processed.as_pairs(), []);
}

#[test]
fn repetition_can_be_rejected_after_all() {
    let mut rules = versioned();
    rules.actions.conflict = Action::Drop;
    let mut model = Model::new(Arc::new(rules));
    let of = |offset| record(offset, br#"{"k":1,"v":1}"#);
    model.judge(&of(0), 0);
    assert_eq!(model.judge(&of(1), 0).verdict, Verdict::Duplicate);
    let decision = model.reject_last(Rejection { reason: Reason::Conflict, message: "other".to_owned() });
    assert_eq!(
        (decision.verdict, decision.reason, decision.action),
        (Verdict::Invalid, Reason::Conflict, Action::Drop)
    );
    assert_eq!(model.rejection().map(|rejection| rejection.message.as_str()), Some("other"));
}

#[test]
fn failed_record_changes_nothing() {
    let mut rules = versioned();
    rules.actions.invalid = Action::Fail;
    let mut model = Model::new(Arc::new(rules));
    let malformed = Record { timestamp: Some(1000), ..record(0, b"{") };
    let before = model.progress().clone();
    for _ in 0..2 {
        let decision = model.judge(&malformed, 0);
        assert_eq!((decision.action, decision.reason), (Action::Fail, Reason::ValueMalformed));
        assert_eq!(*model.progress(), before);
    }
}

#[test]
fn last_record_is_explained() {
    let mut model = Model::new(Arc::new(versioned()));
    model.judge(&record(0, br#"{"k":"a","v":"18446744073709551616"}"#), 0);
    assert_eq!(model.identity().as_deref(), Some(r#"["a"]"#));
    assert_eq!(model.version().as_deref(), Some("18446744073709551616"));
    model.judge(&record(1, b"{}"), 0);
    assert_eq!((model.identity(), model.version()), (None, None));
    assert_eq!(model.rejection().unwrap().reason, Reason::IdentityMissing);
}

/// A record for the comparison below.
#[derive(Clone, Debug)]
struct Given {
    key: Option<u8>,
    version: Option<i64>,
    timestamp: Option<i64>,
}

/// A second implementation of the rules, as plain as possible.
#[derive(Default)]
struct Plain {
    seen: HashMap<u8, (Option<i64>, Option<i64>)>,
    now: Option<i64>,
}

impl Plain {
    fn judge(
        &mut self,
        given: &Given,
        with_version: bool,
        retention: Option<i64>,
        wall: i64,
        future_max: i64,
    ) -> Verdict {
        if given.timestamp.is_some_and(|t| t > wall + future_max && self.now.is_none_or(|now| t > now)) {
            return Verdict::Invalid;
        }
        self.now = self.now.max(given.timestamp);
        let Some(key) = given.key else { return Verdict::Invalid };
        if let (Some(retention), Some(now), Some(t)) = (retention, self.now, given.timestamp)
            && t < now - retention
        {
            return Verdict::Invalid;
        }
        if with_version && given.version.is_none() {
            return Verdict::Forwarded;
        }
        let remembered = self.seen.get(&key).filter(|(at, _)| match (retention, self.now, at) {
            (Some(retention), Some(now), Some(at)) => at + retention >= now,
            _ => true,
        });
        match remembered {
            Some(_) if !with_version => return Verdict::Duplicate,
            Some((_, known)) if given.version == *known => return Verdict::Duplicate,
            Some((_, known)) if given.version < *known => return Verdict::Stale,
            _ => {}
        }
        self.seen.insert(key, (self.now, given.version));
        Verdict::Forwarded
    }
}

fn any_given() -> impl Strategy<Value = Given> {
    let (key, version) = (prop::option::weighted(0.9, 0_u8..4), prop::option::weighted(0.9, -3_i64..6));
    (key, version, prop::option::weighted(0.8, 0_i64..120)).prop_map(|(key, version, timestamp)| Given {
        key,
        version,
        timestamp,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn model_agrees_with_a_plain_evaluator(
        records in prop::collection::vec(any_given(), 0..60),
        with_version in any::<bool>(),
        retention in prop::option::of(1_i64..60),
    ) {
        let mut rules = rules(&["value.k"], with_version.then_some("value.v"));
        rules.retention = retention.map_or(Retention::Forever, |ms| Retention::For { ms });
        rules.future_max_ms = 10;
        let (mut model, mut plain) = (Model::new(Arc::new(rules)), Plain::default());
        for (offset, given) in records.iter().enumerate() {
            let field = |name: &str, n: Option<i64>| n.map_or(String::new(), |n| format!(r#""{name}":{n},"#));
            let (key, version) = (field("k", given.key.map(i64::from)), field("v", given.version));
            let text = format!(r#"{{{key}{version}"end":0}}"#);
            let record = Record { timestamp: given.timestamp, ..record(offset as i64, text.as_bytes()) };
            let expected = plain.judge(given, with_version, retention, 100, 10);
            prop_assert_eq!(model.judge(&record, 100).verdict, expected, "record {}", offset);
        }
    }
}
