//! Helpers of the tests of batches: owned records, and batches made of them.

mod aborted;
mod codecs;
mod damage;
mod golden;
mod round;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::record::HeaderBuf;

/// A record that owns its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OwnedRecord {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl OwnedRecord {
    fn from_raw(record: &RawRecord<'_>) -> Self {
        Self {
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect(),
        }
    }

    fn headers(&self) -> HeaderBuf {
        let mut headers = HeaderBuf::default();
        self.headers.iter().for_each(|(name, value)| headers.push(name, value.as_deref()));
        headers
    }
}

/// Timestamps at which the encoded length changes, no timestamp, and arbitrary timestamps.
fn timestamp() -> impl Strategy<Value = i64> {
    let edges = vec![0, -1, 1, 63, 64, 8_191, 8_192, i64::MIN, i64::MAX, 1_700_000_000_000];
    prop_oneof![
        4 => 1_700_000_000_000..1_700_000_000_100_i64,
        2 => proptest::sample::select(edges),
        1 => any::<i64>(),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..8), vec(any::<u8>(), 60..70), vec(0..2_u8, 0..400)]
}

fn record() -> impl Strategy<Value = OwnedRecord> {
    let header = (prop_oneof![bytes(), Just(b"e\0".to_vec())], option::of(bytes()));
    (timestamp(), option::of(bytes()), option::of(bytes()), vec(header, 0..5))
        .prop_map(|(timestamp, key, value, headers)| OwnedRecord { timestamp, key, value, headers })
}

fn codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(Codec::ALL.to_vec())
}

const SEAL: BatchProducer =
    BatchProducer { producer_id: 77, producer_epoch: 3, base_sequence: 42, transactional: true };

/// A batch of these records as a broker stores it.
fn batch(base_offset: i64, records: &[OwnedRecord], codec: Codec, seal: BatchProducer) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for record in records {
        let headers = record.headers();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder.push(record.timestamp, key, value, headers.as_headers()).unwrap();
    }
    let mut sealed = builder.seal(seal, &mut Packer::new(codec, None).unwrap());
    set_base_offset(&mut sealed, base_offset);
    sealed
}

/// Sets a batch's base offset, as a broker does.
fn set_base_offset(batch: &mut [u8], base_offset: i64) {
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
}

/// Overwrites a part of a batch, and corrects its checksum.
fn rewrite(batch: &mut [u8], at: usize, bytes: &[u8]) {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = crc32c::crc32c(&batch[CHECKED_FROM..]);
    batch[CHECKED_FROM - 4..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
}

/// The marker at the end of a transaction, as a broker writes it.
fn marker(offset: i64, producer_id: i64, control: Control) -> Vec<u8> {
    let kind = u8::from(control == Control::Commit);
    let record = OwnedRecord { key: Some(vec![0, 0, 0, kind]), value: Some(vec![0; 6]), ..OwnedRecord::default() };
    let mut marker = batch(offset, &[record], Codec::None, BatchProducer { producer_id, ..SEAL });
    rewrite(&mut marker, CHECKED_FROM, &(CONTROL_BIT | TRANSACTIONAL_BIT).to_be_bytes());
    marker
}

/// Reads the records in these bytes with their offsets, until an error, which is returned as well.
fn read(bytes: &[u8]) -> (Vec<(i64, OwnedRecord)>, Option<Error>) {
    let mut records = Vec::new();
    for batch in Batches::new(bytes) {
        if let Err(error) = batch.and_then(|batch| read_batch(&batch, &mut records)) {
            return (records, Some(error));
        }
    }
    (records, None)
}

fn read_batch(batch: &Batch<'_>, records: &mut Vec<(i64, OwnedRecord)>) -> Result<(), Error> {
    const UNPACKED_BYTES_MAX: usize = 1 << 24;
    batch.check()?;
    let unpacked = BoundedUnpacker::new(UNPACKED_BYTES_MAX).unpack(batch.codec()?, batch.payload());
    for record in batch.records(&unpacked.expect("a batch with a valid checksum unpacks")) {
        let record = record?;
        records.push((record.offset, OwnedRecord::from_raw(&record)));
    }
    Ok(())
}
