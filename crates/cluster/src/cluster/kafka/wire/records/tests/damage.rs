//! Truncated and damaged batches: reading them never panics, and never yields a record that was not written.

use super::super::super::messages::fetch::Response;
use super::super::super::primitives::put_text;
use super::*;

/// A batch's bytes, and the records in it with their offsets.
type Written = (Vec<u8>, Vec<(i64, OwnedRecord)>);

/// A batch for every codec, at ascending offsets.
fn written() -> Vec<Written> {
    let headers = vec![(b"id".to_vec(), Some(vec![1, 2])), (b"null".to_vec(), None)];
    let value = Some(b"a value that is worth its packing, packing, packing, packing".to_vec());
    let full = OwnedRecord { timestamp: 1_700_000_000_000, key: Some(b"key".to_vec()), value, headers };
    let records = [full.clone(), OwnedRecord { timestamp: -1, ..OwnedRecord::default() }, full];
    let batches = Codec::ALL.into_iter().zip(0_i64..).map(|(codec, number)| {
        let mut owned = records.clone();
        owned[0].key = Some(format!("first of {number}").into_bytes());
        owned[2].key = Some(format!("last of {number}").into_bytes());
        let base = 10 * number;
        (batch(base, &owned, codec, SEAL), (base..).zip(owned).collect())
    });
    batches.collect()
}

#[test]
fn truncated_response_yields_whole_batches_only() {
    let written = written();
    let bytes: Vec<u8> = written.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    for end in 0..=bytes.len() {
        let (mut expected, mut whole) = (Vec::new(), 0);
        for (bytes, records) in &written {
            if whole + bytes.len() > end {
                break;
            }
            expected.extend(records.clone());
            whole += bytes.len();
        }
        assert_eq!(read(&bytes[..end]), (expected, None), "{end} bytes");
        let mut batches = Batches::new(&bytes[..end]);
        batches.by_ref().for_each(drop);
        assert_eq!(batches.partial_batch().len(), end - whole);
    }
}

#[test]
fn no_flipped_bit_yields_a_record_that_was_not_written() {
    for (bytes, records) in written() {
        let contents =
            |records: &[(i64, OwnedRecord)]| records.iter().map(|(_, record)| record.clone()).collect::<Vec<_>>();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (found, error) = read(&flipped);
            match bit / 8 {
                // The base offset and the leader's epoch are set by brokers, and not covered by the checksum.
                0..8 => assert!(found.is_empty() || contents(&found) == contents(&records), "bit {bit}"),
                12..16 => assert_eq!((&found, error), (&records, None), "bit {bit}"),
                // The length, too long or too short; the magic; everything else.
                8..12 => assert!(found.is_empty(), "bit {bit}"),
                16 => assert!(matches!(error, Some(Error::Magic(_))) && found.is_empty(), "bit {bit}"),
                _ => assert!(found.is_empty() && matches!(error, Some(Error::Damaged(_))), "bit {bit}"),
            }
        }
    }
}

/// A response to Fetch with these partitions' records.
fn response(partitions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![0; 4 + 2 + 4];
    body.extend(1_i32.to_be_bytes());
    put_text(&mut body, "orders");
    body.extend((partitions.len() as i32).to_be_bytes());
    for (number, records) in (0_i32..).zip(partitions) {
        body.extend(number.to_be_bytes());
        body.extend(0_i16.to_be_bytes());
        [100_i64, 100, 0].iter().for_each(|offset| body.extend(offset.to_be_bytes()));
        body.extend((-1_i32).to_be_bytes());
        body.extend((-1_i32).to_be_bytes());
        body.extend((records.len() as i32).to_be_bytes());
        body.extend(records);
    }
    body
}

/// Like the test above, for a whole response, whose own fields have no checksum: every record that is read was written,
/// and the order is the same.
#[test]
fn no_flipped_bit_of_a_response_yields_a_record_that_was_not_written() {
    let written = written();
    let contents: Vec<_> = written.iter().flat_map(|(_, records)| records.iter().map(|(_, record)| record)).collect();
    let (first, second) = written.split_at(2);
    let join = |batches: &[Written]| batches.iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<u8>>();
    let body = response(&[join(first), join(second)]);
    let (mut refused, mut whole) = (0, 0);
    for bit in 0..8 * body.len() {
        let mut flipped = body.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(response) = Response::read(&flipped) else {
            refused += 1;
            continue;
        };
        let mut rest = &contents[..];
        for partition in response.partitions() {
            let (found, _) = read(partition.records);
            assert!(found.is_sorted_by(|(offset, _), (next, _)| offset < next), "bit {bit}");
            for (_, record) in &found {
                let index = rest.iter().position(|owned| *owned == record);
                rest = &rest[index.unwrap_or_else(|| panic!("bit {bit}: {record:?} was not written there")) + 1..];
            }
        }
        whole += usize::from(rest.is_empty());
    }
    assert!(refused > 100 && whole > 100, "{refused} refused, {whole} whole");
}

#[test]
fn batches_that_are_out_of_order_are_an_error() {
    let batch_at = |base| batch(base, &[OwnedRecord::default(), OwnedRecord::default()], Codec::None, SEAL);
    let (found, error) = read(&[batch_at(5), batch_at(7), batch_at(20), batch_at(21)].concat());
    assert_eq!(found.len(), 6);
    assert!(matches!(error, Some(Error::Damaged(_))));
    let (found, error) = read(&[batch_at(5), batch_at(5)].concat());
    assert_eq!((found.len(), error.is_some()), (2, true));
    for base in [-1, i64::MIN, i64::MAX] {
        let (found, error) = read(&batch_at(base));
        assert!(found.is_empty() && matches!(error, Some(Error::Damaged(_))), "{base}");
    }
}

#[test]
fn records_that_are_out_of_order_are_an_error() {
    let plain = batch(0, &vec![OwnedRecord::default(); 3], Codec::None, SEAL);
    // Where each record's offset is: each record takes seven bytes.
    let delta = |record: usize| HEAD_BYTES + 7 * record + 3;
    assert_eq!((plain[delta(1)], plain[delta(2)]), (2, 4));
    // In zigzag: a repeated offset, an earlier one, one beyond the last, and a negative one.
    for (record, number) in [(1, 0), (2, 2), (2, 0), (2, 6), (0, 1)] {
        let mut broken = plain.clone();
        rewrite(&mut broken, delta(record), &[number]);
        let (found, error) = read(&broken);
        assert_eq!(found.len(), record, "records before the wrong one");
        assert!(matches!(error, Some(Error::Damaged(_))));
    }
}

#[test]
fn counts_and_lengths_that_do_not_fit_are_an_error() {
    let plain = batch(0, &vec![OwnedRecord::default(); 3], Codec::None, SEAL);
    let count_at = HEAD_BYTES - 4;
    for (count, readable) in [(2, 2), (4, 3), (i32::MAX, 3), (-1, 0), (0, 0)] {
        let mut broken = plain.clone();
        rewrite(&mut broken, count_at, &i32::to_be_bytes(count));
        let (found, error) = read(&broken);
        assert_eq!(found.len(), readable, "{count}");
        assert!(matches!(error, Some(Error::Damaged(_))), "{count}");
        if let Some(Ok(batch)) = Batches::new(&broken).next() {
            let (_, most) = batch.records(batch.payload()).size_hint();
            assert!(most.unwrap() <= 4, "no memory is reserved for records that cannot exist");
        }
    }
    // A record's length, its key's, its value's, and its count of headers, each in zigzag.
    for (at, bytes) in
        [(0, &[10][..]), (0, &[14]), (0, &[1]), (4, &[3]), (4, &[2]), (5, &[3]), (5, &[4]), (6, &[2]), (6, &[1])]
    {
        let mut broken = plain.clone();
        rewrite(&mut broken, HEAD_BYTES + at, bytes);
        let (found, error) = read(&broken);
        assert!(found.is_empty() && matches!(error, Some(Error::Damaged(_))), "{at}: {bytes:?}");
    }
}

#[test]
fn headers_that_do_not_fit_are_an_error() {
    let headers = vec![(b"n".to_vec(), Some(b"v".to_vec())), (b"m".to_vec(), None)];
    let plain = batch(0, &[OwnedRecord { headers, ..OwnedRecord::default() }], Codec::None, SEAL);
    // After the record's length, attributes, two deltas, no key and no value.
    let count_at = HEAD_BYTES + 6;
    assert_eq!(plain[count_at..], [4, 2, b'n', 2, b'v', 2, b'm', 1]);
    // A count that is too low, too high, negative; a name that is null or too long; a value that is too long.
    for (at, number) in [(0, 2), (0, 6), (0, 1), (1, 1), (1, 14), (3, 14), (7, 2), (7, 3)] {
        let mut broken = plain.clone();
        rewrite(&mut broken, count_at + at, &[number]);
        let (found, error) = read(&broken);
        assert!(found.is_empty() && matches!(error, Some(Error::Damaged(_))), "{at}: {number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Producers can choose any bytes as their records, with a valid checksum.
    #[test]
    fn any_records_are_read_within_their_bounds(
        payload in vec(prop_oneof![0..20_u8, any::<u8>()], 0..80),
        count: u8,
        last: u8,
    ) {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, None, Default::default()).unwrap();
        let mut bytes = builder.seal(SEAL, &mut Packer::new(Codec::None, None).unwrap());
        bytes.truncate(HEAD_BYTES);
        bytes.extend(&payload);
        let length = (bytes.len() - LENGTH_END) as i32;
        bytes[8..LENGTH_END].copy_from_slice(&length.to_be_bytes());
        rewrite(&mut bytes, CHECKED_FROM + 2, &i32::from(last).to_be_bytes());
        rewrite(&mut bytes, HEAD_BYTES - 4, &i32::from(count).to_be_bytes());
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        batch.check().unwrap();
        let (mut last_offset, mut count_read) = (-1, 0);
        for record in batch.records(batch.payload()) {
            let Ok(record) = record else { break };
            prop_assert!(record.offset > last_offset && record.offset <= i64::from(last));
            prop_assert_eq!(record.headers().count(), record.header_count);
            prop_assert!(record.tail.len() <= payload.len());
            (last_offset, count_read) = (record.offset, count_read + 1);
        }
        prop_assert!(count_read <= usize::from(count));
        let _ = batch.control();
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..200), magic: bool) {
        let mut bytes = bytes;
        if magic && bytes.len() > 16 {
            let length = (bytes.len() - LENGTH_END) as i32;
            bytes[8..LENGTH_END].copy_from_slice(&length.to_be_bytes());
            bytes[16] = 2;
        }
        for batch in Batches::new(&bytes).flatten() {
            batch.records(batch.payload()).for_each(drop);
            let _ = (batch.check(), batch.control(), batch.codec());
        }
    }
}
