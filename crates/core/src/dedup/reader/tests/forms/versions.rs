//! Goal: every kind of version is read as documented, and tuples of them sort in order.

use super::*;

/// The bytes of a version with integers at value.0 and value.1.
fn tuple(parts: [VersionPart; 2], value: &str) -> Option<Vec<u8>> {
    let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts: parts.into() }));
    let mut arena = Vec::new();
    match Reader::new(Arc::new(rules)).read(&record(0, value.as_bytes()), &mut arena) {
        Reading::Row(row) => row.version.map(|range| arena[range].to_vec()),
        other => panic!("{other:?}"),
    }
}

fn integers() -> [VersionPart; 2] {
    ["value.0", "value.1"].map(|text| VersionPart::new(path(text), VersionKind::Integer))
}

#[test]
fn tuples_are_compared_element_by_element() {
    let of = |value| tuple(integers(), value).unwrap();
    // Materialize's (lsn, total_order); RisingWave's and Paimon's pairs; Hudi's composite.
    assert!(of("[0,0]") < of("[1,0]") && of("[1,0]") < of("[2,0]") && of("[2,0]") < of("[2,1]"));
    assert!(of("[1,5]") < of("[2,1]") && of("[null,1]") < of("[1,null]") && of("[1,null]") < of("[1,0]"));
    assert!(of("[98,100]") < of("[99,5]") && of("[99,5]") < of("[99,7]"));
    assert_eq!(of("[1]"), of("[1,null]"));
    assert_eq!(tuple(integers(), "[null]"), None);
    let [first, mut second] = integers();
    second.missing = MissingPart::Highest;
    let highest = |value| tuple([first.clone(), second.clone()], value).unwrap();
    assert!(highest("[1,99999999999999999999]") < highest("[1]") && highest("[1]") < highest("[2,0]"));
    let [mut first, second] = integers();
    first.required = true;
    first.none = vec![Scalar::Number(Number::parse("-1").unwrap())];
    let required = |value| tuple([first.clone(), second.clone()], value);
    assert_eq!((required("[null,1]"), required("[-1.0,1]"), required("[-1,1]")), (None, None, None));
    assert!(required("[1]").is_some());
}

#[test]
fn every_kind_of_version_is_read_from_a_record() {
    let version = |kind, unit, v: &str| {
        let part = VersionPart { unit, ..VersionPart::new(path("value.v"), kind) };
        let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts: vec![part] }));
        try_read(&rules, &record(0, format!(r#"{{"v":{v}}}"#).as_bytes())).map(|contents| contents.version.unwrap())
    };
    let read = |kind, v| version(kind, TimeUnit::Milliseconds, v);
    assert_eq!(read(VersionKind::Decimal, r#""12.50""#).unwrap(), "12.5");
    assert_eq!(read(VersionKind::Text, r#""a\u0000b""#).unwrap(), r#""a\u0000b""#);
    assert_eq!(
        read(VersionKind::Timestamp, r#""2020-05-13 15:40:06.000001""#).unwrap(),
        r#""2020-05-13T15:40:06.000001Z""#
    );
    assert_eq!(version(VersionKind::Timestamp, TimeUnit::Seconds, "1.5").unwrap(), r#""1970-01-01T00:00:01.5Z""#);
    assert_eq!(read(VersionKind::Timestamp, r#""1500""#).unwrap(), r#""1970-01-01T00:00:01.5Z""#);
    assert_eq!(read(VersionKind::Hex, r#""0000001b:00000100:0005""#).unwrap(), r#""1b:100:5""#);
    assert_eq!(read(VersionKind::Sequence, r#""[null,\"8\"]""#).unwrap(), "[null,8]");
    assert_eq!(read(VersionKind::Sequence, r#"["3",4]"#).unwrap(), "[3,4]");
    for (kind, v) in [
        (VersionKind::Decimal, "true"),
        (VersionKind::Text, "1"),
        (VersionKind::Timestamp, r#""yesterday""#),
        (VersionKind::Hex, "12"),
        (VersionKind::Binlog, r#""x""#),
        (VersionKind::Sequence, r#"{"a":1}"#),
        (VersionKind::Integer, "[1]"),
    ] {
        let rejection = read(kind, v).unwrap_err();
        assert_eq!(rejection.reason, Reason::VersionMalformed, "{kind} {v}");
        assert!(rejection.message.contains("`value.v`"), "{}", rejection.message);
    }
}

#[test]
fn unreadable_value_of_a_lenient_part_is_missing() {
    let lenient = integers().map(|part| VersionPart { lenient: true, ..part });
    let of = |value| tuple(lenient.clone(), value);
    assert_eq!(of("[3,4]"), tuple(integers(), "[3,4]"));
    assert_eq!(of(r#"["00-1",4]"#), tuple(integers(), "[null,4]"));
    assert_eq!(of(r#"["00-1",{}]"#), None);
}

/// What a part with this `min` reads.
fn no_less_than(min: i64, part: VersionPart, v: &str) -> Result<Option<String>, Rejection> {
    let parts = vec![VersionPart { min: Some(min), ..part }];
    let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts }));
    try_read(&rules, &record(0, format!(r#"{{"v":{v}}}"#).as_bytes())).map(|contents| contents.version)
}

#[test]
fn part_below_its_minimum_is_malformed() {
    let part = || VersionPart::new(path("value.v"), VersionKind::Integer);
    for v in ["-1", r#""-1""#, r#""-0001""#, r#""\u002d58""#, "-9223372036854775808", "-99999999999999999999"] {
        let rejection = no_less_than(0, part(), v).unwrap_err();
        assert_eq!(rejection.reason, Reason::VersionMalformed, "{v}");
        assert_eq!(rejection.message, "`value.v`, the version, is less than the minimum of 0");
        let lenient = VersionPart { lenient: true, ..part() };
        assert_eq!(no_less_than(0, lenient, v).unwrap(), None, "{v}");
        // Raising it would not make it one.
        let raised = VersionPart { at_least: Some(paths(&["value.v", "meta.offset"])), ..part() };
        assert!(no_less_than(0, raised, v).is_err(), "{v}");
    }
    for v in ["0", "-0", r#""-0""#, "1", r#""007""#, "99999999999999999999", "null"] {
        assert_eq!(no_less_than(0, part(), v), no_less_than(i64::MIN, part(), v), "{v}");
        assert!(no_less_than(0, part(), v).is_ok(), "{v}");
    }
    let none = vec![Scalar::Number(Number::parse("-1").unwrap())];
    assert_eq!(no_less_than(0, VersionPart { none, ..part() }, "-1").unwrap(), None);
    // In a tuple, too.
    let [first, second] = integers();
    let second = VersionPart { min: Some(5), ..second };
    assert!(tuple([first.clone(), second.clone()], "[4,5]").is_some());
    let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts: vec![first, second] }));
    assert!(try_read(&rules, &record(0, b"[9,4]")).unwrap_err().message.contains("`value.1`"));
}

proptest! {
    /// Compared with integers parsed differently.
    #[test]
    fn minimum_rejects_smaller_values_and_changes_nothing_else(
        min in prop_oneof![any::<i64>(), -300_i64..300],
        v in prop_oneof![any::<i128>(), any::<i64>().prop_map(i128::from), (-300_i128..300)],
        is_text in any::<bool>(),
    ) {
        let part = || VersionPart::new(path("value.v"), VersionKind::Integer);
        let text = if is_text { format!("\"{v}\"") } else { v.to_string() };
        match no_less_than(min, part(), &text) {
            Ok(version) => prop_assert!(v >= i128::from(min) && version == Some(v.to_string())),
            Err(rejection) => prop_assert!(v < i128::from(min) && rejection.reason == Reason::VersionMalformed),
        }
    }
}

/// What a part with `at_least: value.s` reads if `value.v` is 5.
fn at_least_5(s: &str) -> Result<String, Rejection> {
    let at_least = Some(paths(&["value.none", "value.s"]));
    let part = VersionPart { at_least, ..VersionPart::new(path("value.v"), VersionKind::Integer) };
    let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts: vec![part] }));
    try_read(&rules, &record(0, format!(r#"{{"v":"5","s":{s}}}"#).as_bytes())).map(|contents| contents.version.unwrap())
}

#[test]
fn part_is_raised_to_the_greatest_of_at_least() {
    for s in ["null", "4", "-6", r#""5""#, "[]", "[null]", r#"[null,"4"]"#, r#""[null,\"4\"]""#, r#""[]""#] {
        assert_eq!(at_least_5(s).unwrap(), "5", "{s}");
    }
    for s in ["6", r#""006""#, r#"["6","4"]"#, "[4,6]", r#""[null,\"6\",3]""#, r#""[6]""#] {
        assert_eq!(at_least_5(s).unwrap(), "6", "{s}");
    }
    let long = "1".repeat(200);
    assert_eq!(at_least_5(&format!(r#"["7","{long}"]"#)).unwrap(), long);
    for s in ["true", "{}", r#""x""#, "[[1]]", "1.5", r#""""#, r#"["x"]"#, &format!("[{long},{long}]")] {
        let rejection = at_least_5(s).unwrap_err();
        assert_eq!(rejection.reason, Reason::VersionMalformed, "{s}");
        assert!(rejection.message.contains("`value.s`"), "{}", rejection.message);
    }
    // A missing value is not raised: it stays missing.
    let part = VersionPart { at_least: Some(paths(&["value.1"])), ..integers()[0].clone() };
    assert_eq!(tuple([part.clone(), part.clone()], "[null,7]"), None);
    assert_eq!(tuple([part.clone(), part], "[3,7]"), tuple(integers(), "[7,7]"));
}

/// What a part reads from `value.v`, or else from `value.s`, with these settings.
fn standing_in(part: VersionPart, value: &str) -> Result<Option<String>, Rejection> {
    let (at_least, missing) = (Some(paths(&["value.s"])), MissingPart::AtLeast);
    let parts = vec![VersionPart { at_least, missing, ..part }];
    let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts }));
    try_read(&rules, &record(0, value.as_bytes())).map(|contents| contents.version)
}

#[test]
fn at_least_stands_in_for_a_missing_part() {
    let part = || VersionPart::new(path("value.v"), VersionKind::Integer);
    let read = |value| standing_in(part(), value).unwrap();
    // A part that is there is raised as ever.
    assert_eq!(read(r#"{"v":5,"s":7}"#).as_deref(), Some("7"));
    assert_eq!(read(r#"{"v":5,"s":3}"#).as_deref(), Some("5"));
    for value in [r#"{"s":7}"#, r#"{"v":null,"s":"7"}"#, r#"{"s":[null,"7",3]}"#, r#"{"s":"[null,\"7\"]"}"#] {
        assert_eq!(read(value).as_deref(), Some("7"), "{value}");
    }
    for value in ["{}", r#"{"s":null}"#, r#"{"s":[]}"#, r#"{"s":[null]}"#, r#"{"s":"[null,null]"}"#] {
        assert_eq!(read(value), None, "{value}");
    }
    for value in [r#"{"s":"x"}"#, r#"{"s":true}"#, r#"{"s":[null,{}]}"#] {
        let rejection = standing_in(part(), value).unwrap_err();
        assert_eq!(rejection.reason, Reason::VersionMalformed, "{value}");
        assert!(rejection.message.contains("`value.s`"), "{}", rejection.message);
    }
    // Values that count as missing, and those that a lenient part cannot read, are replaced too.
    let none = vec![Scalar::Number(Number::parse("0").unwrap())];
    assert_eq!(standing_in(VersionPart { none, ..part() }, r#"{"v":0,"s":7}"#).unwrap().as_deref(), Some("7"));
    let lenient = VersionPart { lenient: true, ..part() };
    assert_eq!(standing_in(lenient, r#"{"v":"x","s":7}"#).unwrap().as_deref(), Some("7"));
}

/// In a tuple it sorts where its own value would, and lowest if nothing stands in for it; it satisfies `required`.
#[test]
fn what_stands_in_sorts_like_the_part_itself() {
    let [first, second] = integers();
    let at_least = Some(paths(&["value.2"]));
    let parts = [first, VersionPart { at_least, missing: MissingPart::AtLeast, ..second.clone() }];
    let of = |value| tuple(parts.clone(), value).unwrap();
    assert_eq!(of("[1,null,7]"), tuple(integers(), "[1,7]").unwrap());
    assert_eq!(of("[1,null,[null,7]]"), of("[1,7]"));
    assert!(of("[1,6]") < of("[1,null,7]") && of("[1,null,7]") < of("[1,8]"));
    assert_eq!(of("[1,null,[null]]"), tuple(integers(), "[1]").unwrap());
    assert!(of("[1]") < of("[1,null,-7]"));
    let [first, mut second] = parts;
    second.required = true;
    let required = |value| tuple([first.clone(), second.clone()], value);
    assert!(required("[1,null,7]").is_some());
    assert_eq!((required("[1,null,null]"), required("[1,null,[null]]")), (None, None));
}

/// `min` holds for what stands in, too.
#[test]
fn what_stands_in_is_not_below_the_minimum() {
    let part = || VersionPart { min: Some(0), ..VersionPart::new(path("value.v"), VersionKind::Integer) };
    for s in ["-1", r#""-1""#, "[-1,null]", r#""[-3,\"-1\"]""#, "-99999999999999999999"] {
        let value = format!(r#"{{"s":{s}}}"#);
        let rejection = standing_in(part(), &value).unwrap_err();
        assert_eq!(rejection.reason, Reason::VersionMalformed, "{s}");
        assert_eq!(rejection.message, "`value.s`, the version, is less than the minimum of 0");
        let lenient = VersionPart { lenient: true, ..part() };
        assert_eq!(standing_in(lenient, &value).unwrap(), None, "{s}");
    }
    for s in ["0", r#"[-1,"0"]"#] {
        assert_eq!(standing_in(part(), &format!(r#"{{"s":{s}}}"#)).unwrap().as_deref(), Some("0"), "{s}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// A tuple sorts by its elements, with a missing one lowest.
    #[test]
    fn tuple_order_is_element_order(a in (prop::option::of(-3_i64..3), prop::option::of(any::<i64>())), b in (prop::option::of(-3_i64..3), prop::option::of(-3_i64..3))) {
        let of = |tuple_: (Option<i64>, Option<i64>)| tuple(integers(), &serde_json::to_string(&tuple_).unwrap());
        prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
    }
}
