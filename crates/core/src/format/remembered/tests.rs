//! Goal: what was settled and what is under way are read as they were written, in the bytes of the tables, from either
//! format; whatever else is found is an error, never a panic.

use proptest::prelude::*;

use crate::format::hex;

use super::*;

fn entry(version: Option<&[u8]>) -> EntryRef<'_> {
    EntryRef {
        last_seen: 1,
        version,
        scope: None,
        from_read: false,
        streamed: None,
        owes_tombstone: false,
        key_hash: Some(0x0102_0304),
        contents: crate::format::Contents::NONE,
    }
}

fn settled() -> Settled<'static> {
    Settled {
        entry: entry(Some(&[0x81, 7])),
        how: How::GivenUp { first_attempt_at_ms: 258 },
        place: Some(Place { topic_id: [5; 16], offset: 77 }),
        fingerprint: Some([6; FINGERPRINT_BYTES]),
        result: Some(ResultRef::Whole { status: 201, body: b"{}" }),
    }
}

fn under_way(journal: Journal<'_>) -> Reservation<'_> {
    Reservation {
        entry: entry(Some(&[0x81, 9])),
        place: Place { topic_id: [5; 16], offset: 78 },
        first_attempt_at_ms: 259,
        attempts: 3,
        may_have_acted: true,
        was_sent: true,
        fingerprint: Some([7; FINGERPRINT_BYTES]),
        journal,
    }
}

fn journal() -> JournalWriter {
    let mut journal = JournalWriter::default();
    assert!(journal.push(Step { name: "charge", state: StepState::Done(b"ch_1") }));
    assert!(journal.push(Step { name: "mail", state: StepState::Begun }));
    assert!(journal.push(Step { name: "mail", state: StepState::Rejected("no") }));
    journal
}

fn encoded(remembered: Remembered<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    remembered.encode(&mut bytes);
    bytes
}

fn of(settled: Settled<'_>) -> Vec<u8> {
    encoded(Remembered { settled: Some(settled), reservation: None })
}

fn damaged(bytes: &[u8]) -> String {
    match Remembered::decode(bytes) {
        Err(Error::Damaged { what: "an entry", reason }) => reason,
        other => panic!("{other:?} of {}", hex(bytes)),
    }
}

/// The rows of a table: their names.
fn documented(text: &'static str, head: &str) -> Vec<&'static str> {
    let table = text.lines().skip_while(|line| *line != format!("//! | {head} | bytes |")).skip(2);
    table.map_while(|line| Some(line.strip_prefix("//! | ")?.split_once(" | ")?.0)).collect()
}

const TEXT: &str = include_str!("../remembered.rs");
const ENTRY_7: &str = "00000010 0101010203040000000000000001 8107";
const ENTRY_9: &str = "00000010 0101010203040000000000000001 8109";
const PLACE_77: &str = "0505050505050505 0505050505050505 000000000000004d";

/// The bytes of fields that are named like the rows of a table.
fn written(head: &str, fields: &[(&str, &str)]) -> String {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    assert_eq!(documented(TEXT, head), names);
    fields.iter().map(|(_, bytes)| bytes.replace(' ', "")).collect()
}

#[test]
fn what_is_settled_is_written_as_the_table_says() {
    let whole = settled();
    let digest = ResultRef::Digest { status: 500, sha256: [8; 32], bytes: 70_000 };
    let cases = [
        (whole, ["04", "0000000000000102", "01", "01", "01", "00c9 00000002 7b7d", "", ""]),
        (
            Settled { how: How::Done, result: Some(digest), ..whole },
            [
                "00",
                "",
                "01",
                "01",
                "02",
                "",
                "01f4 0808080808080808080808080808080808080808080808080808080808080808 0000000000011170",
                "",
            ],
        ),
        (
            Settled { how: How::Rejected, result: Some(ResultRef::Reason("no")), ..whole },
            ["01", "", "01", "01", "03", "", "", "0002 6e6f"],
        ),
        (
            Settled { how: How::Conflict, place: None, ..whole },
            ["02", "", "00", "01", "01", "00c9 00000002 7b7d", "", ""],
        ),
        (
            Settled { how: How::InDoubt, fingerprint: None, result: None, ..whole },
            ["03", "", "01", "00", "00", "", "", ""],
        ),
        (Settled { how: How::Dropped, result: None, ..whole }, ["05", "", "01", "01", "00", "", "", ""]),
    ];
    for (settled, [how, first, place, fingerprint, kind, whole, digest, reason]) in cases {
        let value = |flag: &str, value: &str| if flag == "01" { format!("01{value}") } else { "00".to_owned() };
        let fields = [
            ("entry", ENTRY_7),
            ("how", how),
            ("first attempt", first),
            ("place", &value(place, PLACE_77)),
            ("fingerprint", &value(fingerprint, &"06".repeat(20))),
            ("kind of result", kind),
            ("a whole result", whole),
            ("a result's digest", digest),
            ("a reason", reason),
        ];
        let bytes = of(settled);
        assert_eq!(hex(&bytes), "0201".to_owned() + &written("settled", &fields));
        assert_eq!(Remembered::decode(&bytes), Ok(Remembered { settled: Some(settled), reservation: None }));
    }
}

#[test]
fn what_is_under_way_is_written_as_the_table_says() {
    let journal = journal();
    let whole = under_way(journal.as_journal());
    let steps = "0003 06 636861726765 01 00000004 63685f31 04 6d61696c 00 04 6d61696c 02 00000002 6e6f";
    assert_eq!(documented(include_str!("journal.rs"), "a step"), ["name", "state", "result", "reason"]);
    let fingerprint = &("01".to_owned() + &"07".repeat(20));
    let cases = [
        (whole, ["03", fingerprint, steps]),
        (Reservation { was_sent: false, fingerprint: None, ..whole }, ["01", "00", steps]),
        (Reservation { may_have_acted: false, journal: Journal::default(), ..whole }, ["02", fingerprint, "0000"]),
        (Reservation { may_have_acted: false, was_sent: false, ..whole }, ["00", fingerprint, steps]),
    ];
    for (reservation, [flags, fingerprint, journal]) in cases {
        let fields = [
            ("entry", ENTRY_9),
            ("place", "0505050505050505 0505050505050505 000000000000004e"),
            ("first attempt", "0000000000000103"),
            ("attempts", "00000003"),
            ("flags", flags),
            ("fingerprint", fingerprint),
            ("journal", journal),
        ];
        let second = written("under way", &fields);
        let remembered = Remembered { settled: None, reservation: Some(reservation) };
        assert_eq!(hex(&encoded(remembered)), format!("0202{second}"));
        assert_eq!(Remembered::decode(&encoded(remembered)), Ok(remembered));
        // Beside what is settled, which comes first.
        let both = Remembered { settled: Some(settled()), ..remembered };
        assert_eq!(hex(&encoded(both)), format!("0203{}{second}", &hex(&of(settled()))[4..]));
        assert_eq!(Remembered::decode(&encoded(both)), Ok(both));
    }
    assert_eq!(documented(TEXT, "an entry of format 2"), ["format", "parts", "settled", "under way"]);
}

#[test]
fn entry_of_format_1_is_settled_and_done() {
    let mut old = Vec::new();
    entry(Some(&[0x81, 7])).encode(&mut old);
    let remembered = Remembered::decode(&old).unwrap();
    assert_eq!(remembered, Remembered { settled: Some(Settled::done(entry(Some(&[0x81, 7])))), reservation: None });
    let Settled { how, place, fingerprint, result, .. } = remembered.settled.unwrap();
    assert_eq!((how, place, fingerprint, result), (How::Done, None, None, None));
    assert_eq!(encoded(remembered), old, "what says no more is written as ever");
    // Once something is under way beside it, it is still what it was.
    let both = Remembered { reservation: Some(under_way(Journal::default())), ..remembered };
    assert_eq!(Remembered::decode(&encoded(both)), Ok(both));
    assert_eq!(encoded(both)[0], ENTRY_FORMAT_CALLS);
}

/// A reader of format 1 alone must not judge against what it cannot know.
#[test]
fn formats_that_are_not_known_are_refused_by_name() {
    let refused = EntryRef::decode(&of(settled())).unwrap_err();
    assert_eq!(refused.to_string(), "an entry has format 2, this release reads 1");
    let refused = Remembered::decode(&[3, 0xaa, 0xbb]).unwrap_err();
    assert_eq!(refused.to_string(), "an entry has format 3, this release reads 2");
}

#[test]
fn what_ends_early_or_goes_on_is_damaged() {
    let journal = journal();
    let both = Remembered { settled: Some(settled()), reservation: Some(under_way(journal.as_journal())) };
    for remembered in [both, Remembered { settled: None, ..both }, Remembered { reservation: None, ..both }] {
        let mut bytes = encoded(remembered);
        assert_eq!(damaged(&[]), "it is empty");
        for end in 1..bytes.len() {
            assert_eq!(damaged(&bytes[..end]), "it ends early", "{end}");
        }
        bytes.push(0);
        assert_eq!(damaged(&bytes), "bytes follow its end");
    }
}

#[test]
fn what_was_never_written_is_damaged() {
    let (done, reserved) =
        (of(settled()), encoded(Remembered { settled: None, reservation: Some(under_way(journal().as_journal())) }));
    // The places of the fields, by the tables: the entry takes 20 bytes from the third on.
    let reason = of(Settled { result: Some(ResultRef::Reason("no")), ..settled() });
    let cases = [
        (&done, 1, 0, "it has neither part"),
        (&done, 1, 4, "it has parts of a later release"),
        (&done, 6, 2, "it holds an entry of another format than 1"),
        (&done, 7, 128, "it has flags of a later release"),
        (&done, 7, 64, "its contents end early, or their number is impossible"),
        (&done, 7, 0, "bytes follow its end"),
        (&done, 22, 6, "it is settled in an unknown way"),
        (&done, 31, 2, "something is neither there nor missing"),
        (&done, 56, 2, "something is neither there nor missing"),
        (&done, 77, 4, "its result is of an unknown kind"),
        (&reason, 80, 0xff, "its reason is not UTF-8"),
        (&reserved, 58, 4, "it has flags of a later release"),
        (&reserved, 59, 2, "something is neither there nor missing"),
        (&reserved, 83, 0xff, "a step's name is not UTF-8"),
        (&reserved, 89, 3, "a step has come to something unknown"),
        (&reserved, 114, 0xff, "a step's reason is not UTF-8"),
    ];
    for (bytes, at, byte, reason) in cases {
        let mut garbled = bytes.clone();
        garbled[at] = byte;
        assert_eq!(damaged(&garbled), reason, "{at} of {}", hex(bytes));
    }
}

#[test]
fn results_and_reasons_are_bounded() {
    const LONGER: &str = "it is longer than was ever written";
    let body = vec![7; RESULT_BYTES_MAX];
    let text = "x".repeat(REASON_BYTES_MAX);
    // What is there, where its length is, and how many bytes that takes.
    let cases = [(ResultRef::Whole { status: 200, body: &body }, 80, 4), (ResultRef::Reason(&text), 78, 2)];
    for (result, at, bytes_of_length) in cases {
        let settled = Settled { result: Some(result), ..settled() };
        let mut bytes = of(settled);
        assert_eq!(Remembered::decode(&bytes).unwrap().settled, Some(settled));
        let last = at + bytes_of_length - 1;
        assert_eq!(bytes[last], 0);
        bytes[last] = 1;
        bytes.push(7);
        assert_eq!(damaged(&bytes), LONGER);
    }
}

#[test]
#[should_panic(expected = "remembered by its digest")]
fn longer_result_is_not_written() {
    let body = vec![7; RESULT_BYTES_MAX + 1];
    of(Settled { result: Some(ResultRef::Whole { status: 200, body: &body }), ..settled() });
}

#[test]
#[should_panic(expected = "cut off")]
fn longer_reason_is_not_written() {
    let text = "x".repeat(REASON_BYTES_MAX + 1);
    of(Settled { result: Some(ResultRef::Reason(&text)), ..settled() });
}

#[test]
#[should_panic(expected = "by a tombstone")]
fn nothing_is_not_written() {
    encoded(Remembered { settled: None, reservation: None });
}

fn results() -> impl Strategy<Value = (u8, u16, Vec<u8>, String, [u8; 32], u64)> {
    (0..4_u8, any::<u16>(), proptest::collection::vec(any::<u8>(), 0..300), ".{0,100}", any::<[u8; 32]>(), any::<u64>())
}

proptest! {
    #[test]
    fn both_parts_read_back(
        (parts, how, first_attempt_at_ms, attempts) in (1..4_u8, 0..6_u8, any::<i64>(), any::<u32>()),
        version in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300)),
        place in any::<Option<([u8; 16], i64)>>(),
        fingerprint in any::<Option<[u8; FINGERPRINT_BYTES]>>(),
        (kind, status, body, text, sha256, bytes) in results(),
        (may_have_acted, was_sent) in any::<(bool, bool)>(),
        steps in proptest::collection::vec((".{0,20}", proptest::option::of(proptest::collection::vec(any::<u8>(), 0..30))), 0..5),
    ) {
        let place = place.map(|(topic_id, offset)| Place { topic_id, offset });
        let how = match how {
            0 => How::Done,
            1 => How::Rejected,
            2 => How::Conflict,
            3 => How::InDoubt,
            4 => How::GivenUp { first_attempt_at_ms },
            _ => How::Dropped,
        };
        let result = match kind {
            0 => None,
            1 => Some(ResultRef::Whole { status, body: &body }),
            2 => Some(ResultRef::Digest { status, sha256, bytes }),
            _ => Some(ResultRef::Reason(&text)),
        };
        let mut journal = JournalWriter::default();
        for (name, result) in &steps {
            let state = match result {
                None => StepState::Begun,
                Some(result) if result.is_empty() => StepState::Rejected(name),
                Some(result) => StepState::Done(result),
            };
            assert!(journal.push(Step { name, state }));
        }
        let entry = entry(version.as_deref());
        let settled = Settled { entry, how, place, fingerprint, result };
        let reservation = Reservation {
            entry,
            place: place.unwrap_or(Place { topic_id: [0; 16], offset: i64::MAX }),
            first_attempt_at_ms,
            attempts,
            may_have_acted,
            was_sent,
            fingerprint,
            journal: journal.as_journal(),
        };
        let remembered = Remembered {
            settled: (parts & 1 != 0).then_some(settled),
            reservation: (parts & 2 != 0).then_some(reservation),
        };
        let bytes = encoded(remembered);
        prop_assert_eq!(Remembered::decode(&bytes), Ok(remembered));
    }

    #[test]
    fn no_garbled_bytes_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let journal = journal();
        let reservation = Some(under_way(journal.as_journal()));
        let mut bytes = encoded(Remembered { settled: Some(settled()), reservation });
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = Remembered::decode(&bytes[..cut.index(bytes.len())]);
        if let Ok(remembered) = Remembered::decode(&bytes) {
            remembered.reservation.iter().for_each(|reservation| reservation.journal.steps().for_each(drop));
            let written = encoded(remembered);
            prop_assert_eq!(Remembered::decode(&written), Ok(remembered));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), parts in 0..4_u8) {
        let _ = Remembered::decode(&bytes);
        let _ = Remembered::decode(&[&[2, parts, 0, 0, 0, 14, 1, 0], &bytes[..]].concat());
    }
}
