//! A group's committed offsets: committed plainly, or by transactions whose markers decide later.
//!
//! Both are records of one log. A pending offset takes effect when its marker is written, unless a record of the same
//! partition was appended after it meanwhile (`OffsetMetadataManager.replayEndTransactionMarker`, KAFKA-5600 and
//! similar: the later append wins, not the later marker).

use std::collections::BTreeMap;

use super::{Code, Partition};

/// A committed offset and the text beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: i64,
    pub metadata: String,
}

/// An offset, and its place in the log.
#[derive(Clone, Debug)]
struct Placed {
    /// Where it was appended.
    at: u64,
    committed: Committed,
    /// The group's generation when its coordinator took it.
    generation: i32,
    /// Whether the request arrived after its connection had broken, and the client had sent it again.
    late: bool,
}

/// A group's offsets.
#[derive(Debug, Default)]
pub struct Offsets {
    committed: BTreeMap<Partition, Placed>,
    pending: BTreeMap<i64, BTreeMap<Partition, Placed>>,
    /// The highest epoch seen of each producer, as in any log.
    epochs: BTreeMap<i64, i16>,
    appended: u64,
    /// What transactions have committed so far, and in which generation it was taken.
    decided: Vec<(Partition, Committed, i32)>,
    /// What each partition had before its last transaction.
    former: BTreeMap<Partition, Placed>,
    repeated: Vec<Repeated>,
}

/// An offset that was committed again, by requests that arrived late and formed a transaction of their own or joined
/// a later one of their producer (the first protocol does not keep them out, which is why there is KIP-890); or one
/// that a coordinator has returned to.
#[derive(Debug)]
struct Repeated {
    partition: Partition,
    committed: Committed,
    /// The offset that it replaced.
    instead_of: i64,
    by: Repeater,
}

/// Who has committed something again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeater {
    LateRequests,
    Coordinator,
}

impl Offsets {
    pub fn commit(&mut self, offsets: &[(Partition, Committed)]) {
        for (partition, committed) in offsets {
            self.appended += 1;
            let placed = Placed { at: self.appended, committed: committed.clone(), generation: -1, late: false };
            self.committed.insert(partition.clone(), placed);
            self.former.remove(partition);
        }
    }

    pub fn commit_transactional(
        &mut self,
        (producer, epoch): (i64, i16),
        offsets: &[(Partition, Committed)],
        (generation, late): (i32, bool),
    ) -> Result<(), Code> {
        let known = self.epochs.entry(producer).or_insert(epoch);
        if epoch < *known {
            return Err(Code::InvalidProducerEpoch);
        }
        *known = epoch;
        for (partition, committed) in offsets {
            self.appended += 1;
            let placed = Placed { at: self.appended, committed: committed.clone(), generation, late };
            self.pending.entry(producer).or_default().insert(partition.clone(), placed);
        }
        Ok(())
    }

    /// A marker was written.
    pub fn end(&mut self, producer: i64, epoch: i16, commit: bool) {
        let known = self.epochs.entry(producer).or_insert(epoch);
        if epoch < *known {
            return;
        }
        *known = epoch;
        let pending = self.pending.remove(&producer).unwrap_or_default();
        if !commit {
            return;
        }
        for (partition, placed) in pending {
            let is_same =
                |(of, committed, _): &(Partition, Committed, i32)| (of, committed) == (&partition, &placed.committed);
            let is_again = placed.late && self.decided.iter().any(is_same);
            self.decided.push((partition.clone(), placed.committed.clone(), placed.generation));
            if self.committed.get(&partition).is_none_or(|known| known.at < placed.at) {
                if is_again {
                    self.repeat(&partition, &placed.committed, Repeater::LateRequests);
                }
                if let Some(former) = self.committed.insert(partition.clone(), placed) {
                    self.former.insert(partition, former);
                }
            }
        }
    }

    /// A new coordinator shows its log without the last transaction of each partition; what it knows of the group's
    /// members stays. Returns the number of partitions.
    pub fn fall_back(&mut self) -> usize {
        let former = std::mem::take(&mut self.former);
        let count = former.len();
        for (partition, placed) in former {
            self.repeat(&partition, &placed.committed, Repeater::Coordinator);
            self.committed.insert(partition, placed);
        }
        count
    }

    /// Notes what replaces the committed offset.
    fn repeat(&mut self, partition: &Partition, committed: &Committed, by: Repeater) {
        let instead_of = self.get(partition).map_or(0, |known| known.offset);
        self.repeated.push(Repeated { partition: partition.clone(), committed: committed.clone(), instead_of, by });
    }

    /// Whether a transaction is pending on the partition (UNSTABLE_OFFSET_COMMIT, KIP-447).
    pub fn is_pending(&self, partition: &Partition) -> bool {
        self.pending.values().any(|pending| pending.contains_key(partition))
    }

    pub fn get(&self, partition: &Partition) -> Option<&Committed> {
        self.committed.get(partition).map(|placed| &placed.committed)
    }

    /// All that transactions have committed, in order, and in which generation it was taken.
    pub fn decided(&self) -> impl Iterator<Item = (&Committed, i32)> {
        self.decided.iter().map(|(_, committed, generation)| (committed, *generation))
    }

    /// Who has committed this again, if anybody has.
    pub fn repeated_by(&self, partition: &Partition, committed: &Committed) -> Option<Repeater> {
        self.repeats_of(partition).find(|repeated| repeated.committed == *committed).map(|repeated| repeated.by)
    }

    /// Whether an offset lies where the partition's offsets were committed again after going back.
    pub fn is_committed_again(&self, partition: &Partition, offset: i64) -> bool {
        self.repeats_of(partition).any(|repeated| (repeated.committed.offset..repeated.instead_of).contains(&offset))
    }

    fn repeats_of(&self, partition: &Partition) -> impl Iterator<Item = &Repeated> {
        self.repeated.iter().filter(move |repeated| repeated.partition == *partition)
    }

    /// Drops the offsets of a deleted topic (`OffsetMetadataManager.onPartitionsDeleted`), pending ones too.
    pub fn forget_topic(&mut self, topic: &str) {
        self.committed.retain(|partition, _| &*partition.topic != topic);
        self.former.retain(|partition, _| &*partition.topic != topic);
        self.pending.values_mut().for_each(|pending| pending.retain(|partition, _| &*partition.topic != topic));
    }
}
