//! A partition: records and markers at rising offsets, the producer state that the leader keeps, and leaders' epochs.
//!
//! Invariants: offsets are never reused; a producer has at most one open transaction; a read_committed reader gets
//! nothing at or beyond the first open transaction, or one whose marker is not below the high watermark.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Bytes, Code, Time};

mod cleaning;

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Record {
    /// Milliseconds since the epoch.
    pub timestamp: Option<i64>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    /// In the client's own format.
    pub headers: Bytes,
}

/// The writer of a batch, and the batch's first sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    pub producer: i64,
    pub epoch: i16,
    pub sequence: i32,
}

/// Which records a reader gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    Uncommitted,
    Committed,
}

/// How a batch's records are compressed (attributes, bits 0 to 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    None,
    Gzip,
    Lz4,
}

/// A batch, which readers get as a whole. It keeps its range of offsets whatever the cleaner removes of it.
#[derive(Clone, Debug)]
pub struct Batch {
    pub base: i64,
    pub last: i64,
    pub packing: Packing,
    pub is_damaged: bool,
}

#[derive(Clone, Debug)]
enum Body {
    Record(Record),
    /// `stamp` is the timestamp that the leader gave it; 0 without one.
    Marker {
        commits: bool,
        stamp: i64,
    },
    /// What is left of a batch of which the cleaner has removed everything.
    Emptied,
}

#[derive(Clone, Debug)]
struct Entry {
    offset: i64,
    /// The transactional producer that wrote it.
    producer: Option<i64>,
    /// The epoch of the leader that appended it.
    epoch: i32,
    body: Body,
    /// When a tombstone, or a marker without records, may be removed (KIP-534).
    horizon: Option<Time>,
    batch: Option<Arc<Batch>>,
}

impl Entry {
    /// The last offset of its batch.
    fn reaches(&self) -> i64 {
        self.batch.as_ref().map_or(self.offset, |batch| batch.last)
    }
}

/// How many batches of a producer are kept to detect duplicates (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
const BATCHES: usize = 5;

/// A producer's state on the leader (`ProducerStateEntry`).
#[derive(Clone, Debug)]
struct Known {
    epoch: i16,
    /// First and last sequence number and base offset of the latest batches under this epoch.
    batches: VecDeque<(i32, i32, i64)>,
    /// Where its open transaction started.
    open: Option<i64>,
}

/// An aborted transaction (`AbortedTxn`).
#[derive(Clone, Debug)]
struct Aborted {
    producer: i64,
    first: i64,
    /// The marker's offset.
    last: i64,
}

/// A partition's log. Cheap to clone: records share their bytes.
#[derive(Clone, Debug)]
pub struct Log {
    entries: VecDeque<Entry>,
    start: i64,
    end: i64,
    /// The high watermark.
    high: i64,
    /// Whether followers fetch only when [`Log::replicate`] says so, not at once.
    pub lags: bool,
    /// Whether it is made of batches. If not, records are put into batches as they are read.
    is_batched: bool,
    known: BTreeMap<i64, Known>,
    aborted: Vec<Aborted>,
    /// The latest timestamp of a marker from the leader, milliseconds since the epoch.
    stamped: Option<i64>,
    /// Transactions that have ended, while their marker is not below the high watermark: first offset and marker.
    unreplicated: Vec<(i64, i64)>,
    /// Leaders' epochs, and the end of the log when each began (`LeaderEpochFileCache`).
    epochs: Vec<(i32, i64)>,
    /// What was known of them, each time that this changed.
    known_epochs: Vec<Vec<(i32, i64)>>,
}

impl Default for Log {
    fn default() -> Self {
        let epochs = vec![(0, 0)];
        Self {
            entries: VecDeque::new(),
            start: 0,
            end: 0,
            high: 0,
            lags: false,
            is_batched: false,
            known: BTreeMap::new(),
            aborted: Vec::new(),
            stamped: None,
            unreplicated: Vec::new(),
            known_epochs: vec![epochs.clone()],
            epochs,
        }
    }
}

/// What stands at an offset.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    Record(&'a Record),
    Marker {
        commits: bool,
        stamp: i64,
    },
    /// A batch is empty.
    Nothing,
}

/// An entry of the log, as it is made part of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    pub offset: i64,
    pub producer: Option<i64>,
    pub epoch: i32,
    pub batch: Option<&'a Arc<Batch>>,
    pub found: Found<'a>,
}

impl Log {
    /// The first retained offset.
    pub fn start(&self) -> i64 {
        self.start
    }

    /// The leader's epoch.
    pub fn epoch(&self) -> i32 {
        self.epochs.last().map_or(0, |(epoch, _)| *epoch)
    }

    /// The epoch of the leader that wrote what stood at an offset.
    pub fn epoch_of(&self, offset: i64) -> i32 {
        self.epochs.iter().rev().find(|(_, begin)| *begin <= offset).map_or(0, |(epoch, _)| *epoch)
    }

    /// The largest epoch up to this one, and where it ends; -1 for both if the epoch is not known
    /// (`LeaderEpochFileCache.endOffsetFor`).
    pub fn end_of_epoch(&self, epoch: i32) -> (i32, i64) {
        if epoch == self.epoch() {
            return (epoch, self.end);
        }
        let Some(higher) = self.epochs.iter().find(|(of, _)| *of > epoch) else { return (-1, -1) };
        let floor = self.epochs.iter().rev().find(|(of, _)| *of <= epoch);
        (floor.map_or(epoch, |(of, _)| *of), higher.1)
    }

    /// A leader begins (`maybeAssignEpochStartOffset`).
    pub fn begin_epoch(&mut self, epoch: i32) {
        self.epochs.push((epoch, self.end));
        self.known_epochs.push(self.epochs.clone());
    }

    /// A replica that becomes the leader knows only epochs of what it has fetched.
    pub fn forget_unused_epochs(&mut self) {
        let entries = &self.entries;
        self.epochs.retain(|(epoch, _)| entries.iter().any(|entry| entry.epoch == *epoch));
    }

    /// Whether a leader of epoch `from` or a later one could not tell that `position`, read in `epoch`, is beyond that
    /// epoch's end: the cleaner, or a deletion, has removed what was written in the next epochs before it was asked.
    pub fn could_hide(&self, epoch: i32, position: i64, from: i32) -> bool {
        let leads = |known: &&Vec<(i32, i64)>| known.last().is_some_and(|(of, _)| *of >= from && *of > epoch);
        let next = |known: &Vec<(i32, i64)>| known.iter().find(|(of, _)| *of > epoch).map(|(_, start)| *start);
        self.known_epochs.iter().filter(leads).any(|known| next(known).is_some_and(|start| start >= position))
    }

    /// Loses everything from `offset` on, as when a replica that never had it becomes leader; its epoch is the next one.
    pub fn lose_tail(&mut self, offset: i64) {
        let epoch = self.epoch() + 1;
        self.truncate(offset);
        self.begin_epoch(epoch);
    }

    /// Loses everything from `offset` on. Producer state is rebuilt from the remaining records
    /// (`ProducerStateManager.truncateAndReload`).
    pub fn truncate(&mut self, offset: i64) {
        self.epochs.retain(|(_, begin)| *begin < offset);
        self.entries.retain(|entry| entry.reaches() < offset);
        self.end = self.end.min(offset);
        self.high = self.high.min(offset);
        self.aborted.retain(|aborted| aborted.last < offset);
        self.unreplicated.retain(|(_, marker)| *marker < offset);
        let entries = &self.entries;
        self.known.retain(|producer, known| {
            let mut own = entries.iter().rev().filter(|entry| entry.producer == Some(*producer)).peekable();
            let is_known = own.peek().is_some();
            known.batches.retain(|(_, _, base)| *base < offset);
            let is_data = |entry: &&Entry| !matches!(entry.body, Body::Marker { .. });
            known.open = own.take_while(is_data).last().map(|entry| entry.offset);
            is_known
        });
    }

    /// The offsets at which a cut would split no transaction and no batch.
    pub fn seams(&self) -> Vec<i64> {
        let (mut open, mut seams) = (BTreeSet::new(), vec![self.start]);
        for entry in &self.entries {
            match (&entry.body, entry.producer) {
                (Body::Marker { .. }, Some(producer)) => drop(open.remove(&producer)),
                (_, Some(producer)) => drop(open.insert(producer)),
                (_, None) => {}
            }
            if open.is_empty() {
                seams.push(entry.reaches() + 1);
            }
        }
        seams.dedup();
        seams
    }

    /// Where each batch ends.
    pub fn batch_ends(&self) -> impl Iterator<Item = i64> {
        self.entries.iter().map(|entry| entry.reaches() + 1)
    }

    /// The offset after the last record or marker.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// The high watermark: the end, unless followers lag.
    pub fn high(&self) -> i64 {
        self.high
    }

    /// Followers have fetched up to `to`.
    pub fn replicate(&mut self, to: i64) {
        self.high = self.high.max(to.min(self.end));
        let high = self.high;
        self.unreplicated.retain(|(_, marker)| *marker >= high);
    }

    /// The last stable offset: no transaction that started below it is open, or ended beyond the high watermark
    /// (`UnifiedLog.fetchLastStableOffsetMetadata`: the log's start if the first unstable offset was removed).
    pub fn stable_end(&self) -> i64 {
        let open = self.known.values().filter_map(|known| known.open);
        let unstable = open.chain(self.unreplicated.iter().map(|(first, _)| *first)).min();
        unstable.map_or(self.high, |first| first.max(self.start).min(self.high))
    }

    /// Up to where a reader gets records.
    pub fn bound(&self, isolation: Isolation) -> i64 {
        if isolation == Isolation::Committed { self.stable_end() } else { self.high }
    }

    /// Whether a producer has an open transaction here, in this epoch.
    pub fn has_open(&self, producer: i64, epoch: i16) -> bool {
        self.known.get(&producer).is_some_and(|known| known.open.is_some() && known.epoch == epoch)
    }

    /// The open transactions: their producers, and where they begin.
    pub fn open(&self) -> impl Iterator<Item = (i64, i64)> {
        self.known.iter().filter_map(|(producer, known)| Some((*producer, known.open?)))
    }

    /// Sets the timestamp that the leader gives the last entry, a marker (`MemoryRecords.withEndTransactionMarker`).
    pub fn stamp(&mut self, wall_ms: i64) {
        self.stamped = self.stamped.max(Some(wall_ms));
        if let Some(Entry { body: Body::Marker { stamp, .. }, .. }) = self.entries.back_mut() {
            *stamp = wall_ms;
        }
    }

    /// The latest timestamp in the log (`ListOffsets` with MAX_TIMESTAMP, KIP-734).
    pub fn latest_time(&self) -> Option<i64> {
        let of = |entry: &Entry| if let Body::Record(record) = &entry.body { record.timestamp } else { None };
        self.entries.iter().map(of).max().flatten().max(self.stamped)
    }

    fn push(&mut self, producer: Option<i64>, body: Body, batch: Option<Arc<Batch>>) {
        let (offset, epoch) = (self.end, self.epoch());
        self.entries.push_back(Entry { offset, producer, epoch, body, horizon: None, batch });
        self.end += 1;
        if !self.lags {
            self.replicate(self.end);
        }
    }

    /// Appends records outside any transaction; returns the first one's offset.
    pub fn append(&mut self, records: impl IntoIterator<Item = Record>) -> i64 {
        let base = self.end;
        records.into_iter().for_each(|record| self.push(None, Body::Record(record), None));
        base
    }

    /// Appends a batch, which stays one; `producer`: as part of its transaction. Returns its first offset.
    pub fn append_batch(&mut self, producer: Option<i64>, packing: Packing, records: Vec<Record>) -> i64 {
        let base = self.end;
        self.is_batched = true;
        if let Some(producer) = producer {
            let known = Known { epoch: 0, batches: VecDeque::new(), open: None };
            self.known.entry(producer).or_insert(known).open.get_or_insert(base);
        }
        let batch = Batch { base, last: base + records.len() as i64 - 1, packing, is_damaged: false };
        let batch = Some(Arc::new(batch));
        records.into_iter().for_each(|record| self.push(producer, Body::Record(record), batch.clone()));
        base
    }

    /// Damages the batch at an offset for good.
    pub fn damage(&mut self, offset: i64) {
        let is_in = |entry: &&mut Entry| entry.batch.as_ref().is_some_and(|of| (of.base..=of.last).contains(&offset));
        for entry in self.entries.iter_mut().filter(is_in) {
            Arc::make_mut(entry.batch.as_mut().expect("just seen")).is_damaged = true;
        }
    }

    /// Appends a transactional producer's batch; returns the first record's offset, also if the same batch was
    /// appended before. Rules of `ProducerAppendInfo.checkProducerEpoch` and `checkSequence`, and of
    /// `ProducerStateEntry.findDuplicateBatch`.
    pub fn append_transactional(&mut self, writer: Writer, records: &[Record]) -> Result<i64, Code> {
        let last = after(writer.sequence, records.len() as i32 - 1);
        let base = self.end;
        match self.known.get_mut(&writer.producer) {
            // Without state, any sequence number is accepted.
            None => {
                let batches = VecDeque::from([(writer.sequence, last, base)]);
                self.known.insert(writer.producer, Known { epoch: writer.epoch, batches, open: Some(base) });
            }
            Some(known) => {
                if writer.epoch == known.epoch
                    && let Some(same) = known.batches.iter().find(|same| (same.0, same.1) == (writer.sequence, last))
                {
                    return Ok(same.2);
                }
                if writer.epoch < known.epoch {
                    return Err(Code::InvalidProducerEpoch);
                }
                let is_same = writer.epoch == known.epoch;
                let expected = known.batches.back().filter(|_| is_same).map_or(0, |(_, last, _)| after(*last, 1));
                if writer.sequence != expected {
                    // Older than all that are remembered.
                    let is_old = is_same && known.batches.front().is_some_and(|(oldest, ..)| last < *oldest);
                    return Err(if is_old { Code::DuplicateSequence } else { Code::OutOfOrderSequence });
                }
                if writer.epoch > known.epoch {
                    known.epoch = writer.epoch;
                    known.batches.clear();
                }
                known.batches.push_back((writer.sequence, last, base));
                if known.batches.len() > BATCHES {
                    known.batches.pop_front();
                }
                known.open.get_or_insert(base);
            }
        }
        records.iter().for_each(|record| self.push(Some(writer.producer), Body::Record(record.clone()), None));
        Ok(base)
    }

    /// Ends a producer's transaction, if one is open here; the marker takes an offset either way. Transactions of
    /// version 2 (`strict`) end under an epoch above that of every write (`ProducerAppendInfo.checkProducerEpoch`).
    pub fn append_marker(&mut self, producer: i64, epoch: i16, commit: bool, strict: bool) -> Result<(), Code> {
        let offset = self.end;
        let known = self.known.entry(producer).or_insert(Known { epoch: -1, batches: VecDeque::new(), open: None });
        // Repeating the same marker is no error (KAFKA-19999).
        let again = epoch == known.epoch && known.open.is_none();
        if epoch < known.epoch || (strict && epoch == known.epoch && !again) {
            return Err(Code::InvalidProducerEpoch);
        }
        if epoch > known.epoch {
            known.epoch = epoch;
            known.batches.clear();
        }
        if let Some(first) = known.open.take() {
            self.unreplicated.push((first, offset));
            if !commit {
                self.aborted.push(Aborted { producer, first, last: offset });
            }
        }
        let batch = Batch { base: offset, last: offset, packing: Packing::None, is_damaged: false };
        let batch = self.is_batched.then(|| Arc::new(batch));
        self.push(Some(producer), Body::Marker { commits: commit, stamp: 0 }, batch);
        Ok(())
    }

    fn is_aborted(&self, entry: &Entry) -> bool {
        entry.producer.is_some_and(|producer| {
            let covers = |aborted: &Aborted| {
                aborted.producer == producer && (aborted.first..aborted.last).contains(&entry.offset)
            };
            self.aborted.iter().any(covers)
        })
    }

    /// Passes up to `max` records from `from` on to `take`, and returns where to continue: after markers, aborted
    /// records and gaps that no record follows. `Fetch` returns OFFSET_OUT_OF_RANGE outside the log
    /// (`ReplicaManager.readFromLog`); between the last stable offset and the end there is nothing to read yet.
    pub fn read(
        &self,
        from: i64,
        isolation: Isolation,
        max: usize,
        mut take: impl FnMut(i64, &Record),
    ) -> Result<i64, Code> {
        if from < self.start || from > self.end {
            return Err(Code::OffsetOutOfRange);
        }
        let bound = self.bound(isolation);
        let first = self.entries.partition_point(|entry| entry.offset < from);
        let mut taken = 0;
        for entry in self.entries.range(first..).take_while(|entry| entry.offset < bound) {
            let Body::Record(record) = &entry.body else { continue };
            if isolation == Isolation::Committed && self.is_aborted(entry) {
                continue;
            }
            if taken == max {
                return Ok(entry.offset);
            }
            take(entry.offset, record);
            taken += 1;
        }
        Ok(bound.max(from))
    }

    /// What stands from `from` on, beginning with the batch in which that is.
    pub fn entries(&self, from: i64) -> impl Iterator<Item = Stored<'_>> {
        let first = self.entries.partition_point(|entry| entry.reaches() < from);
        self.entries.range(first..).map(|entry| {
            let found = match &entry.body {
                Body::Record(record) => Found::Record(record),
                Body::Marker { commits, stamp } => Found::Marker { commits: *commits, stamp: *stamp },
                Body::Emptied => Found::Nothing,
            };
            let Entry { offset, producer, epoch, .. } = *entry;
            Stored { offset, producer, epoch, batch: entry.batch.as_ref(), found }
        })
    }

    /// Whether it is made of batches.
    pub fn is_batched(&self) -> bool {
        self.is_batched
    }

    /// For judges: all records, and whether each was committed, by the markers alone, apart from the index that readers
    /// get; `None` while its transaction is open.
    pub fn fates(&self) -> Vec<(i64, &Record, Option<bool>)> {
        let (mut ends, mut fates) = (BTreeMap::new(), Vec::new());
        for entry in self.entries.iter().rev() {
            match (&entry.body, entry.producer) {
                (Body::Marker { commits, .. }, Some(producer)) => drop(ends.insert(producer, *commits)),
                (Body::Record(record), Some(producer)) => {
                    fates.push((entry.offset, record, ends.get(&producer).copied()))
                }
                (Body::Record(record), None) => fates.push((entry.offset, record, Some(true))),
                _ => {}
            }
        }
        fates.reverse();
        fates
    }

    /// The aborted transactions that reach into these offsets: their writers, and where they begin.
    pub fn aborted(&self, offsets: std::ops::Range<i64>) -> impl Iterator<Item = (i64, i64)> {
        let overlaps = move |of: &&Aborted| of.last >= offsets.start && of.first < offsets.end;
        self.aborted.iter().filter(overlaps).map(|of| (of.producer, of.first))
    }

    /// For the judge: shows the records from `from` on below the last stable offset, with the writer of each and
    /// whether it was aborted. Returns where to continue.
    pub fn examine(&self, from: i64, mut show: impl FnMut(i64, Option<i64>, &Record, bool)) -> i64 {
        let bound = self.stable_end();
        let first = self.entries.partition_point(|entry| entry.offset < from);
        for entry in self.entries.range(first..).take_while(|entry| entry.offset < bound) {
            if let Body::Record(record) = &entry.body {
                show(entry.offset, entry.producer, record, self.is_aborted(entry));
            }
        }
        bound.max(from)
    }

    /// Removes everything below `offset`, but never a part of a batch (`DeleteRecords`, retention): OFFSET_OUT_OF_RANGE
    /// beyond the high watermark.
    pub fn delete_before(&mut self, offset: i64) -> Result<(), Code> {
        if offset > self.high {
            return Err(Code::OffsetOutOfRange);
        }
        self.start = self.start.max(offset);
        let start = self.start;
        self.entries.retain(|entry| entry.reaches() >= start);
        self.aborted.retain(|aborted| aborted.last >= start);
        // `LeaderEpochFileCache.truncateFromStart`.
        if let Some(index) = self.epochs.iter().rposition(|(_, from)| *from <= start) {
            self.epochs.drain(..index);
            self.epochs[0].1 = start;
            self.known_epochs.push(self.epochs.clone());
        }
        Ok(())
    }

    /// Replaces the whole content with other records, below the same end. Not a feature of Kafka: the judge uses it
    /// after the run.
    pub fn replace(&mut self, records: Vec<(i64, Record)>) {
        let entry = |(offset, record)| Entry {
            offset,
            producer: None,
            epoch: self.epoch(),
            body: Body::Record(record),
            horizon: None,
            batch: None,
        };
        self.entries = records.into_iter().map(entry).collect();
        self.start = 0;
        self.known.clear();
        self.aborted.clear();
    }
}

/// The sequence number so many after another one.
fn after(sequence: i32, count: i32) -> i32 {
    sequence.wrapping_add(count) & i32::MAX
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
