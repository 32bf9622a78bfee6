//! The errors that a broker returns.

/// The Kafka error codes (protocol guide, "Error Codes") that the simulation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    NotLeaderOrFollower,
    RecordTooLarge,
    InvalidRecord,
    NotEnoughReplicas,
    NotCoordinator,
    IllegalGeneration,
    UnknownMemberId,
    RebalanceInProgress,
    MemberIdRequired,
    UnstableOffsetCommit,
    NonEmptyGroup,
    GroupIdNotFound,
    TopicAlreadyExists,
    OutOfOrderSequence,
    InvalidProducerEpoch,
    InvalidTxnState,
    InvalidProducerIdMapping,
    ConcurrentTransactions,
    ProducerFenced,
}
