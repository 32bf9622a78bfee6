//! What the group has committed for a partition, and the owner that the text beside the offset names.

use crate::cluster::{CommittedOffset, OffsetCommit};
use crate::format::OffsetMetadata;
use crate::record::TopicPartition;

/// What the group has committed for a partition, if ratchet committed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commitment {
    /// The next offset to read.
    pub offset: i64,
    /// The text beside it.
    pub metadata: OffsetMetadata,
}

impl Commitment {
    /// The commitment as read, unless the text is blank or another program's.
    pub fn read(committed: &CommittedOffset) -> Option<Self> {
        let metadata = OffsetMetadata::parse(&committed.metadata).ok().flatten()?;
        Some(Self { offset: committed.offset, metadata })
    }

    /// The offset commit that establishes it.
    pub fn to_commit(&self, partition: &TopicPartition) -> OffsetCommit {
        let committed = CommittedOffset { offset: self.offset, metadata: self.metadata.to_string() };
        OffsetCommit { partition: partition.clone(), committed }
    }

    /// The owner's name in logs.
    pub fn owner(&self) -> &str {
        self.metadata.owner.as_deref().unwrap_or("released")
    }

    /// Whether the text names this owner.
    pub fn is_of(&self, id: &str) -> bool {
        self.metadata.owner.as_deref() == Some(id)
    }

    /// The same commitment with another owner in its text.
    pub fn named(&self, owner: Option<&str>) -> Self {
        let metadata = OffsetMetadata { owner: owner.map(str::to_owned), ..self.metadata.clone() };
        Self { offset: self.offset, metadata }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Token;

    fn commitment(owner: Option<&str>) -> Commitment {
        let token = Token { lane: 1, transaction: 2, changelog_id: [3; 16], partition: 4 };
        let metadata = OffsetMetadata { token, digest: "0123456789abcdef".to_owned(), owner: owner.map(str::to_owned) };
        Commitment { offset: 7, metadata }
    }

    #[test]
    fn naming_an_owner_changes_nothing_else() {
        let before = commitment(Some("ratchet.t.1.0"));
        let partition = TopicPartition::new("t", 4);
        for owner in [Some("ratchet.t.2.0"), None] {
            let committed = before.named(owner).to_commit(&partition).committed;
            let after = Commitment::read(&committed).unwrap();
            assert_eq!((after.offset, after.metadata.token), (before.offset, before.metadata.token));
            assert_eq!(after.metadata.digest, before.metadata.digest);
            assert_eq!(after.metadata.owner.as_deref(), owner);
        }
        assert!(before.named(Some("x")).is_of("x") && !before.named(None).is_of("x"));
    }

    #[test]
    fn blank_or_foreign_text_is_not_a_commitment() {
        for text in ["", "mine", "ratchet/2 x y z"] {
            assert_eq!(Commitment::read(&CommittedOffset { offset: 1, metadata: text.to_owned() }), None, "{text}");
        }
    }
}
