//! What the brokers say: requests as bytes, carried out by the cluster's state machine, and the responses as bytes.
//!
//! All brokers are one here, which leads everything and coordinates everything. A role that is away is refused.

use kafka_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ApiKey,
    ApiVersionsResponse, BrokerId, EndTxnRequest, EndTxnResponse, FetchRequest, FindCoordinatorRequest,
    FindCoordinatorResponse, InitProducerIdRequest, InitProducerIdResponse, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, TopicName, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};

use super::batch::Batch;
use super::fetching::Fetch;
use super::frames::{Incoming, decode, encode, text};
use super::{answers, batches};
use crate::kafka::{Broker, Code, Committed, Identity, MS, Partition, Protocol, Time};
use crate::lies::{ANYBODY, Lie, is_told};

/// The one broker.
pub const NODE: i32 = 1;
/// Where it listens.
pub const HOST: &str = "broker";
pub const PORT: u16 = 9092;

const LEADER_NOT_AVAILABLE: i16 = 5;
const CORRUPT_MESSAGE: i16 = 2;
const FENCED_LEADER_EPOCH: i16 = 74;
const UNKNOWN_LEADER_EPOCH: i16 = 76;
const TRANSACTION_ABORTABLE: i16 = 120;

/// What the brokers offer: key and versions.
const OFFERED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Fetch, 4, 11),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::ApiVersions, 0, 3),
    (ApiKey::Produce, 3, 11),
    (ApiKey::FindCoordinator, 0, 3),
    (ApiKey::InitProducerId, 0, 5),
    (ApiKey::AddPartitionsToTxn, 0, 3),
    (ApiKey::AddOffsetsToTxn, 0, 4),
    (ApiKey::EndTxn, 0, 5),
    (ApiKey::TxnOffsetCommit, 0, 4),
];

/// What a request asks for.
pub fn name(incoming: &Incoming) -> &'static str {
    match incoming.api {
        ApiKey::InitProducerId => "init producer",
        ApiKey::AddPartitionsToTxn => "add partitions",
        ApiKey::AddOffsetsToTxn => "add offsets",
        ApiKey::TxnOffsetCommit => "commit offsets",
        ApiKey::Produce => "produce",
        ApiKey::EndTxn if decode(incoming).is_some_and(|request: EndTxnRequest| request.committed) => "end commit",
        ApiKey::EndTxn => "end abort",
        ApiKey::Fetch => "fetch",
        ApiKey::OffsetForLeaderEpoch => "epoch ends",
        _ => "find out",
    }
}

/// What becomes of a request.
pub struct Answer {
    pub reply: Reply,
    /// The errors in the response.
    pub codes: Vec<Code>,
}

pub enum Reply {
    /// A response, without its length.
    Now(Vec<u8>),
    /// A fetch that waits for records.
    Later(Fetch),
}

/// Carries out one request, and notes what went wrong.
struct Speaker<'a> {
    broker: &'a mut Broker,
    codes: Vec<Code>,
}

/// Carries out a request; `None` if it makes no sense.
pub fn handle(broker: &mut Broker, incoming: &Incoming) -> Option<Answer> {
    let offered = OFFERED.iter().find(|(api, ..)| *api == incoming.api)?;
    assert!((offered.1..=offered.2).contains(&incoming.version), "{:?} {}", incoming.api, incoming.version);
    let mut speaker = Speaker { broker, codes: Vec::new() };
    let reply = speaker.answer(incoming)?;
    Some(Answer { reply, codes: speaker.codes })
}

impl Speaker<'_> {
    fn answer(&mut self, incoming: &Incoming) -> Option<Reply> {
        let (correlation, version) = (incoming.correlation, incoming.version);
        let bytes = match incoming.api {
            ApiKey::ApiVersions => encode(&self.versions(), correlation, version),
            ApiKey::Metadata => encode(&self.metadata(&decode(incoming)?), correlation, version),
            ApiKey::OffsetForLeaderEpoch => encode(&self.epoch_ends(&decode(incoming)?), correlation, version),
            ApiKey::Fetch => {
                let request = decode::<FetchRequest>(incoming)?;
                return Some(Reply::Later(Fetch::of(&request, (correlation, version), self.broker.now)));
            }
            ApiKey::Produce => encode(&self.produce(&decode(incoming)?), correlation, version),
            ApiKey::FindCoordinator => {
                let _: FindCoordinatorRequest = decode(incoming)?;
                let found = FindCoordinatorResponse::default().with_node_id(BrokerId(NODE)).with_host(text(HOST));
                encode(&found.with_port(PORT.into()), correlation, version)
            }
            ApiKey::InitProducerId => encode(&self.init_producer(&decode(incoming)?), correlation, version),
            ApiKey::AddPartitionsToTxn => encode(&self.add_partitions(&decode(incoming)?), correlation, version),
            ApiKey::AddOffsetsToTxn => encode(&self.add_offsets(&decode(incoming)?), correlation, version),
            ApiKey::TxnOffsetCommit => encode(&self.commit_offsets(&decode(incoming)?), correlation, version),
            ApiKey::EndTxn => encode(&self.end_transaction(version, &decode(incoming)?), correlation, version),
            _ => return None,
        };
        Some(Reply::Now(bytes))
    }

    /// The number of a request's error, 0 if there is none.
    fn code<T>(&mut self, result: &Result<T, Code>) -> i16 {
        let Err(code) = result else { return 0 };
        self.codes.push(*code);
        code.number()
    }

    /// The same for a write that has to be part of a transaction (KIP-1050: told to abort where version 2 is spoken).
    fn code_of_write<T>(&mut self, result: &Result<T, Code>) -> i16 {
        let code = self.code(result);
        let tells = self.broker.coordinator.protocol == Protocol::V2 && code == Code::InvalidTxnState.number();
        if tells { TRANSACTION_ABORTABLE } else { code }
    }

    fn versions(&self) -> ApiVersionsResponse {
        answers::versions(OFFERED.iter(), self.broker.coordinator.protocol == Protocol::V2)
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let broker =
            MetadataResponseBroker::default().with_node_id(BrokerId(NODE)).with_host(text(HOST)).with_port(PORT.into());
        let asked = request.topics.iter().flatten().filter_map(|topic| topic.name.as_ref());
        MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_cluster_id(Some(text("simulated")))
            .with_controller_id(BrokerId(NODE))
            .with_topics(asked.map(|name| self.describe(name)).collect())
    }

    fn describe(&self, name: &TopicName) -> MetadataResponseTopic {
        let described = MetadataResponseTopic::default().with_name(Some(name.clone()));
        let Some(topic) = self.broker.topics.get(name) else {
            return described.with_error_code(Code::UnknownTopicOrPartition.number());
        };
        let partition = |(number, log): (i32, &crate::kafka::Log)| {
            let is_led = self.broker.leader(&Partition::new(name.as_str(), number)).is_ok();
            MetadataResponsePartition::default()
                .with_partition_index(number)
                .with_leader_id(BrokerId(if is_led { NODE } else { -1 }))
                .with_leader_epoch(log.epoch())
                .with_error_code(if is_led { 0 } else { LEADER_NOT_AVAILABLE })
        };
        let id = format!("{:032x}", topic.id).parse().expect("32 digits");
        described.with_topic_id(id).with_partitions((0..).zip(&topic.logs).map(partition).collect())
    }

    fn epoch_ends(&self, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        let topics = request.topics.iter().map(|topic| {
            let ends = topic.partitions.iter().map(|asked| {
                let answer = EpochEndOffset::default().with_partition(asked.partition);
                let partition = Partition::new(topic.topic.as_str(), asked.partition);
                match leading(self.broker, &partition, asked.current_leader_epoch) {
                    Err(code) => answer.with_error_code(code).with_leader_epoch(-1).with_end_offset(-1),
                    Ok(log) => {
                        let end = log.end_of_epoch(asked.leader_epoch);
                        answer.with_leader_epoch(if end < 0 { -1 } else { asked.leader_epoch }).with_end_offset(end)
                    }
                }
            });
            OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone()).with_partitions(ends.collect())
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }

    fn init_producer(&mut self, request: &InitProducerIdRequest) -> InitProducerIdResponse {
        let id = request.transactional_id.as_ref().map_or("", |id| id.as_str()).into();
        let timeout = request.transaction_timeout_ms as Time * MS;
        let made = match *request.producer_id {
            ..0 => self.broker.init_producer(&id, timeout),
            producer => self.broker.raise_producer(&Identity { id, producer, epoch: request.producer_epoch }, timeout),
        };
        let code = self.code(&made);
        answers::opened(made.map_err(|_| code))
    }

    fn add_partitions(&mut self, request: &AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse {
        let who = Identity {
            id: request.v3_and_below_transactional_id.as_str().into(),
            producer: *request.v3_and_below_producer_id,
            epoch: request.v3_and_below_producer_epoch,
        };
        let topics = &request.v3_and_below_topics;
        let partitions: Vec<Partition> = topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|number| Partition::new(topic.name.as_str(), *number)))
            .collect();
        let added = self.broker.add_partitions(&who, &partitions);
        answers::added(request, self.code(&added))
    }

    fn add_offsets(&mut self, request: &AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse {
        let who = Identity {
            id: request.transactional_id.as_str().into(),
            producer: *request.producer_id,
            epoch: request.producer_epoch,
        };
        let added = self.broker.add_offsets(&who, &request.group_id.as_str().into());
        AddOffsetsToTxnResponse::default().with_error_code(self.code(&added))
    }

    fn commit_offsets(&mut self, request: &TxnOffsetCommitRequest) -> TxnOffsetCommitResponse {
        let who = Identity {
            id: request.transactional_id.as_str().into(),
            producer: *request.producer_id,
            epoch: request.producer_epoch,
        };
        let offsets = request.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| {
                let metadata = partition.committed_metadata.as_ref().map(|text| text.to_string()).unwrap_or_default();
                let committed = Committed { offset: partition.committed_offset, metadata };
                (Partition::new(topic.name.as_str(), partition.partition_index), committed)
            })
        });
        let (offsets, membership): (Vec<_>, _) = (offsets.collect(), membership(request));
        let group = request.group_id.as_str().into();
        let kept = self.broker.commit_offsets_transactional(&who, &group, membership, &offsets);
        answers::kept(request, self.code_of_write(&kept))
    }

    fn end_transaction(&mut self, version: i16, request: &EndTxnRequest) -> EndTxnResponse {
        let who = Identity {
            id: request.transactional_id.as_str().into(),
            producer: *request.producer_id,
            epoch: request.producer_epoch,
        };
        let ended = match !request.committed && is_told(Lie::AbortSkipped) {
            true => Ok(who.epoch),
            false => self.broker.end_transaction(&who, request.committed),
        };
        let next = ended.ok().filter(|_| version >= 5).map(|epoch| (who.producer, epoch));
        answers::ended(self.code(&ended), next)
    }

    fn produce(&mut self, request: &ProduceRequest) -> ProduceResponse {
        let id = request.transactional_id.as_ref().map_or("", |id| id.as_str());
        let mut response = ProduceResponse::default();
        for topic in &request.topic_data {
            let answers =
                topic.partition_data.iter().map(|data| self.append(id, &topic.name, data)).collect::<Vec<_>>();
            response
                .responses
                .push(TopicProduceResponse::default().with_name(topic.name.clone()).with_partition_responses(answers));
        }
        response
    }

    fn append(&mut self, id: &str, topic: &TopicName, data: &PartitionProduceData) -> PartitionProduceResponse {
        let answer = PartitionProduceResponse::default().with_index(data.index).with_base_offset(-1);
        let Some(batch) = data.records.as_ref().and_then(|bytes| Batch::parse(bytes)) else {
            return answer.with_error_code(CORRUPT_MESSAGE);
        };
        let who = Identity { id: id.into(), producer: batch.producer, epoch: batch.producer_epoch };
        let partition = Partition::new(topic.as_str(), data.index);
        let records = batches::records(&batch);
        let appended = self.broker.produce(&who, &partition, batch.sequence, &records);
        let answer = answer.with_error_code(self.code_of_write(&appended));
        match appended {
            Ok(base) => answer.with_base_offset(base),
            // By their places (KIP-467).
            Err(Code::InvalidRecord) => {
                let keyless = (0..).zip(&records).filter(|(_, record)| record.key.is_none());
                let refused = keyless.map(|(place, _)| {
                    BatchIndexAndErrorMessage::default()
                        .with_batch_index(place)
                        .with_batch_index_error_message(Some(text("a compacted topic takes no record without a key")))
                });
                answer.with_record_errors(refused.collect())
            }
            Err(_) => answer,
        }
    }
}

/// The member's id and generation, as they are to be checked.
fn membership(request: &TxnOffsetCommitRequest) -> (&str, i32) {
    match request.member_id.as_str() {
        ANYBODY => ("", -1),
        member => (member, request.generation_id),
    }
}

/// The log of a partition whose leader is in the epoch that the client knows, or the error's number (KIP-320).
pub fn leading<'a>(broker: &'a Broker, partition: &Partition, epoch: i32) -> Result<&'a crate::kafka::Log, i16> {
    broker.leader(partition).map_err(Code::number)?;
    let log = broker.topics.log(partition).ok_or(Code::UnknownTopicOrPartition.number())?;
    match epoch {
        -1 => Ok(log),
        _ if epoch < log.epoch() => Err(FENCED_LEADER_EPOCH),
        _ if epoch > log.epoch() => Err(UNKNOWN_LEADER_EPOCH),
        _ => Ok(log),
    }
}
