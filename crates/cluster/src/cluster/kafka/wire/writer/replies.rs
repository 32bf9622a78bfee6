//! The answers of coordinators: how they are read, and what they mean.
//!
//! Answers with arrays are decoded by hand: the crate kafka-protocol allocates as much as a count claims, without
//! checking it first.
//!
//! Invariant: a call whose connection broke after a byte of it was sent leaves a doubt
//! ([`Session::broke`](super::session::Session::broke)), unless it belongs to no transaction ([`Kind::Find`],
//! [`Kind::Init`]).
//!
//! **Failure**: an answer that cannot be read counts as none.

use std::time::Instant;

use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, EndTxnResponse, FindCoordinatorResponse, InitProducerIdResponse,
};
use kafka_protocol::protocol::Decodable;

use super::super::code;
use super::super::connection::fields::Fields;
use super::calls::{Call, Kind};
use super::delivery::{self, CallOutcome};
use super::partition::Membership;
use super::{State, WriteError, WriteErrorKind, Writer};

/// The fewest bytes of a topic in an answer (its name and its count of partitions), and of a partition (its fields).
const TOPIC_BYTES_MIN: usize = 2;
const PARTITION_BYTES_MIN: usize = 6;

/// A coordinator's answer.
#[derive(Debug, Default)]
pub(super) struct Answer<'a> {
    /// The gravest code.
    pub code: i16,
    /// The coordinator's broker.
    pub node: i32,
    /// The producer's id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub epoch: i16,
    /// Each partition's topic, number and code.
    pub partitions: Vec<(&'a str, i32, i16)>,
}

impl<'a> Answer<'a> {
    /// Reads an answer's body; `None` if it is malformed.
    pub fn read(kind: &Kind, version: i16, body: &'a [u8]) -> Option<Self> {
        let mut rest = body;
        let answer = Self::default();
        Some(match kind {
            Kind::Find(_) => {
                let read = FindCoordinatorResponse::decode(&mut rest, version).ok()?;
                Self { code: read.error_code, node: *read.node_id, ..answer }
            }
            Kind::Init | Kind::Bump => {
                let read = InitProducerIdResponse::decode(&mut rest, version).ok()?;
                Self { code: read.error_code, producer_id: *read.producer_id, epoch: read.producer_epoch, ..answer }
            }
            Kind::AddOffsets(_) => {
                let read = AddOffsetsToTxnResponse::decode(&mut rest, version).ok()?;
                Self { code: read.error_code, ..answer }
            }
            Kind::End { .. } => {
                let read = EndTxnResponse::decode(&mut rest, version).ok()?;
                Self { code: read.error_code, producer_id: *read.producer_id, epoch: read.producer_epoch, ..answer }
            }
            // Both have the same form: the throttle time, then for each topic its partitions' codes; flexible since
            // version 3.
            Kind::AddPartitions(_) | Kind::Offsets => {
                let partitions = read_partitions(body, version >= 3)?;
                let gravest = partitions.iter().map(|(_, _, code)| *code).max_by_key(|code| gravity(*code));
                Self { code: gravest.unwrap_or(code::NONE), partitions, ..answer }
            }
        })
    }
}

impl Writer {
    /// A call has no answer. If any byte of it was sent, it may be executed, now or later.
    pub(super) fn call_failed(&mut self, call: Call, sent: bool, reason: &str, now: Instant) {
        let role = call.kind.role();
        self.seat(role).node = None;
        self.back_off(role, now);
        match &call.kind {
            Kind::Find(_) | Kind::Init => {}
            Kind::AddPartitions(partitions) => self.mark(partitions, Membership::Adding, Membership::Out),
            // Nobody knows the new epoch; the next holder of the id raises it again.
            Kind::Bump if sent => self.session.is_doubted = true,
            Kind::End { .. } if sent => self.end_unanswered(&call.kind, reason),
            _ => {}
        }
        if sent && !matches!(call.kind, Kind::Find(_) | Kind::Init | Kind::Bump) {
            self.session.broke();
        }
        self.is_started |= sent && call.kind.adds();
    }

    /// Handles a call's answer.
    pub(super) fn call_answered(&mut self, call: Call, version: i16, body: &[u8], now: Instant) {
        let Some(answer) = Answer::read(&call.kind, version, body) else {
            return self.call_failed(call, true, "the answer cannot be read", now);
        };
        let role = call.kind.role();
        if let Kind::AddPartitions(partitions) = &call.kind {
            self.partitions_added(partitions, &answer);
        }
        self.is_started |= may_open(&call.kind, answer.code);
        let outcome = delivery::of_call(answer.code);
        match outcome {
            CallOutcome::Done => {
                // A coordinator that was found has not been reached yet.
                if !matches!(call.kind, Kind::Find(_)) {
                    self.seat(role).pace.reset();
                }
                self.delayed_by = None;
                self.call_done(&call.kind, &answer);
            }
            CallOutcome::Moved | CallOutcome::Again => {
                self.delayed_by = Some(answer.code);
                if outcome == CallOutcome::Moved {
                    self.seat(role).node = None;
                }
                self.back_off(role, now);
                if matches!(call.kind, Kind::End { .. }) {
                    self.end_delayed();
                }
            }
            CallOutcome::Abort => self.decide_coded(&call.kind, WriteErrorKind::Abort, &answer),
            CallOutcome::Fenced => self.decide_coded(&call.kind, WriteErrorKind::Fenced, &answer),
            CallOutcome::Denied => self.decide_coded(&call.kind, WriteErrorKind::Refused, &answer),
        }
    }

    fn decide_coded(&mut self, kind: &Kind, error: WriteErrorKind, answer: &Answer) {
        let of_one = answer.partitions.iter().find(|(_, _, code)| *code == answer.code);
        let error = match (kind, of_one) {
            (Kind::AddPartitions(_), Some((topic, partition, code))) => {
                WriteError::coded(error, &format!("adding {topic}:{partition} to the transaction"), *code)
            }
            _ => WriteError::coded(error, kind.what(), answer.code),
        };
        self.decide(kind, error);
    }

    /// Notes which partitions were added; the others are requested again.
    fn partitions_added(&mut self, partitions: &[usize], answer: &Answer) {
        for at in partitions {
            let Some(partition) = self.partitions.get_mut(*at) else { continue };
            let added = answer.partitions.iter().any(|(topic, index, code)| {
                **topic == *partition.topic && *index == partition.index && *code == code::NONE
            });
            if partition.membership == Membership::Adding {
                partition.membership = if added { Membership::In } else { Membership::Out };
            }
        }
    }

    /// A call took effect.
    fn call_done(&mut self, kind: &Kind, answer: &Answer) {
        match kind {
            Kind::Find(role) => self.seat(*role).node = Some(answer.node),
            Kind::Init => self.opened(answer.producer_id, answer.epoch),
            Kind::Bump => self.bumped(answer.producer_id, answer.epoch),
            Kind::AddPartitions(_) => {}
            Kind::AddOffsets(group) => self.has_group |= self.group_id.as_ref() == Some(group),
            Kind::Offsets => {
                if let State::Committing(commit) = &mut self.state {
                    commit.has_accepted_offsets = true;
                }
            }
            Kind::End { commit } => self.ended(*commit, answer.producer_id, answer.epoch),
        }
    }
}

/// Whether the transaction may be open after this answer. A coordinator that is still ending the previous one, or
/// denies access, has opened none; after any other answer, what it has written may last.
fn may_open(kind: &Kind, answer: i16) -> bool {
    kind.adds() && answer != code::CONCURRENT_TRANSACTIONS && delivery::of_call(answer) != CallOutcome::Denied
}

/// How grave a code is: the gravest of several decides what to do.
fn gravity(answer: i16) -> u8 {
    match delivery::of_call(answer) {
        CallOutcome::Done => 0,
        CallOutcome::Again => 1,
        CallOutcome::Moved => 2,
        CallOutcome::Abort => 3,
        CallOutcome::Denied => 4,
        CallOutcome::Fenced => 5,
    }
}

/// The codes of partitions, by topic.
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
    use super::super::calls::text;
    use super::*;
    use kafka_protocol::messages::txn_offset_commit_response::{
        TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
    };
    use kafka_protocol::messages::{TopicName, TxnOffsetCommitResponse};
    use kafka_protocol::protocol::Encodable;

    #[test]
    fn transaction_counts_as_open_unless_the_coordinator_cannot_have_opened_it() {
        let group: std::sync::Arc<str> = "group".into();
        for kind in [Kind::AddPartitions(vec![0]), Kind::AddOffsets(group)] {
            for opens in [code::NONE, code::COORDINATOR_NOT_AVAILABLE, code::REQUEST_TIMED_OUT, code::PRODUCER_FENCED] {
                assert!(may_open(&kind, opens), "{kind:?} {opens}");
            }
            for moot in [code::CONCURRENT_TRANSACTIONS, code::GROUP_AUTHORIZATION_FAILED] {
                assert!(!may_open(&kind, moot), "{kind:?} {moot}");
            }
        }
        for other in [Kind::End { commit: true }, Kind::Init, Kind::Offsets] {
            assert!(!may_open(&other, code::NONE), "{other:?}");
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
            assert_eq!(Answer::read(&Kind::Offsets, version, &bytes).unwrap().code, 22);
            for cut in 0..bytes.len() {
                assert!(read_partitions(&bytes[..cut], version >= 3).is_none(), "{version}: cut at {cut}");
            }
        }
    }
}
