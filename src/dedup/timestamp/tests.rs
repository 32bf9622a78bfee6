//! Goal: a timestamp is read exactly, however it is written, and nothing else is accepted.

use proptest::prelude::*;

use super::*;

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
    ] {
        assert_eq!(parse(text.as_bytes()), Some(expected), "{text}");
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
        "2020-05-13T15:40:06.1234567891Z",
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

proptest! {
    #[test]
    fn formatted_timestamp_parses_back(seconds in -60_000_000_000_i64..250_000_000_000, nanoseconds in 0..1_000_000_000_i64) {
        let moment = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        let text = format(moment).unwrap();
        prop_assert_eq!(parse(text.as_bytes()), Some(moment));
        prop_assert_eq!(parse(text.trim_end_matches('Z').replace('T', " ").as_bytes()), Some(moment));
    }

    #[test]
    fn no_text_causes_a_panic(text in "[0-9TZ:. +-]{0,40}", shaped in "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.Zz:+-]{0,12}") {
        parse(text.as_bytes());
        parse(shaped.as_bytes());
    }
}
