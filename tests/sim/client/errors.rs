//! What a broker's error means to a lane: the same table as `src/cluster/kafka/errors.rs`, and before that what
//! librdkafka does with it in a transactional call (`rdkafka_txnmgr.c`).

use ratchet::cluster::{Error, ErrorKind};

use crate::kafka::Code;
use crate::world::Broken;

/// librdkafka's reaction to the error of a transactional request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the same request again.
    Retry,
    /// The transaction has failed.
    Abort,
    /// The producer has failed.
    Fatal,
}

/// `rd_kafka_txn_handle_AddPartitionsToTxn`, `..._AddOffsetsToTxn`, `..._TxnOffsetCommit`, `..._EndTxn`.
pub fn transactional(broken: Broken) -> Action {
    let Broken::Code(code) = broken else { return Action::Retry };
    match code {
        Code::NotCoordinator | Code::ConcurrentTransactions | Code::UnknownTopicOrPartition => Action::Retry,
        Code::InvalidProducerEpoch | Code::ProducerFenced | Code::InvalidTxnState => Action::Fatal,
        _ => Action::Abort,
    }
}

/// `rd_kafka_handle_Produce_error`: a fenced epoch is fatal, any other permanent error fails the transaction.
pub fn produced(broken: Broken) -> Action {
    let Broken::Code(code) = broken else { return Action::Retry };
    match code {
        Code::NotLeaderOrFollower | Code::NotEnoughReplicas | Code::UnknownTopicOrPartition => Action::Retry,
        Code::InvalidProducerEpoch => Action::Fatal,
        _ => Action::Abort,
    }
}

/// Whether the broker rejects the content of the record or its batch.
pub fn rejects_record(code: Code) -> bool {
    matches!(code, Code::RecordTooLarge | Code::InvalidRecord)
}

/// Whether the group rejects the membership.
pub fn is_stale_membership(code: Code) -> bool {
    matches!(code, Code::IllegalGeneration | Code::UnknownMemberId | Code::RebalanceInProgress)
}

/// The error of a call outside transactions.
pub fn plain(code: Code, message: String) -> Error {
    let kind = match code {
        Code::UnknownTopicOrPartition | Code::OffsetOutOfRange | Code::RecordTooLarge | Code::InvalidRecord => {
            ErrorKind::Refused
        }
        code if is_stale_membership(code) => ErrorKind::Abort,
        Code::ProducerFenced | Code::InvalidProducerEpoch => ErrorKind::Fenced,
        _ => ErrorKind::Retry,
    };
    Error::new(kind, message)
}
