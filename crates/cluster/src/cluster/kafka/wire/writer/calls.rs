//! Requests to coordinators: which are under way, and how they are built. What their answers mean is in `replies`.
//!
//! Requests are encoded by the crate kafka-protocol.
//!
//! Invariant: at most one call of a kind is under way.

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

use super::super::brokers::{Brokers, RequestId, Use};
use super::super::connection::Request;
use super::super::mistakes::{Mistake, is_on};
use super::ending::{Commit, END_V2};
use super::partition::{Membership, Pace};
use super::{WriteError, WriteErrorKind, Writer};

/// Where a coordinator is.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// The broker, if it is known.
    pub node: Option<i32>,
    /// When it may be asked again.
    pub pace: Pace,
}

/// Whose coordinator a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The transactional id's.
    Txn,
    /// The group's.
    Group,
}

/// What a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Where a coordinator is.
    Find(Role),
    /// An identity.
    Init,
    /// A new epoch for it (KIP-360).
    Bump,
    /// To add these partitions to the transaction.
    AddPartitions(Vec<usize>),
    /// To add this group's offsets.
    AddOffsets(Arc<str>),
    /// To keep the offsets until the transaction ends.
    Offsets,
    /// To end the transaction.
    End {
        /// Whether by a commit.
        commit: bool,
    },
}

impl Kind {
    /// Whether it opens the transaction at its coordinator, if none is open.
    pub(super) fn adds(&self) -> bool {
        matches!(self, Self::AddPartitions(_) | Self::AddOffsets(_))
    }

    /// Whose coordinator is asked. For [`Kind::Find`], which any broker answers: whose coordinator is looked for.
    pub(super) fn role(&self) -> Role {
        match self {
            Self::Find(role) => *role,
            Self::Offsets => Role::Group,
            _ => Role::Txn,
        }
    }

    /// The request's key.
    fn key(&self) -> i16 {
        let key = match self {
            Self::Find(_) => ApiKey::FindCoordinator,
            Self::Init | Self::Bump => ApiKey::InitProducerId,
            Self::AddPartitions(_) => ApiKey::AddPartitionsToTxn,
            Self::AddOffsets(_) => ApiKey::AddOffsetsToTxn,
            Self::Offsets => ApiKey::TxnOffsetCommit,
            Self::End { .. } => ApiKey::EndTxn,
        };
        key as i16
    }

    /// What it does, for errors.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Find(Role::Txn) => "finding the transactional id's coordinator",
            Self::Find(Role::Group) => "finding the group's coordinator",
            Self::Init => "opening the transactional id",
            Self::Bump => "raising the producer's epoch",
            Self::AddPartitions(_) => "adding partitions to the transaction",
            Self::AddOffsets(_) | Self::Offsets => "adding the offsets to the transaction",
            Self::End { commit: true } => "committing the transaction",
            Self::End { commit: false } => "aborting the transaction",
        }
    }
}

/// A request to a coordinator under way.
#[derive(Debug)]
pub(super) struct Call {
    id: RequestId,
    /// What it asks for.
    pub kind: Kind,
}

impl Writer {
    pub(super) fn seat(&mut self, role: Role) -> &mut Seat {
        match role {
            Role::Txn => &mut self.txn,
            Role::Group => &mut self.group,
        }
    }

    /// Removes and returns the call with this id: it was answered, or has failed.
    pub(super) fn take_call(&mut self, id: RequestId) -> Option<Call> {
        let place = self.calls.iter().position(|call| call.id == id)?;
        Some(self.calls.swap_remove(place))
    }

    /// Whether a call like this is under way.
    pub(super) fn calls_any(&self, like: impl Fn(&Kind) -> bool) -> bool {
        self.calls.iter().any(|call| like(&call.kind))
    }

    pub(super) fn back_off(&mut self, role: Role, now: Instant) {
        let (shortest, longest) = (self.settings.retry_backoff, self.settings.retry_backoff_max);
        self.seat(role).pace.back_off(shortest, longest, now);
    }

    /// The coordinator's node, if it is known and may be asked now. If it is unknown, it is looked for.
    pub(super) fn find(&mut self, role: Role, brokers: &mut Brokers, now: Instant) -> Option<i32> {
        let seat = self.seat(role);
        if !seat.pace.is_due(now) {
            return None;
        }
        if let Some(node) = seat.node {
            return Some(node);
        }
        if self.calls_any(|kind| *kind == Kind::Find(role)) {
            return None;
        }
        let (key, key_type) = match role {
            Role::Txn => (self.id.clone(), 1),
            Role::Group => (self.group_id.as_deref()?.to_owned(), 0),
        };
        let node = brokers.any(now)?;
        let request = FindCoordinatorRequest::default().with_key(text(&key)).with_key_type(key_type);
        self.call(node, Kind::Find(role), (1, 3), &request, brokers, now);
        None
    }

    /// The coordinator's node, if it is known and connected. If it cannot be connected to, the coordinator is looked
    /// for again: another broker may have taken over, and no failed call says so if none was under way.
    pub(super) fn reach(&mut self, role: Role, brokers: &mut Brokers, now: Instant) -> Option<i32> {
        let node = self.find(role, brokers, now)?;
        if brokers.ready(node, Use::Control, now).is_some() {
            return Some(node);
        }
        if brokers.is_failing(node, Use::Control) {
            self.seat(role).node = None;
            self.back_off(role, now);
        }
        None
    }

    /// Sends a call to a node, if it is connected, in the highest version that both sides support. Returns whether it
    /// was sent.
    fn call(
        &mut self,
        node: i32,
        kind: Kind,
        (oldest, newest): (i16, i16),
        message: &impl Encodable,
        brokers: &mut Brokers,
        now: Instant,
    ) -> bool {
        let Some(versions) = brokers.ready(node, Use::Control, now) else { return false };
        let key = kind.key();
        let Some(version) = versions.pick(key, oldest..=newest) else {
            self.refuse(&kind, "the broker supports no version of the request that this client supports");
            return false;
        };
        let mut body = brokers.buffer();
        if message.encode(&mut body, version).is_err() {
            self.refuse(&kind, "the request cannot be encoded: a name in it is too long");
            return false;
        }
        let request = Request { api_key: key, version, body: body.into() };
        let id = brokers.send(node, Use::Control, request, self.settings.request_timeout, now);
        self.calls.push(Call { id, kind });
        true
    }

    /// Fails a call that cannot succeed until a person changes something.
    fn refuse(&mut self, kind: &Kind, why: &str) {
        self.decide(kind, WriteError::new(WriteErrorKind::Refused, format!("{}: {why}", kind.what())));
    }

    /// Sends a call to its coordinator, if that is known and connected. Returns whether it was sent.
    fn call_seat(
        &mut self,
        kind: Kind,
        versions: (i16, i16),
        message: &impl Encodable,
        brokers: &mut Brokers,
        now: Instant,
    ) -> bool {
        let Some(node) = self.reach(kind.role(), brokers, now) else { return false };
        self.call(node, kind, versions, message, brokers, now)
    }

    /// Asks for an identity, or for a new epoch of the present one.
    pub(super) fn call_init(&mut self, is_bump: bool, brokers: &mut Brokers, now: Instant) {
        let timeout = i32::try_from(self.settings.transaction_timeout.as_millis()).unwrap_or(i32::MAX);
        let (producer, epoch) = if is_bump { (self.session.producer_id, self.session.epoch) } else { (-1, -1) };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.transactional_id()))
            .with_transaction_timeout_ms(timeout)
            .with_producer_id(ProducerId(producer))
            .with_producer_epoch(epoch);
        // Only since version 3 can a request name the epoch to raise.
        let (kind, oldest) = if is_bump { (Kind::Bump, 3) } else { (Kind::Init, 0) };
        self.call_seat(kind, (oldest, 4), &request, brokers, now);
    }

    /// Asks the coordinator to add the partitions that have something to send.
    ///
    /// With version 2 of transactions a Produce request could add its partitions (since its version 12), and
    /// TxnOffsetCommit the group's offsets (since 5): the broker then asks the coordinator. But if the coordinator is
    /// busy with the id, because the previous transaction is still ending or another addition is being written, the
    /// broker tries again only after 20 ms (`add.partitions.to.txn.retry.backoff.ms`). The coordinator answers the
    /// writer's own request at once, and accepts it in the epoch of either version of transactions. Brokers then only
    /// verify that what they receive is part of the transaction, which the coordinator confirms even while an addition
    /// is being written (`handleVerifyPartitionsInTransaction`). If two verifications for one id wait in one broker,
    /// the first fails (`AddPartitionsToTxnManager`), and what it was for is sent again.
    pub(super) fn call_add_partitions(&mut self, brokers: &mut Brokers, now: Instant) {
        if self.calls_any(|kind| matches!(kind, Kind::AddPartitions(_))) {
            return;
        }
        let is_out = |at: &usize| self.partitions.get(*at).is_some_and(|it| it.membership == Membership::Out);
        let out: Vec<usize> = self.active.iter().copied().filter(is_out).collect();
        if out.is_empty() {
            return;
        }
        let mut topics: Vec<AddPartitionsToTxnTopic> = Vec::new();
        for partition in out.iter().filter_map(|at| self.partitions.get(*at)) {
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
        if self.call_seat(Kind::AddPartitions(out.clone()), (0, 3), &request, brokers, now) {
            self.mark(&out, Membership::Out, Membership::Adding);
            // The group will be part of it too: adding it need not wait for the commit.
            self.call_add_offsets(brokers, now);
        }
    }

    /// Changes these partitions' membership to `to`, wherever it is `from`.
    pub(super) fn mark(&mut self, partitions: &[usize], from: Membership, to: Membership) {
        for at in partitions {
            if let Some(partition) = self.partitions.get_mut(*at).filter(|it| it.membership == from) {
                partition.membership = to;
            }
        }
    }

    /// Asks the coordinator to add the group.
    pub(super) fn call_add_offsets(&mut self, brokers: &mut Brokers, now: Instant) {
        let Some(group) = self.group_id.clone() else { return };
        if self.has_group || self.calls_any(|kind| matches!(kind, Kind::AddOffsets(_))) {
            return;
        }
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.session.producer_id))
            .with_producer_epoch(self.session.epoch)
            .with_group_id(GroupId(text(&group)));
        self.call_seat(Kind::AddOffsets(group), (0, 3), &request, brokers, now);
    }

    /// Asks the group's coordinator to keep the offsets of `commit` until the transaction ends.
    pub(super) fn call_offsets(&mut self, commit: &Commit, brokers: &mut Brokers, now: Instant) {
        if self.calls_any(|kind| *kind == Kind::Offsets) {
            return;
        }
        let request = self.offsets_request(commit);
        self.call_seat(Kind::Offsets, (3, 4), &request, brokers, now);
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
        let is_joined = !is_on(Mistake::NoGeneration);
        TxnOffsetCommitRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_group_id(GroupId(text(&commit.group.id)))
            .with_producer_id(ProducerId(self.session.producer_id))
            .with_producer_epoch(self.session.epoch)
            .with_generation_id(if is_joined { commit.group.generation } else { -1 })
            .with_member_id(text(if is_joined { &commit.group.member } else { "" }))
            .with_group_instance_id(commit.group.instance.as_deref().map(text))
            .with_topics(topics)
    }

    /// Asks the coordinator to end the transaction. Returns whether the request was handed to a connection.
    pub(super) fn call_end(&mut self, commit: bool, brokers: &mut Brokers, now: Instant) -> bool {
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.session.producer_id))
            .with_producer_epoch(self.session.epoch)
            .with_committed(commit);
        let versions = if self.session.is_v2 { (END_V2, END_V2) } else { (0, 4) };
        self.call_seat(Kind::End { commit }, versions, &request, brokers, now)
    }

    fn transactional_id(&self) -> TransactionalId {
        TransactionalId(text(&self.id))
    }
}

/// Text as the crate kafka-protocol wants it.
pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// The group's name, kept for later transactions.
pub(super) fn group_name(known: Option<&Arc<str>>, id: &str) -> Arc<str> {
    known.filter(|known| ***known == *id).map_or_else(|| id.into(), Arc::clone)
}
