//! The transactional half of the brokers: coordinators, groups' offsets, and the requests that are made of them.
//!
//! Trouble is drawn from a seed: coordinators move and load, leaders refuse for now, markers are written late.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ApiKey,
    BrokerId, EndTxnRequest, EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest,
    InitProducerIdResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::answers;
use super::cluster::Cluster;
use super::coordinator::{
    Coordinator, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, Marker, PRODUCER_FENCED, TRANSACTION_ABORTABLE, Target, Who,
};
use super::frames::{Incoming, decode, encode};
use super::producing::LAGS;
use super::random::Random;

const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const COORDINATOR_NOT_AVAILABLE: i16 = 15;
const NOT_COORDINATOR: i16 = 16;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const ILLEGAL_GENERATION: i16 = 22;
const UNKNOWN_MEMBER_ID: i16 = 25;

/// What the brokers offer of transactions: key and versions.
pub const OFFERED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Produce, 3, 12),
    (ApiKey::FindCoordinator, 0, 6),
    (ApiKey::InitProducerId, 0, 5),
    (ApiKey::AddPartitionsToTxn, 0, 5),
    (ApiKey::AddOffsetsToTxn, 0, 4),
    (ApiKey::EndTxn, 0, 5),
    (ApiKey::TxnOffsetCommit, 0, 5),
];

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
    /// The group's generation when its coordinator took it.
    pub taken_in: i32,
}

/// A group as its coordinator keeps it.
#[derive(Debug, Default)]
pub struct Group {
    pub generation: i32,
    pub members: BTreeSet<String>,
    pub committed: BTreeMap<(String, i32), Committed>,
    /// For the judge: all that was ever committed, in order.
    pub history: Vec<Committed>,
    /// Offsets of open transactions, by producer.
    pub pending: BTreeMap<i64, BTreeMap<(String, i32), Committed>>,
    /// The latest epoch of each producer.
    pub epochs: BTreeMap<i64, i16>,
}

/// Coordinators and groups.
#[derive(Debug)]
pub struct Transactions {
    pub coordinator: Coordinator,
    pub groups: BTreeMap<String, Group>,
    /// Whether a transactional write is checked against its transaction (KIP-890, part 1: Kafka 3.6 and later).
    pub verifies: bool,
    /// Whether one that is not part of it is told to abort (KIP-1050: Kafka 3.8 and later).
    pub says_abortable: bool,
    /// The largest batch that is taken.
    pub message_bytes_max: usize,
    /// Who coordinates transactions, who groups, and until when they load.
    pub seats: [(i32, u64); 2],
    /// How often, once in so many times, something refuses for now; 0 for never.
    pub moody_once_in: usize,
    random: Random,
    /// How often each code was answered to a Produce.
    pub codes: BTreeMap<i16, usize>,
}

/// Which coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    Transactions = 0,
    Groups = 1,
}

impl Transactions {
    pub fn new(is_v2: bool, epoch_max: i16, seed: u64) -> Self {
        Self {
            coordinator: Coordinator::new(is_v2, epoch_max),
            groups: BTreeMap::new(),
            verifies: true,
            says_abortable: true,
            message_bytes_max: 1 << 20,
            seats: [(1, 0), (1, 0)],
            moody_once_in: 0,
            random: Random::new(seed),
            codes: BTreeMap::new(),
        }
    }

    fn is_moody(&mut self) -> bool {
        self.moody_once_in > 0 && self.random.once_in(self.moody_once_in)
    }

    /// A refusal that has nothing to do with the request.
    pub fn moody(&mut self) -> Option<i16> {
        self.is_moody().then_some(NOT_ENOUGH_REPLICAS)
    }

    /// The code of a leader whose followers do not follow.
    pub fn lags(&mut self) -> Option<i16> {
        self.is_moody().then(|| *self.random.pick(&LAGS))
    }

    /// Counts an answer to a Produce.
    pub fn reached(&mut self, code: i16) {
        *self.codes.entry(code).or_default() += 1;
    }

    /// Moves a coordinator to another broker, where it loads until then.
    pub fn move_seat(&mut self, seat: Seat, to: i32, until: u64) {
        self.seats[seat as usize] = (to, until);
    }

    fn seat(&mut self, seat: Seat, node: i32, now: u64) -> Result<(), i16> {
        let (at, until) = self.seats[seat as usize];
        if at != node {
            return Err(NOT_COORDINATOR);
        }
        if now < until || self.is_moody() {
            return Err(COORDINATOR_LOAD_IN_PROGRESS);
        }
        Ok(())
    }

    fn keep_offsets(&mut self, request: &TxnOffsetCommitRequest) -> Result<(), i16> {
        let who = Who { producer: *request.producer_id, epoch: request.producer_epoch };
        let (id, name) = (request.transactional_id.to_string(), request.group_id.to_string());
        let target = Target::Offsets(name.clone());
        match self.verify(&id, who, &target) {
            // What the group's coordinator makes of it (`GroupCoordinatorService`), where the transaction still ends.
            Err(super::coordinator::CONCURRENT_TRANSACTIONS) => return Err(COORDINATOR_LOAD_IN_PROGRESS),
            Err(PRODUCER_FENCED) => return Err(INVALID_PRODUCER_EPOCH),
            verified => verified?,
        }
        let group = self.groups.entry(name).or_default();
        // An unjoined member is not fenced: see docs/guarantees.md of the reference.
        let is_joined = request.generation_id >= 0 || !request.member_id.is_empty();
        if is_joined && !group.members.contains(&*request.member_id) {
            return Err(UNKNOWN_MEMBER_ID);
        }
        if is_joined && group.generation != request.generation_id {
            return Err(ILLEGAL_GENERATION);
        }
        let epoch = group.epochs.entry(who.producer).or_insert(who.epoch);
        if who.epoch < *epoch {
            return Err(INVALID_PRODUCER_EPOCH);
        }
        *epoch = who.epoch;
        let taken_in = group.generation;
        let pending = group.pending.entry(who.producer).or_default();
        for topic in &request.topics {
            for partition in &topic.partitions {
                let committed = Committed {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.as_ref().map(|text| text.to_string()).unwrap_or_default(),
                    taken_in,
                };
                pending.insert((topic.name.to_string(), partition.partition_index), committed);
            }
        }
        Ok(())
    }

    /// Whether a write to `target` belongs to the open transaction, as far as it is asked.
    pub fn verify(&mut self, id: &str, who: Who, target: &Target) -> Result<(), i16> {
        let verified = if self.verifies { self.coordinator.verify(id, who, target) } else { Ok(()) };
        verified
            .map_err(|code| if code == INVALID_TXN_STATE && self.says_abortable { TRANSACTION_ABORTABLE } else { code })
    }

    fn mark_offsets(&mut self, group: &str, marker: &Marker) {
        let group = self.groups.entry(group.to_owned()).or_default();
        let pending = group.pending.remove(&marker.producer).unwrap_or_default();
        if marker.commit {
            group.history.extend(pending.values().cloned());
            group.committed.extend(pending);
        }
        let epoch = group.epochs.entry(marker.producer).or_insert(marker.epoch);
        *epoch = marker.epoch.max(*epoch);
    }
}

impl Cluster {
    /// Handles a request of [`OFFERED`] at time `now`, microseconds; `None` if it makes no sense.
    pub fn handle_transactional(&mut self, node: i32, incoming: &Incoming, now: u64) -> Option<Vec<u8>> {
        let (correlation, version) = (incoming.correlation, incoming.version);
        // From there on a broker adds to the transaction, which the writer does itself.
        let adds = |api, from| incoming.api == api && version >= from;
        assert!(!adds(ApiKey::Produce, 12) && !adds(ApiKey::TxnOffsetCommit, 5), "version {version}");
        Some(match incoming.api {
            ApiKey::Produce => encode(&self.produce(node, &decode(incoming)?), correlation, version),
            ApiKey::FindCoordinator => encode(&self.find_coordinator(&decode(incoming)?), correlation, version),
            ApiKey::InitProducerId => {
                encode(&self.init_producer(node, version, &decode(incoming)?, now), correlation, version)
            }
            ApiKey::AddPartitionsToTxn => {
                encode(&self.add_partitions(node, &decode(incoming)?, now), correlation, version)
            }
            ApiKey::AddOffsetsToTxn => encode(&self.add_offsets(node, &decode(incoming)?, now), correlation, version),
            ApiKey::TxnOffsetCommit => {
                encode(&self.commit_offsets(node, &decode(incoming)?, now), correlation, version)
            }
            ApiKey::EndTxn => encode(&self.end_txn(node, version, &decode(incoming)?, now), correlation, version),
            _ => return None,
        })
    }

    fn find_coordinator(&mut self, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
        if self.transactions.is_moody() {
            return FindCoordinatorResponse::default()
                .with_error_code(COORDINATOR_NOT_AVAILABLE)
                .with_node_id(BrokerId(-1));
        }
        let seat = if request.key_type == 1 { Seat::Transactions } else { Seat::Groups };
        let (at, _) = self.transactions.seats[seat as usize];
        FindCoordinatorResponse::default()
            .with_node_id(BrokerId(at))
            .with_host(StrBytes::from_string(format!("node{at}")))
            .with_port(9092)
    }

    fn init_producer(
        &mut self,
        node: i32,
        version: i16,
        request: &InitProducerIdRequest,
        now: u64,
    ) -> InitProducerIdResponse {
        let transactions = &mut self.transactions;
        let id = request.transactional_id.as_ref().map(|id| id.to_string()).unwrap_or_default();
        let known = Who { producer: *request.producer_id, epoch: request.producer_epoch };
        let known = (version >= 3 && known.producer >= 0).then_some(known);
        let timeout = request.transaction_timeout_ms as u64 * 1_000;
        let init = transactions
            .seat(Seat::Transactions, node, now)
            .and_then(|()| transactions.coordinator.init(&id, known, timeout));
        answers::opened(init.map(|who| (who.producer, who.epoch)))
    }

    fn add_partitions(
        &mut self,
        node: i32,
        request: &AddPartitionsToTxnRequest,
        now: u64,
    ) -> AddPartitionsToTxnResponse {
        let transactions = &mut self.transactions;
        let who = Who { producer: *request.v3_and_below_producer_id, epoch: request.v3_and_below_producer_epoch };
        let topics = &request.v3_and_below_topics;
        let targets = topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|number| Target::Log(topic.name.to_string(), *number)));
        let id = request.v3_and_below_transactional_id.to_string();
        let targets: Vec<Target> = targets.collect();
        let added = transactions
            .seat(Seat::Transactions, node, now)
            .and_then(|()| transactions.coordinator.add(&id, who, targets, now));
        answers::added(request, added.err().unwrap_or(0))
    }

    fn add_offsets(&mut self, node: i32, request: &AddOffsetsToTxnRequest, now: u64) -> AddOffsetsToTxnResponse {
        let transactions = &mut self.transactions;
        let who = Who { producer: *request.producer_id, epoch: request.producer_epoch };
        let target = Target::Offsets(request.group_id.to_string());
        let added = transactions
            .seat(Seat::Transactions, node, now)
            .and_then(|()| transactions.coordinator.add(&request.transactional_id, who, vec![target], now));
        AddOffsetsToTxnResponse::default().with_error_code(added.err().unwrap_or(0))
    }

    fn commit_offsets(&mut self, node: i32, request: &TxnOffsetCommitRequest, now: u64) -> TxnOffsetCommitResponse {
        let transactions = &mut self.transactions;
        let kept = transactions.seat(Seat::Groups, node, now).and_then(|()| transactions.keep_offsets(request));
        answers::kept(request, kept.err().unwrap_or(0))
    }

    fn end_txn(&mut self, node: i32, version: i16, request: &EndTxnRequest, now: u64) -> EndTxnResponse {
        let transactions = &mut self.transactions;
        let who = Who { producer: *request.producer_id, epoch: request.producer_epoch };
        let ended = transactions
            .seat(Seat::Transactions, node, now)
            .and_then(|()| transactions.coordinator.end(&request.transactional_id, who, request.committed));
        let next = ended.ok().filter(|_| version >= 5).map(|next| (next.producer, next.epoch));
        answers::ended(ended.err().unwrap_or(0), next)
    }

    /// Writes one of the markers that wait, if there is a leader to write it to. Whether one was written.
    pub fn write_marker(&mut self, pick: usize, timestamp: i64) -> bool {
        let markers = self.transactions.coordinator.markers();
        let Some(marker) = markers.get(pick % markers.len().max(1)) else { return false };
        match &marker.target {
            Target::Offsets(group) => self.transactions.mark_offsets(group, marker),
            Target::Log(topic, number) => {
                let partition = self.partition(topic, *number);
                if !partition.is_led {
                    return false;
                }
                let epoch = partition.epoch;
                partition.log.mark(epoch, marker.producer, marker.epoch, marker.commit, timestamp);
                let end = partition.log.end();
                partition.log.replicate(end);
            }
        }
        self.transactions.coordinator.marked(marker);
        true
    }
}
