//! Every batch that is built can be read back unchanged.

use super::super::super::headers::read_headers;
use super::super::super::primitives::put_varint;
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn built_batches_are_read_back(
        records in vec(record(), 1..40),
        codec in codec(),
        base_offset in prop_oneof![0..1_000_i64, 0..i64::MAX / 2],
        transactional: bool,
        (producer_id, producer_epoch, base_sequence) in any::<(i64, i16, i32)>(),
    ) {
        let seal = BatchProducer { producer_id, producer_epoch, base_sequence, transactional };
        let bytes = batch(base_offset, &records, codec, seal);
        let mut batches = Batches::new(&bytes);
        let batch = batches.next().unwrap().unwrap();
        prop_assert!(batches.next().is_none() && batches.partial_batch().is_empty());
        prop_assert_eq!(batch.check(), Ok(()));
        prop_assert_eq!(
            (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional()),
            (producer_id, producer_epoch, base_sequence, transactional)
        );
        prop_assert_eq!((batch.count as usize, batch.leader_epoch), (records.len(), -1));
        prop_assert_eq!(batch.last_offset - base_offset + 1, records.len() as i64);
        prop_assert_eq!(batch.max_timestamp, records.iter().map(|record| record.timestamp).max().unwrap());
        prop_assert!(!batch.is_control() && !batch.is_stamped());
        let found = batch.codec().unwrap();
        prop_assert!(found == codec || found == Codec::None && batch.payload().len() <= bytes.len());
        let (found, error) = read(&bytes);
        prop_assert_eq!(error, None);
        let expected: Vec<_> = (base_offset..).zip(records).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn tails_rebuild_the_same_batch(records in vec(record(), 1..40)) {
        let bytes = batch(0, &records, Codec::None, SEAL);
        let read = Batches::new(&bytes).next().unwrap().unwrap();
        let mut builder = BatchBuilder::new();
        let mut headers = HeaderBuf::default();
        for (record, owned) in read.records(read.payload()).zip(&records) {
            let record = record.unwrap();
            builder.push_tail(record.timestamp, record.tail).unwrap();
            prop_assert_eq!(record.header_count, owned.headers.len());
            headers.clear();
            record.copy_headers(&mut headers);
            prop_assert_eq!(&headers, &owned.headers());
            let mut written = Vec::new();
            put_varint(&mut written, record.header_count as i64);
            written.extend_from_slice(record.headers_raw);
            prop_assert_eq!(read_headers(&written), Some(owned.headers()));
        }
        prop_assert_eq!(builder.count() as usize, records.len());
        prop_assert_eq!(builder.bytes(), bytes.len());
        prop_assert_eq!(builder.seal(SEAL, &mut Packer::new(Codec::None, None).unwrap()), bytes);
    }
}

#[test]
fn builder_reuses_a_buffer() {
    let mut packer = Packer::new(Codec::Lz4, None).unwrap();
    for round in 0..5_i64 {
        // Packed in the first round, uncompressed in the second, and so on.
        let mut state = 1_u32;
        let mut noise = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        };
        let value: Vec<u8> = (0..5_000).map(|_| if round % 2 == 0 { 7 } else { noise() }).collect();
        let record = OwnedRecord { timestamp: round, value: Some(value), ..OwnedRecord::default() };
        let buffer = packer.buffer();
        assert_eq!(buffer.capacity() >= 5_000, round > 0, "{} in round {round}", buffer.capacity());
        let mut builder = BatchBuilder::within(buffer);
        assert_eq!((builder.count(), builder.bytes()), (0, HEAD_BYTES));
        builder.push(round, None, record.value.as_deref(), Default::default()).unwrap();
        let sealed = builder.seal(SEAL, &mut packer);
        assert_eq!(sealed.len() < 1_000, round % 2 == 0);
        assert_eq!(Batches::new(&sealed).next().unwrap().unwrap().codec() == Ok(Codec::Lz4), round % 2 == 0);
        assert_eq!(read(&sealed), (vec![(0, record)], None));
        packer.recycle(sealed);
    }
    let empty = BatchBuilder::within(packer.buffer()).seal(SEAL, &mut packer);
    let batch = Batches::new(&empty).next().unwrap().unwrap();
    assert_eq!((batch.base_timestamp, batch.max_timestamp, batch.count), (-1, -1, 0));
    assert_eq!(read(&empty), (vec![], None));
}

#[test]
fn buffer_grows_to_a_full_batch_and_no_further() {
    const FULL: usize = 10_000;
    let mut builder = BatchBuilder::new();
    let mut push = |bytes: usize| {
        builder.make_room(bytes + 50, FULL);
        builder.push(0, None, Some(&vec![7; bytes]), Default::default()).unwrap();
    };
    (0..85).for_each(|_| push(100));
    push(500);
    assert!(builder.bytes() > FULL - 500);
    assert_eq!(builder.into_buffer().capacity(), FULL);
}

#[test]
fn largest_buffer_is_used_for_building_and_the_smallest_for_packing() {
    let mut packer = Packer::new(Codec::Snappy, None).unwrap();
    for bytes in [5_000, 100_000, 20_000] {
        packer.recycle(Vec::with_capacity(bytes));
    }
    let mut builder = BatchBuilder::within(packer.buffer());
    builder.push(0, None, Some(&[7; 50_000]), Default::default()).unwrap();
    drop(builder.seal(SEAL, &mut packer));
    assert_eq!([packer.buffer().capacity(), packer.buffer().capacity()], [100_000, 20_000]);
}

#[test]
fn large_batches_and_a_hundred_thousand_headers_are_read() {
    let many: Vec<_> = (0..20_000)
        .map(|n| OwnedRecord { timestamp: n / 3, key: Some(vec![n as u8]), ..OwnedRecord::default() })
        .collect();
    let headers = (0..100_000_u32).map(|n| (n.to_string().into_bytes(), (n % 3 > 0).then(|| vec![0; n as usize % 9])));
    let wide = OwnedRecord { value: Some(vec![1; 1 << 20]), headers: headers.collect(), ..OwnedRecord::default() };
    for codec in Codec::ALL {
        let bytes = [batch(7, &many, codec, SEAL), batch(50_000, std::slice::from_ref(&wide), codec, SEAL)].concat();
        let (found, error) = read(&bytes);
        assert_eq!(error, None, "{codec:?}");
        assert_eq!(found.len(), many.len() + 1);
        assert_eq!(found.last(), Some(&(50_000, wide.clone())));
        assert!(found.into_iter().zip(&many).zip(7..).all(|((found, owned), offset)| found == (offset, owned.clone())));
    }
}

#[test]
fn batches_of_all_levels_are_read_and_other_levels_are_refused() {
    let record = OwnedRecord { value: Some(b"again and again ".repeat(50)), ..OwnedRecord::default() };
    let levels: [(Codec, &[i32], &[i32]); 4] = [
        (Codec::Gzip, &[-1, 0, 1, 9], &[-2, 10]),
        (Codec::Snappy, &[-1, 0], &[1, -2]),
        (Codec::Lz4, &[-1, 0, 2], &[3, 12]),
        (Codec::Zstd, &[-1, 1, 3, 12, 22], &[23]),
    ];
    for (codec, available, others) in levels {
        for level in available {
            let mut packer = Packer::new(codec, Some(*level)).unwrap();
            let mut builder = BatchBuilder::new();
            builder.push(0, None, record.value.as_deref(), Default::default()).unwrap();
            assert_eq!(read(&builder.seal(SEAL, &mut packer)), (vec![(0, record.clone())], None), "{codec:?} {level}");
        }
        for level in others {
            let refused = Packer::new(codec, Some(*level)).map(drop);
            assert_eq!(refused, Err(Unsupported { codec, level: *level }));
        }
    }
}

#[test]
fn compacted_batch_keeps_the_offsets_of_its_remaining_records() {
    // A batch in which records 0 and 2 of 5 remain, then a batch without records.
    let mut builder = BatchBuilder::new();
    (0..2).for_each(|n| builder.push(n, Some(b"k"), None, Default::default()).unwrap());
    let mut bytes = builder.seal(SEAL, &mut Packer::new(Codec::None, None).unwrap());
    let second = bytes.len() - 4;
    set_base_offset(&mut bytes, 100);
    rewrite(&mut bytes, CHECKED_FROM + 2, &4_i32.to_be_bytes());
    let delta_at = second - 1;
    assert_eq!(bytes[delta_at], 2, "the second record's offset, in zigzag");
    rewrite(&mut bytes, delta_at, &[4]);
    let mut empty = BatchBuilder::new().seal(SEAL, &mut Packer::new(Codec::None, None).unwrap());
    set_base_offset(&mut empty, 105);
    rewrite(&mut empty, CHECKED_FROM + 2, &9_i32.to_be_bytes());
    let both = [bytes, empty].concat();
    let (found, error) = read(&both);
    assert_eq!((found.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), error), (vec![100, 102], None));
    let last: Vec<_> = Batches::new(&both).map(|batch| batch.unwrap().last_offset).collect();
    assert_eq!(last, [104, 114]);
}

#[test]
fn record_too_large_for_a_batch_is_refused_and_others_still_fit() {
    let mut builder = BatchBuilder::new();
    builder.push(5, Some(b"k"), None, Default::default()).unwrap();
    // The zeroed pages are never touched, so that the vector takes no memory.
    let huge = vec![0; i32::MAX as usize];
    assert_eq!(builder.push_tail(1, &huge), Err(TooLarge));
    assert_eq!(builder.push(1, None, Some(&huge), Default::default()), Err(TooLarge));
    assert_eq!((builder.count(), builder.bytes()), (1, HEAD_BYTES + 8));
    builder.push(7, None, None, Default::default()).unwrap();
    let sealed = builder.seal(SEAL, &mut Packer::new(Codec::None, None).unwrap());
    let batch = Batches::new(&sealed).next().unwrap().unwrap();
    assert_eq!((batch.base_timestamp, batch.max_timestamp, batch.count), (5, 7, 2));
}

#[test]
fn reading_resumes_where_it_stopped() {
    let records: Vec<_> =
        (0..10).map(|n| OwnedRecord { timestamp: n, key: Some(vec![n as u8]), ..OwnedRecord::default() }).collect();
    let bytes = batch(100, &records, Codec::None, SEAL);
    let batch = Batches::new(&bytes).next().unwrap().unwrap();
    for stop in 0..=records.len() {
        let mut first = batch.records(batch.payload());
        let mut found: Vec<_> =
            first.by_ref().take(stop).map(|record| OwnedRecord::from_raw(&record.unwrap())).collect();
        assert_eq!(first.left(), records.len() - stop);
        let (next, rest) = (100 + stop as i64, first.rest());
        for (record, offset) in batch.records_from(rest, first.left(), next).zip(next..) {
            let record = record.unwrap();
            assert_eq!(record.offset, offset);
            found.push(OwnedRecord::from_raw(&record));
        }
        assert_eq!(found, records);
        // A record below the next offset is an error.
        let mut resumed = batch.records_from(rest, first.left(), next + 1);
        assert!(resumed.next().is_none_or(|record| matches!(record, Err(Error::Damaged(_)))));
    }
}
