//! Records, borrowed from brokers' responses: key and value are not copied.
//!
//! Headers are copied into the format of [`Headers`], if any record of the batch has some.

use std::ops::Range;

use crate::cluster::RecordBatch;
use crate::cluster::kafka::wire::fetcher::Fetched;
use crate::cluster::kafka::wire::records::NONE;
use crate::record::{HeaderBuf, Headers, Record, TopicPartition};

/// Records that were read. See [`RecordBatch`].
#[derive(Debug, Default)]
pub struct Batch {
    fetched: Fetched,
    headers: HeaderBuf,
    /// Where in `headers` those of each record are; empty if no record has any.
    headers_at: Vec<Range<usize>>,
}

impl Batch {
    /// Drops all records.
    pub fn clear(&mut self) {
        self.fetched.clear();
        self.headers.clear();
        self.headers_at.clear();
    }

    /// Lets `take` replace the records.
    pub(super) fn fill(&mut self, take: impl FnOnce(&mut Fetched)) {
        self.headers.clear();
        self.headers_at.clear();
        take(&mut self.fetched);
        if !self.fetched.has_headers() {
            return;
        }
        for (_, record) in self.fetched.iter() {
            let start = self.headers.byte_len();
            record.copy_headers(&mut self.headers);
            self.headers_at.push(start..self.headers.byte_len());
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

    fn source(&self, index: usize) -> usize {
        self.fetched.source(index).expect("an index below the number of records")
    }

    fn len(&self) -> usize {
        self.fetched.len()
    }

    fn record(&self, index: usize) -> Record<'_> {
        let record = self.fetched.record(index).expect("an index below the number of records");
        let source = &self.partitions()[self.source(index)];
        let headers = match self.headers_at.get(index) {
            Some(range) => Headers::from_bytes(&self.headers.as_headers().as_bytes()[range.clone()]),
            None => Headers::default(),
        };
        Record {
            topic: &source.topic,
            partition: source.partition,
            offset: record.offset,
            timestamp: (record.timestamp != NONE).then_some(record.timestamp),
            key: record.key,
            value: record.value,
            headers,
        }
    }
}
