//! Goal: identities are equal if and only if their parts are, however the parts are combined.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Bool(bool),
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

fn encode(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            Part::Bool(value) => push_bool(*value, &mut out),
            Part::Number(value) => push_i64(*value, &mut out),
            Part::Text(text) => push_text(text.as_bytes(), &mut out),
            Part::Bytes(bytes) => push_bytes(bytes, &mut out),
        }
    }
    out
}

fn key(parts: &[Part]) -> Vec<u8> {
    let mut out = vec![9, KIND_IDENTITY];
    out.extend(encode(parts));
    shorten(1, &mut out);
    out.split_off(1)
}

fn any_part() -> impl Strategy<Value = Part> {
    prop_oneof![
        any::<bool>().prop_map(Part::Bool),
        prop_oneof![any::<i64>(), 0..5_i64].prop_map(Part::Number),
        // Texts that look like tags and lengths.
        "[\u{0}-\u{6}13]{0,4}".prop_map(Part::Text),
        any::<String>().prop_map(Part::Text),
        prop::collection::vec(0_u8..8, 0..4).prop_map(Part::Bytes),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Part::Bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn identities_never_collide(a in prop::collection::vec(any_part(), 0..5), b in prop::collection::vec(any_part(), 0..5)) {
        prop_assert_eq!(encode(&a) == encode(&b), a == b);
        prop_assert_eq!(key(&a) == key(&b), a == b);
    }

    #[test]
    fn no_identity_is_a_prefix_of_another_with_as_many_parts(a in prop::collection::vec(any_part(), 3), b in prop::collection::vec(any_part(), 3)) {
        prop_assert!(a == b || !encode(&a).starts_with(&encode(&b)));
    }

    #[test]
    fn moving_bytes_between_parts_changes_the_identity(a in "[a-c]{1,3}", b in "[a-c]{1,3}") {
        let (joined, split) = ([Part::Text(format!("{a}{b}")), Part::Text(String::new())], [Part::Text(a), Part::Text(b)]);
        prop_assert_ne!(encode(&joined), encode(&split));
    }

    #[test]
    fn escapes_make_no_difference(text in any::<String>()) {
        let quoted = serde_json::Value::from(text.as_str()).to_string();
        let mut escaped = Vec::new();
        push_escaped_text(&quoted.as_bytes()[1..quoted.len() - 1], &mut escaped);
        prop_assert_eq!(escaped, encode(&[Part::Text(text)]));
    }
}

#[test]
fn bytes_are_as_documented() {
    let parts = [Part::Bool(true), Part::Number(-1200), Part::Text("é".into()), Part::Bytes(vec![0])];
    assert_eq!(encode(&parts), b"\x02\x03\x05-12e2\x04\x02\xc3\xa9\x05\x01\x00");
    let long = encode(&[Part::Text("x".repeat(300))]);
    assert_eq!(long[..4], [0x04, 0xac, 0x02, b'x']);
    assert_eq!(long.len(), 303);
}

#[test]
fn long_part_has_its_length_whether_known_beforehand_or_not() {
    for length in [0, 1, 127, 128, 129, 16_383, 16_384, 70_000] {
        let text = "x".repeat(length);
        let mut escaped = b"before".to_vec();
        push_escaped_text(text.as_bytes(), &mut escaped);
        assert_eq!(escaped[6..], encode(&[Part::Text(text)]), "{length}");
    }
}

#[test]
fn long_identity_is_replaced_by_its_digest() {
    let of = |length| key(&[Part::Text("x".repeat(length))]);
    // Tag and length take two bytes up to a length of 127, three from there on.
    assert_eq!(of(125)[0], KIND_IDENTITY);
    assert_eq!(of(125).len(), 1 + 127);
    assert_eq!((of(126)[0], of(126).len()), (KIND_IDENTITY, 1 + IDENTITY_BYTES_MAX));
    assert_eq!((of(127)[0], of(127).len()), (KIND_IDENTITY_DIGEST, 33));
    assert_eq!(of(127)[1..], Sha256::digest(encode(&[Part::Text("x".repeat(127))]))[..]);
}

#[test]
fn identities_are_described_as_json() {
    let parts = [
        Part::Text("a\"b".into()),
        Part::Number(1000),
        Part::Bool(false),
        Part::Bytes(b"order-7".to_vec()),
        Part::Bytes(vec![0xff]),
    ];
    let text = describe(&key(&parts));
    assert_eq!(text, r#"["a\"b",1000,false,"order-7",{"hex":"ff"}]"#);
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    assert_eq!(describe(&key(&[])), "[]");
    let digest = describe(&key(&[Part::Text("x".repeat(200))]));
    assert!(digest.starts_with(r#"[{"sha256":""#) && digest.len() == 64 + 15, "{digest}");
    assert_eq!(describe(&[KIND_IDENTITY, TEXT, 5, b'x']), r#"[{"key":"10040578"}]"#);
    assert_eq!(describe(b""), r#"[{"key":""}]"#);
}
