//! A partition's records as the batches that a broker sends, and a producer's batch as records.

use ratchet::record::{HeaderBuf, Headers};

use super::batch::{Batch, Head, Packing, Rec};
use crate::kafka::{Found, Isolation, Log, Record};

/// Records in one batch at most.
const RECORDS_MAX: usize = 16;

/// A record as it is in a batch.
fn packed(offset: i64, record: &Record) -> Rec {
    let headers = Headers::from_bytes(&record.headers);
    Rec {
        offset,
        timestamp: record.timestamp.unwrap_or(-1),
        key: record.key.as_deref().map(<[u8]>::to_vec),
        value: record.value.as_deref().map(<[u8]>::to_vec),
        headers: headers.iter().map(|of| (of.name.to_vec(), of.value.map(<[u8]>::to_vec))).collect(),
    }
}

/// The records of a batch.
pub fn records(batch: &Batch) -> Vec<Record> {
    let record = |rec: &Rec| {
        let mut headers = HeaderBuf::default();
        rec.headers.iter().for_each(|(name, value)| headers.push(name, value.as_deref()));
        Record {
            timestamp: (rec.timestamp >= 0).then_some(rec.timestamp),
            key: rec.key.as_deref().map(Into::into),
            value: rec.value.as_deref().map(Into::into),
            headers: headers.as_headers().as_bytes().into(),
        }
    };
    batch.records.iter().map(record).collect()
}

/// Batches under construction: neighbours of one writer stand in one batch.
#[derive(Default)]
struct Building {
    bytes: Vec<u8>,
    producer: Option<i64>,
    base: i64,
    records: Vec<Rec>,
}

impl Building {
    /// Ends the batch, which reaches up to `end`: what the cleaner has removed was part of it (KIP-98: a batch keeps its
    /// last offset).
    fn close(&mut self, log: &Log, end: i64) {
        if end <= self.base {
            return;
        }
        let transactional = self.producer.is_some();
        let (producer, producer_epoch) = self.producer.map_or((-1, -1), |producer| (producer, 0));
        let head = Head { producer, producer_epoch, sequence: -1, transactional, packing: Packing::None };
        let records = std::mem::take(&mut self.records);
        let batch = Batch::build(&head, self.base, end - 1, log.epoch_of(self.base), records, None);
        self.bytes.extend_from_slice(&batch.bytes);
        (self.producer, self.base) = (None, end);
    }
}

/// What a fetch from `from` on returns: at most `records_max` records in about `bytes_max` bytes, and where it ends.
pub fn read(log: &Log, from: i64, isolation: Isolation, (records_max, bytes_max): (usize, usize)) -> (Vec<u8>, i64) {
    let bound = match isolation {
        Isolation::Uncommitted => log.end(),
        Isolation::Committed => log.stable_end(),
    };
    let mut building = Building { base: from, ..Building::default() };
    let mut left = records_max;
    for (offset, producer, found) in log.entries(from).take_while(|(offset, ..)| *offset < bound) {
        let is_full = left == 0 || building.bytes.len() >= bytes_max;
        match found {
            _ if is_full => {
                building.close(log, offset);
                return (building.bytes, offset);
            }
            Found::Record(record) => {
                let goes_on = !building.records.is_empty() && building.records.len() < RECORDS_MAX;
                if !goes_on || building.producer != producer {
                    building.close(log, offset);
                    building.producer = producer;
                }
                building.records.push(packed(offset, record));
                left -= 1;
            }
            Found::Marker { commits } => {
                building.close(log, offset);
                let producer = producer.expect("a marker ends a producer's transaction");
                let marker = Batch::marker(producer, 0, commits, offset, log.epoch_of(offset), 0);
                building.bytes.extend_from_slice(&marker.bytes);
                building.base = offset + 1;
            }
        }
    }
    let end = bound.max(from);
    building.close(log, end);
    (building.bytes, end)
}
