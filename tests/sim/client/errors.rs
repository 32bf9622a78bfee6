//! What a broker's error means to a lane where librdkafka asks: the same table as
//! `crates/cluster/src/cluster/kafka/errors.rs`.

use ratchet::cluster::{Error, ErrorKind};

use crate::kafka::Code;

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
