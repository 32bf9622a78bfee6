//! Goal: the hashed text is RFC 8785's canonical JSON wherever doubles can represent the numbers, and is never rounded
//! where they cannot.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn canonical(document: &str, except: &[&[&str]]) -> String {
    let ways: Vec<Vec<String>> = except.iter().map(|way| way.iter().map(|&step| step.to_owned()).collect()).collect();
    let except = Except::new(ways.iter().map(Vec::as_slice));
    let mut tape = Tape::default();
    tape.read(document.as_bytes()).unwrap();
    let mut scratch = Scratch::default();
    let digest = fingerprint(&tape, document.as_bytes(), &except, &mut scratch).unwrap();
    assert_eq!(digest[..], Sha256::digest(&scratch.text)[..]);
    String::from_utf8(scratch.text).unwrap()
}

#[test]
fn rfc_8785_examples_give_the_printed_output() {
    let document = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
    // The RFC's first number has one digit more than a double distinguishes: here it stays as it is.
    assert_eq!(canonical(document, &[]), expected.replace("333333333.3333333,", "333333333.33333329,"));
    let names = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
    assert_eq!(
        canonical(names, &[]),
        "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}"
    );
}

#[test]
fn numbers_beyond_doubles_keep_their_digits() {
    for (written, expected) in [
        ("9007199254740992", "9007199254740992"),
        ("9007199254740993", "9007199254740993"),
        ("9007199254740993.0", "9007199254740993"),
        ("1152921504606846976", "1152921504606846976"),
        ("1152921504606847000", "1152921504606847000"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0.1", "0.1"),
        ("0.10000000000000001", "0.10000000000000001"),
        ("1e400", "1e400"),
        ("10e399", "1e400"),
        ("1e-400", "1e-400"),
        ("-0", "0"),
        ("-0.0e9", "0"),
        ("1.0", "1"),
        ("1e21", "1e+21"),
        ("100000000000000000000", "100000000000000000000"),
        ("5e-324", "5e-324"),
    ] {
        assert_eq!(canonical(written, &[]), expected, "{written}");
    }
    let mut tape = Tape::default();
    let long = b"1e9999999999999999999";
    tape.read(long).unwrap();
    assert_eq!(fingerprint(&tape, long, &Except::default(), &mut Scratch::default()), Err(TooLong));
}

#[test]
fn excepted_places_are_left_out() {
    let document = r#"{"id":1,"sent_at":2,"meta":{"try":3,"by":"x"},"items":[{"a":1,"b":2},{"a":3,"b":4}]}"#;
    let except: &[&[&str]] = &[&["sent_at"], &["meta", "try"], &["items", "1", "b"], &["no", "such"]];
    assert_eq!(canonical(document, except), r#"{"id":1,"items":[{"a":1,"b":2},{"a":3}],"meta":{"by":"x"}}"#);
    assert_eq!(canonical(r#"[1,2,3]"#, &[&["0"], &["2"], &["01"]]), "[2]");
    assert_eq!(canonical(r#"{"\u0069d":1,"b":2}"#, &[&["id"]]), r#"{"b":2}"#);
    assert_eq!(canonical(r#"{"a":{"b":1}}"#, &[&["a", "b"], &["a"]]), "{}");
}

#[test]
fn last_of_two_fields_with_the_same_name_counts() {
    assert_eq!(canonical(r#"{"a":1,"b":0,"\u0061":2,"a":[3]}"#, &[]), r#"{"a":[3],"b":0}"#);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\u{0}-\u{22}\\\\]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 6, |inner| {
        let name = prop_oneof![any::<String>(), "[\u{d000}-\u{d7ff}\u{e000}-\u{ffff}\u{10000}-\u{10010}a]{0,3}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn canonical_json_agrees_with_another_canonicalizer(value in any_json(), pretty in any::<bool>()) {
        let document = if pretty { format!("{value:#}") } else { value.to_string() };
        prop_assert_eq!(canonical(&document, &[]), serde_json_canonicalizer::to_string(&value).unwrap());
    }

    #[test]
    fn different_numbers_stay_different(a in "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,5})?(e-?[0-9]{1,3})?", b in -2_i64..3) {
        let mut exact = Vec::new();
        number::write_canonical(a.as_bytes(), &mut exact).unwrap();
        let mut again = Vec::new();
        number::write_canonical(canonical(&a, &[]).as_bytes(), &mut again).unwrap();
        prop_assert_eq!(exact, again);
        let near = 9_007_199_254_740_993_i64 + b;
        prop_assert_eq!(canonical(&near.to_string(), &[]), near.to_string());
    }

    #[test]
    fn names_sort_by_utf_16(a in "[\u{0}-\u{7ff}\u{d000}-\u{d7ff}\u{e000}-\u{10010}]{0,3}", b in "[\u{0}-\u{7ff}\u{e000}-\u{10010}]{0,3}") {
        prop_assert_eq!(compare_names(a.as_bytes(), b.as_bytes()), a.encode_utf16().cmp(b.encode_utf16()));
    }
}
