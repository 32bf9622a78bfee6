//! Fetches, which wait at the broker until there is something to read (`DelayedFetch`), without sessions.

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::FetchRequest;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchResponse, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{BrokerId, ProducerId, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::batches;
use super::frames::encode;
use super::speech::leading;
use crate::kafka::{Broker, Code, Isolation, MS, Partition, Time};

/// A partition to be read.
struct Asked {
    partition: Partition,
    /// The leader's epoch as the client knows it, -1 if it does not.
    epoch: i32,
    offset: i64,
    bytes_max: usize,
}

/// A fetch.
pub struct Fetch {
    correlation: i32,
    version: i16,
    /// When it is answered at the latest.
    pub until: Time,
    bytes_max: usize,
    isolation: Isolation,
    asked: Vec<Asked>,
}

impl Fetch {
    pub fn of(request: &FetchRequest, (correlation, version): (i32, i16), now: Time) -> Self {
        let asked = request.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|of| Asked {
                partition: Partition::new(topic.topic.as_str(), of.partition),
                epoch: of.current_leader_epoch,
                offset: of.fetch_offset,
                bytes_max: of.partition_max_bytes.max(0) as usize,
            })
        });
        Self {
            correlation,
            version,
            until: now + request.max_wait_ms.max(0) as Time * MS,
            bytes_max: request.max_bytes.max(0) as usize,
            isolation: if request.isolation_level == 1 { Isolation::Committed } else { Isolation::Uncommitted },
            asked: asked.collect(),
        }
    }

    /// Whether it is answered now: something can be read, or there is an error, or no time is left.
    pub fn is_due(&self, broker: &Broker) -> bool {
        let is_due = |of: &Asked| match leading(broker, &of.partition, of.epoch) {
            Err(_) => true,
            Ok(log) => {
                let bound = if self.isolation == Isolation::Committed { log.stable_end() } else { log.end() };
                of.offset < log.start() || of.offset > log.end() || of.offset < bound
            }
        };
        broker.now >= self.until || self.asked.iter().any(is_due)
    }

    /// The response, with at most `records_max` records and about `bytes_max` bytes, and the errors in it.
    pub fn answer(&self, broker: &Broker, (records_max, bytes_max): (usize, usize)) -> (Vec<u8>, Vec<Code>) {
        let (mut response, mut codes) = (FetchResponse::default(), Vec::new());
        let mut bytes_left = self.bytes_max;
        for asked in &self.asked {
            let data = self.read(broker, asked, (records_max, bytes_left.min(bytes_max)));
            bytes_left = bytes_left.saturating_sub(data.records.as_ref().map_or(0, Bytes::len));
            let away = Code::NotLeaderOrFollower;
            codes.extend((data.error_code == away.number()).then_some(away));
            let name = TopicName(StrBytes::from_string(asked.partition.topic.to_string()));
            if response.responses.last().is_none_or(|last| last.topic != name) {
                response.responses.push(FetchableTopicResponse::default().with_topic(name));
            }
            response.responses.last_mut().expect("just added").partitions.push(data);
        }
        (encode(&response, self.correlation, self.version), codes)
    }

    fn read(&self, broker: &Broker, asked: &Asked, (records_max, bytes_left): (usize, usize)) -> PartitionData {
        let data = PartitionData::default()
            .with_partition_index(asked.partition.number)
            .with_preferred_read_replica(BrokerId(-1))
            .with_records(Some(Bytes::new()));
        let failed = |code: i16| data.clone().with_error_code(code).with_high_watermark(-1).with_last_stable_offset(-1);
        let log = match leading(broker, &asked.partition, asked.epoch) {
            Ok(log) => log,
            Err(code) => return failed(code),
        };
        if asked.offset < log.start() || asked.offset > log.end() {
            return failed(Code::OffsetOutOfRange.number());
        }
        let bytes_max = asked.bytes_max.min(bytes_left);
        let (mut bytes, end) = match bytes_max {
            0 => (Vec::new(), asked.offset),
            _ => batches::read(log, asked.offset, self.isolation, (records_max, bytes_max)),
        };
        // The first batch is whole however large it is (KIP-74), and the last one may be cut anywhere.
        bytes.truncate(bytes_max.max(first_batch(&bytes)));
        let aborted = log.aborted(asked.offset..end).map(|(producer, first)| {
            AbortedTransaction::default().with_producer_id(ProducerId(producer)).with_first_offset(first)
        });
        let aborted: Vec<_> = aborted.filter(|_| self.isolation == Isolation::Committed).collect();
        data.with_high_watermark(log.end())
            .with_last_stable_offset(log.stable_end())
            .with_log_start_offset(log.start())
            .with_aborted_transactions((!aborted.is_empty()).then_some(aborted))
            .with_records(Some(Bytes::from(bytes)))
    }
}

/// The bytes of the first batch.
fn first_batch(bytes: &[u8]) -> usize {
    let length = bytes.get(8..12).and_then(|length| length.try_into().ok());
    length.map_or(0, |length| 12 + u32::from_be_bytes(length) as usize)
}
