//! The persisted bytes: they read back as written, and do not change from release to release.

use proptest::prelude::*;

use super::*;

fn token() -> Token {
    Token { lane: 0xabcd, transaction: 258, changelog_id: [7; 16], partition: 3 }
}

pub(super) fn position() -> PositionRecord {
    PositionRecord {
        token: token(),
        owner: "ratchet.payments.1f.0".to_owned(),
        input_id: [9; 16],
        processed: vec![(0, 5), (9, 300)],
        stream_time: 1_700_000_000_000,
        horizon: i64::MIN,
        rules_digest: [1; 32],
        generation: 1,
        task_count: 4,
        truncates: 2,
        scopes: vec![
            Scope {
                bytes: b"\x04\x01a".to_vec(),
                segments: vec![
                    Segment { above: None, began: 0 },
                    Segment { above: Some(b"\x81\x09".to_vec()), began: 200 },
                ],
                reached: vec![
                    Reached { offset: 3, version: b"\x81\x09".to_vec() },
                    Reached { offset: 299, version: b"\x81\x0b".to_vec() },
                ],
            },
            Scope { bytes: b"\x04\x01b".to_vec(), segments: vec![Segment { above: None, began: 4 }], reached: vec![] },
        ],
    }
}

#[test]
fn entry_bytes_do_not_change() {
    let mut out = Vec::new();
    EntryRef {
        last_seen: 1,
        version: Some(&[0x81, 7]),
        scope: None,
        from_read: false,
        streamed: None,
        owes_tombstone: true,
        key_hash: Some(0x0102_0304),
        contents: Contents::NONE,
    }
    .encode(&mut out);
    assert_eq!(hex(&out), "0103010203040000000000000001".to_owned() + "8107");
}

#[test]
fn bytes_of_entry_with_contents_do_not_change() {
    let mut list = ContentsList::default();
    list.push(Digest::new(0x000f_0102_0304_0506, 3, false));
    list.push(Digest::new(7, 3, true));
    let entry = EntryRef {
        last_seen: 1,
        version: Some(&[0x81, 7]),
        scope: Some(3),
        from_read: false,
        streamed: None,
        owes_tombstone: false,
        key_hash: Some(0x0102_0304),
        contents: list.as_contents(),
    };
    let mut out = Vec::new();
    entry.encode(&mut out);
    let contents = "02".to_owned() + "003f010203040506" + "8030000000000007";
    assert_eq!(hex(&out), "0145010203040000000000000001".to_owned() + &contents + "0003" + "8107");
    assert_eq!(EntryRef::decode(&out), Ok(entry));
    for (count, what) in [(0, "none"), (3, "more than there are"), (9, "more than an entry knows")] {
        out[14] = count;
        assert!(matches!(EntryRef::decode(&out), Err(Error::Damaged { .. })), "{what}");
    }
}

#[test]
fn bytes_of_entry_with_two_versions_do_not_change() {
    let entry = EntryRef {
        last_seen: 1,
        version: Some(&[0x81, 9]),
        scope: Some(3),
        from_read: true,
        streamed: Some(&[0x81, 7]),
        owes_tombstone: false,
        key_hash: Some(0x0102_0304),
        contents: Contents::NONE,
    };
    let mut out = Vec::new();
    entry.encode(&mut out);
    assert_eq!(hex(&out), "0135010203040000000000000001".to_owned() + "0003" + "000000028107" + "8109");
    assert_eq!(EntryRef::decode(&out), Ok(entry));
    // A streamed version with no version above it, or below one that did not come from a read; and one that ends early.
    for flags in [0x34, 0x25] {
        out[1] = flags;
        assert!(matches!(EntryRef::decode(&out), Err(Error::Damaged { .. })));
    }
    out[1] = 0x35;
    assert!(matches!(EntryRef::decode(&out[..21]), Err(Error::Damaged { .. })));
}

#[test]
fn position_record_bytes_do_not_change() {
    let bytes = position().encode();
    assert_eq!(PositionRecord::decode(&bytes), Ok(position()));
    let golden = [
        "01",                                                // format
        "fbcdab fb0201 07070707070707070707070707070707 06", // token
        "15 726174636865742e7061796d656e74732e31662e30",     // owner
        "09090909090909090909090909090909",                  // input id
        "02 000a 12fb5802",                                  // processed
        "fd 00d0ca9f17030000",                               // stream time
        "fd ffffffffffffffff",                               // horizon
        "0101010101010101010101010101010101010101010101010101010101010101",
        "01 04", // generation, task count
        "02",    // truncates
        "02",    // scopes
        "03 040161 02 00 00 01 02 8109 fb9001 02 06 02 8109 fb5602 02 810b",
        "03 040162 01 00 08 00",
    ];
    assert_eq!(hex(&bytes), golden.concat().replace(' ', ""));
}

/// The rows of a table in this module's documentation, without its header.
fn documented(head: &str) -> Vec<(String, String)> {
    let lines = include_str!("../format.rs").lines().skip_while(|line| *line != format!("//! | {head} | bytes |"));
    let rows = lines.skip(2).map_while(|line| line.strip_prefix("//! | ")?.strip_suffix(" |")?.split_once(" | "));
    rows.map(|(name, bytes)| (name.to_owned(), bytes.to_owned())).collect()
}

/// Bytes written as documented, without bincode; each field with its row's name and encoding.
#[derive(Default)]
struct ByHand {
    rows: Vec<(String, String)>,
    bytes: Vec<u8>,
}

impl ByHand {
    fn row(&mut self, name: &str, how: &str, bytes: &[u8]) {
        self.rows.push((name.to_owned(), how.to_owned()));
        self.bytes.extend_from_slice(bytes);
    }

    fn token(&mut self, token: &Token) {
        self.row("token: lane", "varint", &varint(token.lane));
        self.row("token: transaction", "varint", &varint(token.transaction));
        self.row("token: changelog id", "16 bytes", &token.changelog_id);
        self.row("token: partition", "zigzag", &zigzag(token.partition.into()));
    }
}

fn varint(number: u64) -> Vec<u8> {
    match number {
        0..251 => vec![number as u8],
        251..=0xffff => [&[0xfb][..], &(number as u16).to_le_bytes()].concat(),
        0x1_0000..=0xffff_ffff => [&[0xfc][..], &(number as u32).to_le_bytes()].concat(),
        _ => [&[0xfd][..], &number.to_le_bytes()].concat(),
    }
}

fn zigzag(number: i64) -> Vec<u8> {
    let doubled = if number < 0 { -2 * i128::from(number) - 1 } else { 2 * i128::from(number) };
    varint(u64::try_from(doubled).unwrap())
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [varint(bytes.len() as u64).as_slice(), bytes].concat()
}

fn list<T>(items: &[T], item: impl Fn(&T) -> Vec<u8>) -> Vec<u8> {
    let items: Vec<Vec<u8>> = items.iter().map(item).collect();
    [varint(items.len() as u64), items.concat()].concat()
}

fn position_by_hand(record: &PositionRecord) -> ByHand {
    let mut out = ByHand::default();
    out.row("format", "[`POSITION_FORMAT`], 1 byte", &[POSITION_FORMAT]);
    out.token(&record.token);
    out.row("owner", "bytes, UTF-8", &counted(record.owner.as_bytes()));
    out.row("input id", "16 bytes", &record.input_id);
    let range = |(from, to): &(i64, i64)| [zigzag(*from), zigzag(*to)].concat();
    out.row("processed", "list of: from zigzag, to zigzag", &list(&record.processed, range));
    out.row("stream time", "zigzag", &zigzag(record.stream_time));
    out.row("horizon", "zigzag", &zigzag(record.horizon));
    out.row("rules digest", "32 bytes", &record.rules_digest);
    out.row("generation", "varint", &varint(record.generation.into()));
    out.row("task count", "varint", &varint(record.task_count.into()));
    out.row("truncates", "varint", &varint(record.truncates));
    let above = |above: &Option<Vec<u8>>| above.as_ref().map_or(vec![0], |above| [vec![1], counted(above)].concat());
    let segment = |segment: &Segment| [above(&segment.above), zigzag(segment.began)].concat();
    let reached = |reached: &Reached| [zigzag(reached.offset), counted(&reached.version)].concat();
    let scope =
        |scope: &Scope| [counted(&scope.bytes), list(&scope.segments, segment), list(&scope.reached, reached)].concat();
    out.row("scopes", "list of: bytes, segments, reached", &list(&record.scopes, scope));
    out.row("segments of a scope", "list of: above optional bytes, began zigzag", &[]);
    out.row("reached of a scope", "list of: offset zigzag, version bytes", &[]);
    out
}

fn meta_by_hand(meta: &StoreMeta) -> ByHand {
    let mut out = ByHand::default();
    out.row("format", "[`STORE_META_FORMAT`], 1 byte", &[STORE_META_FORMAT]);
    out.row("changelog id", "16 bytes", &meta.changelog_id);
    out.row("partition", "zigzag", &zigzag(meta.partition.into()));
    out.row("changelog offset", "zigzag", &zigzag(meta.changelog_offset.0));
    let mut token = ByHand { bytes: vec![u8::from(meta.token.is_some())], ..ByHand::default() };
    meta.token.iter().for_each(|it| token.token(it));
    out.row("token", "optional: the four fields of a token as above", &token.bytes);
    out.row("synced at", "zigzag", &zigzag(meta.synced_at));
    let position_offset = meta.position_offset.map_or(vec![0], |offset| [vec![1], zigzag(offset.0)].concat());
    out.row("position offset", "optional zigzag", &position_offset);
    out
}

#[test]
fn records_and_metas_are_written_as_the_tables_say() {
    let written = position_by_hand(&position());
    assert_eq!(written.rows, documented("position record"));
    assert_eq!(hex(&written.bytes), hex(&position().encode()));
    for (token, position_offset) in
        [(None, None), (None, Some(7)), (Some(token()), None), (Some(token()), Some(70_000))]
    {
        let position_offset = position_offset.map(ChangelogOffset);
        let (changelog_offset, synced_at, changelog_id) = (ChangelogOffset(i64::MAX), -1, [3; 16]);
        let meta = StoreMeta { changelog_id, partition: 70_000, changelog_offset, token, synced_at, position_offset };
        let written = meta_by_hand(&meta);
        assert_eq!(written.rows, documented("store meta"));
        assert_eq!(hex(&written.bytes), hex(&meta.encode()));
        assert_eq!(StoreMeta::decode(&written.bytes), Ok(meta));
    }
}

#[test]
fn later_format_is_distinguished_from_damage() {
    let mut bytes = position().encode();
    bytes[0] = 2;
    assert!(matches!(PositionRecord::decode(&bytes), Err(Error::Format { found: 2, .. })));
    bytes[0] = 1;
    bytes.pop();
    assert!(matches!(PositionRecord::decode(&bytes), Err(Error::Damaged { .. })));
    assert!(matches!(EntryRef::decode(&[9]), Err(Error::Format { found: 9, .. })));
    assert!(matches!(EntryRef::decode(&[1, 0]), Err(Error::Damaged { .. })));
}

/// Raises the format number by one in each place that has one, whatever follows it.
#[test]
fn later_format_is_rejected_by_name() {
    let later = |format: u8| [format + 1, 0xaa, 0xbb];
    let refusals = [
        EntryRef::decode(&later(ENTRY_FORMAT)).map(drop).unwrap_err(),
        PositionRecord::decode(&later(POSITION_FORMAT)).map(drop).unwrap_err(),
        StoreMeta::decode(&later(STORE_META_FORMAT)).map(drop).unwrap_err(),
        OffsetMetadata::parse("ratchet/2 what a later release says").map(drop).unwrap_err(),
        OffsetMetadata::parse("ratchet/4294967295").map(drop).unwrap_err(),
    ];
    let said: Vec<String> = refusals.iter().map(Error::to_string).collect();
    let expected = [
        "an entry has format 2, this release reads 1",
        "a position record has format 2, this release reads 1",
        "a store's meta has format 3, this release reads 2",
        "the committed offset's metadata has format 2, this release reads 1",
        "the committed offset's metadata has format 4294967295, this release reads 1",
    ];
    assert_eq!(said, expected);
}

#[test]
fn position_record_readability_is_known_before_writing() {
    let of = |steps: usize, version: &[u8]| {
        let reached = (0..steps).map(|offset| Reached { offset: offset as i64, version: version.to_vec() }).collect();
        let scope = Scope { bytes: vec![4], segments: vec![Segment { above: None, began: 0 }], reached };
        PositionRecord { scopes: vec![scope], ..position() }
    };
    let mut unreadable = 0;
    for steps in [0, 1, 8_000, 20_000, 30_000, 40_000, 43_700, 60_000] {
        for version in [&[][..], &[1], &[7; 30]] {
            let record = of(steps, version);
            let bytes = record.encode();
            let read = PositionRecord::decode(&bytes);
            assert_eq!(PositionRecord::is_readable(&bytes), read == Ok(record), "{steps} of {}", version.len());
            unreadable += usize::from(read.is_err());
        }
    }
    assert!(unreadable > 0, "there is a bound");
    // Records that are not even decoded are readable: these are the shortest that take the most memory.
    let many = PositionRecord { processed: vec![(0, 0); 16_000], ..position() };
    let scope = || Scope { bytes: Vec::new(), segments: Vec::new(), reached: Vec::new() };
    let scopes = PositionRecord { scopes: (0..10_800).map(|_| scope()).collect(), ..position() };
    let mut flat = of(16_000, &[]);
    flat.scopes[0].reached.iter_mut().for_each(|step| step.offset = 0);
    for record in [many, scopes, flat] {
        let bytes = record.encode();
        assert!(bytes.len() < SURELY_READABLE_BYTES, "{}", bytes.len());
        assert_eq!(PositionRecord::decode(&bytes), Ok(record));
    }
}

#[test]
fn offset_metadata_reads_back_and_foreign_text_is_rejected() {
    for owner in [None, Some("ratchet.payments.1f.0".to_owned())] {
        let metadata = OffsetMetadata { token: token(), digest: "00ff00ff00ff00ff".to_owned(), owner };
        assert_eq!(OffsetMetadata::parse(&metadata.to_string()), Ok(Some(metadata)));
    }
    assert_eq!(OffsetMetadata::parse(""), Ok(None));
    for foreign in ["x", "ratchet", "ratchet/", "ratchet/x a b c", "ratchet/-1 a b c", "ratchet/1 a b c", "ratchet/1"] {
        assert!(matches!(OffsetMetadata::parse(foreign), Err(Error::Damaged { .. })), "{foreign}");
    }
}

#[test]
fn key_hash_matches_kafka() {
    // Expected values: org.apache.kafka.common.utils.UtilsTest#testMurmur2, sign bit cleared.
    let cases: [(&[u8], i32); 6] = [
        (b"21", -973_932_308),
        (b"foobar", -790_332_482),
        (b"a-little-bit-long-string", -985_981_536),
        (b"a-little-bit-longer-string", -1_486_304_829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        (b"abc", 479_470_107),
    ];
    for (key, murmur2) in cases {
        assert_eq!(key_hash(key), (murmur2 & 0x7fff_ffff) as u32, "{}", String::from_utf8_lossy(key));
    }
}

proptest! {
    #[test]
    fn entries_read_back(
        last_seen in any::<i64>(),
        version in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        scope in any::<Option<u16>>(),
        from_read in any::<bool>(),
        streamed in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        owes_tombstone in any::<bool>(),
        key_hash in proptest::option::of(0..0x8000_0000_u32),
        hashes in proptest::collection::vec(any::<(u64, bool)>(), 0..10),
    ) {
        let (version, streamed) = (version.as_deref(), streamed.as_deref());
        // Only a version from a read has one below it.
        let streamed = streamed.filter(|_| from_read && version.is_some());
        let mut list = ContentsList::default();
        hashes.iter().for_each(|(hash, of_read)| list.push(Digest::new(*hash, 5, *of_read)));
        let contents = list.as_contents();
        let entry = EntryRef { last_seen, version, scope, from_read, streamed, owes_tombstone, key_hash, contents };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        prop_assert_eq!(EntryRef::decode(&bytes), Ok(entry));
    }

    #[test]
    fn numbers_of_any_size_are_written_as_documented(
        processed in proptest::collection::vec(any::<(i64, i64)>(), 0..300),
        (lane, transaction, truncates) in any::<(u64, u64, u64)>(),
        (partition, generation) in any::<(i32, u32)>(),
        owner in ".{0,300}",
    ) {
        let token = Token { lane, transaction, partition, ..token() };
        let record = PositionRecord { token, owner, processed, truncates, generation, ..position() };
        prop_assert_eq!(position_by_hand(&record).bytes, record.encode());
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = EntryRef::decode(&bytes);
        let _ = PositionRecord::decode(&bytes);
        let _ = StoreMeta::decode(&bytes);
        let _ = OffsetMetadata::parse(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn hex_digits_alone_are_read_as_bytes() {
    assert_eq!(unhex("00fFa1"), Some(vec![0, 0xff, 0xa1]));
    assert_eq!(unhex(""), Some(Vec::new()));
    for wrong in ["0", "+f", "-1", "0x", "g0", "éa"] {
        assert_eq!(unhex(wrong), None, "{wrong}");
    }
}
