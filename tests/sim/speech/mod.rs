//! What the brokers say: requests as bytes, carried out by the cluster's state machine, and the responses as bytes.
//!
//! The engine's simulation and the wire's share it. A role that is away is refused.
//!
//! - `frames`, `answers`: requests and responses as bytes; `batch`: record batches, encoded and decoded apart from the
//!   client's own code; `batches`: a partition's records in batches
//! - `fetching`: what a fetch reads; `sessions`: fetch sessions; `manners`: what brokers may do that is odd

use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
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
    ApiVersionsRequest, ApiVersionsResponse, BrokerId, EndTxnRequest, EndTxnResponse, FetchRequest,
    FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest, InitProducerIdResponse, ListOffsetsRequest,
    MetadataRequest, OffsetForLeaderEpochRequest, ProduceRequest, TopicName, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};

use super::kafka::{Broker, Code, Committed, Identity, Isolation, MS, Partition, Protocol, Seat, Time};
use batch::Batch;
pub use fetching::Fetch;
pub use frames::Incoming;
use frames::{decode, encode, text};
pub use manners::Manners;

mod answers;
pub mod batch;
pub mod batches;
mod fetching;
mod frames;
mod manners;
mod sessions;

/// The port of every broker.
pub const PORT: u16 = 9092;

/// A member of whom the coordinator checks nothing, as of a client that has not joined. The client itself refuses to commit
/// for one that has not.
pub const ANYBODY: &str = "anybody";

const CORRUPT_MESSAGE: i16 = 2;
const LEADER_NOT_AVAILABLE: i16 = 5;
const COORDINATOR_NOT_AVAILABLE: i16 = 15;
const UNSUPPORTED_VERSION: i16 = 35;
const TRANSACTION_ABORTABLE: i16 = 120;

/// What the brokers offer: key and versions. Fetch begins where Kafka 4.0 does.
const OFFERED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Fetch, 4, 11),
    (ApiKey::ListOffsets, 1, 6),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::ApiVersions, 0, 3),
    (ApiKey::Produce, 3, 12),
    (ApiKey::FindCoordinator, 0, 6),
    (ApiKey::InitProducerId, 0, 5),
    (ApiKey::AddPartitionsToTxn, 0, 5),
    (ApiKey::AddOffsetsToTxn, 0, 4),
    (ApiKey::EndTxn, 0, 5),
    (ApiKey::TxnOffsetCommit, 0, 5),
];

/// Where a broker listens.
pub fn host(node: i32) -> String {
    format!("node{node}")
}

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
    /// A fetch, which may wait; ask [`Fetch::answer`].
    Later(Fetch),
}

/// Carries out one request at a broker, and notes what went wrong.
struct Speaker<'a> {
    broker: &'a mut Broker,
    manners: &'a mut Manners,
    node: i32,
    codes: Vec<Code>,
}

/// Carries out a request at a broker; `None` if it makes no sense, so that the connection is closed.
pub fn handle(broker: &mut Broker, manners: &mut Manners, node: i32, incoming: &Incoming) -> Option<Answer> {
    let mut speaker = Speaker { broker, manners, node, codes: Vec::new() };
    let reply = speaker.answer(incoming)?;
    Some(Answer { reply, codes: speaker.codes })
}

impl Speaker<'_> {
    fn answer(&mut self, incoming: &Incoming) -> Option<Reply> {
        let (correlation, version) = (incoming.correlation, incoming.version);
        let offered = self.manners.offered(OFFERED).find(|(api, ..)| *api == incoming.api);
        if !offered.is_some_and(|(_, from, to)| (*from..=*to).contains(&version)) {
            // Only for ApiVersions, in its first version (KIP-511); any other closes the connection.
            let refused = ApiVersionsResponse::default().with_error_code(UNSUPPORTED_VERSION);
            return (incoming.api == ApiKey::ApiVersions).then(|| Reply::Now(encode(&refused, correlation, 0)));
        }
        // From there on a broker adds to the transaction, which the writer does itself.
        let adds = |api, from| incoming.api == api && version >= from;
        assert!(!adds(ApiKey::Produce, 12) && !adds(ApiKey::TxnOffsetCommit, 5), "version {version}");
        let bytes = match incoming.api {
            ApiKey::ApiVersions => {
                decode::<ApiVersionsRequest>(incoming)?;
                encode(&self.versions(), correlation, version)
            }
            ApiKey::Metadata => encode(&self.metadata(&decode(incoming)?), correlation, version),
            ApiKey::ListOffsets => encode(&self.list_offsets(&decode(incoming)?), correlation, version),
            ApiKey::OffsetForLeaderEpoch => encode(&self.epoch_ends(&decode(incoming)?), correlation, version),
            ApiKey::Fetch => {
                let request = decode::<FetchRequest>(incoming)?;
                let now = self.broker.now;
                return Some(Reply::Later(Fetch::of(self.manners, self.node, &request, (correlation, version), now)));
            }
            ApiKey::Produce => encode(&self.produce(&decode(incoming)?), correlation, version),
            ApiKey::FindCoordinator => encode(&self.find_coordinator(&decode(incoming)?), correlation, version),
            ApiKey::InitProducerId => encode(&self.init_producer(version, &decode(incoming)?), correlation, version),
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

    /// The same for a write that has to be part of a transaction (KIP-1050: told to abort, by Kafka 3.8 and later).
    fn code_of_write<T>(&mut self, result: &Result<T, Code>) -> i16 {
        let code = self.code(result);
        let tells = self.manners.says_abortable.unwrap_or(self.is_v2()) && code == Code::InvalidTxnState.number();
        if tells { TRANSACTION_ABORTABLE } else { code }
    }

    fn is_v2(&self) -> bool {
        self.broker.coordinator.protocol == Protocol::V2
    }

    /// Whether this broker has a coordinator's seat, and is in the mood.
    fn seat(&mut self, seat: Seat) -> Result<(), Code> {
        self.broker.nodes.seat(seat, self.node, self.broker.now)?;
        if self.manners.is_moody() { Err(Code::CoordinatorLoadInProgress) } else { Ok(()) }
    }

    fn versions(&self) -> ApiVersionsResponse {
        answers::versions(self.manners.offered(OFFERED), self.is_v2())
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let broker = |id: i32| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(id))
                .with_host(text(&host(id)))
                .with_port(PORT.into())
        };
        let brokers = self.broker.nodes.all.iter().filter(|(_, node)| !node.is_given_up).map(|(id, _)| broker(*id));
        let names: Vec<TopicName> = match &request.topics {
            None => self.broker.topics.names().map(|name| TopicName(text(name))).collect(),
            Some(topics) => topics.iter().filter_map(|topic| topic.name.clone()).collect(),
        };
        MetadataResponse::default()
            .with_brokers(brokers.collect())
            .with_cluster_id(Some(text("simulated")))
            .with_controller_id(BrokerId(1))
            .with_topics(names.iter().map(|name| self.describe(name)).collect())
    }

    fn describe(&self, name: &TopicName) -> MetadataResponseTopic {
        let described = MetadataResponseTopic::default().with_name(Some(name.clone()));
        let heard = |number: i32| self.broker.heard(self.node, &Partition::new(name.as_str(), number));
        let Some(topic) = self.broker.topics.get(name).filter(|_| heard(0).is_some()) else {
            return described.with_error_code(Code::UnknownTopicOrPartition.number());
        };
        if topic.is_denied {
            return described.with_error_code(Code::TopicAuthorizationFailed.number());
        }
        let partition = |number: i32| {
            let (leader, epoch) = heard(number)?;
            let described = MetadataResponsePartition::default()
                .with_partition_index(number)
                .with_leader_id(BrokerId(leader))
                .with_leader_epoch(epoch);
            Some(described.with_error_code(if leader < 0 { LEADER_NOT_AVAILABLE } else { 0 }))
        };
        let id = format!("{:032x}", topic.id).parse().expect("32 digits");
        described.with_topic_id(id).with_partitions((0..topic.logs.len() as i32).filter_map(partition).collect())
    }

    fn list_offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let isolation = if request.isolation_level == 1 { Isolation::Committed } else { Isolation::Uncommitted };
        let topics = request.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let answer = ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
                let partition = Partition::new(topic.name.as_str(), asked.partition_index);
                match self.broker.served(self.node, &partition, asked.current_leader_epoch) {
                    Err(code) => answer.with_error_code(code.number()),
                    // -2: the first offset; -1: the end; no other time is asked for.
                    Ok(served) if asked.timestamp == -2 => answer.with_offset(served.log.start()),
                    Ok(served) => answer.with_offset(served.log.bound(isolation)),
                }
            });
            ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }

    fn epoch_ends(&self, request: &OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
        let topics = request.topics.iter().map(|topic| {
            let ends = topic.partitions.iter().map(|asked| {
                let answer = EpochEndOffset::default().with_partition(asked.partition);
                let partition = Partition::new(topic.topic.as_str(), asked.partition);
                let (code, (epoch, end)) = match self.broker.served(self.node, &partition, asked.current_leader_epoch) {
                    Err(code) => (code.number(), (-1, -1)),
                    Ok(served) => (0, served.log.end_of_epoch(asked.leader_epoch)),
                };
                answer.with_error_code(code).with_leader_epoch(epoch).with_end_offset(end)
            });
            OffsetForLeaderTopicResult::default().with_topic(topic.topic.clone()).with_partitions(ends.collect())
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }

    fn find_coordinator(&mut self, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
        if self.manners.is_moody() {
            return FindCoordinatorResponse::default()
                .with_error_code(COORDINATOR_NOT_AVAILABLE)
                .with_node_id(BrokerId(-1));
        }
        let seat = if request.key_type == 1 { Seat::Transactions } else { Seat::Groups };
        let (at, _) = self.broker.nodes.seats[seat as usize];
        let found = FindCoordinatorResponse::default().with_node_id(BrokerId(at)).with_host(text(&host(at)));
        found.with_port(PORT.into())
    }

    fn init_producer(&mut self, version: i16, request: &InitProducerIdRequest) -> InitProducerIdResponse {
        let id = request.transactional_id.as_ref().map_or("", |id| id.as_str()).into();
        let timeout = request.transaction_timeout_ms as Time * MS;
        let seat = self.seat(Seat::Transactions);
        let made = seat.and_then(|()| match *request.producer_id {
            producer if version >= 3 && producer >= 0 => {
                self.broker.raise_producer(&Identity { id, producer, epoch: request.producer_epoch }, timeout)
            }
            _ => self.broker.init_producer(&id, timeout),
        });
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
        let added = self.seat(Seat::Transactions).and_then(|()| self.broker.add_partitions(&who, &partitions));
        answers::added(request, self.code(&added))
    }

    fn add_offsets(&mut self, request: &AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse {
        let who = Identity {
            id: request.transactional_id.as_str().into(),
            producer: *request.producer_id,
            epoch: request.producer_epoch,
        };
        let group = request.group_id.as_str().into();
        let added = self.seat(Seat::Transactions).and_then(|()| self.broker.add_offsets(&who, &group));
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
        let kept = self
            .seat(Seat::Groups)
            .and_then(|()| self.broker.commit_offsets_transactional(&who, &group, membership, &offsets));
        answers::kept(request, self.code_of_write(&kept))
    }

    fn end_transaction(&mut self, version: i16, request: &EndTxnRequest) -> EndTxnResponse {
        let who = Identity {
            id: request.transactional_id.as_str().into(),
            producer: *request.producer_id,
            epoch: request.producer_epoch,
        };
        let seat = self.seat(Seat::Transactions);
        let ended = seat.and_then(|()| match !request.committed && self.manners.skips_aborts {
            true => Ok((who.producer, who.epoch)),
            false => self.broker.end_transaction(&who, request.committed),
        });
        answers::ended(self.code(&ended), ended.ok().filter(|_| version >= 5))
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
        let partition = Partition::new(topic.as_str(), data.index);
        let batch = data.records.as_ref().and_then(|bytes| Batch::parse(bytes));
        let records = batch.as_ref().map(batches::records).unwrap_or_default();
        let appended = match (self.may_append(&partition), &batch) {
            (Err(code), _) => Err(code),
            (Ok(()), None) => return answer.with_error_code(CORRUPT_MESSAGE),
            (Ok(()), Some(batch)) if !batch.transactional => Err(Code::InvalidTxnState),
            (Ok(()), Some(batch)) => {
                let who = Identity { id: id.into(), producer: batch.producer, epoch: batch.producer_epoch };
                self.broker.produce(&who, &partition, batch.sequence, &records)
            }
        };
        let mut code = self.code_of_write(&appended);
        if let Ok(base) = appended {
            code = self.replicate(&partition, base + records.len() as i64);
        }
        self.manners.reached(code);
        let answer = answer.with_error_code(code);
        match appended {
            Ok(base) if code == 0 => answer.with_base_offset(base),
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
            _ => answer,
        }
    }

    /// Whether this broker leads the partition, others follow it, and it is in the mood.
    fn may_append(&mut self, partition: &Partition) -> Result<(), Code> {
        self.broker.served(self.node, partition, -1)?;
        if self.broker.nodes.is_replaced(self.node, partition) || self.manners.is_moody() {
            return Err(Code::NotEnoughReplicas);
        }
        Ok(())
    }

    /// Followers fetch what was appended up to `end`; or they do not for now, and it may be lost with its leader: the code.
    fn replicate(&mut self, partition: &Partition, end: i64) -> i16 {
        let lags = self.manners.lags();
        let Some(log) = self.broker.topics.log_mut(partition).filter(|log| log.high() < end) else { return 0 };
        if lags.is_none() {
            log.replicate(end);
        }
        lags.unwrap_or(0)
    }
}

/// The member's id and generation, as they are to be checked.
fn membership(request: &TxnOffsetCommitRequest) -> (&str, i32) {
    match request.member_id.as_str() {
        ANYBODY => ("", -1),
        member => (member, request.generation_id),
    }
}
