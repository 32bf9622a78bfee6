//! Goal: evaluating changes what it should and nothing else; the decisions themselves are tested in
//! [`crate::dedup::decide`], and their order with [`crate::dedup::Model`].

use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::dedup::tests::{paths, record, rules};
use crate::dedup::{
    Bounds, Contents, ContentsPart, Epoch, EpochPart, Identity, IdentityPart, Kinds, Names, Reader, Reads, Scalar,
};

/// Entries by store key.
#[derive(Default)]
struct Entries(HashMap<Vec<u8>, Vec<u8>>);

impl<'m> Memory<'m> for &'m Entries {
    fn identity(&self, _row: usize, key: &[u8]) -> Option<&'m [u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    fn table(&self, row: usize, key: &[u8]) -> Option<&'m [u8]> {
        self.identity(row, key)
    }
}

/// A task with everything it remembers.
struct Site {
    rules: Arc<Rules>,
    progress: Progress,
    entries: Entries,
    evaluator: Evaluator,
    wall_ms: i64,
    is_certain: bool,
}

impl Site {
    fn new(rules: Rules) -> Self {
        let (progress, entries, evaluator) = Default::default();
        Self { rules: Arc::new(rules), progress, entries, evaluator, wall_ms: 0, is_certain: true }
    }

    /// Evaluates the record and, unless it is to stop the task, remembers it.
    fn take(&mut self, record: &Record<'_>) -> Option<Evaluation> {
        let mut arena = Vec::new();
        let reading =
            super::read(&self.progress, record.offset, || Reader::new(self.rules.clone()).read(record, &mut arena));
        let subject = Subject { record, reading: reading.as_ref(), arena: &arena };
        let rules = (&*self.rules, self.wall_ms);
        let evaluated = self.evaluator.evaluate(rules, &mut self.progress, subject, &&self.entries, || self.is_certain);
        let evaluation = evaluated.expect("the entries are this test's own")?;
        if evaluation.decision.action != Action::Fail {
            let put = |_, key: &[u8], entry: &[u8]| drop(self.entries.0.insert(key.to_vec(), entry.to_vec()));
            self.evaluator.remember(&mut self.progress, subject, put);
        }
        Some(evaluation)
    }

    fn reason(&mut self, record: &Record<'_>) -> Reason {
        self.take(record).expect("no clock is in doubt").decision.reason
    }
}

fn scoped() -> Rules {
    let of = paths(&["value.e"]);
    let mut rules = rules(&["value.k"], Some("value.v"));
    rules.epoch = Some(Epoch { parts: vec![EpochPart { of, none: Vec::new() }] });
    rules
}

#[test]
fn scope_beyond_the_bound_fails_before_anything_changes() {
    let mut site = Site::new(scoped());
    site.wall_ms = 100;
    site.progress.epochs = Epochs::from_scopes(Vec::new(), &Bounds { scopes_max: 1, ..Bounds::DEFAULT });
    assert_eq!(site.reason(&record(0, br#"{"k":1,"v":5,"e":"a"}"#)), Reason::First);
    let (progress, entries) = (site.progress.clone(), site.entries.0.clone());
    let more = Record { timestamp: Some(50), ..record(1, br#"{"k":1,"v":1,"e":"b"}"#) };
    for _ in 0..2 {
        let evaluation = site.take(&more).unwrap();
        assert_eq!(evaluation.decision.action, Action::Fail);
        assert_eq!(evaluation.full, Some(epochs::Error::TooManyScopes(1)));
        assert_eq!((&site.progress, &site.entries.0), (&progress, &entries));
    }
    // And the evaluator has forgotten that it would have started one.
    assert_eq!(site.reason(&record(2, br#"{"k":2,"v":1,"e":"a"}"#)), Reason::First);
    assert_eq!(site.progress.epochs.scopes().len(), 1);
}

#[test]
fn future_record_changes_nothing_while_the_clock_is_uncertain() {
    let mut site = Site::new(rules(&["value"], None));
    site.is_certain = false;
    let day = 24 * 3_600_000;
    let future = Record { timestamp: Some(day), ..record(0, b"A") };
    let before = site.progress.clone();
    assert_eq!(site.take(&future), None);
    assert_eq!(site.progress, before);
    site.is_certain = true;
    assert_eq!(site.reason(&future), Reason::TimestampInFuture);
    assert_eq!(site.progress, before);
}

#[test]
fn truncates_are_counted_once_remembered() {
    let word = |word: &str| vec![Scalar::Text(word.to_owned())];
    let mut rules = rules(&["value.k"], Some("value.v"));
    let (delete, read, message, none) = Default::default();
    let (of, table) = (paths(&["value.op"]), vec![paths(&["value.t"])]);
    rules.kinds = Some(Kinds { of, delete, read, reads: Reads::ByVersion, truncate: word("t"), message, none, table });
    let mut site = Site::new(rules);
    let truncates = [5, 5, 4, 6].map(|v| format!(r#"{{"op":"t","t":"users","v":{v}}}"#));
    let reasons = [Reason::First, Reason::VersionEqual, Reason::VersionOlder, Reason::Newer];
    for (offset, (value, (reason, counted))) in truncates.iter().zip(reasons.into_iter().zip([1, 1, 1, 2])).enumerate()
    {
        assert_eq!(site.reason(&record(offset as i64, value.as_bytes())), reason);
        assert_eq!(site.progress.truncates, counted);
    }
    // Only now are tables looked up.
    assert_eq!(site.reason(&record(9, br#"{"op":"u","k":1,"t":"users","v":3}"#)), Reason::TableTruncated);
}

/// Two rows a record, each with its own contents.
fn of_rows(on_conflict: Action) -> Site {
    let of = paths(&["value.rows"]);
    let named = Names::Given(vec!["id".to_owned()]);
    let mut rules = rules(&["value.v"], Some("value.v"));
    rules.identity = Identity { parts: vec![IdentityPart::Rows { of: of.clone(), named }] };
    rules.contents = Some(Contents { parts: vec![ContentsPart::Rows(of)] });
    rules.actions.conflict = on_conflict;
    Site::new(rules)
}

#[test]
fn conflict_in_a_later_row_is_the_records_reason() {
    let mut site = of_rows(Action::Drop);
    assert_eq!(site.reason(&record(0, br#"{"v":1,"rows":[{"id":1,"n":5},{"id":2,"n":6}]}"#)), Reason::First);
    let other = br#"{"v":1,"rows":[{"id":1,"n":5},{"id":2,"n":9}]}"#;
    assert_eq!(site.reason(&record(1, other)), Reason::VersionTied);
    assert_eq!(site.reason(&record(2, other)), Reason::VersionEqual, "known from then on");
}

#[test]
fn conflict_is_known_once_another_row_has_forwarded_its_record() {
    for action in [Action::DeadLetter, Action::Fail] {
        let mut site = of_rows(action);
        assert_eq!(site.reason(&record(0, br#"{"v":1,"rows":[{"id":1,"n":5}]}"#)), Reason::First);
        let aside = br#"{"v":1,"rows":[{"id":1,"n":7}]}"#;
        for offset in [1, 2] {
            let decision = site.take(&record(offset, aside)).unwrap().decision;
            assert_eq!(
                (decision.reason, decision.action),
                (Reason::VersionTied, action),
                "not known by being set aside"
            );
        }
        let both = br#"{"v":1,"rows":[{"id":1,"n":7},{"id":2,"n":6}]}"#;
        assert_eq!(site.take(&record(3, both)).unwrap().decision.action, Action::Forward);
        assert_eq!(site.reason(&record(4, both)), Reason::VersionEqual, "it was carried out with the other row");
        assert_eq!(site.reason(&record(5, aside)), Reason::VersionEqual);
    }
}
