//! The epoch of the leader that wrote the record before an offset (KIP-320).
//!
//! An offset alone does not show whether a partition still holds what was read from it. If a replica that lagged has
//! become the leader, the partition's end falls back, and new records take offsets that were already read.
//! So the epoch of the last record read is committed with the offset, in the field that Kafka has for it, and
//! the broker compares epochs before a consumer continues from that offset.
//!
//! Each group has its own [`Epochs`]: one group may have read a partition before it lost records, another one after.
//!
//! A broker that was replaced as the leader without having learnt of it does not know the requested epoch. Neither does
//! any broker of a cluster that was restored from an earlier state. So new clients, which look up the leader again,
//! repeat the request for `UNKNOWN_MAX` before an unknown epoch counts as a loss of records.
//!
//! Invariant: an epoch recorded for an offset applies to the partition as this group has read it. Where no epoch is
//! recorded, none is compared: after a manual reset, for an offset committed by an earlier release, and at the start of
//! reading until a first record was read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::record::TopicPartition;

/// How long brokers may report an epoch as unknown: longer than it takes a broker to learn that it was replaced.
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
pub struct Epochs(Mutex<HashMap<TopicPartition, PartitionEpochs>>);

#[derive(Debug, Default)]
struct PartitionEpochs {
    /// The committed offset, with the epoch of the record before it.
    committed: Option<(i64, i32)>,
    /// The ranges read since that commit.
    read: EpochRanges,
    /// The offset for which brokers did not know the epoch of the record before it, and since when.
    unknown: Option<(i64, Instant)>,
}

impl Epochs {
    /// Records the group's committed offset as queried, with or without an epoch. Without an epoch, none will be
    /// compared.
    pub fn note_queried(&self, partition: &TopicPartition, offset: i64, epoch: Option<i32>) {
        let committed = epoch.map(|epoch| (offset, epoch));
        self.with_partition(partition, |known| (known.committed, known.read) = (committed, EpochRanges::default()));
    }

    /// Records an offset that is being committed for the group. The epochs of records read beyond it remain known.
    pub fn note_committed(&self, partition: &TopicPartition, offset: i64, epoch: Option<i32>) {
        self.with_partition(partition, |known| {
            known.committed = epoch.map(|epoch| (offset, epoch));
            known.read.forget_below(offset);
        });
    }

    /// Records that reading starts at an offset, and forgets all ranges read from there on. Returns the epoch
    /// of the record before the offset, if known.
    pub fn begin(&self, partition: &TopicPartition, offset: i64) -> Option<i32> {
        self.with_partition(partition, |known| {
            let before = known.before(offset);
            (known.committed, known.read) = (before.map(|epoch| (offset, epoch)), EpochRanges::default());
            known.unknown = known.unknown.filter(|(of, _)| *of == offset);
            before
        })
    }

    /// Records the ranges read since [`Epochs::begin`], and empties `read`.
    pub(super) fn note_read(&self, partition: &TopicPartition, read: &mut EpochRanges) {
        if !read.0.is_empty() {
            self.with_partition(partition, |known| {
                known.unknown = None;
                read.0.drain(..).for_each(|range| known.read.add(range));
            });
        }
    }

    /// Records that a broker does not know the epoch of the record before an offset. Returns whether the epoch has been
    /// unknown for too long.
    pub fn note_unknown(&self, partition: &TopicPartition, offset: i64, now: Instant) -> bool {
        self.with_partition(partition, |known| {
            let since = known.unknown.filter(|(of, _)| *of == offset).map_or(now, |(_, since)| since);
            known.unknown = Some((offset, since));
            now.duration_since(since) >= UNKNOWN_MAX
        })
    }

    /// The epoch of the record before this offset, if known.
    pub fn before(&self, partition: &TopicPartition, offset: i64) -> Option<i32> {
        self.with_partition(partition, |known| known.before(offset))
    }

    fn with_partition<T>(&self, partition: &TopicPartition, update: impl FnOnce(&mut PartitionEpochs) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(partition) {
            Some(known) => update(known),
            None => update(all.entry(partition.clone()).or_default()),
        }
    }
}

impl PartitionEpochs {
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

    fn ranges(records: impl IntoIterator<Item = (i64, i32)>) -> EpochRanges {
        let mut ranges = EpochRanges::default();
        records.into_iter().for_each(|(offset, epoch)| ranges.read(offset, epoch));
        ranges
    }

    #[test]
    fn epoch_is_known_only_for_offsets_right_after_read_ones() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        assert_eq!(epochs.before(&partition, 7), None);
        epochs.note_queried(&partition, 7, Some(3));
        assert_eq!(epochs.begin(&partition, 7), Some(3));
        // One epoch ends with a marker; the record at 10 was compacted away.
        epochs.note_read(&partition, &mut ranges([(7, 3), (8, 3), (9, 4), (11, 4), (12, -1)]));
        let known = |offset| epochs.before(&partition, offset);
        assert_eq!([6, 7, 8, 9, 10, 12, 13].map(known), [None, Some(3), Some(3), Some(3), Some(4), Some(4), None]);
        assert_eq!(epochs.before(&TopicPartition::new("a", 1), 7), None);
    }

    #[test]
    fn groups_do_not_share_epochs() {
        let (groups, partition) = (Groups::default(), TopicPartition::new("a", 0));
        groups.of("one").note_queried(&partition, 7, Some(3));
        groups.of("other").note_queried(&partition, 7, Some(4));
        assert_eq!(
            ["one", "other", "third"].map(|group| groups.of(group).before(&partition, 7)),
            [Some(3), Some(4), None]
        );
    }

    #[test]
    fn epochs_beyond_a_commit_remain_known() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_read(&partition, &mut ranges([(7, 3), (8, 3), (9, 4)]));
        epochs.note_committed(&partition, 8, Some(3));
        assert_eq!([8, 9, 10].map(|offset| epochs.before(&partition, offset)), [Some(3), Some(3), Some(4)]);
        epochs.note_committed(&partition, 10, Some(4));
        assert_eq!([8, 9, 10].map(|offset| epochs.before(&partition, offset)), [None, None, Some(4)]);
    }

    #[test]
    fn restart_forgets_ranges_read_beyond_its_offset() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_read(&partition, &mut ranges([(7, 3), (8, 4)]));
        assert_eq!(epochs.begin(&partition, 8), Some(3));
        assert_eq!([8, 9].map(|offset| epochs.before(&partition, offset)), [Some(3), None]);
        assert_eq!(epochs.begin(&partition, 5), None);
        assert_eq!(epochs.before(&partition, 8), None);
    }

    #[test]
    fn unknown_epoch_is_tolerated_for_a_limited_time() {
        let (epochs, partition, start) = (Epochs::default(), TopicPartition::new("a", 0), Instant::now());
        epochs.note_queried(&partition, 7, Some(3));
        let unknown = |offset, after| epochs.note_unknown(&partition, offset, start + after);
        let half = UNKNOWN_MAX / 2;
        assert!(!unknown(7, Duration::ZERO) && !unknown(7, half));
        // Restores and new clients do not reset the time.
        epochs.note_queried(&partition, 7, Some(3));
        assert_eq!(epochs.begin(&partition, 7), Some(3));
        assert!(unknown(7, UNKNOWN_MAX));
        // Another offset resets it, and so does a record that was read.
        assert!(!unknown(8, UNKNOWN_MAX));
        assert!(unknown(8, UNKNOWN_MAX * 2));
        epochs.note_read(&partition, &mut ranges([(8, 3)]));
        assert!(!unknown(8, UNKNOWN_MAX * 2));
        epochs.begin(&partition, 9);
        assert!(!unknown(8, UNKNOWN_MAX * 4), "another offset was read from in between");
    }

    #[test]
    fn manually_set_offset_has_no_epoch() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_queried(&partition, 7, Some(3));
        epochs.note_read(&partition, &mut ranges([(7, 4), (8, 4)]));
        epochs.note_queried(&partition, 9, None);
        assert_eq!([7, 9].map(|offset| epochs.before(&partition, offset)), [None, None]);
    }
}
