//! Goal: for every kind of version the bytes sort as the values do, and are described as those values.

use super::*;
use crate::dedup::json::Tape;
use crate::dedup::vocabulary::TimeUnit;

fn decimal(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    push_decimal(text.as_bytes(), 300, &mut vec![9], &mut out).unwrap();
    out
}

fn text(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_text(text, &mut out).unwrap();
    out
}

fn hex(text: &str) -> Result<Vec<u8>, NotVersion> {
    let mut out = Vec::new();
    push_hex(text.as_bytes(), 300, &mut out).map(|()| out)
}

fn binlog(text: &str) -> Result<(Vec<u8>, String), NotVersion> {
    let mut out = Vec::new();
    let base = push_binlog(text.as_bytes(), 300, &mut Vec::new(), &mut out)?;
    Ok((out, String::from_utf8_lossy(base).into_owned()))
}

fn sequence(text: &str) -> Result<Vec<u8>, NotVersion> {
    let mut out = Vec::new();
    push_sequence(text.as_bytes(), 300, &mut Tape::default(), &mut Vec::new(), &mut out).map(|()| out)
}

fn moment(text: &str, unit: TimeUnit) -> Result<Vec<u8>, NotVersion> {
    let mut out = Vec::new();
    push_moment_number(text.as_bytes(), unit, 300, &mut vec![1], &mut vec![1], &mut out).map(|()| out)
}

fn described(bytes: &[u8], kind: VersionKind) -> String {
    let described = super::super::describe(bytes, &rule(&[kind]));
    assert!(serde_json::from_str::<serde::de::IgnoredAny>(&described).is_ok(), "{described}");
    described
}

#[test]
fn bytes_of_every_kind_are_as_documented() {
    assert_eq!(decimal("0.00"), [0x80]);
    assert_eq!(decimal("12.3"), [0xc0, 0x81, 2, 13, 31, 0]);
    assert_eq!(decimal("-12.3"), [0x3f, 0x7e, 0xfd, 0xf2, 0xe0, 0xff]);
    assert_eq!(text(b"a\0"), [b'a', 0, 0xff, 0, 0]);
    assert_eq!(hex("0x1b:00:100").unwrap(), [2, 0x81, 0x1b, 2, 0x80, 2, 0x82, 1, 0, 0]);
    assert_eq!(binlog("mysql-bin.000003:154").unwrap(), (vec![2, 0x81, 3, 2, 0x81, 154, 0], "mysql-bin".to_owned()));
    assert_eq!(sequence(r#"[null, "8", 4]"#).unwrap(), [1, 2, 0x81, 8, 2, 0x81, 4, 0]);
    assert_eq!(moment("1", TimeUnit::Microseconds).unwrap(), encode("1000"));
}

#[test]
fn hex_groups_are_compared_as_numbers() {
    let rising = [
        "00",
        "00000025:00000448:0003",
        "00000025:00000448:0004",
        "00000025:00000449",
        "27",
        "27:0",
        "0100",
        "16/B374D848",
    ];
    let bytes: Vec<_> = rising.iter().map(|text| hex(text).unwrap()).collect();
    assert!(bytes[..7].is_sorted_by(|a, b| a < b));
    assert!(hex("16/B374D848").unwrap() < hex("0x17-0").unwrap());
    assert_eq!(hex("0X1F").unwrap(), hex("001f").unwrap());
    assert_eq!(described(&bytes[1], VersionKind::Hex), r#""25:448:3""#);
    for text in ["g", "1 2", "1::g", "1:g:", "::x"] {
        assert_eq!(hex(text), Err(NotVersion::Malformed), "{text}");
    }
    for (text, group, groups) in [
        ("", 1, 1),
        ("0x", 1, 1),
        ("1:", 2, 2),
        (":1", 1, 2),
        ("0000001c::0003", 2, 3),
        ("00000a:  :3", 2, 3),
        ("::", 1, 3),
    ] {
        assert_eq!(hex(text), Err(NotVersion::EmptyGroup { group, groups }), "{text}");
    }
    assert!(matches!(hex(&"0:".repeat(400)), Err(NotVersion::TooLong(_) | NotVersion::EmptyGroup { .. })));
    assert!(matches!(hex(&"f".repeat(301)), Err(NotVersion::TooLong(_))));
}

#[test]
fn binlog_files_are_compared_by_their_numbers() {
    let of = |text| binlog(text).unwrap().0;
    assert!(of("b.999999:1") < of("b.1000000"));
    // Hudi's MySQL cases.
    assert!(of("b.1:50") < of("b.1:100") && of("b.0:23") < of("b.0:123") && of("b.1:200") < of("b.2:100"));
    assert_eq!(binlog("a:b.c.7").unwrap().1, "a:b.c");
    assert_eq!(described(&of("master.000006:800911"), VersionKind::Binlog), "[6,800911]");
    for text in ["", "b", ".1", "b.", "b.x", "b.1:", "b.1:x", "b.-1", "5"] {
        assert_eq!(binlog(text), Err(NotVersion::Malformed), "{text}");
    }
}

#[test]
fn sequences_are_compared_element_by_element() {
    // Materialize's github-5668: the first five rise, the last is older.
    let of = |text| sequence(text).unwrap();
    let rising = ["[null,3]", "[null,5]", "[null,7]", r#"["8",4]"#, r#"["8",6]"#].map(of);
    assert!(rising.is_sorted_by(|a, b| a < b));
    assert!(of("[null,1]") < rising[0]);
    assert!(of("[]") < of("[null]") && of("[1]") < of("[1,null]") && of("[-2]") < of("[-1]"));
    assert_eq!(described(&of(r#"["36",null,-4]"#), VersionKind::Sequence), "[36,null,-4]");
    for text in ["", "1", "{}", "[", "[true]", "[1.5]", "[[1]]", r#"["x"]"#, "[1,]"] {
        assert_eq!(sequence(text), Err(NotVersion::Malformed), "{text}");
    }
    assert!(matches!(sequence(&format!("[{}null]", "null,".repeat(300))), Err(NotVersion::TooLong(_))));
}

#[test]
fn numeric_timestamps_are_exact() {
    let at = |text: &str, unit| described(&moment(text, unit).unwrap(), VersionKind::Timestamp);
    assert_eq!(at("1589384406", TimeUnit::Seconds), r#""2020-05-13T15:40:06Z""#);
    assert_eq!(at("1589384406.000000001", TimeUnit::Seconds), r#""2020-05-13T15:40:06.000000001Z""#);
    assert_eq!(at("1.589384406e12", TimeUnit::Milliseconds), r#""2020-05-13T15:40:06Z""#);
    assert_eq!(at("-1", TimeUnit::Nanoseconds), r#""1969-12-31T23:59:59.999999999Z""#);
    assert_eq!(at("0", TimeUnit::Microseconds), r#""1970-01-01T00:00:00Z""#);
    // Beyond the calendar it still sorts, and is described in nanoseconds.
    assert_eq!(at("-9223372036854776000", TimeUnit::Seconds), "-9223372036854776000000000000");
    assert_eq!(at(&"7".repeat(60), TimeUnit::Nanoseconds), "7".repeat(60));
    assert_eq!(at(&format!("-{}", "7".repeat(60)), TimeUnit::Seconds), format!("-{}000000000", "7".repeat(60)));
    assert_eq!(at("0.1", TimeUnit::Nanoseconds), r#""1970-01-01T00:00:00.0000000001Z""#);
    assert_eq!(at("-0.25", TimeUnit::Nanoseconds), r#""1969-12-31T23:59:59.99999999975Z""#);
    assert_eq!(at("-1.5e-10", TimeUnit::Seconds), r#""1969-12-31T23:59:59.99999999985Z""#);
    let far = format!("{}.5", "7".repeat(36));
    assert_eq!(at(&far, TimeUnit::Nanoseconds), far);
    assert_eq!(at(&format!("-{far}"), TimeUnit::Nanoseconds), format!("-{far}"));
    let farther = format!("-{}.5", "9".repeat(60));
    assert!(at(&farther, TimeUnit::Nanoseconds).starts_with("{\"hex\""), "too far for a number here, and it sorts");
    assert!(matches!(moment("1e999999999999999999", TimeUnit::Seconds), Err(NotVersion::TooLong(_))));
    assert!(matches!(moment("1e-999999999999999999", TimeUnit::Seconds), Err(NotVersion::TooLong(_))));
    assert_eq!(moment("x", TimeUnit::Seconds), Err(NotVersion::Malformed));
}

#[test]
fn decimals_and_texts_beyond_their_bounds_are_rejected() {
    let rejected = |text: &str| push_decimal(text.as_bytes(), 300, &mut Vec::new(), &mut Vec::new());
    for text in ["", "-", ".5", "1.", "+1", "1e", "1e+", "0x1", "1 ", "1.2.3", "--1"] {
        assert_eq!(rejected(text), Err(NotVersion::Malformed), "{text}");
    }
    assert_eq!(rejected(&"9".repeat(301)), Err(NotVersion::TooLong(301)));
    assert!(matches!(rejected("1e9999999999999999999"), Err(NotVersion::TooLong(_))));
    assert_eq!(described(&decimal("007.50"), VersionKind::Decimal), "7.5");
    assert_eq!(described(&decimal("-1e999999999999999999"), VersionKind::Decimal), "-1e999999999999999999");
    let long = [b'x'; TEXT_BYTES_MAX + 1];
    assert_eq!(push_text(&long, &mut Vec::new()), Err(NotVersion::TextTooLong(long.len())));
    assert_eq!(described(&text("é\0\"".as_bytes()), VersionKind::Text), r#""é\u0000\"""#);
}

/// An integer and how many of its digits come after the point.
fn any_decimal() -> impl Strategy<Value = (i64, u32)> {
    (prop_oneof![-1200_i64..1200, any::<i64>()], 0_u32..8)
}

fn written((digits, places): (i64, u32)) -> String {
    format!("{digits}e-{places}")
}

/// Both times 10^8.
fn scaled((digits, places): (i64, u32)) -> i128 {
    i128::from(digits) * 10_i128.pow(8 - places)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn decimals_sort_in_order(a in any_decimal(), b in any_decimal()) {
        prop_assert_eq!(decimal(&written(a)).cmp(&decimal(&written(b))), scaled(a).cmp(&scaled(b)));
    }

    #[test]
    fn decimal_is_described_as_it_was(digits in "[1-9]([0-9]{0,40}[1-9])?", fraction in "[0-9]{0,3}[1-9]", negative in any::<bool>()) {
        let text = format!("{}{digits}.{fraction}", if negative { "-" } else { "" });
        prop_assert_eq!(described(&decimal(&text), VersionKind::Decimal), text);
    }

    #[test]
    fn texts_sort_by_their_bytes(a in "[\u{0}-\u{2}a\u{ff}]{0,4}", b in "[\u{0}-\u{2}a\u{ff}]{0,4}") {
        prop_assert_eq!(text(a.as_bytes()).cmp(&text(b.as_bytes())), a.as_bytes().cmp(b.as_bytes()));
    }

    /// No part's bytes are a prefix of another's, so a tuple is compared element by element.
    #[test]
    fn no_part_is_a_prefix_of_another(a in any_decimal(), b in any_decimal(), s in "[\u{0}-\u{2}a]{0,3}", t in "[\u{0}-\u{2}a]{0,3}") {
        let (x, y) = (decimal(&written(a)), decimal(&written(b)));
        prop_assert!(x == y || !x.starts_with(&y));
        let (x, y) = (text(s.as_bytes()), text(t.as_bytes()));
        prop_assert!(x == y || !x.starts_with(&y));
        let (x, y) = (encode(&a.0.to_string()), encode(&b.0.to_string()));
        prop_assert!(x == y || !x.starts_with(&y));
    }

    #[test]
    fn hex_sorts_in_order(a in prop::collection::vec(0_u64..1 << 40, 1..4), b in prop::collection::vec(0_u64..1 << 40, 1..4)) {
        let of = |groups: &[u64]| {
            let groups: Vec<_> = groups.iter().map(|group| format!("{group:08x}")).collect();
            hex(&groups.join(":")).unwrap()
        };
        prop_assert_eq!(of(&a).cmp(&of(&b)), a.cmp(&b));
    }

    #[test]
    fn sequences_sort_in_order(a in prop::collection::vec(prop::option::of(any::<i64>()), 0..4), b in prop::collection::vec(prop::option::of(-2_i64..3), 0..4)) {
        let of = |elements: &[Option<i64>]| sequence(&serde_json::to_string(elements).unwrap()).unwrap();
        prop_assert_eq!(of(&a).cmp(&of(&b)), a.cmp(&b));
        prop_assert_eq!(described(&of(&a), VersionKind::Sequence), serde_json::to_string(&a).unwrap());
    }

    #[test]
    fn moments_between_nanoseconds_sort_in_order(
        a in -3_000_i64..3_000, b in -3_000_i64..3_000, places in 1_i64..4, after in prop::collection::vec(0_u8..4, 0..3)
    ) {
        // Of a version of several parts, what follows a part begins with a byte from 1 to 3.
        let of = |value: i64| {
            let mut bytes = moment(&format!("{value}e-{places}"), TimeUnit::Nanoseconds).unwrap();
            bytes.extend(after.iter().map(|byte| byte + 1).filter(|byte| *byte <= 3));
            bytes
        };
        prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
    }

    #[test]
    fn what_follows_a_moment_counts_only_if_it_is_the_same(whole in -2_i64..3, finer in 0_u32..20, first in 1_u8..4, second in 1_u8..4) {
        let of = |text: &str, byte: u8| [moment(text, TimeUnit::Nanoseconds).unwrap(), vec![byte]].concat();
        let finer = format!("{whole}e0").replace("e0", &format!(".{:02}", finer + 1));
        let order = if whole < 0 || finer.starts_with('-') { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less };
        prop_assert_eq!(of(&whole.to_string(), first).cmp(&of(&finer, second)), order);
    }

    #[test]
    fn timestamps_sort_in_order(a in any::<i64>(), b in any::<i64>()) {
        let of = |value: i64, unit| moment(&value.to_string(), unit).unwrap();
        prop_assert_eq!(of(a, TimeUnit::Seconds).cmp(&of(b, TimeUnit::Nanoseconds)), (i128::from(a) * 1_000_000_000).cmp(&i128::from(b)));
    }
}
