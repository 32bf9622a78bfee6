//! The epoch of the leader that wrote the record before an offset (KIP-320).
//!
//! An offset alone does not show whether a partition still holds what was read from it. If a replica that lagged has
//! become the leader, the partition's end falls back, and new records take offsets that were already read.
//! So the epoch of the last record read is committed with the offset, in the field that Kafka has for it, and
//! a consumer that continues from there has the broker compare first.
//!
//! Each group has its own [`Epochs`]: another may have read the same partition before it lost records, or after.
//!
//! A broker that was replaced as the leader, and does not know it yet, does not know the epoch that it is asked for.
//! Neither does any broker of a cluster that has gone back in time. So brokers are asked again for `UNKNOWN_MAX`, by
//! new clients, which look up the leader again, before that counts as a loss.
//!
//! Invariant: what is recorded for an offset holds for the partition as this group has read it. Where nothing is
//! recorded, nothing is compared: after a manual reset, for an offset committed by an earlier release, and where
//! reading begins, until a first record was read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::record::TopicPartition;

/// How long brokers may not know an epoch: longer than it takes a broker to learn that it was replaced.
pub(super) const UNKNOWN_MAX: Duration = Duration::from_secs(15);

/// The epochs known for each group.
#[derive(Default)]
pub(super) struct Groups(Mutex<HashMap<String, Arc<Epochs>>>);

impl Groups {
    /// The epochs known for this group.
    pub fn of(&self, group: &str) -> Arc<Epochs> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(group) {
            return Arc::clone(known);
        }
        Arc::clone(all.entry(group.to_owned()).or_default())
    }
}

/// The epochs known for each partition, for one group.
#[derive(Default)]
pub struct Epochs(Mutex<HashMap<TopicPartition, Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The committed offset, with the epoch of the record before it.
    committed: Option<(i64, i32)>,
    /// What was read since.
    read: EpochRanges,
    /// The offset before which the brokers asked have not known the epoch, and since when.
    unknown: Option<(i64, Instant)>,
}

impl Epochs {
    /// Records the group's committed offset as queried, with or without an epoch. Without one, nothing is to be
    /// compared.
    pub fn note_answer(&self, partition: &TopicPartition, offset: i64, epoch: Option<i32>) {
        let committed = epoch.map(|epoch| (offset, epoch));
        self.with(partition, |known| (known.committed, known.read) = (committed, EpochRanges::default()));
    }

    /// Records an offset that is being committed for the group. What was read beyond it remains known.
    pub fn note_committed(&self, partition: &TopicPartition, offset: i64, epoch: Option<i32>) {
        self.with(partition, |known| {
            known.committed = epoch.map(|epoch| (offset, epoch));
            known.read.forget_below(offset);
        });
    }

    /// Records that reading starts at an offset: anything read earlier from there on is void. Returns the epoch
    /// of the record before it, if known.
    pub fn begin(&self, partition: &TopicPartition, offset: i64) -> Option<i32> {
        self.with(partition, |known| {
            let before = known.before(offset);
            (known.committed, known.read) = (before.map(|epoch| (offset, epoch)), EpochRanges::default());
            known.unknown = known.unknown.filter(|(of, _)| *of == offset);
            before
        })
    }

    /// Records what was read since [`Epochs::begin`].
    pub(super) fn note_read(&self, partition: &TopicPartition, read: &mut EpochRanges) {
        if !read.0.is_empty() {
            self.with(partition, |known| {
                known.unknown = None;
                read.0.drain(..).for_each(|range| known.read.add(range));
            });
        }
    }

    /// Records that a broker does not know the epoch of the record before an offset. Returns whether that has been so
    /// for too long.
    pub fn note_unknown(&self, partition: &TopicPartition, offset: i64, now: Instant) -> bool {
        self.with(partition, |known| {
            let since = known.unknown.filter(|(of, _)| *of == offset).map_or(now, |(_, since)| since);
            known.unknown = Some((offset, since));
            now.duration_since(since) >= UNKNOWN_MAX
        })
    }

    /// The epoch of the record before this offset, if known.
    pub fn before(&self, partition: &TopicPartition, offset: i64) -> Option<i32> {
        self.with(partition, |known| known.before(offset))
    }

    fn with<T>(&self, partition: &TopicPartition, look: impl FnOnce(&mut Known) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(partition) {
            Some(known) => look(known),
            None => look(all.entry(partition.clone()).or_default()),
        }
    }
}

impl Known {
    fn before(&self, offset: i64) -> Option<i32> {
        let committed = self.committed.filter(|(of, _)| *of == offset).map(|(_, epoch)| epoch);
        self.read.before(offset).or(committed)
    }
}

/// Ranges of offsets that were read, each written in one leader's epoch; in order. Epochs never decrease within a log,
/// so everything between two records of the same epoch belongs to it as well.
#[derive(Debug, Default)]
pub(super) struct EpochRanges(Vec<EpochRange>);

#[derive(Clone, Copy, Debug)]
struct EpochRange {
    /// The first offset.
    first: i64,
    /// The offset after the last.
    next: i64,
    epoch: i32,
}

impl EpochRanges {
    /// Adds the offset of a record or a marker.
    pub fn read(&mut self, offset: i64, epoch: i32) {
        self.passed(offset, offset + 1, epoch);
    }

    /// Adds the offsets from `first` to the one before `next`.
    pub fn passed(&mut self, first: i64, next: i64, epoch: i32) {
        if epoch >= 0 {
            self.add(EpochRange { first, next, epoch });
        }
    }

    fn add(&mut self, new: EpochRange) {
        match self.0.last_mut() {
            Some(last) if new.epoch == last.epoch && new.next > last.next => last.next = new.next,
            Some(last) if new.next <= last.next => {}
            _ => self.0.push(new),
        }
    }

    fn before(&self, offset: i64) -> Option<i32> {
        let found = self.0.iter().find(|range| range.first < offset && offset <= range.next);
        found.map(|range| range.epoch)
    }

    fn forget_below(&mut self, offset: i64) {
        self.0.retain(|range| range.next >= offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(of: impl IntoIterator<Item = (i64, i32)>) -> EpochRanges {
        let mut all = EpochRanges::default();
        of.into_iter().for_each(|(offset, epoch)| all.read(offset, epoch));
        all
    }

    #[test]
    fn epoch_is_known_only_for_offsets_right_after_what_was_read() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        assert_eq!(epochs.before(&partition, 7), None);
        epochs.note_answer(&partition, 7, Some(3));
        assert_eq!(epochs.begin(&partition, 7), Some(3));
        // One epoch ends with a marker; the record at 10 was compacted away.
        epochs.note_read(&partition, &mut read([(7, 3), (8, 3), (9, 4), (11, 4), (12, -1)]));
        let known = |offset| epochs.before(&partition, offset);
        assert_eq!([6, 7, 8, 9, 10, 12, 13].map(known), [None, Some(3), Some(3), Some(3), Some(4), Some(4), None]);
        assert_eq!(epochs.before(&TopicPartition::new("a", 1), 7), None);
    }

    #[test]
    fn groups_do_not_share_epochs() {
        let (groups, partition) = (Groups::default(), TopicPartition::new("a", 0));
        groups.of("one").note_answer(&partition, 7, Some(3));
        groups.of("other").note_answer(&partition, 7, Some(4));
        assert_eq!(
            ["one", "other", "third"].map(|group| groups.of(group).before(&partition, 7)),
            [Some(3), Some(4), None]
        );
    }

    #[test]
    fn epochs_beyond_a_commit_remain_known() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_read(&partition, &mut read([(7, 3), (8, 3), (9, 4)]));
        epochs.note_committed(&partition, 8, Some(3));
        assert_eq!([8, 9, 10].map(|offset| epochs.before(&partition, offset)), [Some(3), Some(3), Some(4)]);
        epochs.note_committed(&partition, 10, Some(4));
        assert_eq!([8, 9, 10].map(|offset| epochs.before(&partition, offset)), [None, None, Some(4)]);
    }

    #[test]
    fn restart_forgets_what_was_read_beyond_it() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_read(&partition, &mut read([(7, 3), (8, 4)]));
        assert_eq!(epochs.begin(&partition, 8), Some(3));
        assert_eq!([8, 9].map(|offset| epochs.before(&partition, offset)), [Some(3), None]);
        assert_eq!(epochs.begin(&partition, 5), None);
        assert_eq!(epochs.before(&partition, 8), None);
    }

    #[test]
    fn unknown_epoch_is_asked_for_again_up_to_a_limit() {
        let (epochs, partition, start) = (Epochs::default(), TopicPartition::new("a", 0), Instant::now());
        epochs.note_answer(&partition, 7, Some(3));
        let unknown = |offset, after| epochs.note_unknown(&partition, offset, start + after);
        let half = UNKNOWN_MAX / 2;
        assert!(!unknown(7, Duration::ZERO) && !unknown(7, half));
        // Restores and new clients do not reset it.
        epochs.note_answer(&partition, 7, Some(3));
        assert_eq!(epochs.begin(&partition, 7), Some(3));
        assert!(unknown(7, UNKNOWN_MAX));
        // Another offset does, and so does a record that was read.
        assert!(!unknown(8, UNKNOWN_MAX));
        assert!(unknown(8, UNKNOWN_MAX * 2));
        epochs.note_read(&partition, &mut read([(8, 3)]));
        assert!(!unknown(8, UNKNOWN_MAX * 2));
        epochs.begin(&partition, 9);
        assert!(!unknown(8, UNKNOWN_MAX * 4), "another offset was read from in between");
    }

    #[test]
    fn manually_set_offset_has_no_epoch() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_answer(&partition, 7, Some(3));
        epochs.note_read(&partition, &mut read([(7, 4), (8, 4)]));
        epochs.note_answer(&partition, 9, None);
        assert_eq!([7, 9].map(|offset| epochs.before(&partition, offset)), [None, None]);
    }
}
