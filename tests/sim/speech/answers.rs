//! Responses that need nothing but the outcome of their request. A code of 0 is a success.

use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResponse, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse, FinalizedFeatureKey};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, ApiKey, EndTxnResponse, InitProducerIdResponse, ProducerId, TxnOffsetCommitRequest,
};

use super::frames::text;

/// The APIs that a broker offers, with their versions, and the version of transactions.
pub fn versions<'a>(offered: impl Iterator<Item = &'a (ApiKey, i16, i16)>, is_v2: bool) -> ApiVersionsResponse {
    let offered = offered.map(|(api, from, to)| {
        ApiVersion::default().with_api_key(*api as i16).with_min_version(*from).with_max_version(*to)
    });
    let level = if is_v2 { 2 } else { 1 };
    let feature = FinalizedFeatureKey::default()
        .with_name(text("transaction.version"))
        .with_max_version_level(level)
        .with_min_version_level(level);
    ApiVersionsResponse::default()
        .with_api_keys(offered.collect())
        .with_finalized_features_epoch(1)
        .with_finalized_features(vec![feature])
}

/// A producer's id and epoch, or the code.
pub fn opened(opened: Result<(i64, i16), i16>) -> InitProducerIdResponse {
    let (producer, epoch) = opened.unwrap_or((-1, -1));
    InitProducerIdResponse::default()
        .with_error_code(opened.err().unwrap_or(0))
        .with_producer_id(ProducerId(producer))
        .with_producer_epoch(epoch)
}

/// All partitions have one code.
pub fn added(request: &AddPartitionsToTxnRequest, code: i16) -> AddPartitionsToTxnResponse {
    let of = |number: &i32| {
        AddPartitionsToTxnPartitionResult::default().with_partition_index(*number).with_partition_error_code(code)
    };
    let results = request.v3_and_below_topics.iter().map(|topic| {
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(topic.partitions.iter().map(of).collect())
    });
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results.collect())
}

/// All partitions have one code.
pub fn kept(request: &TxnOffsetCommitRequest, code: i16) -> TxnOffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code)
        });
        TxnOffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

/// `next`: the producer's id and epoch from now on, where the response has room for them.
pub fn ended(code: i16, next: Option<(i64, i16)>) -> EndTxnResponse {
    let (producer, epoch) = next.unwrap_or((-1, -1));
    EndTxnResponse::default().with_error_code(code).with_producer_id(ProducerId(producer)).with_producer_epoch(epoch)
}
