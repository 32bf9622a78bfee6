//! Produce: what a leader checks before it appends (`UnifiedLog.analyzeAndValidateProducerState`,
//! `ProducerAppendInfo.checkProducerEpoch` and `checkSequence`).
//!
//! What a leader knows of producers follows from its log, so that it is right after any change of leaders.

use kafka_protocol::messages::produce_request::{PartitionProduceData, ProduceRequest};
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::batch::Batch;
use super::cluster::{Cluster, NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION};
use super::coordinator::{
    CONCURRENT_TRANSACTIONS, DUPLICATE_SEQUENCE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE,
    PRODUCER_FENCED, Target, Who,
};
use super::log::Log;

const CORRUPT_MESSAGE: i16 = 2;
const REQUEST_TIMED_OUT: i16 = 7;
const MESSAGE_TOO_LARGE: i16 = 10;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const NOT_ENOUGH_REPLICAS_AFTER_APPEND: i16 = 20;
const INVALID_RECORD: i16 = 87;

/// How many batches of a producer a leader remembers (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
const REMEMBERED: usize = 5;

/// A key that no topic takes: a record of it is refused by its number (KIP-467).
pub const POISON: &[u8] = b"poison";

/// What a leader knows of a producer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Known {
    epoch: Option<i16>,
    /// First and last sequence, and offset, of its last batches in this epoch.
    batches: Vec<(i32, i32, i64)>,
    is_open: bool,
}

/// Why a batch is not appended, or where it stands already.
#[derive(Debug, PartialEq, Eq)]
pub enum Checked {
    New,
    Duplicate(i64),
    Refused(i16),
}

impl Known {
    /// What follows from the log.
    pub fn of(log: &Log, producer: i64) -> Self {
        let mut known = Self::default();
        for batch in log.batches().iter().filter(|batch| batch.producer == producer) {
            if known.epoch != Some(batch.producer_epoch) {
                known.epoch = Some(batch.producer_epoch);
                known.batches.clear();
            }
            known.is_open = batch.marker.is_none() && batch.transactional;
            if batch.marker.is_none() {
                let last = after(batch.sequence, batch.records.len() as i32 - 1);
                known.batches.push((batch.sequence, last, batch.base));
                if known.batches.len() > REMEMBERED {
                    known.batches.remove(0);
                }
            }
        }
        known
    }

    /// Checks a batch.
    pub fn check(&self, batch: &Batch) -> Checked {
        let (first, last) = (batch.sequence, after(batch.sequence, batch.records.len() as i32 - 1));
        let Some(epoch) = self.epoch else {
            // A leader that knows nothing of the producer takes any sequence.
            return Checked::New;
        };
        if batch.producer_epoch < epoch {
            return Checked::Refused(INVALID_PRODUCER_EPOCH);
        }
        if batch.producer_epoch > epoch {
            return if first == 0 { Checked::New } else { Checked::Refused(OUT_OF_ORDER_SEQUENCE) };
        }
        if let Some((.., base)) = self.batches.iter().find(|known| (known.0, known.1) == (first, last)) {
            return Checked::Duplicate(*base);
        }
        match self.batches.last() {
            // After a marker in this epoch alone.
            None if first == 0 => Checked::New,
            None => Checked::Refused(OUT_OF_ORDER_SEQUENCE),
            Some((_, known, _)) if after(*known, 1) == first => Checked::New,
            Some(_) if self.batches.first().is_some_and(|oldest| last < oldest.0) => {
                Checked::Refused(DUPLICATE_SEQUENCE)
            }
            Some(_) => Checked::Refused(OUT_OF_ORDER_SEQUENCE),
        }
    }

    /// Whether its transaction is open here.
    pub fn is_open_as(&self, epoch: i16) -> bool {
        self.is_open && self.epoch == Some(epoch)
    }
}

fn after(sequence: i32, count: i32) -> i32 {
    sequence.wrapping_add(count) & i32::MAX
}

/// What becomes of one batch.
struct Outcome {
    code: i16,
    base: i64,
    refused: Vec<i32>,
}

impl Outcome {
    fn of(code: i16) -> Self {
        Self { code, base: -1, refused: Vec::new() }
    }
}

impl Cluster {
    /// Handles a Produce request.
    pub fn produce(&mut self, node: i32, request: &ProduceRequest) -> ProduceResponse {
        let id = request.transactional_id.as_ref().map(|id| id.to_string()).unwrap_or_default();
        let mut response = ProduceResponse::default();
        for topic in &request.topic_data {
            let mut answers = Vec::new();
            for data in &topic.partition_data {
                let outcome = self.produce_one(node, &id, &topic.name, data);
                self.transactions.reached(outcome.code);
                answers.push(answer(data.index, &outcome));
            }
            response
                .responses
                .push(TopicProduceResponse::default().with_name(topic.name.clone()).with_partition_responses(answers));
        }
        response
    }

    fn produce_one(&mut self, node: i32, id: &str, topic: &str, data: &PartitionProduceData) -> Outcome {
        match self.leads(node, topic, data.index) {
            0 => {}
            code => return Outcome::of(code),
        }
        let Some(batch) = data.records.as_ref().and_then(|bytes| Batch::parse(bytes)) else {
            return Outcome::of(CORRUPT_MESSAGE);
        };
        if let Some(code) = self.transactions.moody() {
            return Outcome::of(code);
        }
        if batch.bytes.len() > self.transactions.message_bytes_max {
            return Outcome::of(MESSAGE_TOO_LARGE);
        }
        let is_poison = |(_, record): &(i32, &super::batch::Rec)| record.key.as_deref() == Some(POISON);
        let refused: Vec<i32> = (0..).zip(batch.records.iter()).filter(is_poison).map(|(place, _)| place).collect();
        if !refused.is_empty() {
            return Outcome { code: INVALID_RECORD, base: -1, refused };
        }
        if let Err(code) = self.belongs(id, topic, data.index, &batch) {
            return Outcome::of(code);
        }
        self.append_checked(topic, data.index, &batch)
    }

    /// 0 if the broker leads the partition and can write to it.
    fn leads(&self, node: i32, topic: &str, number: i32) -> i16 {
        let Some(found) = self.topics.get(topic) else { return UNKNOWN_TOPIC_OR_PARTITION };
        if found.is_denied {
            return TOPIC_AUTHORIZATION_FAILED;
        }
        let Some(partition) = found.partitions.get(number as usize) else { return UNKNOWN_TOPIC_OR_PARTITION };
        if partition.replaced.iter().any(|(of, ..)| *of == node) {
            // It was replaced and does not know it: nobody follows it any more.
            return NOT_ENOUGH_REPLICAS;
        }
        if partition.leader == node && partition.is_led { 0 } else { NOT_LEADER_OR_FOLLOWER }
    }

    /// Whether the batch is part of its producer's open transaction
    /// (`ReplicaManager.maybeSendPartitionsToTransactionCoordinator`).
    fn belongs(&mut self, id: &str, topic: &str, number: i32, batch: &Batch) -> Result<(), i16> {
        if !batch.transactional {
            return Err(INVALID_TXN_STATE);
        }
        let who = Who { producer: batch.producer, epoch: batch.producer_epoch };
        if Known::of(&self.partition(topic, number).log, who.producer).is_open_as(who.epoch) {
            return Ok(());
        }
        let verified = self.transactions.verify(id, who, &Target::Log(topic.to_owned(), number));
        verified.map_err(|code| match code {
            CONCURRENT_TRANSACTIONS => NOT_ENOUGH_REPLICAS,
            PRODUCER_FENCED => INVALID_PRODUCER_EPOCH,
            code => code,
        })
    }

    fn append_checked(&mut self, topic: &str, number: i32, batch: &Batch) -> Outcome {
        let lags = self.transactions.lags();
        let partition = self.partition(topic, number);
        let epoch = partition.epoch;
        let base = match Known::of(&partition.log, batch.producer).check(batch) {
            Checked::Refused(code) => return Outcome::of(code),
            Checked::Duplicate(base) => base,
            Checked::New => partition.log.append(epoch, batch),
        };
        let end = base + batch.records.len() as i64;
        if let Some(code) = lags.filter(|_| partition.log.high() < end) {
            // It is there, and may be lost with its leader.
            return Outcome::of(code);
        }
        partition.log.replicate(end);
        Outcome { code: 0, base, refused: Vec::new() }
    }
}

/// The codes of a leader whose followers do not follow.
pub const LAGS: [i16; 2] = [REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND];

fn answer(index: i32, outcome: &Outcome) -> PartitionProduceResponse {
    let refused = outcome.refused.iter().map(|place| {
        BatchIndexAndErrorMessage::default()
            .with_batch_index(*place)
            .with_batch_index_error_message(Some(StrBytes::from_static_str("a poisonous key")))
    });
    PartitionProduceResponse::default()
        .with_index(index)
        .with_error_code(outcome.code)
        .with_base_offset(outcome.base)
        .with_record_errors(refused.collect())
}
