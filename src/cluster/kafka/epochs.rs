//! Under which leader the record before an offset was written: its epoch (KIP-320).
//!
//! An offset alone does not tell whether a partition still holds what was read of it. Where a replica that lagged has
//! become the leader, the partition's end falls back, and what is written then takes offsets that were read already.
//! So the epoch of the last record that was read is committed beside the offset, in the field that Kafka has for it, and
//! whoever reads on from there lets the broker compare first.
//!
//! Each group has [`Epochs`] of its own: another may have read the same partition before it lost records, or after.
//!
//! A broker that leads no more, and has not heard of it, does not know the epoch that it is asked for. Nor does one of a
//! cluster that has gone back in time. So that answer is asked for again for [`UNKNOWN_MAX`], by new clients, which learn
//! anew who leads, before it counts as a loss.
//!
//! Invariant: what is noted of an offset is true of the partition as this group has read it. Where nothing is noted,
//! nothing is compared: after a reset by hand, of an offset of an earlier release, and where reading begins, until a
//! first record was read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::record::TopicPartition;

/// For how long brokers may not know an epoch: longer than it takes a broker to hear that others lead.
const UNKNOWN_MAX: Duration = Duration::from_secs(15);

/// What is known for each group.
#[derive(Default)]
pub(super) struct Groups(Mutex<HashMap<String, Arc<Epochs>>>);

impl Groups {
    /// What is known for this group.
    pub fn of(&self, group: &str) -> Arc<Epochs> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(group) {
            return Arc::clone(known);
        }
        Arc::clone(all.entry(group.to_owned()).or_default())
    }
}

/// What is known of each partition, for one group.
#[derive(Default)]
pub(super) struct Epochs(Mutex<HashMap<TopicPartition, Known>>);

#[derive(Debug, Default)]
struct Known {
    /// What the group has committed, with the epoch of the record before it.
    committed: Option<(i64, i32)>,
    /// What was read since.
    read: Stretches,
    /// The offset before which no broker that was asked has known the epoch, and since when.
    unknown: Option<(i64, Instant)>,
}

impl Epochs {
    /// Notes what the group was asked for and has committed, with or without an epoch. Without one, nobody shall compare.
    pub fn note_answer(&self, partition: &TopicPartition, offset: i64, epoch: Option<i32>) {
        let committed = epoch.map(|epoch| (offset, epoch));
        self.with(partition, |known| (known.committed, known.read) = (committed, Stretches::default()));
    }

    /// Notes what is being committed for the group. What was read of the partition beyond it stays known.
    pub fn note_committed(&self, partition: &TopicPartition, offset: i64, epoch: Option<i32>) {
        self.with(partition, |known| {
            known.committed = epoch.map(|epoch| (offset, epoch));
            known.read.forget_below(offset);
        });
    }

    /// Notes that reading begins at an offset anew: what was read before from there on is of no account. Gives the epoch
    /// of the record before that, if it is known.
    pub fn begin(&self, partition: &TopicPartition, offset: i64) -> Option<i32> {
        self.with(partition, |known| {
            let before = known.before(offset);
            (known.committed, known.read) = (before.map(|epoch| (offset, epoch)), Stretches::default());
            known.unknown = known.unknown.filter(|(of, _)| *of == offset);
            before
        })
    }

    /// Notes what was read since [`Epochs::begin`].
    pub fn note_read(&self, partition: &TopicPartition, read: &mut Stretches) {
        if !read.0.is_empty() {
            self.with(partition, |known| {
                known.unknown = None;
                read.0.drain(..).for_each(|stretch| known.read.add(stretch));
            });
        }
    }

    /// Notes that a broker does not know the epoch of the record before an offset. Says whether that has been so for too
    /// long.
    pub fn note_unknown(&self, partition: &TopicPartition, offset: i64, now: Instant) -> bool {
        self.with(partition, |known| {
            let since = known.unknown.filter(|(of, _)| *of == offset).map_or(now, |(_, since)| since);
            known.unknown = Some((offset, since));
            now.duration_since(since) >= UNKNOWN_MAX
        })
    }

    /// The epoch of the record before this offset, if it is known.
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

/// Stretches of offsets that were read, each written in one leader's epoch; in order. Epochs never fall within a log, so
/// what lies between two records of one epoch is of it as well.
#[derive(Debug, Default)]
pub(super) struct Stretches(Vec<Stretch>);

#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The first offset.
    first: i64,
    /// The offset behind the last.
    next: i64,
    epoch: i32,
}

impl Stretches {
    /// Adds what stands at an offset, a record or a marker.
    pub fn read(&mut self, offset: i64, epoch: i32) {
        if epoch >= 0 {
            self.add(Stretch { first: offset, next: offset + 1, epoch });
        }
    }

    fn add(&mut self, new: Stretch) {
        match self.0.last_mut() {
            Some(last) if new.epoch == last.epoch && new.next > last.next => last.next = new.next,
            Some(last) if new.next <= last.next => {}
            _ => self.0.push(new),
        }
    }

    fn before(&self, offset: i64) -> Option<i32> {
        let found = self.0.iter().find(|stretch| stretch.first < offset && offset <= stretch.next);
        found.map(|stretch| stretch.epoch)
    }

    fn forget_below(&mut self, offset: i64) {
        self.0.retain(|stretch| stretch.next >= offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(of: impl IntoIterator<Item = (i64, i32)>) -> Stretches {
        let mut all = Stretches::default();
        of.into_iter().for_each(|(offset, epoch)| all.read(offset, epoch));
        all
    }

    #[test]
    fn an_epoch_is_known_for_the_offset_that_it_stands_before_and_no_other() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        assert_eq!(epochs.before(&partition, 7), None);
        epochs.note_answer(&partition, 7, Some(3));
        assert_eq!(epochs.begin(&partition, 7), Some(3));
        // One epoch ends with a marker; what stands at 10 was compacted away.
        epochs.note_read(&partition, &mut read([(7, 3), (8, 3), (9, 4), (11, 4), (12, -1)]));
        let known = |offset| epochs.before(&partition, offset);
        assert_eq!([6, 7, 8, 9, 10, 12, 13].map(known), [None, Some(3), Some(3), Some(3), Some(4), Some(4), None]);
        assert_eq!(epochs.before(&TopicPartition::new("a", 1), 7), None);
    }

    #[test]
    fn groups_do_not_know_what_others_have_read() {
        let (groups, partition) = (Groups::default(), TopicPartition::new("a", 0));
        groups.of("one").note_answer(&partition, 7, Some(3));
        groups.of("other").note_answer(&partition, 7, Some(4));
        assert_eq!(
            ["one", "other", "third"].map(|group| groups.of(group).before(&partition, 7)),
            [Some(3), Some(4), None]
        );
    }

    #[test]
    fn what_was_read_beyond_a_commit_stays_known() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_read(&partition, &mut read([(7, 3), (8, 3), (9, 4)]));
        epochs.note_committed(&partition, 8, Some(3));
        assert_eq!([8, 9, 10].map(|offset| epochs.before(&partition, offset)), [Some(3), Some(3), Some(4)]);
        epochs.note_committed(&partition, 10, Some(4));
        assert_eq!([8, 9, 10].map(|offset| epochs.before(&partition, offset)), [None, None, Some(4)]);
    }

    #[test]
    fn what_is_read_anew_was_not_read_before() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_read(&partition, &mut read([(7, 3), (8, 4)]));
        assert_eq!(epochs.begin(&partition, 8), Some(3));
        assert_eq!([8, 9].map(|offset| epochs.before(&partition, offset)), [Some(3), None]);
        assert_eq!(epochs.begin(&partition, 5), None);
        assert_eq!(epochs.before(&partition, 8), None);
    }

    #[test]
    fn an_epoch_that_brokers_do_not_know_is_asked_for_until_it_was_long_enough() {
        let (epochs, partition, began) = (Epochs::default(), TopicPartition::new("a", 0), Instant::now());
        epochs.note_answer(&partition, 7, Some(3));
        let unknown = |offset, after| epochs.note_unknown(&partition, offset, began + after);
        let half = UNKNOWN_MAX / 2;
        assert!(!unknown(7, Duration::ZERO) && !unknown(7, half));
        // Restores and new clients do not end it.
        epochs.note_answer(&partition, 7, Some(3));
        assert_eq!(epochs.begin(&partition, 7), Some(3));
        assert!(unknown(7, UNKNOWN_MAX));
        // Another offset does, and something that was read.
        assert!(!unknown(8, UNKNOWN_MAX));
        assert!(unknown(8, UNKNOWN_MAX * 2));
        epochs.note_read(&partition, &mut read([(8, 3)]));
        assert!(!unknown(8, UNKNOWN_MAX * 2));
        epochs.begin(&partition, 9);
        assert!(!unknown(8, UNKNOWN_MAX * 4), "it has been read from elsewhere meanwhile");
    }

    #[test]
    fn an_offset_that_was_set_by_hand_is_compared_with_nothing() {
        let (epochs, partition) = (Epochs::default(), TopicPartition::new("a", 0));
        epochs.note_answer(&partition, 7, Some(3));
        epochs.note_read(&partition, &mut read([(7, 4), (8, 4)]));
        epochs.note_answer(&partition, 9, None);
        assert_eq!([7, 9].map(|offset| epochs.before(&partition, offset)), [None, None]);
    }
}
