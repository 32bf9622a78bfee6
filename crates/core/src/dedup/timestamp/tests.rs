//! Goal: a timestamp is read exactly, however it is written, and nothing else is accepted.

use proptest::prelude::*;

use super::*;

/// The nanoseconds of a text that names no more.
fn nanoseconds(text: &str) -> Option<i128> {
    parse(text.as_bytes()).filter(|moment| moment.finer.is_empty()).map(|moment| moment.nanoseconds)
}

/// The nanoseconds of a text, and the digits behind them.
fn nanoseconds_of(text: &str) -> (i128, String) {
    let Moment { nanoseconds, finer } = parse(text.as_bytes()).unwrap();
    (nanoseconds, String::from_utf8(finer.to_vec()).unwrap())
}

#[test]
fn timestamps_are_read_to_the_nanosecond() {
    let second = 1_000_000_000_i128;
    for (text, expected) in [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1969-12-31T23:59:59.999999999z", -1),
        ("2020-05-13 15:40:06.000000", 1_589_384_406 * second),
        ("2020-05-13T15:40:07", 1_589_384_407 * second),
        ("2020-05-13t17:40:06.5+02:00", 1_589_384_406 * second + second / 2),
        ("2020-05-13 13:10:06-02:30", 1_589_384_406 * second),
        ("2016-12-31T23:59:60Z", 1_483_228_799 * second),
        ("2016-12-31t23:59:60.5z", 1_483_228_799 * second + second / 2),
        ("2020-05-13T15:40:06.1234567890000Z", 1_589_384_406 * second + 123_456_789),
        ("0000-01-01T00:00:00Z", -62_167_219_200 * second),
        ("9600-02-29T12:00:00Z", 240_784_660_800 * second),
        ("9999-12-31T23:59:59.999999999Z", 253_402_300_799 * second + 999_999_999),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139 * second),
        ("9999-12-31 23:59:59", 253_402_300_799 * second),
    ] {
        assert_eq!(nanoseconds(text), Some(expected), "{text}");
    }
}

#[test]
fn anything_but_a_timestamp_is_rejected() {
    for text in [
        "",
        "2020-05-13",
        "2020-05-13T15",
        "2020-05-13T15:40",
        "15:40:06",
        "2020-02-30T00:00:00Z",
        "2020-05-13T25:00:00Z",
        "2020-05-13T15:40:06.Z",
        "2020-05-13T15:40:06.12345678901.5Z",
        "9999-02-29T00:00:00Z",
        "2020-05-13T15:40:06 Z",
        "2020-05-13T15:40:06+02:00[Europe/Berlin]",
        "2020-05-13T15:40:06Zx",
        "2020-05-13T15:40:06Z+02:00",
        "20200513T154006Z",
        "2020-W20-3T15:40:06Z",
        "２020-05-13T15:40:06Z",
    ] {
        assert_eq!(parse(text.as_bytes()), None, "{text}");
    }
    assert_eq!(parse(b"2020-05-13T15:40:06\xff"), None);
}

#[test]
fn digits_behind_the_nanoseconds_are_kept() {
    let finer = |text: &'static str| {
        let Moment { nanoseconds, finer } = parse(text.as_bytes()).unwrap();
        (nanoseconds, std::str::from_utf8(finer).unwrap())
    };
    // Db2's TIMESTAMP(12), as IBM's Data Replication writes it.
    assert_eq!(finer("2019-06-18 12:00:00.123456000001"), (1_560_859_200_123_456_000, "001"));
    assert_eq!(finer("1969-12-31T23:59:59.9999999995Z"), (-1, "5"));
    assert_eq!(finer("2020-05-13T15:40:06.00000000000000000010+02:00"), (1_589_377_206_000_000_000, "0000000001"));
    assert_eq!(finer("9999-12-31T23:59:59.9999999999Z"), (LAST, "9"));
}

proptest! {
    #[test]
    fn formatted_timestamp_parses_back(seconds in -60_000_000_000_i64..=253_402_300_799, nanoseconds in 0..1_000_000_000_i64) {
        let moment = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        let text = format(moment, "").unwrap();
        prop_assert_eq!(nanoseconds_of(&text), (moment, String::new()));
        prop_assert_eq!(nanoseconds_of(&text.trim_end_matches('Z').replace('T', " ")), (moment, String::new()));
        let text = format(moment, "0102").unwrap();
        prop_assert_eq!(nanoseconds_of(&text), (moment, "0102".to_owned()));
    }

    #[test]
    fn no_text_causes_a_panic(text in "[0-9TZ:. +-]{0,40}", shaped in "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.Zz:+-]{0,12}") {
        parse(text.as_bytes());
        parse(shaped.as_bytes());
    }
}
