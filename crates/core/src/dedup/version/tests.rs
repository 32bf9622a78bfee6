//! Goal: the bytes sort as the integers do, whatever their size, and the encoding is stable.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::dedup::Path;
use crate::dedup::rules::{Version, VersionPart};
use crate::dedup::vocabulary::VersionKind;
use crate::format;

mod kinds;

fn rule(kinds: &[VersionKind]) -> Version {
    let part = |&kind: &VersionKind| VersionPart::new(Path::parse("value.v").unwrap(), kind);
    Version { parts: kinds.iter().map(part).collect() }
}

fn describe(bytes: &[u8]) -> String {
    super::describe(bytes, &rule(&[VersionKind::Integer]))
}

fn encode(text: &str) -> Vec<u8> {
    try_encode(text, DIGITS_MAX).unwrap()
}

fn try_encode(text: &str, digits_max: usize) -> Result<Vec<u8>, NotVersion> {
    let mut out = Vec::new();
    push_integer(text.as_bytes(), digits_max, &mut vec![7; 3], &mut out)?;
    Ok(out)
}

#[test]
fn bytes_are_as_documented() {
    let cases: [(&str, &[u8]); 9] = [
        ("-256", &[0x7d, 0xfe, 0xff]),
        ("-1", &[0x7e, 0xfe]),
        ("0", &[0x80]),
        ("-0", &[0x80]),
        ("000", &[0x80]),
        ("1", &[0x81, 0x01]),
        ("255", &[0x81, 0xff]),
        ("18446744073709551615", &[0x88, 255, 255, 255, 255, 255, 255, 255, 255]),
        ("18446744073709551616", &[0x89, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (text, bytes) in cases {
        assert_eq!(encode(text), bytes, "{text}");
    }
}

#[test]
fn anything_but_an_integer_is_rejected() {
    for text in ["", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "--1", "1_000", "٣"] {
        assert_eq!(try_encode(text, 300), Err(NotVersion::Malformed), "{text}");
    }
    assert_eq!(try_encode(&"9".repeat(301), 300), Err(NotVersion::TooLong(301)));
    assert!(try_encode(&format!("-{}{}", "0".repeat(500), "9".repeat(300)), 300).is_ok());
    assert_eq!(try_encode(&"9".repeat(DIGITS_MAX + 1), usize::MAX), Err(NotVersion::TooLong(DIGITS_MAX + 1)));
}

#[test]
fn integers_around_the_long_head_sort_in_order() {
    // 2^1008 has 127 bytes; 10^303 < 2^1008 < 10^304.
    let mut last = encode("0");
    for digits in (1..=340).chain([1000, 5000, DIGITS_MAX]) {
        for text in ["1".to_owned() + &"0".repeat(digits - 1), "9".repeat(digits)] {
            let (positive, negative) = (encode(&text), encode(&format!("-{text}")));
            assert!(last <= positive && (last != positive || digits == 1), "{digits}");
            assert!(negative < encode("0"));
            assert_eq!(describe(&positive), text);
            assert_eq!(describe(&negative), format!("-{text}"));
            last = positive;
        }
    }
}

#[test]
fn malformed_bytes_are_shown_in_hex() {
    for bytes in [&[][..], &[0x81], &[0x81, 0], &[0x82, 1], &[0xff, 0], &[0x80, 1], &[0x7f]] {
        assert_eq!(describe(bytes), format!(r#"{{"hex":"{}"}}"#, format::hex(bytes)));
    }
}

/// Compares two integers by their digits.
fn compare(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let digits = digits.trim_start_matches('0').to_owned();
        (negative && !digits.is_empty(), digits)
    };
    let ((a_negative, a), (b_negative, b)) = (parts(a), parts(b));
    let by_size = a.len().cmp(&b.len()).then_with(|| a.cmp(&b));
    match (a_negative, b_negative) {
        (false, false) => by_size,
        (true, true) => by_size.reverse(),
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
    }
}

fn any_integer() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<i128>().prop_map(|n| n.to_string()),
        (-300_i64..300).prop_map(|n| n.to_string()),
        "-?0{0,3}[0-9]{1,400}",
        (0_u32..127, -1_i128..2, any::<bool>()).prop_map(|(bits, off, negative)| {
            let near = (1_i128 << bits.min(125)) + off;
            if negative { -near } else { near }.to_string()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn byte_order_is_numeric_order(a in any_integer(), b in any_integer()) {
        prop_assert_eq!(encode(&a).cmp(&encode(&b)), compare(&a, &b));
    }

    #[test]
    fn neighbours_sort_in_order(a in any::<i128>(), zeros in 0_usize..300) {
        let (a, b) = (a / 2, a / 2 + 1);
        prop_assert!(encode(&a.to_string()) < encode(&b.to_string()));
        let long = |n: i128| format!("{n}{}", "0".repeat(zeros));
        prop_assert!(encode(&long(a)) < encode(&long(b)));
    }

    #[test]
    fn version_is_described_as_it_was_written(text in "-?[1-9][0-9]{0,400}") {
        prop_assert_eq!(describe(&encode(&text)), text);
    }

    #[test]
    fn machine_integers_are_encoded_like_their_text(value in any::<i64>()) {
        let mut out = Vec::new();
        push_i64(value, &mut out);
        prop_assert_eq!(out, encode(&value.to_string()));
    }
}
