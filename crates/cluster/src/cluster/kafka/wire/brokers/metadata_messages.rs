//! Metadata requests and responses: the brokers, and the partitions' leaders. They are encoded and decoded here,
//! without the crate kafka-protocol, so that a response never takes more memory than its bytes justify, whatever counts
//! of items it claims, and so that unneeded lists are skipped.

use std::sync::Arc;

use super::types::{Address, Leader};
use crate::cluster::kafka::wire::connection::fields::{Fields, put, put_count, put_no_tags};

/// Metadata's API key.
pub const METADATA: i16 = 3;
/// Metadata's supported versions. Before version 4, a request could not forbid the broker to create topics.
pub const METADATA_VERSIONS: std::ops::RangeInclusive<i16> = 4..=12;
/// The first flexible version (KIP-482): lengths are encoded differently, and structures end with tagged fields.
const FLEXIBLE_FROM: i16 = 9;
/// The first version with leader epochs (KIP-320).
const EPOCHS_FROM: i16 = 7;
/// The first version with topic ids (KIP-516).
const IDS_FROM: i16 = 10;

/// A response to Metadata.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MetadataResponse<'a> {
    /// The brokers by number, without those whose address is invalid.
    pub nodes: Vec<(i32, Address)>,
    /// The cluster's id, if it has one.
    pub cluster: Option<&'a str>,
    /// The requested topics.
    pub topics: Vec<Topic<'a>>,
}

/// A topic in a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Topic<'a> {
    /// Kafka's error number, 0 for none.
    pub error: i16,
    /// Its name.
    pub name: &'a str,
    /// Its id, zeros for none.
    pub id: [u8; 16],
    /// The leaders by partition. A partition without a leader has a negative node.
    pub leaders: Vec<(i32, Leader)>,
}

/// The body of a request for these topics, without creating them.
pub fn request_body<'a>(topics: impl ExactSizeIterator<Item = &'a Arc<str>>, version: i16) -> Vec<u8> {
    let (mut out, is_flexible) = (Vec::new(), version >= FLEXIBLE_FROM);
    put_count(&mut out, topics.len(), is_flexible);
    for topic in topics {
        if version >= IDS_FROM {
            out.extend_from_slice(&[0; 16]);
        }
        put(&mut out, topic, is_flexible);
        put_no_tags(&mut out, is_flexible);
    }
    // All flags are zero: topics are not created, and the client's permissions for the cluster and topics are not
    // requested.
    let flag_count = match version {
        8..=10 => 3,
        11.. => 2,
        _ => 1,
    };
    out.resize(out.len() + flag_count, 0);
    put_no_tags(&mut out, is_flexible);
    out
}

/// Reads a response; `None` if it is malformed.
pub fn read_response(body: &[u8], version: i16) -> Option<MetadataResponse<'_>> {
    let mut fields = Fields::new(body, version >= FLEXIBLE_FROM);
    let mut response = MetadataResponse::default();
    // The throttle time, which the connection has read.
    fields.reader.i32()?;
    // The argument of `count` is the fewest bytes that an item takes.
    for _ in 0..fields.count(11)? {
        let (node, host, port) = (fields.reader.i32()?, fields.text()?, fields.reader.i32()?);
        // The rack.
        fields.nullable_text()?;
        fields.skip_tags()?;
        if let (Ok(port @ 1..), false, 0..) = (u16::try_from(port), host.is_empty(), node) {
            response.nodes.push((node, Address { host: host.to_owned(), port }));
        }
    }
    response.cluster = fields.nullable_text()?;
    // The controller, which is not needed.
    fields.reader.i32()?;
    for _ in 0..fields.count(5)? {
        response.topics.push(read_topic(&mut fields, version)?);
    }
    Some(response)
}

fn read_topic<'a>(fields: &mut Fields<'a>, version: i16) -> Option<Topic<'a>> {
    let error = fields.reader.i16()?;
    // The name is null only if topics were requested by their ids.
    let name = fields.nullable_text()?.unwrap_or_default();
    let id = match version >= IDS_FROM {
        true => fields.reader.take(16)?.try_into().ok()?,
        false => [0; 16],
    };
    // Whether the topic is internal.
    fields.reader.i8()?;
    let mut leaders = Vec::new();
    for _ in 0..fields.count(12)? {
        leaders.push(read_partition(fields, version)?);
    }
    if version >= 8 {
        // The client's permissions.
        fields.reader.i32()?;
    }
    fields.skip_tags()?;
    Some(Topic { error, name, id, leaders })
}

/// Reads a partition. Its error, which says why it has no leader or that it lacks replicas, is ignored.
fn read_partition(fields: &mut Fields<'_>, version: i16) -> Option<(i32, Leader)> {
    let _error = fields.reader.i16()?;
    let [partition, node] = [fields.reader.i32()?, fields.reader.i32()?];
    let epoch = if version >= EPOCHS_FROM { fields.reader.i32()? } else { -1 };
    // The lists of replicas, of replicas in sync, and from version 5 on of offline replicas.
    (0..if version >= 5 { 3 } else { 2 }).try_for_each(|_| fields.skip_i32s())?;
    fields.skip_tags()?;
    Some((partition, Leader { node, epoch }))
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    use kafka_protocol::messages::{self, MetadataRequest, TopicName};
    use kafka_protocol::protocol::{Decodable, Encodable};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kafka_protocol_reads_the_request() {
        let topics: [Arc<str>; 2] = ["orders".into(), "payments".into()];
        for version in METADATA_VERSIONS {
            let mut body = Bytes::from(request_body(topics.iter(), version));
            let read = MetadataRequest::decode(&mut body, version).unwrap();
            assert!(body.is_empty(), "version {version}");
            let names: Vec<_> = read.topics.unwrap().into_iter().map(|topic| topic.name.unwrap().to_string()).collect();
            assert_eq!(names, ["orders", "payments"]);
            assert!(!read.allow_auto_topic_creation);
            assert!(!read.include_cluster_authorized_operations && !read.include_topic_authorized_operations);
        }
    }

    fn sample(version: i16) -> BytesMut {
        let broker = |node: i32, port| {
            MetadataResponseBroker::default().with_node_id(node.into()).with_host("kafka".into()).with_port(port)
        };
        let partition = |index: i32, node: i32| {
            let partition =
                MetadataResponsePartition::default().with_partition_index(index).with_leader_id(node.into());
            let partition = partition.with_replica_nodes(vec![1.into(), 2.into()]).with_isr_nodes(vec![2.into()]);
            if version >= EPOCHS_FROM { partition.with_leader_epoch(40 + index) } else { partition }
        };
        let mut topic = MetadataResponseTopic::default().with_name(Some(TopicName("orders".into())));
        topic = topic.with_partitions(vec![partition(0, 2), partition(1, -1).with_error_code(5)]);
        if version >= IDS_FROM {
            topic = topic.with_topic_id("09090909-0909-0909-0909-090909090909".parse().unwrap());
        }
        let missing = MetadataResponseTopic::default().with_error_code(3);
        let missing = missing.with_name(Some(TopicName("gone".into())));
        let response = messages::MetadataResponse::default().with_throttle_time_ms(20).with_controller_id(1.into());
        let response = response.with_brokers(vec![broker(1, 9092), broker(2, 0), broker(3, 70_000), broker(4, 9094)]);
        let mut body = BytesMut::new();
        let response = response.with_cluster_id(Some("cluster".into())).with_topics(vec![topic, missing]);
        response.encode(&mut body, version).unwrap();
        body
    }

    #[test]
    fn responses_that_kafka_protocol_writes_are_read() {
        for version in METADATA_VERSIONS {
            let body = sample(version);
            let read = read_response(&body, version).unwrap();
            assert_eq!(read.cluster, Some("cluster"));
            let address = |port| Address { host: "kafka".to_owned(), port };
            assert_eq!(
                read.nodes,
                [(1, address(9092)), (4, address(9094))],
                "brokers with an invalid port are left out"
            );
            let epoch = |partition| if version >= EPOCHS_FROM { 40 + partition } else { -1 };
            let leaders = vec![(0, Leader { node: 2, epoch: epoch(0) }), (1, Leader { node: -1, epoch: epoch(1) })];
            let id = if version >= IDS_FROM { [9; 16] } else { [0; 16] };
            let orders = Topic { error: 0, name: "orders", id, leaders };
            assert_eq!(read.topics, [orders, Topic { error: 3, name: "gone", id: [0; 16], leaders: vec![] }]);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(
            version in METADATA_VERSIONS,
            cut in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            noise in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut body = sample(version).to_vec();
            let at = at.index(body.len());
            body[at] = byte;
            let _ = read_response(&body, version);
            let _ = read_response(&body[..cut.index(body.len())], version);
            let _ = read_response(&noise, version);
        }
    }

    #[test]
    fn truncated_response_is_malformed() {
        for version in METADATA_VERSIONS {
            let body = sample(version);
            // The fields after the topics are not read.
            let unread_bytes = match version {
                8 => 4,
                9 | 10 => 5,
                11.. => 1,
                _ => 0,
            };
            for cut in 0..body.len() - unread_bytes {
                assert_eq!(read_response(&body[..cut], version), None, "version {version} cut at {cut}");
            }
        }
    }
}
