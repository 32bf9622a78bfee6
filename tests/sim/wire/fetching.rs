//! What a fetch reads (`ReplicaManager.readFromLog`, `DelayedFetch`).

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::FetchRequest;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchResponse, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{BrokerId, ProducerId, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::cluster::Cluster;
use super::log::Aborted;
use super::sessions::Context;

/// A partition to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub topic: String,
    pub partition: i32,
    /// The leader's epoch as the client knows it, -1 if it does not.
    pub epoch: i32,
    pub offset: i64,
    pub bytes_max: usize,
}

impl Asked {
    /// Whether both are of the same partition.
    pub fn is_same(&self, other: &Self) -> bool {
        self.topic == other.topic && self.partition == other.partition
    }
}

/// What was found in a partition.
#[derive(Clone, Debug)]
pub struct Found {
    pub topic: String,
    pub partition: i32,
    pub code: i16,
    pub high: i64,
    pub stable: i64,
    pub start: i64,
    pub aborted: Vec<Aborted>,
    pub bytes: Vec<u8>,
}

/// A fetch that may wait.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub version: i16,
    /// When it is answered at the latest, microseconds.
    pub until: u64,
    pub bytes_min: usize,
    pub bytes_max: usize,
    pub committed: bool,
    pub context: Context,
    pub asked: Vec<Asked>,
}

impl Fetch {
    /// Takes a request at time `now`, microseconds.
    pub fn of(cluster: &mut Cluster, node: i32, version: i16, request: FetchRequest, now: u64) -> Self {
        let asked = request.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| Asked {
                topic: topic.topic.to_string(),
                partition: partition.partition,
                epoch: partition.current_leader_epoch,
                offset: partition.fetch_offset,
                bytes_max: partition.partition_max_bytes.max(0) as usize,
            })
        });
        let forgotten: Vec<(String, i32)> = request
            .forgotten_topics_data
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|number| (topic.topic.to_string(), *number)))
            .collect();
        let place = (request.session_id, request.session_epoch);
        let fetches = &mut cluster.fetches;
        match request.session_epoch {
            0 => fetches.full += 1,
            -1 => fetches.alone += 1,
            _ => fetches.incremental += 1,
        }
        fetches.named += asked.clone().count();
        let (context, asked) = cluster.node(node).sessions.begin(place, asked.collect(), &forgotten);
        Self {
            version,
            until: now + request.max_wait_ms.max(0) as u64 * 1_000,
            bytes_min: request.min_bytes.max(0) as usize,
            bytes_max: request.max_bytes.max(0) as usize,
            committed: request.isolation_level == 1,
            context,
            asked,
        }
    }

    /// The response, if there is enough to read, an error, or no time left.
    pub fn answer(&self, cluster: &mut Cluster, node: i32, now: u64) -> Option<FetchResponse> {
        let found = self.read(cluster, node);
        let bytes: usize = found.iter().map(|found| found.bytes.len()).sum();
        let waits = bytes < self.bytes_min && found.iter().all(|found| found.code == 0) && !found.is_empty();
        if waits && now < self.until {
            return None;
        }
        let (code, id, told) = cluster.node(node).sessions.end(&self.context, &self.asked, found);
        let mut response = FetchResponse::default().with_error_code(code).with_session_id(id);
        for found in told {
            // Partitions of a topic stand together as long as they follow each other.
            let name = TopicName(StrBytes::from_string(found.topic.clone()));
            if response.responses.last().is_none_or(|last| last.topic != name) {
                response.responses.push(FetchableTopicResponse::default().with_topic(name));
            }
            let last = response.responses.last_mut().expect("just added");
            last.partitions.push(partition(found, cluster.prefers));
        }
        Some(response)
    }

    fn read(&self, cluster: &mut Cluster, node: i32) -> Vec<Found> {
        let mut left = self.bytes_max;
        let mut whole = true;
        let mut all = Vec::new();
        for asked in &self.asked {
            let found = self.read_one(cluster, node, asked, left, whole);
            // Once something was read, the limits are kept.
            whole &= found.bytes.is_empty();
            left = left.saturating_sub(found.bytes.len());
            all.push(found);
        }
        all
    }

    fn read_one(&self, cluster: &mut Cluster, node: i32, asked: &Asked, left: usize, whole: bool) -> Found {
        let mut found = Found {
            topic: asked.topic.clone(),
            partition: asked.partition,
            code: 0,
            high: -1,
            stable: -1,
            start: -1,
            aborted: Vec::new(),
            bytes: Vec::new(),
        };
        let (prefers, cuts_first) = (cluster.prefers, cluster.cuts_first);
        let (shows_former, damages) = (cluster.shows_former(), cluster.damages());
        match cluster.role(node, &asked.topic, asked.partition, asked.epoch) {
            Err(code) => found.code = code,
            Ok(role) => {
                let former = role.former.filter(|_| shows_former);
                (found.high, found.stable, found.start) = (role.log.high(), role.log.stable(), role.log.start());
                if let Some((high, stable)) = former {
                    // `Partition.readRecords` notes both before it reads, and what it reads may reach further.
                    (found.high, found.stable) = (found.high.min(high), found.stable.min(stable));
                }
                let hides = role.hides || prefers >= 0;
                let left = if hides { 0 } else { left };
                match role.log.read(asked.offset, left.min(asked.bytes_max), whole && !hides, self.committed) {
                    Some(read) => {
                        (found.bytes, found.aborted) = (read.bytes, read.aborted);
                        if cuts_first {
                            found.bytes.truncate(left.min(asked.bytes_max));
                        }
                        // In what a batch's checksum covers, if the batch is whole.
                        let last = found.bytes.last_mut().filter(|_| damages);
                        last.into_iter().for_each(|byte| *byte ^= 1);
                    }
                    None => found.code = 1,
                }
            }
        }
        if found.code != 0 {
            (found.high, found.stable, found.start) = (-1, -1, -1);
        }
        found
    }
}

fn partition(found: Found, prefers: i32) -> PartitionData {
    let aborted = |of: &Aborted| {
        AbortedTransaction::default().with_producer_id(ProducerId(of.producer)).with_first_offset(of.first)
    };
    let listed: Vec<AbortedTransaction> = found.aborted.iter().map(aborted).collect();
    PartitionData::default()
        .with_partition_index(found.partition)
        .with_error_code(found.code)
        .with_high_watermark(found.high)
        .with_last_stable_offset(found.stable)
        .with_log_start_offset(found.start)
        .with_aborted_transactions((!listed.is_empty()).then_some(listed))
        .with_preferred_read_replica(BrokerId(prefers))
        .with_records(Some(Bytes::from(found.bytes)))
}
