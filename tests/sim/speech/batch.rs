//! Record batches of magic 2 (KIP-98, `DefaultRecordBatch`), encoded and decoded apart from the client's code, so that
//! one mistake in both cannot hide.

use std::io::{Read, Write};
use std::sync::Arc;

use super::super::kafka::Packing;

/// Bytes of a batch's head.
pub const HEAD: usize = 61;

/// A record in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rec {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A batch as a broker sends it.
#[derive(Clone, Debug)]
pub struct Batch {
    pub base: i64,
    pub last: i64,
    /// The epoch of the leader that appended it.
    pub epoch: i32,
    pub producer: i64,
    pub producer_epoch: i16,
    /// The sequence number of its first record.
    pub sequence: i32,
    pub transactional: bool,
    /// A marker, and whether it commits.
    pub marker: Option<bool>,
    pub packing: Packing,
    pub records: Arc<[Rec]>,
    pub bytes: Arc<[u8]>,
}

/// Everything of a batch but its place in the log.
#[derive(Clone, Debug)]
pub struct Head {
    pub producer: i64,
    pub producer_epoch: i16,
    pub sequence: i32,
    pub transactional: bool,
    pub packing: Packing,
}

impl Head {
    /// Of no producer that is known.
    pub const PLAIN: Self =
        Self { producer: -1, producer_epoch: -1, sequence: -1, transactional: false, packing: Packing::None };
}

fn varint(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn counted(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    varint(out, bytes.map_or(-1, |bytes| bytes.len() as i64));
    out.extend_from_slice(bytes.unwrap_or_default());
}

fn pack(packing: Packing, bytes: Vec<u8>) -> Vec<u8> {
    match packing {
        Packing::None => bytes,
        Packing::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&bytes).expect("into memory");
            encoder.finish().expect("into memory")
        }
        Packing::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(&bytes).expect("into memory");
            encoder.finish().expect("into memory")
        }
    }
}

fn unpack(packing: Packing, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match packing {
        Packing::None => out.extend_from_slice(bytes),
        Packing::Gzip => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).ok()?),
        Packing::Lz4 => drop(lz4_flex::frame::FrameDecoder::new(bytes).read_to_end(&mut out).ok()?),
    }
    Some(out)
}

impl Batch {
    /// A batch of records whose offsets are rising within `base..=last`; it may hold none, as a compacted one does.
    pub fn build(head: &Head, base: i64, last: i64, epoch: i32, records: Vec<Rec>, marker: Option<bool>) -> Self {
        let first_time = records.first().map_or(-1, |record| record.timestamp);
        let max_time = records.iter().map(|record| record.timestamp).max().unwrap_or(-1);
        let mut body = Vec::new();
        for record in &records {
            let mut one = vec![0];
            varint(&mut one, record.timestamp - first_time);
            varint(&mut one, record.offset - base);
            counted(&mut one, record.key.as_deref());
            counted(&mut one, record.value.as_deref());
            varint(&mut one, record.headers.len() as i64);
            for (name, value) in &record.headers {
                counted(&mut one, Some(name));
                counted(&mut one, value.as_deref());
            }
            varint(&mut body, one.len() as i64);
            body.extend(one);
        }
        let packing = if marker.is_some() { Packing::None } else { head.packing };
        let codec = match packing {
            Packing::None => 0_i16,
            Packing::Gzip => 1,
            Packing::Lz4 => 3,
        };
        let attributes = codec | i16::from(head.transactional) << 4 | i16::from(marker.is_some()) << 5;
        let body = if records.is_empty() { body } else { pack(packing, body) };
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        bytes.extend(base.to_be_bytes());
        bytes.extend(((HEAD + body.len() - 12) as i32).to_be_bytes());
        bytes.extend(epoch.to_be_bytes());
        bytes.push(2);
        bytes.extend([0; 4]);
        bytes.extend(attributes.to_be_bytes());
        bytes.extend(((last - base) as i32).to_be_bytes());
        bytes.extend(first_time.to_be_bytes());
        bytes.extend(max_time.to_be_bytes());
        bytes.extend(head.producer.to_be_bytes());
        bytes.extend(head.producer_epoch.to_be_bytes());
        bytes.extend(head.sequence.to_be_bytes());
        bytes.extend((records.len() as i32).to_be_bytes());
        bytes.extend(body);
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        Self {
            base,
            last,
            epoch,
            producer: head.producer,
            producer_epoch: head.producer_epoch,
            sequence: head.sequence,
            transactional: head.transactional,
            marker,
            packing,
            records: records.into(),
            bytes: bytes.into(),
        }
    }

    /// A transaction's marker (`EndTransactionMarker`, `ControlRecordType`): key version 0 and type, value version 0
    /// and the coordinator's epoch.
    pub fn marker(producer: i64, producer_epoch: i16, commit: bool, at: i64, epoch: i32, timestamp: i64) -> Self {
        let head = Head { producer, producer_epoch, sequence: -1, transactional: true, packing: Packing::None };
        let key = Some(vec![0, 0, 0, u8::from(commit)]);
        let record = Rec { offset: at, timestamp, key, value: Some(vec![0; 6]), headers: Vec::new() };
        Self::build(&head, at, at, epoch, vec![record], Some(commit))
    }

    /// A batch as a producer sent it, whole and undamaged; `None` for anything else (CORRUPT_MESSAGE).
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize, len: usize| -> Option<i64> {
            let raw = bytes.get(at..at + len)?;
            let negative = raw.first().is_some_and(|byte| *byte >= 0x80);
            Some(raw.iter().fold(if negative { -1 } else { 0 }, |all: i64, byte| all << 8 | i64::from(*byte)))
        };
        let length = usize::try_from(number(8, 4)?).ok()?;
        if bytes.len() != length + 12 || bytes.len() < HEAD || number(16, 1)? != 2 {
            return None;
        }
        if crc32c::crc32c(&bytes[21..]) != number(17, 4)? as u32 {
            return None;
        }
        let (base, attributes) = (number(0, 8)?, number(21, 2)?);
        let packing = match attributes & 7 {
            0 => Packing::None,
            1 => Packing::Gzip,
            3 => Packing::Lz4,
            _ => return None,
        };
        let (first_time, count) = (number(27, 8)?, number(57, 4)?);
        let unpacked = if count == 0 { Vec::new() } else { unpack(packing, &bytes[HEAD..])? };
        let mut reader = Bytes(&unpacked);
        let mut records = Vec::new();
        for _ in 0..count {
            records.push(reader.record(base, first_time)?);
        }
        if !reader.0.is_empty() {
            return None;
        }
        let marker = (attributes & 0x20 != 0).then(|| records.first()?.key.as_ref()?.get(3).map(|kind| *kind == 1));
        Some(Self {
            base,
            last: base + number(23, 4)?,
            epoch: number(12, 4)? as i32,
            producer: number(43, 8)?,
            producer_epoch: number(51, 2)? as i16,
            sequence: number(53, 4)? as i32,
            transactional: attributes & 0x10 != 0,
            marker: marker.flatten(),
            packing,
            records: records.into(),
            bytes: bytes.into(),
        })
    }
}

/// What is left to decode.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn varint(&mut self) -> Option<i64> {
        let mut value = 0_u64;
        for place in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }

    fn counted(&mut self) -> Option<Option<Vec<u8>>> {
        let length = self.varint()?;
        if length < 0 {
            return Some(None);
        }
        let (bytes, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(Some(bytes.to_vec()))
    }

    fn record(&mut self, base: i64, first_time: i64) -> Option<Rec> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let mut one = Bytes(bytes.get(1..)?);
        let timestamp = first_time + one.varint()?;
        let offset = base + one.varint()?;
        let (key, value) = (one.counted()?, one.counted()?);
        let mut headers = Vec::new();
        for _ in 0..one.varint()? {
            headers.push((one.counted()??, one.counted()?));
        }
        one.0.is_empty().then_some(Rec { offset, timestamp, key, value, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_parsed_as_it_was_built() {
        for packing in [Packing::None, Packing::Gzip, Packing::Lz4] {
            let head = Head { producer: 7, producer_epoch: 3, sequence: 12, transactional: true, packing };
            let record = |offset| Rec {
                offset,
                timestamp: 1_000 + offset,
                key: Some(vec![1; 300]),
                value: (offset != 6).then(Vec::new),
                headers: vec![(b"h".to_vec(), None), (b"i".to_vec(), Some(vec![0xff]))],
            };
            let built = Batch::build(&head, 5, 9, 4, vec![record(5), record(6), record(8)], None);
            let parsed = Batch::parse(&built.bytes).unwrap();
            assert_eq!((parsed.base, parsed.last, parsed.epoch), (5, 9, 4));
            assert_eq!(parsed.records, built.records);
            let mut damaged = built.bytes.to_vec();
            damaged[40] ^= 1;
            assert!(Batch::parse(&damaged).is_none());
        }
    }
}
