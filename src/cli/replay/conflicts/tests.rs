//! Goal: the hint names the conflict, the record it conflicts with, and what differs; and nothing that is not so.

use super::*;
use crate::dedup::{Contents, ContentsPart, Decision, Identity, Verdict, Version};
use crate::record::Record;
use crate::rehearsal::Explanation;

fn add(conflicts: &mut Conflicts, offset: i64, value: &str, (reason, action): (Reason, Action)) {
    let record = Record {
        topic: "orders",
        partition: 2,
        offset,
        timestamp: None,
        key: None,
        value: Some(value.as_bytes()),
        headers: Default::default(),
    };
    let decision = Decision { verdict: Verdict::Duplicate, reason, action, ..Decision::REPLAYED };
    let version = (reason != Reason::SeenOtherwise).then(|| "5".to_owned());
    let explanation = Explanation { identity: Some("[7]".to_owned()), version, ..Explanation::default() };
    conflicts.add(&Seen { record: &record, decision: &decision, explanation: &explanation, version: None });
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

/// Rules by `value.id`, with a version and these contents, by default the whole value.
fn by(parts: Vec<ContentsPart>) -> Conflicts {
    let mut rules = Rules::new(Identity::of_paths([path("value.id")]), Some(Version::integer(path("value.v"))));
    if !parts.is_empty() {
        rules.contents = Some(Contents { parts });
    }
    Conflicts::new(&rules, false)
}

fn conflicts() -> Conflicts {
    by(Vec::new())
}

const FIRST: (Reason, Action) = (Reason::First, Action::Forward);

#[test]
fn hint_names_both_records_and_what_differs() {
    let mut conflicts = conflicts();
    add(&mut conflicts, 3, r#"{"id":7,"a":{"b":1,"c":2},"at":1,"x y":0}"#, FIRST);
    assert_eq!(conflicts.to_string(), "");
    add(&mut conflicts, 4, r#"{"id":7,"a":{"b":1,"c":3},"at":1,"new":0}"#, (Reason::VersionTied, Action::Drop));
    add(&mut conflicts, 5, r#"{"id":8}"#, (Reason::VersionTied, Action::Forward));
    let hint = conflicts.to_string();
    let expected = "hint: 2 records have an identity and a version that were seen, but with other contents (1 \
                    forwarded, 1 not): first orders:2:4, identity [7], version 5, which differs from orders:2:3 in \
                    `value.a.c`, `value.\"x y\"`, `value.new`. If they say different things";
    assert!(hint.starts_with(expected), "{hint}");
    assert!(hint.contains("is `drop` here"), "{hint}");
}

#[test]
fn hint_without_a_record_to_compare_with_names_none() {
    let mut conflicts = conflicts();
    add(&mut conflicts, 4, "{}", (Reason::SeenOtherwise, Action::DeadLetter));
    let hint = conflicts.to_string();
    let expected = "hint: 1 record has an identity that was seen, but with other contents (not forwarded): first \
                    orders:2:4, identity [7]. If";
    assert!(hint.starts_with(expected), "{hint}");
}

#[test]
fn many_differences_are_counted_and_other_values_are_not_taken_apart() {
    let fields = |value: u8| (0..9).map(|n| format!("\"f{n}\":{value}")).collect::<Vec<_>>().join(",");
    let hint = |first: &str, second: &str| {
        let mut conflicts = conflicts();
        add(&mut conflicts, 3, first, FIRST);
        add(&mut conflicts, 4, second, (Reason::VersionTied, Action::Drop));
        conflicts.to_string()
    };
    let many = hint(&format!("{{{}}}", fields(0)), &format!("{{{}}}", fields(1)));
    assert!(many.contains("in `value.f0`, `value.f1`, `value.f2`, `value.f3`, `value.f4` and 4 more. If"), "{many}");
    for (first, second) in [("1", "2"), ("no JSON", "{}"), (r#"[{"a":1}]"#, r#"[{"a":2}]"#)] {
        let hint = hint(first, second);
        assert!(hint.contains("which differs from orders:2:3. If"), "{hint}");
    }
}

#[test]
fn only_what_is_compared_is_named() {
    let envelope = |name: &str, at: u32| {
        format!(
            r#"{{"after":{{"id":7,"name":"{name}"}},"op":"u","source":{{"lsn":1,"txId":{at},"ts_ms":{at}}},"transaction":{{"id":"{at}","total_order":{at}}},"ts_ms":{at},"ts_us":{at}}}"#
        )
    };
    let mut conflicts = by(vec![ContentsPart::Written(path("value.after"))]);
    add(&mut conflicts, 3, &envelope("a", 1), FIRST);
    add(&mut conflicts, 4, &envelope("b", 2), (Reason::VersionTied, Action::Forward));
    let hint = conflicts.to_string();
    assert!(hint.contains("which differs from orders:2:3 in `value.after.name`. If"), "{hint}");
}
