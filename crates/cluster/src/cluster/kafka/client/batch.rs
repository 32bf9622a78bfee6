//! Records, borrowed from brokers' responses: key and value are not copied.
//!
//! Headers are copied into the format of [`Headers`], if any record of the batch has headers.

use std::ops::Range;

use crate::cluster::RecordBatch;
use crate::cluster::kafka::wire::fetcher::Fetched;
use crate::cluster::kafka::wire::records::UNSET;
use crate::record::{HeaderBuf, Headers, Record, TopicPartition};

/// Records that were read. See [`RecordBatch`].
#[derive(Debug, Default)]
pub struct Batch {
    fetched: Fetched,
    headers: HeaderBuf,
    /// Each record's range in `headers`. The list is empty if no record has headers.
    header_ranges: Vec<Range<usize>>,
}

impl Batch {
    /// Drops all records.
    pub fn clear(&mut self) {
        self.fetched.clear();
        self.headers.clear();
        self.header_ranges.clear();
    }

    /// Replaces the records with those that `take` puts into its argument.
    pub(super) fn fill(&mut self, take: impl FnOnce(&mut Fetched)) {
        self.headers.clear();
        self.header_ranges.clear();
        take(&mut self.fetched);
        if !self.fetched.has_headers() {
            return;
        }
        for (_, record) in self.fetched.iter() {
            let start = self.headers.byte_len();
            record.copy_headers(&mut self.headers);
            self.header_ranges.push(start..self.headers.byte_len());
        }
    }

    /// The records as they were fetched.
    pub(super) fn fetched(&self) -> &Fetched {
        &self.fetched
    }
}

impl RecordBatch for Batch {
    fn partitions(&self) -> &[TopicPartition] {
        self.fetched.partitions()
    }

    fn partition_index(&self, index: usize) -> usize {
        self.fetched.partition_index(index).expect("an index below the number of records")
    }

    fn len(&self) -> usize {
        self.fetched.len()
    }

    fn record(&self, index: usize) -> Record<'_> {
        let record = self.fetched.record(index).expect("an index below the number of records");
        let source = &self.partitions()[self.partition_index(index)];
        let headers = match self.header_ranges.get(index) {
            Some(range) => Headers::from_bytes(&self.headers.as_headers().as_bytes()[range.clone()]),
            None => Headers::default(),
        };
        Record {
            topic: &source.topic,
            partition: source.partition,
            offset: record.offset,
            timestamp: (record.timestamp != UNSET).then_some(record.timestamp),
            key: record.key,
            value: record.value,
            headers,
        }
    }
}
