//! Proof of membership in a group, with which both data paths commit offsets.

use std::sync::Arc;

use super::epochs::Epochs;
use super::native::GroupMetadata;

/// Proof of membership at some moment. See [`crate::cluster::Member::metadata`].
pub struct Metadata {
    proof: GroupMetadata,
    epochs: Arc<Epochs>,
}

impl Metadata {
    /// A member's proof, with the epochs known for its group.
    pub(super) fn new(proof: GroupMetadata, epochs: Arc<Epochs>) -> Self {
        Self { proof, epochs }
    }

    /// The epochs known for the group.
    pub(super) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// librdkafka's proof.
    pub(super) fn proof(&self) -> &GroupMetadata {
        &self.proof
    }
}
