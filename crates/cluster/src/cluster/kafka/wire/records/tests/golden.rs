//! Batches that Kafka's own client for Java (4.1.0) has written, byte for byte.

use super::*;

/// Three records, compressed with each codec: offset 1000, producer 77 in epoch 3, sequence 42, transactional, leader's
/// epoch 9.
const WRITTEN: [(Codec, &str); 5] = [
    (
        Codec::None,
        "00000000000003e8000000970000000902ef620aba0010000000020000018bcfe568000000018bcfe6eea0000000000000004d00030000002a\
         000000036c0000000a6b65792d313e76616c75652d312076616c75652d312076616c75652d312076616c75652d310604696404ff0000010465\
         00004a001302013e76616c75652d322076616c75652d322076616c75652d322076616c75652d32001000c09a0c04000100",
    ),
    (
        Codec::Gzip,
        "00000000000003e80000007c0000000902b8eb22aa0011000000020000018bcfe568000000018bcfe6eea0000000000000004d00030000002a\
         000000031f8b08000000000000ffcb616060e0ca4eadd435b42b4bcc294dd53554c041b3b164a6b0fc67606064496560f06210666284ea3052\
         c0413308301c98c5c3c2c0c80000f53e094366000000",
    ),
    (
        Codec::Snappy,
        "00000000000003e8000000840000000902acbac5390012000000020000018bcfe568000000018bcfe6eea0000000000000004d00030000002a\
         0000000382534e415050590000000001000000010000003f66486c0000000a6b65792d313e76616c75652d31205a0800480604696404ff0000\
         01046500004a001302013e092a0432205a080024001000c09a0c04000100",
    ),
    (
        Codec::Lz4,
        "00000000000003e8000000800000000902cbba4edc0013000000020000018bcfe568000000018bcfe6eea0000000000000004d00030000002a\
         0000000304224d1860408240000000ff046c0000000a6b65792d313e76616c75652d3120080004f3030604696404ff000001046500004a0013\
         02013200133232000d0800a0001000c09a0c0400010000000000",
    ),
    (
        Codec::Zstd,
        "00000000000003e80000007b0000000902c2ab9ca30014000000020000018bcfe568000000018bcfe6eea0000000000000004d00030000002a\
         0000000328b52ffd0058f4010004036c0000000a6b65792d313e76616c75652d31200604696404ff000001046500004a0013020132001000c0\
         9a0c04000100040060027057556eb8bad801010000",
    ),
];
/// Markers of ended transactions, at offset 1003.
const ABORT: &str = "00000000000003eb000000420000000902a9bc83cb0030000000000000018bcfe875400000018bcfe87540000000000000004d\
                     0003ffffffff000000012000000008000000000c00000000000500";
const COMMIT: &str = "00000000000003eb0000004200000009025d8255830030000000000000018bcfe875400000018bcfe87540000000000000004d\
                      0003ffffffff000000012000000008000000010c00000000000500";
/// Two records with timestamps set by a broker, at offset 5, of a producer without an id.
const STAMPED: &str = "0000000000000005000000430000000102aeee4e7100080000000100000000000000010000018bcfe9fbe0ffffffffffffffff\
                       ffffffffffff0000000210000000026b02760010000202026b027700";
/// A message from before Kafka 0.11.
const MAGIC_1: &str = "000000000000000000000018cf056e6e01000000000000000001000000016b0000000176";

fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn records() -> Vec<OwnedRecord> {
    let headers = vec![(b"id".to_vec(), Some(vec![0xff, 0])), (vec![], None), (b"e\0".to_vec(), Some(vec![]))];
    let value = |word: &str| Some([word; 4].join(" ").into_bytes());
    vec![
        OwnedRecord { timestamp: 1_700_000_000_000, key: Some(b"key-1".to_vec()), value: value("value-1"), headers },
        OwnedRecord { timestamp: 1_699_999_999_990, value: value("value-2"), ..OwnedRecord::default() },
        OwnedRecord { timestamp: 1_700_000_100_000, key: Some(vec![]), ..OwnedRecord::default() },
    ]
}

#[test]
fn batches_of_javas_client_are_read() {
    for (codec, hex) in WRITTEN {
        let bytes = unhex(hex);
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        assert_eq!(batch.codec(), Ok(codec));
        assert_eq!((batch.base_offset, batch.last_offset, batch.leader_epoch, batch.count), (1_000, 1_002, 9, 3));
        assert_eq!((batch.producer_id, batch.producer_epoch, batch.base_sequence), (77, 3, 42));
        assert!(batch.is_transactional() && batch.has_producer() && !batch.is_control() && !batch.is_stamped());
        assert_eq!((batch.base_timestamp, batch.max_timestamp), (1_700_000_000_000, 1_700_000_100_000));
        let expected = (1_000..).zip(records()).collect();
        assert_eq!(read(&bytes), (expected, None), "{codec:?}");
    }
}

#[test]
fn plain_batch_is_written_as_javas_client_writes_it() {
    let mut written = batch(1_000, &records(), Codec::None, SEAL);
    written[LENGTH_END..LENGTH_END + 4].copy_from_slice(&9_i32.to_be_bytes());
    assert_eq!(written, unhex(WRITTEN[0].1));
}

#[test]
fn abort_and_commit_markers_are_distinguished() {
    for (hex, expected) in [(ABORT, Control::Abort), (COMMIT, Control::Commit)] {
        let bytes = unhex(hex);
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        batch.check().unwrap();
        assert!(batch.is_control() && batch.is_transactional());
        assert_eq!((batch.base_offset, batch.producer_id, batch.base_sequence), (1_003, 77, -1));
        assert_eq!(batch.control(), Ok(Some(expected)));
    }
}

#[test]
fn stamped_batch_has_one_timestamp() {
    let (found, error) = read(&unhex(STAMPED));
    let found: Vec<_> = found.into_iter().map(|(offset, record)| (offset, record.timestamp)).collect();
    assert_eq!((found, error), (vec![(5, 1_700_000_300_000), (6, 1_700_000_300_000)], None));
}

#[test]
fn old_message_format_is_refused_with_its_number() {
    let (found, error) = read(&unhex(MAGIC_1));
    assert_eq!((found, error), (vec![], Some(Error::Magic(1))));
    assert!(Error::Magic(1).to_string().contains("message format 1;"));
    // Also after a batch of the current format.
    let both = [unhex(STAMPED), unhex(MAGIC_1)].concat();
    let (found, error) = read(&both);
    assert_eq!((found.len(), error), (2, Some(Error::Magic(1))));
}
