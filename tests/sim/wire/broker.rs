//! What becomes of a broker's requests.

use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, BrokerId, FetchRequest, FetchResponse, ListOffsetsRequest,
    MetadataRequest, OffsetForLeaderEpochRequest, TopicName,
};

use super::cluster::{Cluster, LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED, Topic, UNKNOWN_TOPIC_OR_PARTITION};
use super::fetching::Fetch;
use super::frames::{Incoming, decode, encode, text};
use super::{answers, transactions};

/// What the brokers offer: key and versions. Fetch begins where Kafka 4.0 does.
pub const OFFERED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Fetch, 4, 11),
    (ApiKey::ListOffsets, 1, 6),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::ApiVersions, 0, 3),
];

const UNSUPPORTED_VERSION: i16 = 35;

/// What becomes of a request.
pub enum Reply {
    /// A response, without its length.
    Now(Vec<u8>),
    /// It waits; ask [`Fetch::answer`].
    Later(Fetch),
    /// The connection is closed.
    Close,
}

impl Cluster {
    /// Handles a request at a broker at time `now`, microseconds.
    pub fn handle(&mut self, node: i32, incoming: &Incoming, now: u64) -> Reply {
        let offered = self.offered().find(|(api, ..)| *api == incoming.api);
        let fits = offered.is_some_and(|(_, from, to)| (*from..=*to).contains(&incoming.version));
        if !fits {
            // Only for ApiVersions, in its first version (KIP-511); any other closes the connection.
            let refused = ApiVersionsResponse::default().with_error_code(UNSUPPORTED_VERSION);
            let is_versions = incoming.api == ApiKey::ApiVersions;
            return if is_versions { Reply::Now(encode(&refused, incoming.correlation, 0)) } else { Reply::Close };
        }
        self.handle_offered(node, incoming, now).unwrap_or(Reply::Close)
    }

    fn handle_offered(&mut self, node: i32, incoming: &Incoming, now: u64) -> Option<Reply> {
        let (correlation, version) = (incoming.correlation, incoming.version);
        let bytes = match incoming.api {
            ApiKey::ApiVersions => {
                decode::<ApiVersionsRequest>(incoming)?;
                encode(&self.versions(), correlation, version)
            }
            ApiKey::Metadata => encode(&self.metadata(node, &decode(incoming)?), correlation, version),
            ApiKey::ListOffsets => encode(&self.list_offsets(node, &decode(incoming)?), correlation, version),
            ApiKey::OffsetForLeaderEpoch => encode(&self.epoch_ends(node, &decode(incoming)?), correlation, version),
            ApiKey::Fetch => {
                let fetch = Fetch::of(self, node, version, decode::<FetchRequest>(incoming)?, now);
                return Some(match fetch.answer(self, node, now) {
                    Some(response) => Reply::Now(encode::<FetchResponse>(&response, correlation, version)),
                    None => Reply::Later(fetch),
                });
            }
            _ => self.handle_transactional(node, incoming, now)?,
        };
        Some(Reply::Now(bytes))
    }

    fn metadata(&self, node: i32, request: &MetadataRequest) -> MetadataResponse {
        let broker = |id: &i32| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(*id))
                .with_host(text(&format!("node{id}")))
                .with_port(9092)
        };
        let names: Vec<String> = match &request.topics {
            None => self.topics.keys().cloned().collect(),
            Some(topics) => topics.iter().filter_map(|topic| Some(topic.name.as_ref()?.to_string())).collect(),
        };
        MetadataResponse::default()
            .with_brokers(self.nodes.iter().filter(|(_, node)| !node.is_given_up).map(|(id, _)| broker(id)).collect())
            .with_cluster_id(Some(text("simulated")))
            .with_controller_id(BrokerId(1))
            .with_topics(names.iter().map(|name| self.describe(node, name)).collect())
    }

    fn describe(&self, node: i32, name: &str) -> MetadataResponseTopic {
        let described = MetadataResponseTopic::default().with_name(Some(TopicName(text(name))));
        let Some(topic) = self.topics.get(name).filter(|_| self.heard(node, name, 0).is_some()) else {
            return described.with_error_code(UNKNOWN_TOPIC_OR_PARTITION);
        };
        if topic.is_denied {
            return described.with_error_code(TOPIC_AUTHORIZATION_FAILED);
        }
        let of = |number: i32| {
            let (leader, epoch) = self.heard(node, name, number)?;
            let described = MetadataResponsePartition::default()
                .with_partition_index(number)
                .with_leader_id(BrokerId(leader))
                .with_leader_epoch(epoch);
            Some(described.with_error_code(if leader < 0 { LEADER_NOT_AVAILABLE } else { 0 }))
        };
        let partitions = (0..topic.partitions.len() as i32).filter_map(of).collect();
        let id: String = topic.id.iter().map(|byte| format!("{byte:02x}")).collect();
        described.with_topic_id(id.parse().expect("32 digits")).with_partitions(partitions)
    }

    fn list_offsets(&self, node: i32, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let committed = request.isolation_level == 1;
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let answer = ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
                match self.role(node, &topic.name, asked.partition_index, asked.current_leader_epoch) {
                    Err(code) => answer.with_error_code(code),
                    Ok(role) => {
                        let end = if committed { role.log.stable() } else { role.log.high() };
                        // -2: the first offset; -1: the end; no other time is asked for.
                        answer.with_offset(if asked.timestamp == -2 { role.log.start() } else { end })
                    }
                }
            });
            ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }

    fn epoch_ends(&self, node: i32, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let answer = EpochEndOffset::default().with_partition(asked.partition);
                match self.role(node, &topic.topic, asked.partition, asked.current_leader_epoch) {
                    Err(code) => answer.with_error_code(code).with_leader_epoch(-1).with_end_offset(-1),
                    Ok(role) => {
                        let (epoch, end) = role.log.end_of_epoch(asked.leader_epoch);
                        answer.with_leader_epoch(epoch).with_end_offset(end)
                    }
                }
            });
            OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone()).with_partitions(partitions.collect())
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }

    /// Whether a topic may be read.
    pub fn deny(&mut self, name: &str, is_denied: bool) {
        self.topics.entry(name.to_owned()).and_modify(|topic: &mut Topic| topic.is_denied = is_denied);
    }

    fn versions(&self) -> ApiVersionsResponse {
        answers::versions(self.offered(), self.transactions.coordinator.is_v2)
    }

    fn offered(&self) -> impl Iterator<Item = &'static (ApiKey, i16, i16)> {
        OFFERED.iter().chain(transactions::OFFERED).filter(|(api, ..)| !self.hidden.contains(api))
    }
}
