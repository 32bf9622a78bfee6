//! What a group has committed: plainly, or by transactions whose markers decide later.
//!
//! Both are records of one log. A pending offset takes effect when its marker is written, unless a record of the
//! same partition was appended behind it meanwhile (`OffsetMetadataManager.replayEndTransactionMarker`,
//! KAFKA-5600 and its like: the later append wins, not the later marker).

use std::collections::BTreeMap;

use super::{Code, Partition};

/// A committed offset and the text beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: i64,
    pub metadata: String,
}

/// With where it was appended.
type Placed = (u64, Committed);

/// A group's offsets.
#[derive(Debug, Default)]
pub struct Offsets {
    committed: BTreeMap<Partition, Placed>,
    pending: BTreeMap<i64, BTreeMap<Partition, Placed>>,
    /// The highest epoch seen of each producer: it is a log like any other.
    epochs: BTreeMap<i64, i16>,
    appended: u64,
}

impl Offsets {
    pub fn commit(&mut self, offsets: &[(Partition, Committed)]) {
        for (partition, committed) in offsets {
            self.appended += 1;
            self.committed.insert(partition.clone(), (self.appended, committed.clone()));
        }
    }

    pub fn commit_transactional(
        &mut self,
        producer: i64,
        epoch: i16,
        offsets: &[(Partition, Committed)],
    ) -> Result<(), Code> {
        let known = self.epochs.entry(producer).or_insert(epoch);
        if epoch < *known {
            return Err(Code::InvalidProducerEpoch);
        }
        *known = epoch;
        for (partition, committed) in offsets {
            self.appended += 1;
            let placed = (self.appended, committed.clone());
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
            if self.committed.get(&partition).is_none_or(|known| known.0 < placed.0) {
                self.committed.insert(partition, placed);
            }
        }
    }

    /// Whether a transaction is pending on the partition (UNSTABLE_OFFSET_COMMIT, KIP-447).
    pub fn is_pending(&self, partition: &Partition) -> bool {
        self.pending.values().any(|pending| pending.contains_key(partition))
    }

    pub fn get(&self, partition: &Partition) -> Option<&Committed> {
        self.committed.get(partition).map(|(_, committed)| committed)
    }

    /// Forgets a deleted topic (`OffsetMetadataManager.onPartitionsDeleted`; what is pending there, too).
    pub fn forget_topic(&mut self, topic: &str) {
        self.committed.retain(|partition, _| &*partition.topic != topic);
        self.pending.values_mut().for_each(|pending| pending.retain(|partition, _| &*partition.topic != topic));
    }
}
