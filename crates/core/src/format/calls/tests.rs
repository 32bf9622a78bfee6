//! Goal: what a position record says about calls is read as it was written, in the bytes of the table; where it says
//! nothing, the bytes are those of format 1; whatever else is found is an error.

use proptest::prelude::*;

use crate::format::hex;
use crate::format::tests::position;

use super::super::SURELY_READABLE_BYTES;
use super::*;

fn calls() -> Calls {
    Calls {
        beyond: vec![(302, 303), (303, 310), (5_000_000_000, 5_000_000_001)],
        grants: vec![Grant { to: 1_000, since_ms: 1_700_000_000_000 }, Grant { to: 1_001, since_ms: -1 }],
        control: Some(Control { topic_id: [5; 16], next: 70_000 }),
    }
}

fn damaged(bytes: &[u8]) -> String {
    match PositionRecord::decode_with_calls(bytes) {
        Err(Error::Damaged { what: "a position record", reason }) => reason,
        other => panic!("{other:?}"),
    }
}

/// The rows of this module's table.
fn documented() -> Vec<&'static str> {
    let lines = include_str!("../calls.rs").lines();
    let table = lines.skip_while(|line| *line != "//! | position record, calls | bytes |").skip(2);
    table.map_while(|line| line.strip_prefix("//! | ")).collect()
}

#[test]
fn calls_are_written_as_the_table_says() {
    let format_1 = hex(&position().encode());
    let cases = [
        (
            Calls { beyond: calls().beyond, ..Calls::default() },
            ["03 fb5c02 fb5e02 fb5e02 fb6c02 fd00e40b5402000000 fd02e40b5402000000", "00", "00"],
        ),
        (Calls { grants: calls().grants, ..Calls::default() }, ["00", "02 fbd007 fd00d0ca9f17030000 fbd207 01", "00"]),
        (
            Calls { control: calls().control, ..Calls::default() },
            ["00", "00", "01 05050505050505050505050505050505 fce0220200"],
        ),
    ];
    let rows = [
        "beyond | list of: from zigzag, to zigzag |",
        "grants | list of: to zigzag, since zigzag |",
        "control | optional: topic id 16 bytes, next zigzag |",
    ];
    assert_eq!(documented(), rows);
    for (calls, fields) in cases {
        let bytes = position().encode_with(&calls);
        assert_eq!(hex(&bytes), format!("02{}{}", &format_1[2..], fields.concat().replace(' ', "")));
        assert_eq!(PositionRecord::decode_with_calls(&bytes), Ok((position(), calls)));
    }
}

#[test]
fn nothing_about_calls_is_format_1() {
    let bytes = position().encode_with(&Calls::default());
    assert_eq!(bytes, position().encode());
    assert_eq!(PositionRecord::decode_with_calls(&bytes), Ok((position(), Calls::default())));
    assert!(Calls::default().is_empty());
    assert!(!calls().is_empty());
}

/// A reader of format 1 alone must not go on as if nothing had been settled beyond.
#[test]
fn reader_of_format_1_refuses_what_it_cannot_know() {
    let refused = PositionRecord::decode(&position().encode_with(&calls())).unwrap_err();
    assert_eq!(refused.to_string(), "a position record has format 2, this release reads 1");
}

#[test]
fn later_format_is_rejected_by_name() {
    let refused = PositionRecord::decode_with_calls(&[3, 0xaa, 0xbb]).unwrap_err();
    assert_eq!(refused.to_string(), "a position record has format 3, this release reads 2");
}

#[test]
fn what_ends_early_or_goes_on_is_damaged() {
    let mut bytes = position().encode_with(&calls());
    for end in 0..bytes.len() {
        damaged(&bytes[..end]);
    }
    bytes.push(0);
    assert_eq!(damaged(&bytes), "bytes follow its end");
    assert_eq!(damaged(&[]), "it is empty");
    // A record of format 1 is not one of format 2 that says nothing.
    let mut bytes = position().encode();
    bytes[0] = 2;
    damaged(&bytes);
}

#[test]
fn what_is_not_in_order_is_damaged() {
    let grants = |ends: &[i64]| ends.iter().map(|&to| Grant { to, since_ms: 0 }).collect();
    let beyond = |beyond: &[(i64, i64)]| Calls { beyond: beyond.to_vec(), ..Calls::default() };
    let cases = [
        (beyond(&[(5, 5)]), "its ranges are not in order"),
        (beyond(&[(6, 5)]), "its ranges are not in order"),
        (beyond(&[(5, 8), (7, 9)]), "its ranges are not in order"),
        (beyond(&[(7, 9), (5, 6)]), "its ranges are not in order"),
        (Calls { grants: grants(&[5, 5]), ..Calls::default() }, "its grants are not in order"),
        (Calls { grants: grants(&[5, 4]), ..Calls::default() }, "its grants are not in order"),
    ];
    for (calls, reason) in cases {
        let bytes = encode_struct(POSITION_FORMAT_CALLS, (position(), &calls));
        assert_eq!(damaged(&bytes), reason, "{calls:?}");
    }
}

#[test]
#[should_panic(expected = "its ranges are not in order")]
fn what_is_not_in_order_is_not_written() {
    position().encode_with(&Calls { beyond: vec![(5, 8), (7, 9)], ..Calls::default() });
}

#[test]
fn readability_is_known_before_writing() {
    let mut unreadable = 0;
    for count in [0, 1, 1_024, 10_000, 30_000, 60_000, 70_000] {
        for apart in [2, 1 << 40] {
            let beyond = (0..count).map(|i| (i * apart, i * apart + 1)).collect();
            let grants = (1..=count).map(|to| Grant { to, since_ms: 0 }).collect();
            for calls in [Calls { beyond, ..calls() }, Calls { grants, ..calls() }] {
                let bytes = position().encode_with(&calls);
                let read = PositionRecord::decode_with_calls(&bytes);
                assert_eq!(PositionRecord::is_readable(&bytes), read.is_ok(), "{count}");
                unreadable += usize::from(read.is_err());
                assert!(read.is_err() || read == Ok((position(), calls)), "{count}");
            }
        }
    }
    assert!(unreadable > 0, "there is a bound");
    // Not even decoded, since it is short: the most that there can be, of the shortest.
    let grants = (0..60).map(|to| Grant { to, since_ms: 0 }).chain((60..8_000).map(|to| Grant { to, since_ms: 1 }));
    let bytes = position().encode_with(&Calls { grants: grants.collect(), ..Calls::default() });
    assert!(bytes.len() < SURELY_READABLE_BYTES, "{}", bytes.len());
    PositionRecord::decode_with_calls(&bytes).unwrap();
}

proptest! {
    #[test]
    fn calls_read_back(
        offsets in proptest::collection::btree_set(any::<i64>(), 0..40),
        ends in proptest::collection::btree_map(any::<i64>(), any::<i64>(), 0..10),
        control in any::<Option<([u8; 16], i64)>>(),
    ) {
        let offsets: Vec<i64> = offsets.into_iter().collect();
        let calls = Calls {
            beyond: offsets.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
            grants: ends.into_iter().map(|(to, since_ms)| Grant { to, since_ms }).collect(),
            control: control.map(|(topic_id, next)| Control { topic_id, next }),
        };
        let bytes = position().encode_with(&calls);
        prop_assert!(PositionRecord::is_readable(&bytes));
        prop_assert_eq!(PositionRecord::decode_with_calls(&bytes), Ok((position(), calls)));
    }

    #[test]
    fn no_garbled_bytes_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = position().encode_with(&calls());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok((position, calls)) = PositionRecord::decode_with_calls(&bytes) {
            prop_assert_eq!(PositionRecord::decode_with_calls(&position.encode_with(&calls)), Ok((position, calls)));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = PositionRecord::decode_with_calls(&[&[2][..], &bytes].concat());
    }
}
