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
    CoordinatorLoadInProgress,
    NotCoordinator,
    IllegalGeneration,
    UnknownMemberId,
    RebalanceInProgress,
    MemberIdRequired,
    UnstableOffsetCommit,
    NonEmptyGroup,
    GroupIdNotFound,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    OutOfOrderSequence,
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidTxnState,
    InvalidProducerIdMapping,
    ConcurrentTransactions,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    ProducerFenced,
}

impl Code {
    /// Kafka's number.
    pub fn number(self) -> i16 {
        match self {
            Self::OffsetOutOfRange => 1,
            Self::UnknownTopicOrPartition => 3,
            Self::NotLeaderOrFollower => 6,
            Self::RecordTooLarge => 10,
            Self::InvalidRecord => 87,
            Self::NotEnoughReplicas => 19,
            Self::CoordinatorLoadInProgress => 14,
            Self::NotCoordinator => 16,
            Self::IllegalGeneration => 22,
            Self::UnknownMemberId => 25,
            Self::RebalanceInProgress => 27,
            Self::MemberIdRequired => 79,
            Self::UnstableOffsetCommit => 88,
            Self::NonEmptyGroup => 68,
            Self::GroupIdNotFound => 69,
            Self::TopicAlreadyExists => 36,
            Self::TopicAuthorizationFailed => 29,
            Self::OutOfOrderSequence => 45,
            Self::DuplicateSequence => 46,
            Self::InvalidProducerEpoch => 47,
            Self::InvalidTxnState => 48,
            Self::InvalidProducerIdMapping => 49,
            Self::ConcurrentTransactions => 51,
            Self::FencedLeaderEpoch => 74,
            Self::UnknownLeaderEpoch => 75,
            Self::ProducerFenced => 90,
        }
    }
}
