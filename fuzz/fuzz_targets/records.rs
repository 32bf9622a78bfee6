//! Record batches, whatever their bytes are, are read within their bounds and unpacked within the one given; what was
//! built reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::record::HeaderBuf;
use ratchet_fuzz::records::{
    AbortedFilter, AbortedTransaction, Batch, BatchBuilder, BatchProducer, Batches, BoundedUnpacker, Codec, HEAD_BYTES,
    Packer, RawRecord, Unpack,
};

const UNPACKED_BYTES_MAX: usize = 1 << 16;

/// A record that is expected: its timestamp, key, value and headers.
type Expected<'a> = (i64, Option<&'a [u8]>, Option<&'a [u8]>, HeaderBuf);

fn any(bytes: &[u8]) {
    let mut aborted = AbortedFilter::default();
    aborted.begin([AbortedTransaction { producer_id: 77, first_offset: 0 }]);
    let mut above = 0;
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { return };
        assert!(batch.base_offset >= above && batch.last_offset >= batch.base_offset);
        above = batch.last_offset;
        let _ = (aborted.admits(&batch), batch.check());
        batch_of(&batch);
    }
}

/// Reads a batch, whether its checksum is right or not: whoever may write to a topic sets it right.
fn batch_of(batch: &Batch<'_>) {
    let Ok(codec) = batch.codec() else { return };
    let Ok(unpacked) = BoundedUnpacker::new(UNPACKED_BYTES_MAX).unpack(codec, batch.payload()) else { return };
    assert!(unpacked.len() <= UNPACKED_BYTES_MAX);
    let (mut offset, mut seen) = (batch.base_offset - 1, 0);
    for record in batch.records(&unpacked) {
        let Ok(record) = record else { return };
        assert!(record.offset > offset && record.offset <= batch.last_offset);
        assert_eq!(record.headers().count(), record.header_count);
        (offset, seen) = (record.offset, seen + 1);
    }
    assert_eq!(seen, batch.count, "all of them, or an error");
}

/// Puts the bytes behind a head that says what the first of them chose.
fn behind_head(bytes: &[u8]) {
    let Some((choice, payload)) = bytes.split_first_chunk::<3>() else { return };
    let mut batch = vec![0; HEAD_BYTES];
    batch.extend_from_slice(payload);
    let length = batch.len() as u32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[16] = 2;
    batch[22] = choice[0];
    batch[26] = choice[1];
    batch[60] = choice[2];
    any(&batch);
}

/// Cuts the bytes into records, builds a batch of them, reads it, and builds it again of what was read.
fn in_order(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let mut builder = BatchBuilder::new();
    let mut expected: Vec<Expected<'_>> = Vec::new();
    while let Some((lengths, behind)) = rest.split_first_chunk::<9>() {
        let timestamp = i64::from_le_bytes([lengths[0]; 8]) >> (lengths[1] % 64);
        let cut = |length: u8, from: &mut &'_ [u8]| -> Option<usize> {
            (length != 0xff).then(|| usize::from(length).min(from.len()))
        };
        let mut from = behind;
        let mut part = |length: u8| {
            let length = cut(length, &mut from)?;
            let (taken, left) = from.split_at(length);
            from = left;
            Some(taken)
        };
        let (key, value) = (part(lengths[2]), part(lengths[3]));
        let mut headers = HeaderBuf::default();
        for pair in lengths[4..8].chunks(2).take(usize::from(lengths[8] % 3)) {
            headers.push(part(pair[0]).unwrap_or_default(), part(pair[1]));
        }
        builder.push(timestamp, key, value, headers.as_headers()).expect("it is small");
        expected.push((timestamp, key, value, headers));
        rest = from;
    }
    if expected.is_empty() {
        return;
    }
    let codec = Codec::ALL[usize::from(*first) % Codec::ALL.len()];
    let seal = BatchProducer { producer_id: 1, producer_epoch: 2, base_sequence: 3, transactional: true };
    let sealed = builder.seal(seal, &mut Packer::new(codec, None).expect("its own level"));
    let batch = Batches::new(&sealed).next().expect("it is whole").expect("it was built");
    batch.check().expect("it was sealed");
    let codec = batch.codec().expect("it was packed");
    let unpacked = BoundedUnpacker::new(usize::MAX).unpack(codec, batch.payload()).expect("it was packed");
    let found: Vec<RawRecord<'_>> = batch.records(&unpacked).map(|record| record.expect("it was built")).collect();
    assert_eq!(found.len(), expected.len());
    let mut again = BatchBuilder::new();
    for (found, (timestamp, key, value, headers)) in found.iter().zip(&expected) {
        let mut copied = HeaderBuf::default();
        found.copy_headers(&mut copied);
        assert_eq!((found.timestamp, found.key, found.value, &copied), (*timestamp, *key, *value, headers));
        again.push_tail(found.timestamp, found.tail).expect("it is small");
    }
    let plain = again.seal(seal, &mut Packer::new(Codec::None, None).expect("it has no levels"));
    assert_eq!(plain[HEAD_BYTES..], unpacked[..]);
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 3 {
        0 => any(bytes),
        1 => behind_head(bytes),
        _ => in_order(bytes),
    }
});
