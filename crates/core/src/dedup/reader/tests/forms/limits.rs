//! Goal: each limit on identities, versions and scopes holds at its edge.

use super::*;

#[test]
fn default_limits_hold_at_their_edges() {
    let rows = json(vec![IdentityPart::Rows { of: paths(&["value.data"]), named: Names::At(path("value.names")) }]);
    let fields = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("\"f{n}\"")).collect();
        let fields: Vec<String> = (0..count).map(|n| format!("\"f{n}\":1")).collect();
        format!(r#"{{"names":[{}],"data":{{{}}}}}"#, names.join(","), fields.join(","))
    };
    assert!(try_read(&rows, &record(0, fields(64).as_bytes())).is_ok());
    assert_eq!(because(&rows, &record(0, fields(65).as_bytes())), Reason::IdentityMissing);

    let number = json(vec![IdentityPart::Scalar(path("value.id"))]);
    let exponent = |digits: usize| format!(r#"{{"id":1e{}}}"#, "9".repeat(digits));
    assert!(try_read(&number, &record(0, exponent(18).as_bytes())).is_ok());
    assert_eq!(because(&number, &record(0, exponent(19).as_bytes())), Reason::IdentityTooLong);

    let text = VersionPart::new(path("value.v"), VersionKind::Text);
    let text = Rules { version: Some(Version { parts: vec![text] }), ..number };
    let version = |bytes: usize| format!(r#"{{"id":1,"v":"{}"}}"#, "v".repeat(bytes));
    assert!(try_read(&text, &record(0, version(1024).as_bytes())).is_ok());
    let rejection = try_read(&text, &record(0, version(1025).as_bytes())).unwrap_err();
    assert_eq!(rejection.reason, Reason::VersionMalformed);
    assert!(rejection.message.ends_with("takes 1025 bytes, more than the limit of 1024"), "{}", rejection.message);

    let epoch = Epoch { parts: vec![EpochPart { of: paths(&["value.e"]), none: Vec::new() }] };
    let short = Limits { identity_bytes_max: 100, ..Limits::default() };
    let scoped = Rules { epoch: Some(epoch), limits: short, ..text };
    // A text takes two extra bytes, for its tag and its length.
    let scope = |bytes: usize| format!(r#"{{"id":1,"v":"v","e":"{}"}}"#, "e".repeat(bytes));
    assert!(try_read(&scoped, &record(0, scope(98).as_bytes())).is_ok());
    let rejection = try_read(&scoped, &record(0, scope(99).as_bytes())).unwrap_err();
    assert_eq!(rejection.reason, Reason::VersionMalformed);
    assert_eq!(rejection.message, "the epoch takes more bytes than the limit of 100");
}

#[test]
fn rows_larger_than_a_record_may_be_are_refused() {
    let row = IdentityPart::Rows { of: paths(&["value.data"]), named: Names::Given(vec!["a".into()]) };
    let rows = json(vec![IdentityPart::Scalar(path("value.id")), row]);
    let value = format!(r#"{{"id":"{}","data":[{}]}}"#, "i".repeat(100), [r#"{"a":"v"}"#; 50].join(","));
    let within = |record_bytes_max: usize| {
        let limits = Limits { record_bytes_max, ..Limits::default() };
        try_read(&Rules { limits, ..rows.clone() }, &record(0, value.as_bytes()))
    };
    // The first identity (102 bytes for the id and 8 for the row), once for each further row; and all rows.
    let bytes = (102 + 8) * 49 + 8 * 50;
    assert_eq!(within(bytes).unwrap().rows.len(), 50);
    let rejection = within(bytes - 1).unwrap_err();
    assert_eq!(rejection.reason, Reason::IdentityTooLong);
    assert!(rejection.message.starts_with("the rows' identities take more bytes"), "{}", rejection.message);
}

#[test]
fn keys_may_be_nested_as_deep_as_values() {
    let rules = json(vec![IdentityPart::Scalar(path("key.id"))]);
    let key = |depth: usize| format!(r#"{{"id":1,"x":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
    let deepest = rules.limits.json_depth_max;
    assert!(try_read(&rules, &keyed(&key(deepest), "")).is_ok());
    let rejection = try_read(&rules, &keyed(&key(deepest + 1), "")).unwrap_err();
    assert_eq!(rejection.reason, Reason::KeyMalformed);
    assert!(rejection.message.contains("nested too deep"), "{}", rejection.message);
}
