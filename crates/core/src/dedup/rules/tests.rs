//! Goal: the digest changes with what the entries depend on and with nothing else, and is stable.

use super::*;
use crate::dedup::tests::rules;
use crate::format::hex;

#[test]
fn digest_is_stable() {
    let rules = rules(&["value.order_id", "header.x"], Some("value.version"));
    let text = "ratchet rules 1\nkey_format: bytes\nvalue_format: json\nidentity: value.order_id\nidentity: header.x\n\
                version: integer [value.version]\n";
    assert_eq!(rules.canonical_text(), text);
    assert_eq!(hex(&rules.digest()), "99dca70cf084b6b62345bf2c45b9e78a18d4c6c42eb179844d025edacb963679");
}

#[test]
fn settings_that_entries_depend_on_change_the_digest() {
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
fn other_settings_leave_the_digest_unchanged() {
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
fn contradictions_are_reported() {
    assert_eq!(rules(&["value.a", "key"], Some("value.v")).problems(), []);
    assert_eq!(rules(&[], None).problems(), [Error::NoIdentity]);
    let inside_bytes = Error::InsideBytes { path: "key.id".to_owned(), what: "key" };
    assert_eq!(rules(&["value.a"], Some("key.id")).problems(), [inside_bytes]);
    let constant = Path { source: crate::dedup::Source::Const(crate::dedup::Scalar::Bool(true)), steps: vec![] };
    let inside = Path { source: crate::dedup::Source::Topic, steps: vec!["x".to_owned()] };
    let of = |paths: Vec<Path>| Rules::new(Identity::of_paths(paths), None).problems();
    assert_eq!(of(vec![constant.clone()]), [Error::ConstantIdentity]);
    assert_eq!(of(vec![constant, inside]), [Error::InsideScalar { path: "meta.topic.x".to_owned() }]);
}

#[test]
fn contradictions_in_documents_lists_and_kinds_are_reported() {
    use crate::dedup::{Epoch, EpochPart, IdentityPart, Kinds, Names, TimeUnit, VersionKind, VersionPart};
    let path = |text: &str| Path::parse(text).unwrap();
    let of = |part| Rules::new(Identity { parts: vec![part] }, None).problems();
    let document = |form, path: &str| Error::NotDocument { form, path: path.to_owned() };
    assert_eq!(of(IdentityPart::Content(path("value"))), []);
    assert_eq!(
        of(IdentityPart::Content(path("key"))),
        [Error::BytesAsDocument { form: "content", path: "key".to_owned() }]
    );
    assert_eq!(of(IdentityPart::Content(path("key.a"))).len(), 1);
    assert_eq!(of(IdentityPart::Content(path("header.a"))), [document("content", "header.a")]);
    let except = ["value.a", "value.b.c", "value.b", "key"].map(path).to_vec();
    let outside = |path: &str| Error::ExceptOutside { path: path.to_owned(), of: "value.b".to_owned() };
    assert_eq!(
        of(IdentityPart::Fingerprint { of: path("value.b"), except }),
        [outside("value.a"), outside("value.b"), outside("key")]
    );
    assert_eq!(of(IdentityPart::Bucket { ms: 0 }), [Error::NoBucket]);
    assert!(of(IdentityPart::FirstOf(vec![])).contains(&Error::Empty { what: "first_of", of: "alternative" }));
    assert!(of(IdentityPart::FirstOf(vec![vec![]])).contains(&Error::Empty { what: "first_of", of: "path" }));
    let rows = |named| IdentityPart::Rows { of: vec![path("value.data")], named };
    assert_eq!(of(rows(Names::Given(vec![]))), [Error::Empty { what: "named", of: "field" }]);
    assert_eq!(of(rows(Names::At(path("header.pk")))), [document("named", "header.pk")]);
    let at = || rows(Names::At(path("value.pk")));
    assert_eq!(of(IdentityPart::FirstOf(vec![vec![at()], vec![at()]])), []);
    assert_eq!(Rules::new(Identity { parts: vec![at(), at()] }, None).problems(), [Error::SeveralRows]);

    let mut rules = rules(&["value.a"], Some("value.v"));
    let part = VersionPart {
        required: true,
        missing: MissingPart::Highest,
        ..VersionPart::new(path("value.v"), VersionKind::Hex)
    };
    let at_least = Some(vec![]);
    rules.version =
        Some(Version { parts: vec![VersionPart { unit: TimeUnit::Seconds, at_least, min: Some(0), ..part }] });
    let named = "value.v".to_owned();
    assert_eq!(
        rules.problems(),
        [
            Error::Empty { what: "at_least", of: "path" },
            Error::WithoutInteger { key: "at_least", path: named.clone(), kind: VersionKind::Hex },
            Error::WithoutInteger { key: "min", path: named.clone(), kind: VersionKind::Hex },
            Error::RequiredHighest { path: named.clone() },
            Error::UnitWithoutTimestamp { path: named, kind: VersionKind::Hex }
        ]
    );
    rules.version = None;
    rules.epoch = Some(Epoch { parts: vec![EpochPart { of: vec![], none: vec![] }] });
    assert_eq!(rules.problems(), [Error::Empty { what: "of", of: "path" }, Error::EpochWithoutVersion]);
    rules.epoch = None;
    let words =
        |words: &[&str]| words.iter().map(|&word| crate::dedup::Scalar::Text(word.to_owned())).collect::<Vec<_>>();
    rules.kinds = Some(Kinds {
        of: vec![path("value.op")],
        delete: words(&["d", "x"]),
        read: words(&["r"]),
        reads: crate::dedup::Reads::Lose,
        truncate: words(&["x"]),
        message: vec![],
        none: vec![],
        table: vec![vec![]],
    });
    assert_eq!(
        rules.problems(),
        [
            Error::Empty { what: "table", of: "path" },
            Error::TwoKinds { word: "\"x\"".to_owned(), first: "delete", second: "truncate" }
        ]
    );
}
