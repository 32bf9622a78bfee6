//! What the error codes of Kafka's responses mean for a batch, for a request to a coordinator, and for the writer's
//! caller.
//!
//! The codes have the names of `org.apache.kafka.common.protocol.Errors`; brokers throw the errors in
//! `ReplicaManager`, `ProducerStateManager`, `TransactionCoordinator` and `GroupCoordinatorService`.
//!
//! **Failure**: after a code that is not listed here the transaction must be aborted. In the response to a commit, such
//! a code leaves the outcome unknown, with one exception (`Writer::apply_error`).

use kafka_protocol::ResponseError;

use super::super::code;

/// What the caller has to do about a [`WriteError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteErrorKind {
    /// Temporary: the same call may be repeated.
    Retry,
    /// The transaction must be aborted; the writer can be used again afterwards.
    Abort,
    /// Another writer has taken this one's place, or this one can no longer be trusted: drop this writer.
    Fenced,
    /// The request may or may not have taken effect: drop the writer, and find out which.
    Unknown,
    /// The same call will fail again until a person changes something: a permission, a setting, or the record.
    Refused,
}

/// Why something was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WriteError {
    /// What to do about it.
    pub kind: WriteErrorKind,
    /// Kafka's error code, if a broker returned one.
    pub code: Option<i16>,
    /// What happened, in lower case and without a full stop.
    pub message: String,
}

impl WriteError {
    /// An error that no broker reported.
    pub(super) fn new(kind: WriteErrorKind, message: impl Into<String>) -> Self {
        Self { kind, code: None, message: message.into() }
    }

    /// The operation that failed, if the message consists of it and the description of a broker's code; otherwise
    /// `None`.
    pub fn operation(&self) -> Option<&str> {
        self.message.strip_suffix(&describe(self.code?))?.strip_suffix(": ")
    }

    /// The error that a broker reported by this code.
    pub(super) fn coded(kind: WriteErrorKind, operation: &str, code: i16) -> Self {
        Self { kind, code: Some(code), message: format!("{operation}: {}", describe(code)) }
    }
}

/// The name and meaning of a code.
pub(super) fn describe(code: i16) -> String {
    match ResponseError::try_from_code(code) {
        None => "no error".to_owned(),
        Some(error) => format!("{error} (code {code})"),
    }
}

/// What a response means for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    /// It is in the partition's log.
    Done,
    /// It has to be sent again, with the same sequence.
    Retry {
        /// Whether another broker may lead the partition by now.
        moved: bool,
    },
    /// The broker does not have the batch before it.
    Gap,
    /// It is too large; its halves may be small enough.
    TooLarge,
    /// One of its records will never be accepted.
    Refused,
    /// The transaction can only be aborted.
    Abort,
    /// The writer can no longer be used.
    Fenced,
    /// A permission has to be granted, or a setting corrected.
    Denied,
}

/// What the error code of a Produce response means.
pub(super) fn batch_outcome(error_code: i16) -> BatchOutcome {
    use code::*;
    match error_code {
        NONE | DUPLICATE_SEQUENCE_NUMBER => BatchOutcome::Done,
        NOT_LEADER_OR_FOLLOWER
        | LEADER_NOT_AVAILABLE
        | UNKNOWN_TOPIC_OR_PARTITION
        | UNKNOWN_TOPIC_ID
        | REPLICA_NOT_AVAILABLE
        | KAFKA_STORAGE_ERROR
        | FENCED_LEADER_EPOCH
        | UNKNOWN_LEADER_EPOCH => BatchOutcome::Retry { moved: true },
        REQUEST_TIMED_OUT
        | BROKER_NOT_AVAILABLE
        | NETWORK_EXCEPTION
        | NOT_ENOUGH_REPLICAS
        | NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | COORDINATOR_LOAD_IN_PROGRESS
        | COORDINATOR_NOT_AVAILABLE
        | NOT_COORDINATOR
        | CONCURRENT_TRANSACTIONS
        | THROTTLING_QUOTA_EXCEEDED => BatchOutcome::Retry { moved: false },
        OUT_OF_ORDER_SEQUENCE_NUMBER => BatchOutcome::Gap,
        MESSAGE_TOO_LARGE | RECORD_LIST_TOO_LARGE => BatchOutcome::TooLarge,
        INVALID_TIMESTAMP | INVALID_RECORD | CORRUPT_MESSAGE => BatchOutcome::Refused,
        INVALID_PRODUCER_EPOCH | PRODUCER_FENCED | INVALID_PRODUCER_ID_MAPPING | INVALID_TXN_STATE => {
            BatchOutcome::Fenced
        }
        code if is_denied(code) => BatchOutcome::Denied,
        _ => BatchOutcome::Abort,
    }
}

/// What a response means for a request to a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// It took effect.
    Done,
    /// It did not take effect, and has to be repeated.
    Retry,
    /// It has to be repeated, perhaps at another coordinator.
    Moved,
    /// The transaction can only be aborted.
    Abort,
    /// The writer can no longer be used.
    Fenced,
    /// A permission has to be granted, or a setting corrected.
    Denied,
}

/// What the error code of a coordinator's response means.
pub(super) fn request_outcome(error_code: i16) -> RequestOutcome {
    use code::*;
    match error_code {
        NONE => RequestOutcome::Done,
        NOT_COORDINATOR | COORDINATOR_NOT_AVAILABLE => RequestOutcome::Moved,
        COORDINATOR_LOAD_IN_PROGRESS
        | CONCURRENT_TRANSACTIONS
        | OPERATION_NOT_ATTEMPTED
        | UNKNOWN_TOPIC_OR_PARTITION
        | REQUEST_TIMED_OUT
        | BROKER_NOT_AVAILABLE
        | NETWORK_EXCEPTION
        | NOT_ENOUGH_REPLICAS
        | NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | THROTTLING_QUOTA_EXCEEDED => RequestOutcome::Retry,
        INVALID_PRODUCER_EPOCH | PRODUCER_FENCED | INVALID_PRODUCER_ID_MAPPING | INVALID_TXN_STATE => {
            RequestOutcome::Fenced
        }
        code if is_denied(code) => RequestOutcome::Denied,
        _ => RequestOutcome::Abort,
    }
}

/// Whether a permission has to be granted, or a setting corrected, before the same request can succeed.
fn is_denied(error_code: i16) -> bool {
    use code::*;
    matches!(
        error_code,
        TOPIC_AUTHORIZATION_FAILED
            | GROUP_AUTHORIZATION_FAILED
            | CLUSTER_AUTHORIZATION_FAILED
            | TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            | INVALID_TOPIC_EXCEPTION
            | INVALID_REQUIRED_ACKS
            | POLICY_VIOLATION
            | UNSUPPORTED_VERSION
            | UNSUPPORTED_FOR_MESSAGE_FORMAT
            | UNSUPPORTED_COMPRESSION_TYPE
            | INVALID_TRANSACTION_TIMEOUT
            | OFFSET_METADATA_TOO_LARGE
    )
}

/// Whether a topic's error in the brokers' metadata means that this client cannot write to the topic until a person
/// changes something: the permission is missing, or the name is invalid.
pub(super) fn denies_topic(error_code: i16) -> bool {
    matches!(error_code, code::TOPIC_AUTHORIZATION_FAILED | code::INVALID_TOPIC_EXCEPTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_no_error_and_duplicate_sequence_count_as_success() {
        for error_code in -1..=200 {
            let is_done = error_code == code::NONE || error_code == code::DUPLICATE_SEQUENCE_NUMBER;
            assert_eq!(batch_outcome(error_code) == BatchOutcome::Done, is_done, "{error_code}");
            assert_eq!(request_outcome(error_code) == RequestOutcome::Done, error_code == code::NONE, "{error_code}");
        }
    }

    #[test]
    fn failed_operation_is_separated_from_the_code() {
        let error = WriteError::coded(WriteErrorKind::Refused, "adding: all of it", code::GROUP_AUTHORIZATION_FAILED);
        assert_eq!(error.operation(), Some("adding: all of it"));
        let error = WriteError { message: "a record is too large".to_owned(), ..error };
        assert_eq!(error.operation(), None);
        assert_eq!(WriteError::new(WriteErrorKind::Abort, "committing: no response").operation(), None);
    }

    #[test]
    fn lost_identity_is_never_retried() {
        use code::*;
        for error_code in [INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE] {
            assert_eq!(batch_outcome(error_code), BatchOutcome::Fenced);
            assert_eq!(request_outcome(error_code), RequestOutcome::Fenced);
        }
        // A group that refuses a membership leaves the writer usable.
        for error_code in [ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS] {
            assert_eq!(request_outcome(error_code), RequestOutcome::Abort);
        }
    }
}
