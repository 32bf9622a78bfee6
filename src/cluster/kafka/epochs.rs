//! Under which leader the record before an offset was written: its epoch (KIP-320).
//!
//! An offset alone does not tell whether a partition still holds what was read of it. Where a replica that lagged has
//! become the leader, the partition's end falls back, and what is written then takes offsets that were read already.
//! So the epoch of the last record that was read is committed beside the offset, in the field that Kafka has for it, and
//! whoever reads on from there lets the broker compare first.
//!
//! Invariant: what is noted of an offset is true of the partition as it was read; where nothing is noted, nothing is
//! compared: after a reset by hand, of an offset of an earlier release, of one that an isolated task has committed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::record::TopicPartition;

/// What is known of each partition.
#[derive(Default)]
pub(super) struct Epochs(Mutex<HashMap<TopicPartition, Known>>);

/// Offsets, each with the epoch of the record before it.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// What the group has committed.
    committed: Option<(i64, i32)>,
    /// Where the member stands.
    read: Option<(i64, i32)>,
}

impl Epochs {
    /// Notes what the group has committed, with or without an epoch. Without one, nobody shall compare.
    pub fn note_committed(&self, partition: &TopicPartition, offset: i64, epoch: Option<i32>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(partition.clone()).or_default();
        known.committed = epoch.map(|epoch| (offset, epoch));
        known.read = None;
    }

    /// Notes where a member stands that has read up to there.
    pub fn note_read(&self, partition: &TopicPartition, offset: i64, epoch: i32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(partition.clone()).or_default().read = Some((offset, epoch));
    }

    /// The epoch of the record before this offset, if it is known.
    pub fn before(&self, partition: &TopicPartition, offset: i64) -> Option<i32> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(partition)?;
        let (_, epoch) = [known.read, known.committed].into_iter().flatten().find(|(of, _)| *of == offset)?;
        Some(epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_known_for_the_offset_that_it_stands_before_and_no_other() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        assert_eq!(epochs.before(&partition, 7), None);
        epochs.note_committed(&partition, 7, Some(3));
        epochs.note_read(&partition, 9, 4);
        let known = |offset| epochs.before(&partition, offset);
        assert_eq!([known(7), known(8), known(9)], [Some(3), None, Some(4)]);
        assert_eq!(epochs.before(&TopicPartition::new("a", 1), 7), None);
    }

    #[test]
    fn an_offset_that_was_set_by_hand_is_compared_with_nothing() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_committed(&partition, 7, Some(3));
        epochs.note_read(&partition, 9, 4);
        epochs.note_committed(&partition, 9, None);
        assert_eq!([7, 9].map(|offset| epochs.before(&partition, offset)), [None, None]);
    }
}
