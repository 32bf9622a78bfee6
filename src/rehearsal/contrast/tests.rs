//! Goal: of two records, the fields that the rules compare are told from those that they do not.

use super::*;
use crate::dedup::{Contents, Identity};

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn captured(value: &str) -> Captured {
    let mut captured = Captured { key: Some(b"k".to_vec()), ..Captured::default() };
    captured.read_value(value.as_bytes());
    captured
}

/// The paths of the fields that are compared and differ, and of the others.
fn contrast(part: ContentsPart, [before, now]: [&str; 2]) -> (Vec<String>, Vec<String>) {
    let mut rules = Rules::new(Identity::of_paths([path("value.id")]), None);
    rules.contents = Some(Contents { parts: vec![part] });
    let (before, now) = (captured(before), captured(now));
    let contrast = Contrast::of(&rules, (&before, Some("change")), (&now, Some("change")));
    let names = |paths: Vec<Path>| paths.iter().map(Path::to_string).collect::<Vec<_>>();
    (names(contrast.compared), names(contrast.others))
}

#[test]
fn each_form_of_contents_is_walked_alone() {
    let written = |text: &str| ContentsPart::Written(path(text));
    let fingerprint = ContentsPart::Fingerprint { of: path("value"), except: vec![path("value.at")] };
    let flattened = ContentsPart::Flattened(path("value"));
    let first_of = ContentsPart::FirstOf(vec![written("value.after"), flattened.clone()]);
    let rows = ContentsPart::Rows(vec![path("value.data")]);
    for (part, values, compared, others) in [
        (written("value"), [r#"{"a":1,"at":1}"#, r#"{"a":2,"at":2}"#], &["value.a", "value.at"][..], &[][..]),
        (fingerprint, [r#"{"a":1,"at":1}"#, r#"{"a":2,"at":{"x":2}}"#], &["value.a"], &["value.at"]),
        (
            written("value.after"),
            [r#"{"after":{"a":1},"ts":1}"#, r#"{"after":{"a":2},"ts":2}"#],
            &["value.after.a"],
            &["value.ts"],
        ),
        (written("value.after"), [r#"{"after":{"a":1}}"#, r#"{"after":null}"#], &["value.after"], &[]),
        (flattened, [r#"{"a":1,"__op":"c"}"#, r#"{"a":2,"__op":"u"}"#], &["value.a"], &["value.__op"]),
        (
            first_of,
            [r#"{"a":1,"__ts":1}"#, r#"{"after":{"a":1},"__ts":2}"#],
            &["value", "value.after"],
            &["value.a", "value.__ts"],
        ),
        (
            rows.clone(),
            [r#"{"data":[{"a":1,"b":1}]}"#, r#"{"data":[{"a":1,"b":2}]}"#],
            &["value.data.0.b"],
            &["value.data"],
        ),
        (rows, [r#"{"data":[{"a":1},{"a":2}]}"#, r#"{"data":[{"a":1},{"a":3}]}"#], &["value.data"], &[]),
    ] {
        let (mut found, mut rest) = contrast(part.clone(), values);
        let is_whole = |name: &String| name != "value";
        found.retain(is_whole);
        rest.sort_unstable();
        let mut others = others.to_vec();
        others.sort_unstable();
        let compared: Vec<&str> = compared.iter().copied().filter(|name| *name != "value").collect();
        assert_eq!(
            (found, rest),
            (compared.iter().map(|s| s.to_string()).collect(), others.iter().map(|s| s.to_string()).collect()),
            "{part} {values:?}"
        );
    }
}

#[test]
fn contents_of_a_delete_are_its_kind() {
    let mut rules = Rules::new(Identity::of_paths([path("value.id")]), None);
    rules.contents = Some(Contents::whole_value());
    let (before, now) = (captured(r#"{"id":1,"x":1}"#), captured(r#"{"id":1,"x":2}"#));
    let of = |kinds: [&'static str; 2]| Contrast::of(&rules, (&before, Some(kinds[0])), (&now, Some(kinds[1])));
    let contrast = of(["change", "delete"]);
    assert_eq!((contrast.kinds, contrast.compared), (Some(["change", "delete"]), Vec::new()));
    let contrast = of(["read", "change"]);
    assert_eq!((contrast.kinds, contrast.compared), (None, vec![path("value.x")]));
}

#[test]
fn null_and_a_missing_place_are_no_part() {
    let rules = Rules::new(Identity::of_paths([path("value.id")]), None);
    let (before, now) = (captured("{}"), captured("null"));
    let contrast = Contrast::of(&rules, (&before, None), (&now, None));
    assert_eq!(contrast, Contrast::default());
}
