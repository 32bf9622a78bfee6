//! Goal: no bytes make any form panic, and contents are equal if another JSON parser says so.

use super::*;

/// Documents that differ little, so that some are equal.
fn any_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        prop::sample::select(vec!["", "1", "null", "a"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[ab1]{0,1}", inner), 0..3).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Rules that together contain every form.
fn any_form() -> impl Strategy<Value = Rules> {
    let part = prop::sample::select(vec![
        "key",
        "value",
        "key.a",
        "value.a",
        "value.a.b",
        "value.b",
        "header.a",
        "meta.offset",
    ])
    .prop_map(path);
    let leaf = prop_oneof![
        part.clone().prop_map(IdentityPart::Scalar),
        part.clone().prop_map(IdentityPart::Content),
        (part.clone(), prop::collection::vec(part.clone(), 0..3))
            .prop_map(|(of, except)| IdentityPart::Fingerprint { of, except }),
        (-1_i64..9).prop_map(|ms| IdentityPart::Bucket { ms }),
        (prop::collection::vec(part.clone(), 0..3), prop::collection::vec("[ab]", 0..3))
            .prop_map(|(of, names)| IdentityPart::Rows { of, named: Names::Given(names) }),
        (prop::collection::vec(part.clone(), 0..3), part.clone())
            .prop_map(|(of, at)| IdentityPart::Rows { of, named: Names::At(at) }),
    ];
    let form = leaf.prop_recursive(2, 6, 3, |inner| {
        prop::collection::vec(prop::collection::vec(inner, 0..3), 0..3).prop_map(IdentityPart::FirstOf)
    });
    let places = || prop::collection::vec(part.clone(), 0..3);
    let version = (
        places(),
        prop::option::of(places()),
        prop::sample::select(VersionKind::ALL),
        any::<bool>(),
        prop::option::of(-3_i64..3),
        prop::sample::select(MissingPart::ALL),
    );
    let version = version.prop_map(|(of, at_least, kind, required, min, missing)| VersionPart {
        of,
        at_least,
        required,
        min,
        missing,
        ..VersionPart::new(path("value"), kind)
    });
    let formats = prop::sample::select(Format::ALL);
    let all = (
        prop::collection::vec(form, 0..4),
        prop::collection::vec(version, 0..3),
        part,
        formats.clone(),
        formats,
        1_usize..50,
    );
    all.prop_map(|(parts, versions, of, key_format, value_format, digits)| {
        let mut rules = Rules::new(Identity { parts }, Some(Version { parts: versions }));
        (rules.key_format, rules.value_format) = (key_format, value_format);
        rules.epoch = Some(Epoch { parts: vec![EpochPart { of: vec![of.clone()], none: vec![Scalar::Bool(true)] }] });
        rules.kinds = Some(Kinds { of: vec![of.clone()], table: vec![vec![of]], ..debezium().kinds.unwrap() });
        rules.actions.null_value = OnNull::FollowDelete;
        rules.limits.version_digits_max = digits;
        rules
    })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"a\":",
        "\"b\":",
        "\"a\"",
        "\"a.b\":{",
        "\"payload\":",
        "\"schema\":1,",
        "1",
        "-0",
        "null",
        "true",
        "\"t\"",
        "\"m\"",
        "\"0x1:2\"",
        "\"a.7:8\"",
        "\"[1,null]\"",
        "\"2020-05-13T15:40:06Z\"",
        "{\"string\":\"d\"}",
        "1e-99999999999999999999",
        "1.5e300",
    ]);
    let soup = prop::collection::vec(token, 0..10).prop_map(|tokens| tokens.concat().into_bytes());
    let document = any_document().prop_map(|document| document.to_string().into_bytes());
    prop_oneof![2 => soup, 3 => document, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn contents_are_equal_if_serde_json_says_so(a in any_document(), b in any_document(), pretty in any::<bool>()) {
        prop_assume!(!a.is_null() && !b.is_null());
        let rules = json(vec![IdentityPart::Content(path("key"))]);
        let bytes = |text: String| {
            let mut arena = Vec::new();
            Reader::new(Arc::new(rules.clone())).read(&keyed(&text, ""), &mut arena);
            arena
        };
        let (x, y) = (bytes(a.to_string()), bytes(if pretty { format!("{b:#}") } else { b.to_string() }));
        prop_assert_eq!(x == y, a == b);
        if x[0] == KIND_IDENTITY {
            prop_assert_eq!(serde_json::from_str::<Value>(&describe_identity(&x)).unwrap(), Value::from(vec![a]));
        }
    }

    #[test]
    fn no_record_makes_a_form_panic(
        rules in any_form(), key in prop::option::of(any_bytes()), value in prop::option::of(any_bytes()), timestamp in prop::option::of(any::<i64>()),
    ) {
        let mut headers = HeaderBuf::default();
        headers.push(b"a", key.as_deref());
        let record = Record {
            timestamp,
            key: key.as_deref(),
            value: value.as_deref(),
            headers: headers.as_headers(),
            ..record(7, b"")
        };
        rules.problems();
        let once = try_read(&rules, &record);
        prop_assert_eq!(try_read(&rules, &record), once);
    }
}
