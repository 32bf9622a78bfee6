//! Requests to coordinators: how they are built and sent, and which are pending. Their responses are in
//! `coordinator_responses`.
//!
//! A *coordinator* is the broker that keeps the state of a transactional id's transactions, or a group's offsets. The
//! writer's *identity* is the producer's id with an epoch, as the coordinator has assigned them. A *slot* is a
//! partition's index in `Writer::partitions`.
//!
//! Requests are encoded by the crate kafka-protocol.
//!
//! Invariant: at most one request of a kind is pending.

use std::sync::Arc;
use std::time::Instant;

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ApiKey, EndTxnRequest, FindCoordinatorRequest, GroupId,
    InitProducerIdRequest, ProducerId, TopicName, TransactionalId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::{Encodable, StrBytes};

use super::super::brokers::{Brokers, Purpose, RequestId};
use super::super::connection::Request;
use super::super::mistakes::{Mistake, is_on};
use super::lifecycle::{Commit, END_V2};
use super::partition::{RetryBackoff, TransactionMembership};
use super::{WriteError, WriteErrorKind, Writer};

/// What is known about a coordinator.
#[derive(Debug, Default)]
pub(super) struct Coordinator {
    /// The coordinator's broker, if it is known.
    pub node: Option<i32>,
    /// When the next request may be sent.
    pub backoff: RetryBackoff,
}

/// The type of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoordinatorType {
    /// The transactional id's coordinator.
    Transaction,
    /// The group's coordinator.
    Group,
}

/// The kind of a request to a coordinator, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// Finds a coordinator.
    FindCoordinator(CoordinatorType),
    /// Obtains an identity.
    InitProducerId,
    /// Raises the epoch of the writer's identity (KIP-360).
    BumpEpoch,
    /// Adds the partitions in these slots to the transaction.
    AddPartitions(Vec<usize>),
    /// Adds this group to the transaction, so that its offsets can be committed in it.
    AddOffsets(Arc<str>),
    /// Commits the group's offsets, which take effect when the transaction is committed.
    CommitOffsets,
    /// Ends the transaction.
    EndTransaction {
        /// Whether by a commit; otherwise by an abort.
        commit: bool,
    },
}

impl RequestKind {
    /// Whether the coordinator opens the transaction for this request, if it is not open yet.
    pub(super) fn can_open_transaction(&self) -> bool {
        matches!(self, Self::AddPartitions(_) | Self::AddOffsets(_))
    }

    /// The coordinator that the request is sent to; for [`RequestKind::FindCoordinator`], which any broker accepts, the
    /// coordinator that is looked for.
    pub(super) fn coordinator_type(&self) -> CoordinatorType {
        match self {
            Self::FindCoordinator(coordinator_type) => *coordinator_type,
            Self::CommitOffsets => CoordinatorType::Group,
            _ => CoordinatorType::Transaction,
        }
    }

    /// The request's API key.
    fn key(&self) -> i16 {
        let key = match self {
            Self::FindCoordinator(_) => ApiKey::FindCoordinator,
            Self::InitProducerId | Self::BumpEpoch => ApiKey::InitProducerId,
            Self::AddPartitions(_) => ApiKey::AddPartitionsToTxn,
            Self::AddOffsets(_) => ApiKey::AddOffsetsToTxn,
            Self::CommitOffsets => ApiKey::TxnOffsetCommit,
            Self::EndTransaction { .. } => ApiKey::EndTxn,
        };
        key as i16
    }

    /// What the request does, as error messages name it.
    pub(super) fn operation(&self) -> &'static str {
        match self {
            Self::FindCoordinator(CoordinatorType::Transaction) => "finding the transactional id's coordinator",
            Self::FindCoordinator(CoordinatorType::Group) => "finding the group's coordinator",
            Self::InitProducerId => "opening the transactional id",
            Self::BumpEpoch => "raising the producer's epoch",
            Self::AddPartitions(_) => "adding partitions to the transaction",
            Self::AddOffsets(_) | Self::CommitOffsets => "adding the offsets to the transaction",
            Self::EndTransaction { commit: true } => "committing the transaction",
            Self::EndTransaction { commit: false } => "aborting the transaction",
        }
    }
}

/// A pending request to a coordinator.
#[derive(Debug)]
pub(super) struct CoordinatorRequest {
    id: RequestId,
    /// Its kind.
    pub kind: RequestKind,
}

impl Writer {
    pub(super) fn coordinator_mut(&mut self, coordinator_type: CoordinatorType) -> &mut Coordinator {
        match coordinator_type {
            CoordinatorType::Transaction => &mut self.transaction_coordinator,
            CoordinatorType::Group => &mut self.group_coordinator,
        }
    }

    /// Removes and returns the request with this id, which has a response or has failed.
    pub(super) fn take_coordinator_request(&mut self, id: RequestId) -> Option<CoordinatorRequest> {
        let index = self.coordinator_requests.iter().position(|request| request.id == id)?;
        Some(self.coordinator_requests.swap_remove(index))
    }

    /// Whether a request that matches is pending.
    pub(super) fn has_pending_request(&self, matches: impl Fn(&RequestKind) -> bool) -> bool {
        self.coordinator_requests.iter().any(|request| matches(&request.kind))
    }

    pub(super) fn back_off_coordinator(&mut self, coordinator_type: CoordinatorType, now: Instant) {
        let (shortest, longest) = (self.settings.retry_backoff, self.settings.retry_backoff_max);
        self.coordinator_mut(coordinator_type).backoff.extend(shortest, longest, now);
    }

    /// The number of the coordinator's broker, if it is known and a request may be sent now. If it is not known, it is
    /// looked up.
    pub(super) fn find_coordinator(
        &mut self,
        coordinator_type: CoordinatorType,
        brokers: &mut Brokers,
        now: Instant,
    ) -> Option<i32> {
        let coordinator = self.coordinator_mut(coordinator_type);
        if !coordinator.backoff.is_over(now) {
            return None;
        }
        if let Some(node) = coordinator.node {
            return Some(node);
        }
        if self.has_pending_request(|kind| *kind == RequestKind::FindCoordinator(coordinator_type)) {
            return None;
        }
        let (key, key_type) = match coordinator_type {
            CoordinatorType::Transaction => (self.id.clone(), 1),
            CoordinatorType::Group => (self.group_id.as_deref()?.to_owned(), 0),
        };
        let node = brokers.any_node(now)?;
        let request = FindCoordinatorRequest::default().with_key(text(&key)).with_key_type(key_type);
        self.send_to_broker(node, RequestKind::FindCoordinator(coordinator_type), (1, 3), &request, brokers, now);
        None
    }

    /// The number of the coordinator's broker, if it is known and connected. If no connection can be made, the
    /// coordinator is looked up again: another broker may be the coordinator by now, which only the failure of a
    /// pending request would show otherwise.
    pub(super) fn connected_coordinator(
        &mut self,
        coordinator_type: CoordinatorType,
        brokers: &mut Brokers,
        now: Instant,
    ) -> Option<i32> {
        let node = self.find_coordinator(coordinator_type, brokers, now)?;
        if brokers.ensure_ready(node, Purpose::Control, now).is_some() {
            return Some(node);
        }
        if brokers.is_failing(node, Purpose::Control) {
            self.coordinator_mut(coordinator_type).node = None;
            self.back_off_coordinator(coordinator_type, now);
        }
        None
    }

    /// Sends a request to a broker, if it is connected, in the highest of these versions that it supports. Returns
    /// whether the request was sent.
    fn send_to_broker(
        &mut self,
        node: i32,
        kind: RequestKind,
        (oldest, newest): (i16, i16),
        message: &impl Encodable,
        brokers: &mut Brokers,
        now: Instant,
    ) -> bool {
        let Some(versions) = brokers.ensure_ready(node, Purpose::Control, now) else { return false };
        let key = kind.key();
        let Some(version) = versions.pick(key, oldest..=newest) else {
            self.reject_request(&kind, "the broker supports no version of the request that this client supports");
            return false;
        };
        let mut body = brokers.buffer();
        if message.encode(&mut body, version).is_err() {
            self.reject_request(&kind, "the request cannot be encoded: a name in it is too long");
            return false;
        }
        let request = Request { api_key: key, version, body: body.into() };
        let id = brokers.send(node, Purpose::Control, request, self.settings.request_timeout, now);
        self.coordinator_requests.push(CoordinatorRequest { id, kind });
        true
    }

    /// Handles a request that cannot be sent until a person changes something.
    fn reject_request(&mut self, kind: &RequestKind, why: &str) {
        self.apply_error(kind, WriteError::new(WriteErrorKind::Refused, format!("{}: {why}", kind.operation())));
    }

    /// Sends a request to its coordinator, if that is known and connected. Returns whether the request was sent.
    fn send_to_coordinator(
        &mut self,
        kind: RequestKind,
        versions: (i16, i16),
        message: &impl Encodable,
        brokers: &mut Brokers,
        now: Instant,
    ) -> bool {
        let Some(node) = self.connected_coordinator(kind.coordinator_type(), brokers, now) else { return false };
        self.send_to_broker(node, kind, versions, message, brokers, now)
    }

    /// Requests an identity, or a new epoch of the present one.
    pub(super) fn send_init_producer_id(&mut self, is_bump: bool, brokers: &mut Brokers, now: Instant) {
        let timeout = i32::try_from(self.settings.transaction_timeout.as_millis()).unwrap_or(i32::MAX);
        let (producer, epoch) = if is_bump { (self.session.producer_id, self.session.epoch) } else { (-1, -1) };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.transactional_id()))
            .with_transaction_timeout_ms(timeout)
            .with_producer_id(ProducerId(producer))
            .with_producer_epoch(epoch);
        // Only since version 3 does the request name the epoch to raise.
        let (kind, oldest) = if is_bump { (RequestKind::BumpEpoch, 3) } else { (RequestKind::InitProducerId, 0) };
        self.send_to_coordinator(kind, (oldest, 4), &request, brokers, now);
    }

    /// Asks the coordinator to add the partitions that have records to send.
    ///
    /// With version 2 of transactions a Produce request could add its partitions (since its version 12), and
    /// TxnOffsetCommit the group's offsets (since 5): the broker then asks the coordinator. But if the coordinator is
    /// busy with the id, because the previous transaction is still ending or another addition is being written, the
    /// broker tries again only after 20 ms (`add.partitions.to.txn.retry.backoff.ms`). The coordinator responds to the
    /// writer's own request at once, and accepts it in the epoch of either version of transactions. Brokers then only
    /// verify that what they receive is part of the transaction, which the coordinator confirms even while an addition
    /// is being written (`handleVerifyPartitionsInTransaction`). If two verifications for one id wait in one broker,
    /// the first fails (`AddPartitionsToTxnManager`), and its batch is sent again.
    pub(super) fn send_add_partitions(&mut self, brokers: &mut Brokers, now: Instant) {
        if self.has_pending_request(|kind| matches!(kind, RequestKind::AddPartitions(_))) {
            return;
        }
        let is_outside = |slot: &usize| {
            self.partitions.get(*slot).is_some_and(|partition| partition.membership == TransactionMembership::Out)
        };
        let outside: Vec<usize> = self.active_slots.iter().copied().filter(is_outside).collect();
        if outside.is_empty() {
            return;
        }
        let mut topics: Vec<AddPartitionsToTxnTopic> = Vec::new();
        for partition in outside.iter().filter_map(|slot| self.partitions.get(*slot)) {
            match topics.iter_mut().find(|topic| *topic.name.0 == *partition.topic) {
                Some(topic) => topic.partitions.push(partition.index),
                None => topics.push(
                    AddPartitionsToTxnTopic::default()
                        .with_name(TopicName(text(&partition.topic)))
                        .with_partitions(vec![partition.index]),
                ),
            }
        }
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.transactional_id())
            .with_v3_and_below_producer_id(ProducerId(self.session.producer_id))
            .with_v3_and_below_producer_epoch(self.session.epoch)
            .with_v3_and_below_topics(topics);
        if self.send_to_coordinator(RequestKind::AddPartitions(outside.clone()), (0, 3), &request, brokers, now) {
            self.change_membership(&outside, TransactionMembership::Out, TransactionMembership::Adding);
            // The group will be part of the transaction too: adding it need not wait for the commit.
            self.send_add_offsets(brokers, now);
        }
    }

    /// Changes the membership of the partitions in these slots from `from` to `to`; any other membership stays.
    pub(super) fn change_membership(
        &mut self,
        slots: &[usize],
        from: TransactionMembership,
        to: TransactionMembership,
    ) {
        for slot in slots {
            if let Some(partition) = self.partitions.get_mut(*slot).filter(|found| found.membership == from) {
                partition.membership = to;
            }
        }
    }

    /// Asks the coordinator to add the group to the transaction, unless it was added or the request is pending.
    pub(super) fn send_add_offsets(&mut self, brokers: &mut Brokers, now: Instant) {
        let Some(group) = self.group_id.clone() else { return };
        if self.has_added_group || self.has_pending_request(|kind| matches!(kind, RequestKind::AddOffsets(_))) {
            return;
        }
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.session.producer_id))
            .with_producer_epoch(self.session.epoch)
            .with_group_id(GroupId(text(&group)));
        self.send_to_coordinator(RequestKind::AddOffsets(group), (0, 3), &request, brokers, now);
    }

    /// Sends the offsets of `commit` to the group's coordinator, which keeps them until the transaction ends.
    pub(super) fn send_commit_offsets(&mut self, commit: &Commit, brokers: &mut Brokers, now: Instant) {
        if self.has_pending_request(|kind| *kind == RequestKind::CommitOffsets) {
            return;
        }
        let request = self.offsets_request(commit);
        self.send_to_coordinator(RequestKind::CommitOffsets, (3, 4), &request, brokers, now);
    }

    fn offsets_request(&self, commit: &Commit) -> TxnOffsetCommitRequest {
        let mut topics: Vec<TxnOffsetCommitRequestTopic> = Vec::new();
        for offset in &commit.offsets {
            let partition = TxnOffsetCommitRequestPartition::default()
                .with_partition_index(offset.partition.partition)
                .with_committed_offset(offset.offset)
                .with_committed_leader_epoch(offset.leader_epoch)
                .with_committed_metadata(Some(text(&offset.metadata)));
            match topics.iter_mut().find(|topic| *topic.name.0 == *offset.partition.topic) {
                Some(topic) => topic.partitions.push(partition),
                None => topics.push(
                    TxnOffsetCommitRequestTopic::default()
                        .with_name(TopicName(text(&offset.partition.topic)))
                        .with_partitions(vec![partition]),
                ),
            }
        }
        // True, unless a simulation has switched on the mistake.
        let names_member = !is_on(Mistake::NoGeneration);
        TxnOffsetCommitRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_group_id(GroupId(text(&commit.group.id)))
            .with_producer_id(ProducerId(self.session.producer_id))
            .with_producer_epoch(self.session.epoch)
            .with_generation_id(if names_member { commit.group.generation } else { -1 })
            .with_member_id(text(if names_member { &commit.group.member } else { "" }))
            .with_group_instance_id(commit.group.instance.as_deref().map(text))
            .with_topics(topics)
    }

    /// Asks the coordinator to end the transaction. Returns whether the request was sent.
    pub(super) fn send_end_transaction(&mut self, commit: bool, brokers: &mut Brokers, now: Instant) -> bool {
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.session.producer_id))
            .with_producer_epoch(self.session.epoch)
            .with_committed(commit);
        let versions = if self.session.is_v2 { (END_V2, END_V2) } else { (0, 4) };
        self.send_to_coordinator(RequestKind::EndTransaction { commit }, versions, &request, brokers, now)
    }

    fn transactional_id(&self) -> TransactionalId {
        TransactionalId(text(&self.id))
    }
}

/// Text in the type of the crate kafka-protocol.
pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A group's id to share: that of earlier transactions (`known`) if it is the same, otherwise a new copy.
pub(super) fn shared_group_id(known: Option<&Arc<str>>, id: &str) -> Arc<str> {
    known.filter(|known| ***known == *id).map_or_else(|| id.into(), Arc::clone)
}
