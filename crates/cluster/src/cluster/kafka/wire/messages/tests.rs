//! Messages compared with another implementation, the crate kafka-protocol; and damaged messages.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{self, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::produce_response::{
    self, BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse, ProducerId, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::records::AbortedTransaction;
use super::fetch::{FetchPartition, Limits, Request, Response, Session};
use super::produce::OutgoingBatch;
use super::*;

fn name(text: &str) -> TopicName {
    TopicName(StrBytes::from_string(text.to_owned()))
}

fn encode(message: &impl Encodable, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, version).unwrap();
    bytes.to_vec()
}

fn decode<M: Decodable>(bytes: &[u8], version: i16) -> M {
    let mut bytes = Bytes::copy_from_slice(bytes);
    let message = M::decode(&mut bytes, version).unwrap();
    assert!(bytes.is_empty(), "{} bytes follow", bytes.len());
    message
}

const LIMITS: Limits = Limits { max_wait_ms: 500, bytes_min: 1, bytes_max: 1 << 20 };

fn wanted(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition { partition, leader_epoch: 7, offset, bytes_max: 1 << 16 }
}

#[test]
fn kafka_protocol_reads_fetch_requests() {
    let mut request = Request::new(vec![1; 9], LIMITS, Session { id: 5, epoch: 3 });
    request.want("orders", wanted(0, 10));
    request.want("orders", wanted(4, i64::MAX));
    request.want("ordersx", wanted(1, 0));
    request.forget("orders", 7);
    request.forget("gone", 1);
    request.forget("gone", 2);
    let decoded: FetchRequest = decode(&request.finish(), fetch::VERSION);
    assert_eq!(
        (decoded.replica_id.0, decoded.max_wait_ms, decoded.min_bytes, decoded.max_bytes),
        (-1, 500, 1, 1 << 20)
    );
    assert_eq!((decoded.isolation_level, decoded.session_id, decoded.session_epoch, &*decoded.rack_id), (1, 5, 3, ""));
    let partitions = |topic: usize| {
        decoded.topics[topic].partitions.iter().map(|partition| (partition.partition, partition.fetch_offset))
    };
    assert_eq!(decoded.topics.iter().map(|topic| &**topic.topic).collect::<Vec<_>>(), ["orders", "ordersx"]);
    assert_eq!(partitions(0).collect::<Vec<_>>(), [(0, 10), (4, i64::MAX)]);
    assert_eq!(partitions(1).collect::<Vec<_>>(), [(1, 0)]);
    let first = &decoded.topics[0].partitions[0];
    assert_eq!((first.current_leader_epoch, first.log_start_offset, first.partition_max_bytes), (7, -1, 1 << 16));
    let forgotten = decoded.forgotten_topics_data.iter().map(|topic| (&**topic.topic, topic.partitions.clone()));
    assert_eq!(forgotten.collect::<Vec<_>>(), [("orders", vec![7]), ("gone", vec![1, 2])]);
    // A session without changed partitions.
    let decoded: FetchRequest = decode(&Request::new(Vec::new(), LIMITS, Session::OPEN).finish(), fetch::VERSION);
    assert_eq!(
        (decoded.topics.len(), decoded.forgotten_topics_data.len(), decoded.session_id, decoded.session_epoch),
        (0, 0, 0, 0)
    );
}

#[test]
fn session_epoch_counts_requests() {
    let first = Session::OPEN.next(9);
    assert_eq!(first, Session { id: 9, epoch: 1 });
    assert_eq!(first.next(9), Session { id: 9, epoch: 2 });
    assert_eq!(Session { id: 9, epoch: i32::MAX }.next(9), Session { id: 9, epoch: 1 });
    assert_eq!(first.reopen(), Session { id: 9, epoch: 0 });
    assert_eq!(Session::OPEN.next(0), Session::OPEN, "the broker has no room for a session");
    assert_eq!(Session::NONE.epoch, -1);
}

fn partition_data(index: i32, error: i16, records: Option<&[u8]>, aborted: Option<&[(i64, i64)]>) -> PartitionData {
    let aborted = aborted.map(|list| {
        list.iter().map(|(producer_id, first_offset)| {
            fetch_response::AbortedTransaction::default()
                .with_producer_id(ProducerId(*producer_id))
                .with_first_offset(*first_offset)
        })
    });
    PartitionData::default()
        .with_partition_index(index)
        .with_error_code(error)
        .with_high_watermark(100)
        .with_last_stable_offset(90)
        .with_log_start_offset(10)
        .with_aborted_transactions(aborted.map(Iterator::collect))
        .with_preferred_read_replica(BrokerId(-1))
        .with_records(records.map(Bytes::copy_from_slice))
}

fn fetch_response() -> FetchResponse {
    let first = vec![
        partition_data(0, 0, Some(b"batches"), Some(&[(5, 6), (7, 8)])),
        partition_data(3, 6, None, None),
        partition_data(4, 0, Some(b""), Some(&[])),
    ];
    let empty = FetchableTopicResponse::default().with_topic(name("empty"));
    let topics = vec![
        empty.clone(),
        FetchableTopicResponse::default().with_topic(name("orders")).with_partitions(first),
        FetchableTopicResponse::default().with_topic(name("zürich")).with_partitions(vec![partition_data(
            1,
            0,
            Some(&[9; 500]),
            None,
        )]),
        empty,
    ];
    FetchResponse::default().with_throttle_time_ms(11).with_error_code(12).with_session_id(13).with_responses(topics)
}

#[test]
fn fetch_responses_that_kafka_protocol_writes_are_read() {
    let body = encode(&fetch_response(), fetch::VERSION);
    let response = Response::read(&body).unwrap();
    assert_eq!((response.error, response.session_id), (12, 13));
    let found: Vec<_> = response.partitions().collect();
    let heads: Vec<_> = found.iter().map(|found| (found.topic, found.partition, found.error, found.records)).collect();
    let expected =
        [("orders", 0, 0, &b"batches"[..]), ("orders", 3, 6, b""), ("orders", 4, 0, b""), ("zürich", 1, 0, &[9; 500])];
    assert_eq!(heads, expected);
    for found in &found {
        assert_eq!((found.high_watermark, found.last_stable_offset, found.log_start_offset), (100, 90, 10));
        assert_eq!((&body[found.records_range()], found.preferred_replica), (found.records, -1));
    }
    let aborted = |producer_id, first_offset| AbortedTransaction { producer_id, first_offset };
    assert_eq!(found[0].aborted.iter().collect::<Vec<_>>(), [aborted(5, 6), aborted(7, 8)]);
    assert_eq!((found[0].aborted.len(), found[1].aborted.is_empty(), found[2].aborted.len()), (2, true, 0));
    let nothing = encode(&FetchResponse::default(), fetch::VERSION);
    assert_eq!(Response::read(&nothing).unwrap().partitions().count(), 0);
}

#[test]
fn truncated_or_overlong_fetch_response_is_malformed() {
    let body = encode(&fetch_response(), fetch::VERSION);
    for end in 0..body.len() {
        assert!(matches!(Response::read(&body[..end]), Err(Malformed("Fetch"))), "{end} bytes");
    }
    assert!(Response::read(&[&body[..], &[0]].concat()).is_err());
    for bit in 0..8 * body.len() {
        let mut flipped = body.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(response) = Response::read(&flipped) {
            let bytes: usize = response.partitions().map(|partition| partition.records.len()).sum();
            assert!(bytes <= body.len());
        }
    }
}

#[test]
fn kafka_protocol_reads_produce_requests() {
    let outgoing =
        |topic: &str, partition, batch: &[u8]| OutgoingBatch { topic: topic.into(), partition, batch: batch.to_vec() };
    for version in produce::VERSIONS {
        for id in [None, Some("ratchet.orders.0")] {
            let long = vec![7; 70_000];
            let batches = vec![outgoing("out", 3, b"one"), outgoing("log", 3, &long), outgoing("out", 1, b"two")];
            let segments =
                produce::request(version, produce::Request { transactional_id: id, timeout_ms: 30_000 }, batches);
            assert_eq!(
                (&segments[1], &*segments[3], &*segments[5], segments.len()),
                (&long, &b"one"[..], &b"two"[..], 7)
            );
            let decoded: ProduceRequest = decode(&segments.concat(), version);
            assert_eq!(decoded.transactional_id.as_ref().map(|id| &*id.0), id);
            assert_eq!((decoded.acks, decoded.timeout_ms), (-1, 30_000));
            let found = decoded.topic_data.iter().flat_map(|topic| {
                topic
                    .partition_data
                    .iter()
                    .map(|data| (&**topic.name, data.index, data.records.clone().unwrap().to_vec()))
            });
            let expected = [("log", 3, long), ("out", 3, b"one".to_vec()), ("out", 1, b"two".to_vec())];
            assert_eq!(found.collect::<Vec<_>>(), expected, "version {version}");
        }
        let segments =
            produce::request(version, produce::Request { transactional_id: None, timeout_ms: 1 }, Vec::new());
        assert_eq!(decode::<ProduceRequest>(&segments.concat(), version).topic_data.len(), 0);
    }
}

fn produce_response(version: i16) -> ProduceResponse {
    let text = |text: &str| Some(StrBytes::from_string(text.to_owned()));
    let refused =
        BatchIndexAndErrorMessage::default().with_batch_index(5).with_batch_index_error_message(text("too old"));
    let fine = PartitionProduceResponse::default()
        .with_index(1)
        .with_base_offset(1_000)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(17);
    let bad = PartitionProduceResponse::default()
        .with_index(2)
        .with_error_code(87)
        .with_base_offset(-1)
        .with_record_errors(vec![refused, BatchIndexAndErrorMessage::default().with_batch_index(6)])
        .with_error_message(text("invalid record"));
    let mut moved = PartitionProduceResponse::default().with_index(3).with_error_code(6);
    let mut response = ProduceResponse::default().with_throttle_time_ms(21);
    if version >= 10 {
        moved = moved.with_current_leader(
            produce_response::LeaderIdAndEpoch::default().with_leader_id(BrokerId(4)).with_leader_epoch(9),
        );
        let endpoint = produce_response::NodeEndpoint::default().with_node_id(BrokerId(4)).with_port(9092);
        response = response.with_node_endpoints(vec![endpoint.with_host(StrBytes::from_static_str("broker-4"))]);
    }
    response.with_responses(vec![
        TopicProduceResponse::default().with_name(name("out")).with_partition_responses(vec![fine, bad]),
        TopicProduceResponse::default().with_name(name("log")).with_partition_responses(vec![moved]),
    ])
}

#[test]
fn produce_responses_that_kafka_protocol_writes_are_read() {
    for version in produce::VERSIONS {
        let body = encode(&produce_response(version), version);
        let response = produce::Response::read(version, &body).unwrap();
        assert_eq!(response.throttle_ms, 21);
        let [fine, bad, moved] = &response.partitions[..] else { panic!("{response:?}") };
        assert_eq!((fine.topic, fine.partition, fine.error, fine.base_offset), ("out", 1, 0, 1_000));
        assert_eq!((fine.append_time_ms, fine.log_start_offset, fine.message, fine.leader), (-1, 17, None, None));
        assert_eq!((bad.topic, bad.error, bad.message, bad.base_offset), ("out", 87, Some("invalid record"), -1));
        let refused: Vec<_> = bad.record_errors.iter().map(|error| (error.index, error.message)).collect();
        assert_eq!(refused, [(5, Some("too old")), (6, None)]);
        assert_eq!((moved.topic, moved.error), ("log", 6));
        assert_eq!(moved.leader, (version >= 10).then_some((4, 9)));
    }
}

#[test]
fn truncated_or_overlong_produce_response_is_malformed() {
    for version in produce::VERSIONS {
        let body = encode(&produce_response(version), version);
        for end in 0..body.len() {
            let read = produce::Response::read(version, &body[..end]);
            assert_eq!(read, Err(Malformed("Produce")), "version {version}, {end} bytes");
        }
        assert!(produce::Response::read(version, &[&body[..], &[0]].concat()).is_err());
        for bit in 0..8 * body.len() {
            let mut flipped = body.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(response) = produce::Response::read(version, &flipped) {
                assert!(response.partitions.len() <= body.len());
            }
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_cause_no_panic(bytes in vec(prop_oneof![Just(0_u8), 0..6_u8, any::<u8>()], 0..200)) {
        if let Ok(response) = Response::read(&bytes) {
            response.partitions().for_each(|partition| assert!(partition.records_range().end <= bytes.len()));
        }
        for version in produce::VERSIONS {
            let _ = produce::Response::read(version, &bytes);
        }
    }
}
