//! Goal: no bytes cause a panic or unbounded work.

use std::time::{Duration, Instant};

use super::*;

/// Much longer than any record takes, even on a machine that is busy.
const SOON: Duration = Duration::from_secs(60);
/// An eighth of a megabyte without optimizations: quadratic work would still take longer than [`SOON`].
const MEGABYTE: usize = if cfg!(debug_assertions) { 1 << 17 } else { 1 << 20 };

const SCHEMA: &str = r#"
    syntax = "proto3";
    import "google/protobuf/struct.proto"; import "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto";
    message M {
        int32 a = 1; repeated M list = 2; map<string, M> map = 3; M one = 4; string s = 5; repeated sint64 packed = 6;
        google.protobuf.Struct free = 7; google.protobuf.Any any = 8; google.protobuf.Timestamp at = 9;
        oneof o { int32 x = 10; M y = 11; } map<int32, double> numbers = 12; bytes b = 13;
    }"#;

const PATHS: [&str; 12] =
    ["", "a", "list", "list.1.a", "map.k.list.0", "one.one.s", "s", "packed.2", "free.a.0", "any.value", "at", "y.x"];

/// A record with a value of each kind.
fn record() -> Vec<u8> {
    values::record(
        "08 07 12 04 08 01 12 00 12 00 1a 09 0a 01 6b 12 04 12 02 08 02 22 07 22 05 2a 03 61 62 63 2a 02 c3 a9 \
         32 03 01 02 03 3a 0d 0a 0b 0a 01 61 12 06 32 04 0a 02 20 01 42 06 0a 01 74 12 01 ff 4a 04 08 05 10 00 \
         50 01 5a 02 50 03 62 0b 08 01 11 00 00 00 00 00 00 f0 3f 98 06 01 9b 06 08 01 9c 06 6a 01 00",
    )
}

fn plans(depth_max: usize) -> Vec<Plan> {
    let schema = Schema::parse(SCHEMA, &[]).unwrap();
    let steps = |path: &&str| -> Vec<String> { path.split('.').filter(|s| !s.is_empty()).map(str::to_owned).collect() };
    let all: Vec<_> = PATHS.iter().map(steps).collect();
    let mut plans: Vec<_> = all
        .iter()
        .map(|path| {
            Plan::new(&schema, schema.message(&[0]).unwrap(), &Steps::new(std::slice::from_ref(path)).0, depth_max)
        })
        .collect();
    plans.push(Plan::new(&schema, schema.message(&[0]).unwrap(), &Steps::new(&all).0, depth_max));
    plans
}

/// Whether each plan can read a record, and the number of bytes that the last plan writes.
fn read(plans: &[Plan], record: &[u8]) -> (Vec<bool>, usize) {
    let mut to = Extracted::default();
    let mut are_ok = Vec::new();
    for plan in plans {
        let from = Instant::now();
        are_ok.push(plan.read(record, &mut to).is_ok());
        assert!(from.elapsed() < SOON, "{:?} for {} bytes", from.elapsed(), record.len());
        assert!(to.end() <= WRITTEN_MAX + (WRITTEN_MAX_PER_BYTE + 8) * record.len() + 1_000_000, "{}", to.end());
    }
    (are_ok, to.end())
}

#[test]
fn records_that_end_early_are_errors_or_shorter_ones() {
    let (plans, record) = (plans(100), record());
    assert!(read(&plans, &record).0.iter().all(|is_ok| *is_ok));
    let whole = (0..record.len()).filter(|end| read(&plans, &record[..*end]).0[0]).count();
    // The record may end before each of its fields, and after the last one.
    assert_eq!(whole, 16);
}

#[test]
fn changed_bytes_never_panic() {
    let (plans, record) = (plans(100), record());
    for at in 0..record.len() * 8 {
        let mut changed = record.clone();
        changed[at / 8] ^= 1 << (at % 8);
        read(&plans, &changed);
    }
    for (at, byte) in (0..record.len()).flat_map(|at| [0, 0x7f, 0x80, 0xff].map(|byte| (at, byte))) {
        let mut changed = record.clone();
        changed[at] = byte;
        read(&plans, &changed);
        changed.insert(at, byte);
        read(&plans, &changed);
    }
}

/// Messages in each other: each of these keys, the outermost first, and the length of what follows it.
fn nested(keys: impl DoubleEndedIterator<Item = u8>) -> Vec<u8> {
    // From the inside out, backwards.
    let mut bytes: Vec<u8> = Vec::new();
    for key in keys.rev() {
        let mut before = vec![key];
        prost_reflect::prost::encoding::encode_varint(bytes.len() as u64, &mut before);
        bytes.extend(before.into_iter().rev());
    }
    bytes.reverse();
    bytes
}

/// This many of these keys, over and over, behind those at the beginning.
fn cycle(begin: &[u8], keys: &[u8], count: usize) -> Vec<u8> {
    let keys: Vec<u8> = begin.iter().copied().chain(keys.iter().copied().cycle().take(count)).collect();
    nested(keys.into_iter())
}

/// The ways in which messages of the schema can be in each other: keys at the beginning, and those that repeat.
const CYCLES: [(&[u8], &[u8]); 6] = [
    // Elements of a list; a field.
    (&[], &[0x12]),
    (&[], &[0x22]),
    // The entries of maps, and their values; the same and elements of lists by turns.
    (&[], &[0x1a, 0x12]),
    (&[], &[0x12, 0x1a, 0x12]),
    // In a struct: values and lists of them; values, structs and their entries.
    (&[0x3a, 0x0a, 0x12], &[0x32, 0x0a]),
    (&[0x3a, 0x0a, 0x12], &[0x2a, 0x0a, 0x12]),
];

#[test]
fn messages_in_each_other_are_read_as_deep_as_the_limit() {
    for depth_max in [1, 5, 100, DEPTH_MAX, usize::MAX] {
        let plans = plans(depth_max);
        let deepest = depth_max.min(DEPTH_MAX) - 1;
        assert!(read(&plans, &cycle(&[], &[0x12], deepest)).0[0], "{deepest}");
        assert!(!read(&plans, &cycle(&[], &[0x12], deepest + 1)).0[0], "{deepest}");
    }
    let plans = plans(usize::MAX);
    for (begin, keys) in CYCLES {
        assert!(!read(&plans, &cycle(begin, keys, 50_000)).0[0], "{begin:x?} {keys:x?}");
    }
    // Unknown groups, closed and not.
    let groups = [[0x83, 0x07].repeat(500_000), [0x84, 0x07].repeat(500_000)].concat();
    assert!(!read(&plans, &groups).0[1] && !read(&plans, &groups[..500_000]).0[1]);
}

/// The limit bounds the stack: a test's own has 2 MB, and without optimizations a level takes several times as much of
/// it as with them.
#[test]
fn the_deepest_record_fits_a_small_stack() {
    let plans = plans(usize::MAX);
    let mut to = Extracted::default();
    for (begin, keys) in CYCLES {
        let case = format!("{begin:x?} {keys:x?}");
        let results = (0..4 * DEPTH_MAX).map(|count| plans[0].read(&cycle(begin, keys, count), &mut to));
        let results: Vec<_> = results.collect();
        // All up to the deepest, and none beyond it.
        let deepest = results.iter().rposition(Result::is_ok).unwrap();
        assert!(deepest + 1 + begin.len() >= DEPTH_MAX, "{case}: {deepest}");
        assert!(results[..deepest].iter().all(Result::is_ok), "{case}: {deepest}");
        let beyond = &results[deepest + 1..];
        assert!(
            !beyond.is_empty() && beyond.iter().flat_map(|result| result.as_ref().err()).all(is_too_deep),
            "{case}"
        );
    }
}

fn is_too_deep(error: &Undecodable) -> bool {
    error.what == "nested too deep"
}

#[test]
fn wrong_lengths_are_noticed() {
    let plans = plans(100);
    for hex in [
        "0a ff ff ff ff ff ff ff ff ff 01",
        "12 ff ff ff ff 0f 00",
        "2a 05 61",
        "12 7f 08",
        "12 02 2a 7f 08 01",
        "32 ff ff ff ff ff ff ff ff 7f",
        "08 ff ff ff ff ff ff ff ff ff ff 01",
        "ff ff ff ff ff ff ff ff ff ff 01 00",
    ] {
        assert!(!read(&plans, &values::record(hex)).0[0], "{hex}");
    }
}

#[test]
fn a_megabyte_of_anything_is_read_in_time() {
    // All of it, one place, and some in each other.
    let mut plans = plans(100);
    plans.drain(2..PATHS.len());
    let long = |key: u8| {
        let mut record = vec![key];
        prost_reflect::prost::encoding::encode_varint(MEGABYTE as u64, &mut record);
        record.resize(record.len() + MEGABYTE, 1);
        record
    };
    let many = |part: &[u8]| part.repeat(MEGABYTE / part.len());
    let keys: Vec<u8> = (0..(MEGABYTE / 12) as u32)
        .rev()
        .flat_map(|key| [&[0x1a, 6, 0x0a, 4][..], &key.to_be_bytes().map(|b| b & 0x7f)].concat())
        .collect();
    for record in [
        many(&[0x08, 0x01]),
        many(&[0x12, 0x00]),
        many(&[0x22, 0x00]),
        many(&[0x1a, 0x00]),
        many(&[0x1a, 0x03, 0x0a, 0x01, b'k']),
        keys,
        many(&[0x32, 0x00]),
        many(&[0x32, 0x04, 1, 2, 3, 4]),
        many(&[0x50, 0x01, 0x5a, 0x00]),
        many(&[0x3a, 0x02, 0x0a, 0x00]),
        many(&[0x83, 0x07, 0x84, 0x07]),
        many(&[0x2a, 0x01, b'"']),
        long(0x32),
        long(0x2a),
    ] {
        read(&plans, &record);
    }
}

/// Two bytes of a record may stand for all the defaults of a message.
#[test]
fn defaults_are_not_written_without_end() {
    let fields: String = (1..20_000).map(|number| format!("int32 field_{number} = {number};")).collect();
    let schema = format!("syntax = \"proto3\"; message M {{ repeated N n = 20000; }} message N {{ {fields} }}");
    let schema = Schema::parse(&schema, &[]).unwrap();
    let plan = Plan::new(&schema, schema.message(&[0]).unwrap(), &Steps::new(&[Vec::new()]).0, 100);
    let mut to = Extracted::default();
    let empty = [0x82, 0xe2, 0x09, 0x00];
    let error = plan.read(&empty.repeat(100_000), &mut to).unwrap_err();
    assert_eq!(error.what, "as JSON, the record would be many times as large");
    assert!(to.end() < 2 * WRITTEN_MAX, "{}", to.end());
    plan.read(&empty.repeat(30), &mut to).unwrap();
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read(&plans(100), &bytes);
    }
}
