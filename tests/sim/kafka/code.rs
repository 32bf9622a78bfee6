//! What a broker answers where it does not do what was asked.

/// Kafka's error codes (protocol guide, "Error Codes"), those that the simulation gives.
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
