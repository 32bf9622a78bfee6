//! A partition as its leader keeps it: batches and markers at rising offsets.
//!
//! Invariants: offsets rise; nothing at or beyond the first open transaction, or one whose marker is not below the high
//! watermark, is stable (`UnifiedLog.fetchLastStableOffsetMetadata`).

use std::collections::{BTreeMap, BTreeSet};

use super::batch::{Batch, Head, Rec};

/// An aborted transaction (`AbortedTxn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    pub producer: i64,
    pub first: i64,
    /// The marker's offset.
    pub last: i64,
}

/// A partition's log. Cheap to clone: batches share their bytes.
#[derive(Clone, Debug, Default)]
pub struct Log {
    batches: Vec<Batch>,
    start: i64,
    end: i64,
    high: i64,
    /// Where the open transaction of a producer begins.
    open: BTreeMap<i64, i64>,
    /// Transactions that have ended, while their marker is not below the high watermark: first offset and marker.
    unreplicated: Vec<(i64, i64)>,
    aborted: Vec<Aborted>,
    /// Leaders' epochs, and the end of the log when each began (`LeaderEpochFileCache`).
    epochs: Vec<(i32, i64)>,
    /// What was known of them, each time that this changed.
    known: Vec<Vec<(i32, i64)>>,
}

/// What a read found.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Batches; the last one may be cut.
    pub bytes: Vec<u8>,
    pub aborted: Vec<Aborted>,
}

impl Log {
    /// The first retained offset.
    pub fn start(&self) -> i64 {
        self.start
    }

    /// The offset after the last batch.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// The high watermark.
    pub fn high(&self) -> i64 {
        self.high
    }

    /// The last stable offset.
    pub fn stable(&self) -> i64 {
        let open = self.open.values().copied();
        let unstable = open.chain(self.unreplicated.iter().map(|(first, _)| *first)).min();
        unstable.map_or(self.high, |first| first.max(self.start).min(self.high))
    }

    /// The batches.
    pub fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// The producers with an open transaction.
    pub fn open(&self) -> Vec<i64> {
        self.open.keys().copied().collect()
    }

    /// A leader begins (`maybeAssignEpochStartOffset`).
    pub fn begin_epoch(&mut self, epoch: i32) {
        if self.epochs.last().is_none_or(|(last, _)| *last < epoch) {
            self.epochs.push((epoch, self.end));
            self.known.push(self.epochs.clone());
        }
    }

    /// A replica that becomes the leader knows only epochs of batches that it has fetched.
    pub fn forget_unused_epochs(&mut self) {
        let batches = &self.batches;
        self.epochs.retain(|(epoch, _)| batches.iter().any(|batch| batch.epoch == *epoch));
    }

    /// Whether a leader of epoch `from` or a later one could not tell that `position`, read in `epoch`, is beyond that
    /// epoch's end: the cleaner, or a deletion, has removed what was written in the next epochs before it was asked.
    pub fn could_hide(&self, epoch: i32, position: i64, from: i32) -> bool {
        let leads = |known: &&Vec<(i32, i64)>| known.last().is_some_and(|(of, _)| *of >= from && *of > epoch);
        let next = |known: &Vec<(i32, i64)>| known.iter().find(|(of, _)| *of > epoch).map(|(_, start)| *start);
        self.known.iter().filter(leads).any(|known| next(known).is_some_and(|start| start >= position))
    }

    /// The largest epoch up to this one, and where it ends; -1 for both if the epoch is not known
    /// (`LeaderEpochFileCache.endOffsetFor`).
    pub fn end_of_epoch(&self, epoch: i32) -> (i32, i64) {
        let Some((latest, _)) = self.epochs.last() else { return (-1, -1) };
        if epoch == *latest {
            return (epoch, self.end);
        }
        let Some(higher) = self.epochs.iter().find(|(of, _)| *of > epoch) else { return (-1, -1) };
        let floor = self.epochs.iter().rev().find(|(of, _)| *of <= epoch);
        (floor.map_or(epoch, |(of, _)| *of), higher.1)
    }

    /// Appends a producer's batch; returns its first offset.
    pub fn append(&mut self, epoch: i32, batch: &Batch) -> i64 {
        let base = self.end;
        let placed = batch.placed(base, epoch);
        if placed.transactional {
            self.open.entry(placed.producer).or_insert(base);
        }
        self.push(placed);
        base
    }

    /// Appends a batch of these records, numbered from the log's end.
    pub fn write(&mut self, epoch: i32, head: &Head, mut records: Vec<Rec>) -> i64 {
        let base = self.end;
        (base..).zip(&mut records).for_each(|(offset, record)| record.offset = offset);
        let last = base + records.len() as i64 - 1;
        self.append(epoch, &Batch::build(head, base, last, epoch, records, None))
    }

    /// Appends a transaction's marker; it takes an offset whether or not a transaction is open.
    pub fn mark(&mut self, epoch: i32, producer: i64, producer_epoch: i16, commit: bool, timestamp: i64) {
        let at = self.end;
        if let Some(first) = self.open.remove(&producer) {
            self.unreplicated.push((first, at));
            if !commit {
                self.aborted.push(Aborted { producer, first, last: at });
            }
        }
        self.push(Batch::marker(producer, producer_epoch, commit, at, epoch, timestamp));
    }

    fn push(&mut self, batch: Batch) {
        self.begin_epoch(batch.epoch);
        self.end = batch.last + 1;
        self.batches.push(batch);
    }

    /// Followers have fetched up to `to`.
    pub fn replicate(&mut self, to: i64) {
        self.high = self.high.max(to.min(self.end));
        let high = self.high;
        self.unreplicated.retain(|(_, marker)| *marker >= high);
    }

    /// Reads from `from` on, at most `max` bytes, of which the last batch may be cut anywhere. `whole`: the first batch
    /// is returned whole however large it is (KIP-74). `None`: OFFSET_OUT_OF_RANGE.
    pub fn read(&self, from: i64, max: usize, whole: bool, committed: bool) -> Option<Read> {
        if from < self.start || from > self.end {
            return None;
        }
        let bound = if committed { self.stable() } else { self.high };
        let first = self.batches.partition_point(|batch| batch.last < from);
        let mut read = Read::default();
        let mut upper = from;
        for batch in self.batches[first..].iter().take_while(|batch| batch.last < bound) {
            if read.bytes.len() >= max && !(whole && read.bytes.is_empty()) {
                break;
            }
            let room = max.saturating_sub(read.bytes.len());
            if read.bytes.is_empty() && batch.bytes.len() > room {
                if whole {
                    read.bytes.extend_from_slice(&batch.bytes);
                    upper = batch.last + 1;
                }
                // Otherwise an incomplete first batch is left out (`ReplicaManager.readFromLog`, since Fetch v3).
                break;
            }
            read.bytes.extend_from_slice(&batch.bytes[..batch.bytes.len().min(room)]);
            upper = batch.last + 1;
        }
        if committed {
            let overlaps = |aborted: &&Aborted| aborted.last >= from && aborted.first < upper;
            read.aborted = self.aborted.iter().filter(overlaps).copied().collect();
        }
        Some(read)
    }

    /// Damages a batch for good, by its number: a bit of its last record.
    pub fn damage(&mut self, number: usize) {
        let batch = &mut self.batches[number];
        let mut bytes = batch.bytes.to_vec();
        bytes.last_mut().into_iter().for_each(|byte| *byte ^= 1);
        batch.bytes = bytes.into();
    }

    /// Loses everything from `to` on, which begins a batch: a replica that never had it becomes the leader.
    pub fn truncate(&mut self, to: i64) {
        self.batches.retain(|batch| batch.last < to);
        self.end = self.end.min(to);
        self.high = self.high.min(to);
        self.aborted.retain(|aborted| aborted.last < to);
        self.epochs.retain(|(_, start)| *start < to);
        self.unreplicated.clear();
        self.open.clear();
        for batch in &self.batches {
            match batch.marker {
                Some(_) => drop(self.open.remove(&batch.producer)),
                None if batch.transactional => drop(self.open.entry(batch.producer).or_insert(batch.base)),
                None => {}
            }
        }
    }

    /// The offsets at which a cut would split no transaction and no batch.
    pub fn seams(&self) -> Vec<i64> {
        let (mut open, mut seams) = (BTreeSet::new(), vec![self.start]);
        for batch in &self.batches {
            match batch.marker {
                Some(_) => drop(open.remove(&batch.producer)),
                None if batch.transactional => drop(open.insert(batch.producer)),
                None => {}
            }
            if open.is_empty() {
                seams.push(batch.last + 1);
            }
        }
        seams
    }

    /// Removes everything below `offset`, but never a part of a batch (`DeleteRecords` moves the start into one; what
    /// it returns then begins before).
    pub fn delete_before(&mut self, offset: i64) {
        self.start = self.start.max(offset.min(self.high));
        let start = self.start;
        self.batches.retain(|batch| batch.last >= start);
        self.aborted.retain(|aborted| aborted.last >= start);
        // `LeaderEpochFileCache.truncateFromStart`.
        let begun = self.epochs.iter().rposition(|(_, from)| *from <= start);
        if let Some(index) = begun {
            self.epochs.drain(..index);
            self.epochs[0].1 = start;
            self.known.push(self.epochs.clone());
        }
    }

    /// Whether the transaction that wrote a batch was aborted, by its marker; for the judge, apart from the index that
    /// readers get. `None` while it is open.
    pub fn is_aborted(&self, batch: &Batch) -> Option<bool> {
        if !batch.transactional {
            return Some(false);
        }
        let later = self
            .batches
            .iter()
            .find(|other| other.marker.is_some() && other.producer == batch.producer && other.base > batch.base);
        later.map(|marker| marker.marker == Some(false))
    }

    /// Runs the cleaner over everything below `dirty_end` that is stable (`Cleaner.cleanInto`): aborted records go, and
    /// records that `stays` does not want. What remains of a batch keeps its range of offsets; one without records
    /// goes, or remains empty if `keeps_empty` (as the last of its producer does). A marker goes once no batch of its
    /// transaction is left and `keeps_empty` does not want it.
    pub fn compact(
        &mut self,
        dirty_end: i64,
        mut stays: impl FnMut(&Rec) -> bool,
        mut keeps_empty: impl FnMut(&Batch) -> bool,
    ) {
        let bound = dirty_end.min(self.stable());
        let fates: Vec<bool> = self.batches.iter().map(|batch| self.is_aborted(batch) == Some(true)).collect();
        let mut with_data = BTreeSet::new();
        let mut kept = Vec::with_capacity(self.batches.len());
        let mut gone = Vec::new();
        for (batch, is_aborted) in std::mem::take(&mut self.batches).into_iter().zip(fates) {
            if batch.last >= bound {
                kept.push(batch);
            } else if batch.marker.is_some() {
                let has_data = with_data.remove(&batch.producer);
                if has_data || keeps_empty(&batch) {
                    kept.push(batch.clone());
                }
                if !has_data {
                    gone.push(batch.base);
                }
            } else {
                let left: Vec<Rec> =
                    batch.records.iter().filter(|record| !is_aborted && stays(record)).cloned().collect();
                if left.is_empty() && !keeps_empty(&batch) {
                    continue;
                }
                with_data.insert(batch.producer);
                let same = left.len() == batch.records.len();
                let thin = || Batch::build(&batch.head(), batch.base, batch.last, batch.epoch, left, None);
                kept.push(if same { batch } else { thin() });
            }
        }
        self.batches = kept;
        // `CleanedTransactionMetadata`: the index loses what has no batch left.
        self.aborted.retain(|aborted| !gone.contains(&aborted.last));
    }
}
