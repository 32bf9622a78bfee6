//! A partition: records and markers at rising offsets, and the producer state that the leader keeps.
//!
//! Invariants: offsets are never reused; a producer has at most one open transaction; a read_committed reader gets
//! nothing at or beyond the first open transaction.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::{Bytes, Code, Time};

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

#[derive(Debug)]
enum Body {
    Record(Record),
    Marker,
}

#[derive(Debug)]
struct Entry {
    offset: i64,
    /// The transactional producer that wrote it.
    producer: Option<i64>,
    body: Body,
    /// When a tombstone, or a marker without records, may be removed (KIP-534).
    horizon: Option<Time>,
}

/// How many batches of a producer are kept to detect duplicates (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
const BATCHES: usize = 5;

/// A producer's state on the leader (`ProducerStateEntry`).
#[derive(Debug)]
struct Known {
    epoch: i16,
    /// First and last sequence number and base offset of the latest batches under this epoch.
    batches: VecDeque<(i32, i32, i64)>,
    /// Where its open transaction started.
    open: Option<i64>,
}

/// An aborted transaction (`AbortedTxn`).
#[derive(Debug)]
struct Aborted {
    producer: i64,
    first: i64,
    /// The marker's offset.
    last: i64,
}

/// A partition's log.
#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    start: i64,
    end: i64,
    known: BTreeMap<i64, Known>,
    aborted: Vec<Aborted>,
    /// The latest timestamp of a marker from the leader, milliseconds since the epoch.
    stamped: Option<i64>,
    /// The leaders' epochs after the first one, 0, and where each begins.
    epochs: Vec<(i32, i64)>,
}

/// What stands at an offset.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    Record(&'a Record),
    Marker { commits: bool },
}

/// How many records the cleaner has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Aborted records, and those with a later record of the same key.
    pub superseded: usize,
    /// Tombstones that were the last of their key and were kept for long enough.
    pub tombstones: usize,
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

    /// The epoch of the leader that wrote what stands at an offset.
    pub fn epoch_of(&self, offset: i64) -> i32 {
        self.epochs.iter().rev().find(|(_, begin)| *begin <= offset).map_or(0, |(epoch, _)| *epoch)
    }

    /// Where an epoch ends; -1 for one that the leader does not know (`LeaderEpochFileCache.endOffsetFor`).
    pub fn end_of_epoch(&self, epoch: i32) -> i64 {
        if epoch > self.epoch() {
            return -1;
        }
        self.epochs.iter().find(|(later, _)| *later > epoch).map_or(self.end, |(_, begin)| *begin)
    }

    /// Loses everything from `offset` on, as when a replica that never had it becomes leader. Producer state is
    /// rebuilt from the remaining records (`ProducerStateManager.truncateAndReload`).
    pub fn lose_tail(&mut self, offset: i64) {
        let epoch = self.epoch() + 1;
        self.epochs.retain(|(_, begin)| *begin < offset);
        self.epochs.push((epoch, self.end.min(offset)));
        self.entries.retain(|entry| entry.offset < offset);
        self.end = self.end.min(offset);
        self.aborted.retain(|aborted| aborted.last < offset);
        let entries = &self.entries;
        self.known.retain(|producer, known| {
            let mut own = entries.iter().rev().filter(|entry| entry.producer == Some(*producer)).peekable();
            let is_known = own.peek().is_some();
            known.batches.retain(|(_, _, base)| *base < offset);
            known.open = own.take_while(|entry| matches!(entry.body, Body::Record(_))).last().map(|entry| entry.offset);
            is_known
        });
    }

    /// The offsets at which a cut would split no transaction.
    pub fn seams(&self) -> Vec<i64> {
        let (mut open, mut seams) = (BTreeSet::new(), vec![self.start]);
        for entry in &self.entries {
            match (&entry.body, entry.producer) {
                (Body::Record(_), Some(producer)) => drop(open.insert(producer)),
                (Body::Marker, Some(producer)) => drop(open.remove(&producer)),
                (_, None) => {}
            }
            if open.is_empty() {
                seams.push(entry.offset + 1);
            }
        }
        seams
    }

    /// The high watermark: the offset after the last record or marker.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// The last stable offset: no transaction that started below it is open (`UnifiedLog.lastStableOffset`: the log's
    /// start if the first unstable offset was removed).
    pub fn stable_end(&self) -> i64 {
        let open = self.known.values().filter_map(|known| known.open).min();
        open.map_or(self.end, |first| first.max(self.start))
    }

    /// Whether `producer` has an open transaction here.
    pub fn has_open(&self, producer: i64) -> bool {
        self.known.get(&producer).is_some_and(|known| known.open.is_some())
    }

    /// The open transactions: their producers, and where they begin.
    pub fn open(&self) -> impl Iterator<Item = (i64, i64)> {
        self.known.iter().filter_map(|(producer, known)| Some((*producer, known.open?)))
    }

    /// The leader has given a marker this timestamp (`MemoryRecords.withEndTransactionMarker`).
    pub fn stamp(&mut self, wall_ms: i64) {
        self.stamped = self.stamped.max(Some(wall_ms));
    }

    /// The latest timestamp in the log (`ListOffsets` with MAX_TIMESTAMP, KIP-734).
    pub fn latest_time(&self) -> Option<i64> {
        let of = |entry: &Entry| if let Body::Record(record) = &entry.body { record.timestamp } else { None };
        self.entries.iter().map(of).max().flatten().max(self.stamped)
    }

    fn push(&mut self, producer: Option<i64>, body: Body) {
        self.entries.push_back(Entry { offset: self.end, producer, body, horizon: None });
        self.end += 1;
    }

    /// Appends records outside any transaction; returns the first one's offset.
    pub fn append(&mut self, records: impl IntoIterator<Item = Record>) -> i64 {
        let base = self.end;
        records.into_iter().for_each(|record| self.push(None, Body::Record(record)));
        base
    }

    /// Appends a transactional producer's batch; returns the first record's offset, also if the same batch was
    /// appended before. Rules of `ProducerAppendInfo.checkProducerEpoch` and `checkSequence`, and of
    /// `ProducerStateEntry.findDuplicateBatch`.
    pub fn append_transactional(&mut self, writer: Writer, records: &[Record]) -> Result<i64, Code> {
        let last = writer.sequence + records.len() as i32 - 1;
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
                let expected = match known.batches.back() {
                    Some((_, last, _)) if writer.epoch == known.epoch => last + 1,
                    _ => 0,
                };
                if writer.sequence != expected {
                    return Err(Code::OutOfOrderSequence);
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
        records.iter().for_each(|record| self.push(Some(writer.producer), Body::Record(record.clone())));
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
        if let Some(first) = known.open.take()
            && !commit
        {
            self.aborted.push(Aborted { producer, first, last: offset });
        }
        self.push(Some(producer), Body::Marker);
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
        let bound = match isolation {
            Isolation::Uncommitted => self.end,
            Isolation::Committed => self.stable_end(),
        };
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

    /// What stands from `from` on, with its offset and its transactional writer.
    pub fn entries(&self, from: i64) -> impl Iterator<Item = (i64, Option<i64>, Found<'_>)> {
        let first = self.entries.partition_point(|entry| entry.offset < from);
        self.entries.range(first..).map(|entry| {
            let found = match &entry.body {
                Body::Record(record) => Found::Record(record),
                Body::Marker => Found::Marker { commits: !self.aborted.iter().any(|of| of.last == entry.offset) },
            };
            (entry.offset, entry.producer, found)
        })
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

    /// Removes everything below `offset` (`DeleteRecords`, retention): OFFSET_OUT_OF_RANGE beyond the end.
    pub fn delete_before(&mut self, offset: i64) -> Result<(), Code> {
        if offset > self.end {
            return Err(Code::OffsetOutOfRange);
        }
        self.start = self.start.max(offset);
        let start = self.start;
        self.entries.retain(|entry| entry.offset >= start);
        self.aborted.retain(|aborted| aborted.last >= start);
        Ok(())
    }

    /// Replaces the whole content with other records, below the same end. Not a feature of Kafka: the judge uses it
    /// after the run.
    pub fn replace(&mut self, records: Vec<(i64, Record)>) {
        let entry = |(offset, record)| Entry { offset, producer: None, body: Body::Record(record), horizon: None };
        self.entries = records.into_iter().map(entry).collect();
        self.start = 0;
        self.known.clear();
        self.aborted.clear();
    }

    /// Runs the cleaner over everything below `dirty_end` (the active segment's first offset), but not over open
    /// transactions (`LogCleanerManager.cleanableOffsets`). The last committed record of each key stays; aborted
    /// records go; a tombstone, or a marker whose records are gone, stays for `delete_retention` after the first pass
    /// that met it (KIP-534, `Cleaner.shouldRetainRecord`). Returns how many records were removed.
    pub fn compact(&mut self, dirty_end: i64, now: Time, delete_retention: Time) -> Cleaned {
        let bound = dirty_end.min(self.stable_end());
        let mut last: HashMap<Bytes, i64> = HashMap::new();
        let mut producers: BTreeMap<i64, i64> = BTreeMap::new();
        let aborted: Vec<i64> =
            self.entries.iter().filter(|entry| self.is_aborted(entry)).map(|entry| entry.offset).collect();
        for entry in self.entries.iter().take_while(|entry| entry.offset < bound) {
            if let Body::Record(Record { key: Some(key), .. }) = &entry.body
                && aborted.binary_search(&entry.offset).is_err()
            {
                last.insert(key.clone(), entry.offset);
            }
        }
        // A transaction's marker stays as long as a record of its producer before it.
        let mut kept = VecDeque::with_capacity(self.entries.len());
        let mut cleaned = Cleaned::default();
        for mut entry in self.entries.drain(..) {
            if entry.offset >= bound {
                kept.push_back(entry);
                continue;
            }
            let (stays, may_go) = match &entry.body {
                Body::Record(record) => {
                    let is_last = record.key.as_ref().is_some_and(|key| last.get(key) == Some(&entry.offset));
                    (is_last && aborted.binary_search(&entry.offset).is_err(), record.value.is_none())
                }
                Body::Marker => (true, entry.producer.and_then(|producer| producers.remove(&producer)).is_none()),
            };
            let over = may_go && now >= *entry.horizon.get_or_insert(now + delete_retention);
            if !stays || over {
                let is_record = matches!(entry.body, Body::Record(_));
                cleaned.superseded += usize::from(is_record && !stays);
                cleaned.tombstones += usize::from(is_record && stays);
                // A reader that was told of the transaction would wait for its marker
                // (`CleanedTransactionMetadata.onControlBatchRead`).
                self.aborted.retain(|aborted| is_record || aborted.last != entry.offset);
                continue;
            }
            if let (Body::Record(_), Some(producer)) = (&entry.body, entry.producer) {
                producers.insert(producer, entry.offset);
            }
            if !may_go {
                entry.horizon = None;
            }
            kept.push_back(entry);
        }
        self.entries = kept;
        cleaned
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
