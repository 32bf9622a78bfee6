//! Goal: the digest changes with what the entries depend on and with nothing else, and it lasts.

use super::*;
use crate::dedup::tests::rules;
use crate::format::hex;

#[test]
fn the_digest_lasts() {
    let rules = rules(&["value.order_id", "header.x"], Some("value.version"));
    let text = "ratchet rules 1\nkey_format: bytes\nvalue_format: json\nidentity: value.order_id\nidentity: header.x\n\
                version: integer [value.version]\n";
    assert_eq!(rules.canonical_text(), text);
    assert_eq!(hex(&rules.digest()), "99dca70cf084b6b62345bf2c45b9e78a18d4c6c42eb179844d025edacb963679");
}

#[test]
fn what_entries_depend_on_changes_the_digest() {
    let base = rules(&["value.a", "value.b"], None);
    let others = [
        rules(&["value.b", "value.a"], None),
        rules(&["value.a"], None),
        rules(&["value.a", "value.b"], Some("value.v")),
        rules(&["value.a", "value.b"], Some("value.w")),
        rules(&["value.a", r#"value."b\nversion: none""#], None),
        Rules { key_format: Format::Json, ..base.clone() },
        Rules { value_format: Format::Bytes, ..base.clone() },
    ];
    for (i, other) in others.iter().enumerate() {
        assert_ne!(other.digest(), base.digest(), "{i}");
        assert!(others[..i].iter().all(|earlier| earlier.digest() != other.digest()), "{i}");
    }
}

#[test]
fn what_may_change_leaves_the_digest() {
    let base = rules(&["value.a"], None);
    let mut other = base.clone();
    other.retention = Retention::Forever;
    other.future_max_ms = 1;
    other.actions.invalid = Action::Drop;
    other.limits.json_depth_max = 1;
    assert_eq!(other.digest(), base.digest());
}

#[test]
fn defaults_follow_from_the_version_and_the_retention() {
    assert_eq!(rules(&["value"], None).retention, Retention::For { ms: 7 * 24 * 3_600_000 });
    assert_eq!(rules(&["value"], Some("value.v")).retention, Retention::Forever);
    assert_eq!(Retention::Forever.default_future_max_ms(), 3_600_000);
    assert_eq!(Retention::For { ms: 3_600_000 }.default_future_max_ms(), 360_000);
}

#[test]
fn contradictions_are_told() {
    assert_eq!(rules(&["value.a", "key"], Some("value.v")).problems(), []);
    assert_eq!(rules(&[], None).problems(), [Error::NoIdentity]);
    let inside_bytes = Error::InsideBytes { path: "key.id".to_owned(), what: "key" };
    assert_eq!(rules(&["value.a"], Some("key.id")).problems(), [inside_bytes]);
    let constant = Path { source: Source::Const(crate::dedup::Scalar::Bool(true)), steps: vec![] };
    let inside = Path { source: Source::Topic, steps: vec!["x".to_owned()] };
    let of = |paths: Vec<Path>| Rules::new(Identity::of_paths(paths), None).problems();
    assert_eq!(of(vec![constant.clone()]), [Error::ConstantIdentity]);
    assert_eq!(of(vec![constant, inside]), [Error::InsideScalar { path: "meta.topic.x".to_owned() }]);
}
