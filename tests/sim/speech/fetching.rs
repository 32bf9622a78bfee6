//! What a fetch reads (`ReplicaManager.readFromLog`, `DelayedFetch`).

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::FetchRequest;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchResponse, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{BrokerId, ProducerId, TopicName};

use super::super::kafka::{Broker, Code, Isolation, MS, Partition, Time};
use super::batches::{self, Limits};
use super::frames::{encode, text};
use super::manners::Manners;
use super::sessions::Context;

/// A partition to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub partition: Partition,
    /// The leader's epoch as the client knows it, -1 if it does not.
    pub epoch: i32,
    pub offset: i64,
    pub bytes_max: usize,
}

/// What was found in a partition.
#[derive(Clone, Debug)]
pub struct Found {
    pub partition: Partition,
    pub code: Option<Code>,
    pub high: i64,
    pub stable: i64,
    pub start: i64,
    /// Aborted transactions: their producers, and where they begin.
    pub aborted: Vec<(i64, i64)>,
    pub bytes: Vec<u8>,
}

/// A fetch that may wait.
#[derive(Clone, Debug)]
pub struct Fetch {
    correlation: i32,
    pub version: i16,
    /// When it is answered at the latest.
    pub until: Time,
    bytes_min: usize,
    bytes_max: usize,
    /// At most so many records and about so many bytes of a partition, which nobody has asked for.
    pub scant: (usize, usize),
    isolation: Isolation,
    context: Context,
    asked: Vec<Asked>,
}

impl Fetch {
    /// Takes a request with its correlation and version.
    pub fn of(
        manners: &mut Manners,
        node: i32,
        request: &FetchRequest,
        (correlation, version): (i32, i16),
        now: Time,
    ) -> Self {
        let asked = request.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|of| Asked {
                partition: Partition::new(topic.topic.as_str(), of.partition),
                epoch: of.current_leader_epoch,
                offset: of.fetch_offset,
                bytes_max: of.partition_max_bytes.max(0) as usize,
            })
        });
        let asked: Vec<Asked> = asked.collect();
        let forgotten: Vec<Partition> = request
            .forgotten_topics_data
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|number| Partition::new(topic.topic.as_str(), *number)))
            .collect();
        let fetches = &mut manners.fetches;
        match request.session_epoch {
            0 => fetches.full += 1,
            -1 => fetches.alone += 1,
            _ => fetches.incremental += 1,
        }
        fetches.named += asked.len();
        let place = (request.session_id, request.session_epoch);
        let (context, asked) = manners.sessions(node).begin(place, asked, &forgotten);
        Self {
            correlation,
            version,
            until: now + request.max_wait_ms.max(0) as Time * MS,
            bytes_min: request.min_bytes.max(0) as usize,
            bytes_max: request.max_bytes.max(0) as usize,
            scant: (usize::MAX, usize::MAX),
            isolation: if request.isolation_level == 1 { Isolation::Committed } else { Isolation::Uncommitted },
            context,
            asked,
        }
    }

    /// The response and the errors in it, if there is enough to read, an error, or no time left.
    pub fn answer(&self, broker: &Broker, manners: &mut Manners, node: i32) -> Option<(Vec<u8>, Vec<Code>)> {
        let found = self.read(broker, manners, node);
        let bytes: usize = found.iter().map(|found| found.bytes.len()).sum();
        let waits = bytes < self.bytes_min && found.iter().all(|found| found.code.is_none()) && !found.is_empty();
        if waits && broker.now < self.until {
            return None;
        }
        let codes = found.iter().filter_map(|found| found.code).collect();
        let (code, id, told) = manners.sessions(node).end(&self.context, &self.asked, found);
        let mut response = FetchResponse::default().with_error_code(code).with_session_id(id);
        for found in told {
            // Partitions of a topic stand together as long as they follow each other.
            let name = TopicName(text(&found.partition.topic));
            if response.responses.last().is_none_or(|last| last.topic != name) {
                response.responses.push(FetchableTopicResponse::default().with_topic(name));
            }
            let last = response.responses.last_mut().expect("just added");
            last.partitions.push(data(found, manners.prefers));
        }
        Some((encode(&response, self.correlation, self.version), codes))
    }

    fn read(&self, broker: &Broker, manners: &mut Manners, node: i32) -> Vec<Found> {
        let mut left = self.bytes_max;
        let mut is_first = true;
        let mut all = Vec::new();
        for asked in &self.asked {
            let found = self.read_one(broker, manners, (node, asked), (left, is_first));
            // Once something was read, the limits are kept.
            is_first &= found.bytes.is_empty();
            left = left.saturating_sub(found.bytes.len());
            all.push(found);
        }
        all
    }

    fn read_one(
        &self,
        broker: &Broker,
        manners: &mut Manners,
        (node, asked): (i32, &Asked),
        (left, is_first): (usize, bool),
    ) -> Found {
        let (shows_former, damages) = (manners.shows_former(), manners.damages());
        let refused = |code| Found {
            partition: asked.partition.clone(),
            code: Some(code),
            high: -1,
            stable: -1,
            start: -1,
            aborted: Vec::new(),
            bytes: Vec::new(),
        };
        let served = match broker.served(node, &asked.partition, asked.epoch) {
            Ok(served) => served,
            Err(code) => return refused(code),
        };
        let log = served.log;
        if asked.offset < log.start() || asked.offset > log.end() {
            return refused(Code::OffsetOutOfRange);
        }
        let (mut high, mut stable) = (log.high(), log.stable_end());
        if let Some(former) = served.former.filter(|_| shows_former) {
            // `Partition.readRecords` notes both before it reads, and what it reads may reach further.
            (high, stable) = (high.min(former.0), stable.min(former.1));
        }
        let (records_max, scant) = self.scant;
        let bytes_max = left.min(asked.bytes_max).min(scant);
        let hides = served.hides || manners.prefers >= 0 || manners.blind.contains(&asked.offset);
        let limits = Limits { records_max, bytes_max, is_whole: is_first };
        let (mut bytes, end) = match hides {
            true => (Vec::new(), asked.offset),
            false => batches::read(log, asked.offset, self.isolation, &limits),
        };
        if manners.cuts_first {
            bytes.truncate(bytes_max);
        }
        // In what a batch's checksum covers, if the batch is whole.
        bytes.last_mut().filter(|_| damages).into_iter().for_each(|byte| *byte ^= 1);
        let aborted = log.aborted(asked.offset..end).filter(|_| self.isolation == Isolation::Committed).collect();
        Found { partition: asked.partition.clone(), code: None, high, stable, start: log.start(), aborted, bytes }
    }
}

fn data(found: Found, prefers: i32) -> PartitionData {
    let aborted = found.aborted.iter().map(|(producer, first)| {
        AbortedTransaction::default().with_producer_id(ProducerId(*producer)).with_first_offset(*first)
    });
    let aborted: Vec<AbortedTransaction> = aborted.collect();
    PartitionData::default()
        .with_partition_index(found.partition.number)
        .with_error_code(found.code.map_or(0, Code::number))
        .with_high_watermark(found.high)
        .with_last_stable_offset(found.stable)
        .with_log_start_offset(found.start)
        .with_aborted_transactions((!aborted.is_empty()).then_some(aborted))
        .with_preferred_read_replica(BrokerId(prefers))
        .with_records(Some(Bytes::from(found.bytes)))
}
