//! The offset that the group has committed for a partition, and the owner that its metadata names.

use crate::cluster::{CommittedOffset, OffsetCommit};
use crate::format::OffsetMetadata;
use crate::record::TopicPartition;

/// A partition's committed offset with its metadata, if ratchet committed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commitment {
    /// The next offset to read.
    pub offset: i64,
    /// The metadata of the committed offset.
    pub metadata: OffsetMetadata,
}

impl Commitment {
    /// The commitment as read; `None` if the metadata is blank or another program's.
    pub fn read(committed: &CommittedOffset) -> Option<Self> {
        let metadata = OffsetMetadata::parse(&committed.metadata).ok().flatten()?;
        Some(Self { offset: committed.offset, metadata })
    }

    /// The offset commit that writes this commitment.
    pub fn to_commit(&self, partition: &TopicPartition) -> OffsetCommit {
        let committed = CommittedOffset { offset: self.offset, metadata: self.metadata.to_string() };
        OffsetCommit { partition: partition.clone(), committed }
    }

    /// The owner's name in logs.
    pub fn owner(&self) -> &str {
        self.metadata.owner.as_deref().unwrap_or("released")
    }

    /// Whether the metadata names this owner.
    pub fn is_of(&self, id: &str) -> bool {
        self.metadata.owner.as_deref() == Some(id)
    }

    /// The same commitment with another owner in its metadata.
    pub fn with_owner(&self, owner: Option<&str>) -> Self {
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
            let committed = before.with_owner(owner).to_commit(&partition).committed;
            let after = Commitment::read(&committed).unwrap();
            assert_eq!((after.offset, after.metadata.token), (before.offset, before.metadata.token));
            assert_eq!(after.metadata.digest, before.metadata.digest);
            assert_eq!(after.metadata.owner.as_deref(), owner);
        }
        assert!(before.with_owner(Some("x")).is_of("x") && !before.with_owner(None).is_of("x"));
    }

    #[test]
    fn blank_or_foreign_metadata_is_not_a_commitment() {
        for metadata in ["", "mine", "ratchet/2 x y z"] {
            assert_eq!(
                Commitment::read(&CommittedOffset { offset: 1, metadata: metadata.to_owned() }),
                None,
                "{metadata}"
            );
        }
    }
}
