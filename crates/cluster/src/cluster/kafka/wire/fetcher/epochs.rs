//! Checks whether a partition still holds what was read from it (KIP-320).
//!
//! Each leader of a partition has an epoch, a number, and each batch holds the epoch of the leader that appended it.
//! The request asks the leader where the epoch of the record before the next offset to fetch ends. If that epoch ends
//! below the next offset, the partition has lost its newest records.
//!
//! The request is sent when reading starts, and whenever the leader or its epoch changes: within one epoch, a leader
//! loses no records. If no epoch is known, or the broker does not offer the request, nothing is checked.
//!
//! A *slot* is what the fetcher knows of one partition. Responses to requests of an earlier *turn* of the slot do not
//! count (see `slot`).

use std::time::Instant;

use bytes::BytesMut;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::{Encodable, StrBytes};

use super::super::brokers::{Brokers, Purpose};
use super::super::code;
use super::super::connection::fields::Fields;
use super::super::connection::{Body, Request};
use super::node::{AskedEpochs, PendingRequest};
use super::slot::NO_ERROR_CODE;
use super::{Fetcher, Phase, Trouble};

const API_KEY: i16 = 23;
/// The versions since Kafka 2.1, in which the request names the leader epoch that the client knows.
const VERSIONS: std::ops::RangeInclusive<i16> = 2..=4;
/// The first version with tagged fields (KIP-482).
const FLEXIBLE_FROM: i16 = 4;
/// The fewest bytes of a topic in a response (its name and its count of partitions), and of a partition (its fields).
const TOPIC_BYTES_MIN: usize = 2;
const PARTITION_BYTES_MIN: usize = 18;
/// The replica id of a client that is not a replica (`OffsetsForLeaderEpochRequest.CONSUMER_REPLICA_ID`).
const CONSUMER_REPLICA_ID: i32 = -1;

impl Fetcher {
    /// Asks a broker where the epochs of these unchecked slots end, unless such a request to it is pending.
    pub(super) fn request_epochs(&mut self, node_id: i32, unchecked: &[u32], brokers: &mut Brokers, now: Instant) {
        let Some(node) = self.nodes.get_mut(&node_id).filter(|node| !node.has_epoch_request) else { return };
        let Some(versions) = brokers.ensure_ready(node_id, Purpose::Control, now) else {
            self.note_unready(node_id, brokers, now);
            return;
        };
        let Some(version) = versions.pick(API_KEY, VERSIONS) else {
            // Kafka's own consumer also reads on without the check.
            for slot_id in unchecked {
                self.slots.get_mut(slot_id).into_iter().for_each(|slot| slot.is_checked = true);
            }
            self.wake_at(now);
            return;
        };
        let mut asked = AskedEpochs::new();
        let mut request = OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(CONSUMER_REPLICA_ID));
        for slot_id in unchecked {
            let Some(slot) = self.slots.get(slot_id) else { continue };
            let (Some(epoch), Some(leader)) = (slot.epoch_before_next, slot.leader) else { continue };
            asked.insert(*slot_id, (slot.turn, slot.next_offset, epoch));
            let name = TopicName(StrBytes::from_string(slot.name.topic.to_string()));
            if request.topics.last().is_none_or(|last| last.topic != name) {
                request.topics.push(OffsetForLeaderTopic::default().with_topic(name));
            }
            let partition = OffsetForLeaderPartition::default()
                .with_partition(slot.name.partition)
                .with_current_leader_epoch(leader.epoch)
                .with_leader_epoch(epoch);
            request.topics.last_mut().into_iter().for_each(|topic| topic.partitions.push(partition.clone()));
        }
        let mut bytes = BytesMut::new();
        if request.encode(&mut bytes, version).is_err() {
            // Cannot happen: all fields fit each of these versions.
            self.retry_epochs(&asked, now);
            return;
        }
        node.has_epoch_request = true;
        node.unready_since = None;
        let request = Request { api_key: API_KEY, version, body: bytes.to_vec().into() };
        let request_id = brokers.send(node_id, Purpose::Control, request, self.settings.request_timeout, now);
        self.pending_requests.insert(request_id, PendingRequest::Epochs { node: node_id, asked });
    }

    /// Asks for these slots' epochs again after a back-off; not for slots that are in another turn by now.
    pub(super) fn retry_epochs(&mut self, asked: &AskedEpochs, now: Instant) {
        for (slot_id, (turn, ..)) in asked {
            if let Some(slot) = self.slots.get_mut(slot_id).filter(|slot| slot.turn == *turn) {
                slot.back_off(NO_ERROR_CODE, &self.settings, now);
            }
        }
    }

    /// Handles the response to a request for epochs; `None` if it cannot be read.
    pub(super) fn handle_epochs(
        &mut self,
        asked: &AskedEpochs,
        version: i16,
        body: &Body,
        brokers: &mut Brokers,
        now: Instant,
    ) -> Option<()> {
        let ends = read_epoch_ends(body.as_slice(), version >= FLEXIBLE_FROM)?;
        let mut unanswered = asked.clone();
        for end in ends {
            let Some(slot_id) = self.slot_id_by_name(end.topic, end.partition) else { continue };
            let Some((turn, offset, epoch)) = unanswered.remove(&slot_id) else { continue };
            let new_turn = self.new_turn_number();
            let Some(slot) = self.slots.get_mut(&slot_id) else { continue };
            // The response is stale if another turn has begun, or the slot is no longer read. Within a turn the offset
            // cannot have changed: nothing is fetched before this check.
            if (slot.turn, slot.next_offset, slot.phase) != (turn, offset, Phase::Reading) {
                continue;
            }
            if end.error_code != code::NONE {
                self.handle_refusal(slot_id, end.error_code, brokers, now);
            } else if end.found_epoch < 0 || end.end_offset < 0 {
                // The leader does not know the epoch.
                let since = *slot.unknown_since.get_or_insert(now);
                slot.back_off(NO_ERROR_CODE, &self.settings, now);
                if now.duration_since(since) >= self.settings.unknown_epoch_wait {
                    slot.fail(Trouble::UnknownEpoch { offset, epoch });
                }
                brokers.doubt_leader(&slot.name.topic, slot.name.partition, slot.leader, now);
            } else if end.end_offset < offset {
                slot.handle_truncation(end.end_offset, new_turn, &mut self.buffered_bytes);
            } else {
                slot.is_checked = true;
                slot.unknown_since = None;
                slot.succeed();
            }
        }
        self.retry_epochs(&unanswered, now);
        Some(())
    }
}

/// Where a partition's epoch ends, as its leader reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EpochEnd<'a> {
    topic: &'a str,
    partition: i32,
    error_code: i16,
    /// The leader's newest epoch that is not newer than the requested one; -1 if the leader has none. Kafka's field
    /// `LeaderEpoch`.
    found_epoch: i32,
    /// The offset at which that epoch ends; -1 if it is unknown.
    end_offset: i64,
}

/// Reads a response's body; `None` if it is malformed. The crate kafka-protocol would allocate as much as a count
/// claims, without checking it first.
fn read_epoch_ends(body: &[u8], is_flexible: bool) -> Option<Vec<EpochEnd<'_>>> {
    let (mut fields, mut ends) = (Fields::new(body, is_flexible), Vec::new());
    let _throttled_ms = fields.reader.i32()?;
    for _ in 0..fields.count(TOPIC_BYTES_MIN)? {
        let topic = fields.text()?;
        for _ in 0..fields.count(PARTITION_BYTES_MIN)? {
            let (error_code, partition) = (fields.reader.i16()?, fields.reader.i32()?);
            let (found_epoch, end_offset) = (fields.reader.i32()?, fields.reader.i64()?);
            ends.push(EpochEnd { topic, partition, error_code, found_epoch, end_offset });
            fields.skip_tags()?;
        }
        fields.skip_tags()?;
    }
    fields.skip_tags()?;
    Some(ends)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::OffsetForLeaderEpochResponse;
    use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};

    use super::*;

    #[test]
    fn epoch_ends_are_read_in_every_version_unless_the_response_is_cut_off() {
        let end = |partition, error_code, epoch, offset| {
            EpochEndOffset::default()
                .with_partition(partition)
                .with_error_code(error_code)
                .with_leader_epoch(epoch)
                .with_end_offset(offset)
        };
        let topic = |name: &'static str, ends| {
            let name = TopicName(StrBytes::from_static_str(name));
            OffsetForLeaderTopicResult::default().with_topic(name).with_partitions(ends)
        };
        let topics = vec![
            topic("a", vec![end(0, 0, 3, 17), end(4, code::UNKNOWN_LEADER_EPOCH, -1, -1)]),
            topic("b", vec![end(1, 0, 9, 1 << 40)]),
        ];
        let response = OffsetForLeaderEpochResponse::default().with_throttle_time_ms(5).with_topics(topics);
        let read = |topic, partition, error_code, found_epoch, end_offset| EpochEnd {
            topic,
            partition,
            error_code,
            found_epoch,
            end_offset,
        };
        for version in VERSIONS {
            let (mut bytes, is_flexible) = (Vec::new(), version >= FLEXIBLE_FROM);
            response.encode(&mut bytes, version).unwrap();
            let expected = vec![
                read("a", 0, 0, 3, 17),
                read("a", 4, code::UNKNOWN_LEADER_EPOCH, -1, -1),
                read("b", 1, 0, 9, 1 << 40),
            ];
            assert_eq!(read_epoch_ends(&bytes, is_flexible), Some(expected));
            for cut in 0..bytes.len() {
                assert_eq!(read_epoch_ends(&bytes[..cut], is_flexible), None, "version {version}, cut at {cut}");
            }
        }
    }

    #[test]
    fn impossible_topic_count_is_malformed() {
        let mut bytes = vec![0; 4];
        bytes.extend(i32::MAX.to_be_bytes());
        assert_eq!(read_epoch_ends(&bytes, false), None);
        let claimed = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(read_epoch_ends(&claimed, true), None);
    }
}
