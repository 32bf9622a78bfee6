//! The brokers' side of the protocol. It uses the crate kafka-protocol, so that the client's own encoding and decoding
//! is checked against an independent implementation of Kafka's definitions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse, RequestHeader, ResponseHeader,
    TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes, decode_request_header_from_buffer};

use super::super::*;

/// A request as a broker saw it.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    pub link: Link,
    pub port: u16,
    pub api_key: i16,
    pub version: i16,
    pub correlation: i32,
    pub client_id: Option<String>,
    pub body: Bytes,
}

impl SeenRequest {
    /// Reads a request whose length has been removed.
    pub fn read(link: Link, port: u16, frame: Vec<u8>) -> Self {
        let mut body = Bytes::from(frame);
        let header: RequestHeader = decode_request_header_from_buffer(&mut body).unwrap();
        Self {
            link,
            port,
            api_key: header.request_api_key,
            version: header.request_api_version,
            correlation: header.correlation_id,
            client_id: header.client_id.map(|id| id.to_string()),
            body,
        }
    }

    /// The frame of a response.
    pub fn response(&self, body: &[u8]) -> Vec<u8> {
        let api = ApiKey::try_from(self.api_key).unwrap();
        let mut bytes = BytesMut::new();
        let header = ResponseHeader::default().with_correlation_id(self.correlation);
        header.encode(&mut bytes, api.response_header_version(self.version)).unwrap();
        bytes.extend_from_slice(body);
        [&(bytes.len() as i32).to_be_bytes(), &bytes[..]].concat()
    }
}

/// A partition's leader and leader epoch.
pub type LeaderAndEpoch = (i32, i32);

/// The brokers' common state, and their behaviour.
#[derive(Default)]
pub struct Cluster {
    /// The brokers' ports by node.
    pub nodes: BTreeMap<i32, u16>,
    /// The topics' ids and partitions by name.
    pub topics: BTreeMap<String, (u8, Vec<LeaderAndEpoch>)>,
    pub id: Option<&'static str>,
    /// Ports that accept no connections.
    pub down: BTreeSet<u16>,
    /// Ports that accept connections and never respond.
    pub silent: BTreeSet<u16>,
    /// The highest version of ApiVersions that brokers know.
    pub api_versions_max: i16,
    /// Whether a broker that refuses an unknown version of ApiVersions lists the versions that it knows.
    pub lists_versions: bool,
    /// The highest version of Metadata that brokers know.
    pub metadata_max: i16,
    pub throttle_ms: i32,
    /// The brokers' host in metadata.
    pub host: &'static str,
}

/// The API key of requests to which these brokers respond with the request's own body.
pub const ECHO: i16 = ApiKey::ListOffsets as i16;

pub fn echo(body: &[u8]) -> Request {
    Request { api_key: ECHO, version: 5, body: body.to_vec().into() }
}

impl Cluster {
    /// The body of the default response; `None` if these brokers do not know the request.
    pub fn default_response(&self, seen: &SeenRequest) -> Option<Vec<u8>> {
        match seen.api_key {
            key if key == ApiKey::ApiVersions as i16 => Some(self.versions(seen)),
            key if key == ApiKey::Metadata as i16 => Some(self.metadata(seen)),
            ECHO => Some(seen.body.to_vec()),
            _ => None,
        }
    }

    fn versions(&self, seen: &SeenRequest) -> Vec<u8> {
        let api = |key: ApiKey, min, max| {
            ApiVersion::default().with_api_key(key as i16).with_min_version(min).with_max_version(max)
        };
        let mut body = BytesMut::new();
        if seen.version > self.api_versions_max {
            let known = vec![api(ApiKey::ApiVersions, 0, self.api_versions_max)];
            let response = ApiVersionsResponse::default().with_error_code(35);
            let response = if self.lists_versions { response.with_api_keys(known) } else { response };
            response.encode(&mut body, 0).unwrap();
            return body.to_vec();
        }
        let request = ApiVersionsRequest::decode(&mut seen.body.clone(), seen.version).unwrap();
        assert!(seen.version < 3 || !request.client_software_name.is_empty());
        let known = vec![
            api(ApiKey::SaslAuthenticate, 0, 2),
            api(ApiKey::Metadata, 0, self.metadata_max),
            api(ApiKey::ListOffsets, 1, 9),
            api(ApiKey::SaslHandshake, 0, 1),
            api(ApiKey::ApiVersions, 0, self.api_versions_max),
        ];
        let mut response = ApiVersionsResponse::default().with_api_keys(known);
        if seen.version >= 3 {
            let feature = FinalizedFeatureKey::default().with_name(StrBytes::from_static_str("transaction.version"));
            response = response.with_finalized_features(vec![feature.with_max_version_level(2)]);
            response = response.with_finalized_features_epoch(7);
        }
        response.encode(&mut body, seen.version).unwrap();
        body.to_vec()
    }

    fn metadata(&self, seen: &SeenRequest) -> Vec<u8> {
        let request = MetadataRequest::decode(&mut seen.body.clone(), seen.version).unwrap();
        assert!(!request.allow_auto_topic_creation);
        let brokers = self.nodes.iter().map(|(node, port)| {
            let broker = MetadataResponseBroker::default().with_node_id((*node).into());
            broker.with_host(StrBytes::from_static_str(self.host)).with_port(i32::from(*port))
        });
        let topics = request.topics.expect("the client requests topics by name").into_iter().map(|topic| {
            let name = topic.name.unwrap();
            self.topic(&name, seen.version).with_name(Some(name))
        });
        let response = MetadataResponse::default().with_brokers(brokers.collect()).with_topics(topics.collect());
        let mut body = BytesMut::new();
        let response = response.with_cluster_id(self.id.map(StrBytes::from_static_str));
        response.with_throttle_time_ms(self.throttle_ms).encode(&mut body, seen.version).unwrap();
        body.to_vec()
    }

    fn topic(&self, name: &TopicName, version: i16) -> MetadataResponseTopic {
        let topic = MetadataResponseTopic::default();
        let Some((id, partitions)) = self.topics.get(name.as_str()) else { return topic.with_error_code(3) };
        let partitions = partitions.iter().enumerate().map(|(index, (leader, epoch))| {
            let partition = MetadataResponsePartition::default().with_partition_index(index as i32);
            let partition = partition.with_error_code(if *leader < 0 { 5 } else { 0 }).with_leader_id((*leader).into());
            if version >= 7 { partition.with_leader_epoch(*epoch) } else { partition }
        });
        let topic = topic.with_partitions(partitions.collect());
        let uuid = format!("{:032x}", u128::from_be_bytes([*id; 16]));
        if version >= 10 { topic.with_topic_id(uuid.parse().unwrap()) } else { topic }
    }
}
