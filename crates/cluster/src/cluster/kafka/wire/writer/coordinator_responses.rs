//! Handles coordinators' responses, and failed requests to coordinators. The terms are those of `coordinator_requests`.
//!
//! Responses with arrays are decoded here: the crate kafka-protocol allocates as much as a count claims, without
//! checking it first.
//!
//! Invariant: with version 1 of transactions (KIP-98), a request of which at least a byte was sent, but which has no
//! readable response, leaves a doubt (see [`session`](super::session)): [`Session::note_failed_bump`] for
//! [`RequestKind::BumpEpoch`], [`Session::note_lost_request`] for others. [`RequestKind::FindCoordinator`] and
//! [`RequestKind::InitProducerId`] belong to no transaction and leave no doubt. With version 2 (KIP-890) no request
//! leaves a doubt.
//!
//! [`Session::note_failed_bump`]: super::session::Session::note_failed_bump
//! [`Session::note_lost_request`]: super::session::Session::note_lost_request
//!
//! **Failure**: a response that cannot be read counts as a failed request.

use std::time::Instant;

use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, EndTxnResponse, FindCoordinatorResponse, InitProducerIdResponse,
};
use kafka_protocol::protocol::Decodable;

use super::super::code;
use super::super::connection::fields::Fields;
use super::coordinator_requests::{CoordinatorRequest, RequestKind};
use super::delivery::{self, RequestOutcome};
use super::partition::TransactionMembership;
use super::{State, WriteError, WriteErrorKind, Writer};

/// The fewest bytes of a topic in a response (its name and its count of partitions), and of a partition (its fields).
const TOPIC_BYTES_MIN: usize = 2;
const PARTITION_BYTES_MIN: usize = 6;

/// The fields of a coordinator's response that matter. A field that this kind of response lacks has its default.
#[derive(Debug, Default)]
pub(super) struct CoordinatorResponse<'a> {
    /// The error code; if each partition has its own, the code of the highest [`gravity`].
    pub code: i16,
    /// The number of the broker that is the coordinator.
    pub node: i32,
    /// The producer's id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub epoch: i16,
    /// Each partition's topic, number and error code.
    pub partitions: Vec<(&'a str, i32, i16)>,
}

impl<'a> CoordinatorResponse<'a> {
    /// Reads a response's body; `None` if it is malformed.
    pub fn read(kind: &RequestKind, version: i16, body: &'a [u8]) -> Option<Self> {
        let mut rest = body;
        let response = Self::default();
        Some(match kind {
            RequestKind::FindCoordinator(_) => {
                let read = FindCoordinatorResponse::decode(&mut rest, version).ok()?;
                Self { code: read.error_code, node: *read.node_id, ..response }
            }
            RequestKind::InitProducerId | RequestKind::BumpEpoch => {
                let read = InitProducerIdResponse::decode(&mut rest, version).ok()?;
                Self { code: read.error_code, producer_id: *read.producer_id, epoch: read.producer_epoch, ..response }
            }
            RequestKind::AddOffsets(_) => {
                let read = AddOffsetsToTxnResponse::decode(&mut rest, version).ok()?;
                Self { code: read.error_code, ..response }
            }
            RequestKind::EndTransaction { .. } => {
                let read = EndTxnResponse::decode(&mut rest, version).ok()?;
                Self { code: read.error_code, producer_id: *read.producer_id, epoch: read.producer_epoch, ..response }
            }
            // Both responses have the same form: the throttle time, then for each topic its partitions' codes; flexible
            // since version 3.
            RequestKind::AddPartitions(_) | RequestKind::CommitOffsets => {
                let partitions = read_partitions(body, version >= 3)?;
                let gravest = partitions.iter().map(|(_, _, code)| *code).max_by_key(|code| gravity(*code));
                Self { code: gravest.unwrap_or(code::NONE), partitions, ..response }
            }
        })
    }
}

impl Writer {
    /// Handles a request without a readable response. If any byte of it was `sent`, it may be executed, now or later.
    pub(super) fn handle_failed_coordinator_request(
        &mut self,
        request: CoordinatorRequest,
        sent: bool,
        reason: &str,
        now: Instant,
    ) {
        let coordinator_type = request.kind.coordinator_type();
        self.coordinator_mut(coordinator_type).node = None;
        self.back_off_coordinator(coordinator_type, now);
        match &request.kind {
            RequestKind::FindCoordinator(_) | RequestKind::InitProducerId => {}
            RequestKind::AddPartitions(slots) => {
                self.change_membership(slots, TransactionMembership::Adding, TransactionMembership::Out)
            }
            // It is unknown whether the epoch was raised; the next holder of the transactional id raises it again.
            RequestKind::BumpEpoch if sent => self.session.note_failed_bump(),
            RequestKind::EndTransaction { .. } if sent => self.handle_lost_end_request(&request.kind, reason),
            _ => {}
        }
        if sent
            && !matches!(
                request.kind,
                RequestKind::FindCoordinator(_) | RequestKind::InitProducerId | RequestKind::BumpEpoch
            )
        {
            self.session.note_lost_request();
        }
        self.may_be_open |= sent && request.kind.can_open_transaction();
    }

    /// Handles the response to a request.
    pub(super) fn handle_coordinator_response(
        &mut self,
        request: CoordinatorRequest,
        version: i16,
        body: &[u8],
        now: Instant,
    ) {
        let Some(response) = CoordinatorResponse::read(&request.kind, version, body) else {
            return self.handle_failed_coordinator_request(request, true, "the response cannot be read", now);
        };
        let coordinator_type = request.kind.coordinator_type();
        if let RequestKind::AddPartitions(slots) = &request.kind {
            self.apply_added_partitions(slots, &response);
        }
        self.may_be_open |= may_have_opened(&request.kind, response.code);
        let outcome = delivery::request_outcome(response.code);
        match outcome {
            RequestOutcome::Done => {
                // Finding a coordinator does not show that it can be reached.
                if !matches!(request.kind, RequestKind::FindCoordinator(_)) {
                    self.coordinator_mut(coordinator_type).backoff.reset();
                }
                self.last_delay_code = None;
                self.apply_success(&request.kind, &response);
            }
            RequestOutcome::Moved | RequestOutcome::Retry => {
                self.last_delay_code = Some(response.code);
                if outcome == RequestOutcome::Moved {
                    self.coordinator_mut(coordinator_type).node = None;
                }
                self.back_off_coordinator(coordinator_type, now);
                if matches!(request.kind, RequestKind::EndTransaction { .. }) {
                    self.note_failed_end_request();
                }
            }
            RequestOutcome::Abort => self.apply_error_code(&request.kind, WriteErrorKind::Abort, &response),
            RequestOutcome::Fenced => self.apply_error_code(&request.kind, WriteErrorKind::Fenced, &response),
            RequestOutcome::Denied => self.apply_error_code(&request.kind, WriteErrorKind::Refused, &response),
        }
    }

    /// Applies the error code of a response, as an error of the kind `error_kind`.
    fn apply_error_code(
        &mut self,
        request_kind: &RequestKind,
        error_kind: WriteErrorKind,
        response: &CoordinatorResponse,
    ) {
        let rejected_partition = response.partitions.iter().find(|(_, _, code)| *code == response.code);
        let error = match (request_kind, rejected_partition) {
            (RequestKind::AddPartitions(_), Some((topic, partition, code))) => {
                WriteError::coded(error_kind, &format!("adding {topic}:{partition} to the transaction"), *code)
            }
            _ => WriteError::coded(error_kind, request_kind.operation(), response.code),
        };
        self.apply_error(request_kind, error);
    }

    /// Notes which of the partitions in these slots the coordinator has added; the others are added again later.
    fn apply_added_partitions(&mut self, slots: &[usize], response: &CoordinatorResponse) {
        for slot in slots {
            let Some(partition) = self.partitions.get_mut(*slot) else { continue };
            let is_added = response.partitions.iter().any(|(topic, index, code)| {
                **topic == *partition.topic && *index == partition.index && *code == code::NONE
            });
            if partition.membership == TransactionMembership::Adding {
                partition.membership = if is_added { TransactionMembership::In } else { TransactionMembership::Out };
            }
        }
    }

    /// Applies a successful response.
    fn apply_success(&mut self, kind: &RequestKind, response: &CoordinatorResponse) {
        match kind {
            RequestKind::FindCoordinator(coordinator_type) => {
                self.coordinator_mut(*coordinator_type).node = Some(response.node)
            }
            RequestKind::InitProducerId => self.complete_open(response.producer_id, response.epoch),
            RequestKind::BumpEpoch => self.complete_epoch_bump(response.producer_id, response.epoch),
            RequestKind::AddPartitions(_) => {}
            RequestKind::AddOffsets(group) => self.has_added_group |= self.group_id.as_ref() == Some(group),
            RequestKind::CommitOffsets => {
                if let State::Committing(commit) = &mut self.state {
                    commit.has_accepted_offsets = true;
                }
            }
            RequestKind::EndTransaction { commit } => self.complete_end(*commit, response.producer_id, response.epoch),
        }
    }
}

/// Whether the coordinator may have opened the transaction before it responded with this code. A coordinator that is
/// still ending the previous transaction, or denies access, has not opened it; after any other code it may have.
fn may_have_opened(kind: &RequestKind, error_code: i16) -> bool {
    kind.can_open_transaction()
        && error_code != code::CONCURRENT_TRANSACTIONS
        && delivery::request_outcome(error_code) != RequestOutcome::Denied
}

/// How grave a code is: the gravest of several codes decides what to do.
fn gravity(error_code: i16) -> u8 {
    match delivery::request_outcome(error_code) {
        RequestOutcome::Done => 0,
        RequestOutcome::Retry => 1,
        RequestOutcome::Moved => 2,
        RequestOutcome::Abort => 3,
        RequestOutcome::Denied => 4,
        RequestOutcome::Fenced => 5,
    }
}

/// Reads the partitions of a response, each with its topic, number and code.
fn read_partitions(body: &[u8], is_flexible: bool) -> Option<Vec<(&str, i32, i16)>> {
    let (mut fields, mut partitions) = (Fields::new(body, is_flexible), Vec::new());
    let _throttled_ms = fields.reader.i32()?;
    for _ in 0..fields.count(TOPIC_BYTES_MIN)? {
        let name = fields.text()?;
        for _ in 0..fields.count(PARTITION_BYTES_MIN)? {
            partitions.push((name, fields.reader.i32()?, fields.reader.i16()?));
            fields.skip_tags()?;
        }
        fields.skip_tags()?;
    }
    fields.skip_tags()?;
    Some(partitions)
}

#[cfg(test)]
mod tests {
    use super::super::coordinator_requests::text;
    use super::*;
    use kafka_protocol::messages::txn_offset_commit_response::{
        TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
    };
    use kafka_protocol::messages::{TopicName, TxnOffsetCommitResponse};
    use kafka_protocol::protocol::Encodable;

    #[test]
    fn transaction_counts_as_open_unless_the_coordinator_cannot_have_opened_it() {
        let group: std::sync::Arc<str> = "group".into();
        for kind in [RequestKind::AddPartitions(vec![0]), RequestKind::AddOffsets(group)] {
            for code in [code::NONE, code::COORDINATOR_NOT_AVAILABLE, code::REQUEST_TIMED_OUT, code::PRODUCER_FENCED] {
                assert!(may_have_opened(&kind, code), "{kind:?} {code}");
            }
            for code in [code::CONCURRENT_TRANSACTIONS, code::GROUP_AUTHORIZATION_FAILED] {
                assert!(!may_have_opened(&kind, code), "{kind:?} {code}");
            }
        }
        for other in
            [RequestKind::EndTransaction { commit: true }, RequestKind::InitProducerId, RequestKind::CommitOffsets]
        {
            assert!(!may_have_opened(&other, code::NONE), "{other:?}");
        }
    }

    #[test]
    fn codes_of_partitions_are_read_in_each_version() {
        let partition =
            |index, code| TxnOffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(code);
        let topic = |name: &str, partitions| {
            TxnOffsetCommitResponseTopic::default().with_name(TopicName(text(name))).with_partitions(partitions)
        };
        let response = TxnOffsetCommitResponse::default()
            .with_topics(vec![topic("a", vec![partition(0, 0), partition(3, 16)]), topic("b", vec![partition(1, 22)])]);
        for version in 0..=5 {
            let mut bytes = Vec::new();
            response.encode(&mut bytes, version).unwrap();
            let read = read_partitions(&bytes, version >= 3).unwrap();
            assert_eq!(read, [("a", 0, 0), ("a", 3, 16), ("b", 1, 22)]);
            assert_eq!(CoordinatorResponse::read(&RequestKind::CommitOffsets, version, &bytes).unwrap().code, 22);
            for cut in 0..bytes.len() {
                assert!(read_partitions(&bytes[..cut], version >= 3).is_none(), "{version}: cut at {cut}");
            }
        }
    }
}
