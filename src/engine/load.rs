//! Reads a changelog into a store that is behind it, a bounded slice per call.
//!
//! Three things run at once: the cluster's client fetches, the lane copies the records into a buffer, and the store's
//! builders turn full buffers into files. The process has a bounded number of buffers: if none is free, nothing is
//! read, and so nothing more is fetched.

use std::time::Duration;

use crate::cluster::{Cluster, Reader, RecordBatch, Settled};
use crate::format::{ChangelogOffset, POSITION_KEY, StoreMeta};
use crate::observe::TaskMetrics;
use crate::record::TopicPartition;
use crate::sabotage::{self, Sabotage};
use crate::state::{LoadBuffer, Store};

use super::context::Context;
use super::crash;
use super::hold::{Applied, LockedStore};
use super::long_work::Restoring;
use super::setback::Setback;

/// How long a changelog may deliver no records before its end is reached.
const NO_PROGRESS_WAIT: Duration = Duration::from_secs(60);
/// Changelog records per read.
const READ_RECORDS_MAX: usize = 2048;
/// Reads per slice: some milliseconds, during which the lane's other tasks wait.
const SLICE_READS_MAX: usize = 8;
/// For fewer records than this no rate is logged: it would mostly measure the start.
const RATE_RECORDS_MIN: u64 = 500;

/// A store being rebuilt.
pub struct Loading<C: Cluster> {
    settled: Settled,
    reader: C::Reader,
    /// The buffer being filled, unless there is no room for one.
    buffer: Option<LoadBuffer>,
    /// How many loads the store was given and has not finished.
    pending_loads: usize,
    /// Whether the store is still complete: it contains nothing of the load.
    is_complete: bool,
    from: ChangelogOffset,
    /// The offset after the last record read. The offsets that the reader has skipped since then belong to aborted
    /// transactions, but until the load has ended, other records may still appear there.
    read_up_to: ChangelogOffset,
    /// When the state that the load builds upon was synced: the store keeps this age until the load has ended.
    synced_at: i64,
    /// The offset of the store's previous position record, if known.
    former_position: Option<ChangelogOffset>,
    /// The offset of the last position record that the store has or will receive, if known.
    last_position: Option<ChangelogOffset>,
    records: u64,
    began_at: Duration,
    progressed_at: Duration,
    restoring: Restoring,
}

/// The progress of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LoadProgress {
    position: ChangelogOffset,
    records: u64,
    pending_loads: usize,
}

/// The result of a slice.
pub enum LoadStep {
    /// There was nothing to do yet.
    Waiting,
    /// The load has progressed, and there is more to do.
    Worked,
    /// The store holds the contents of the changelog up to the offset that was read.
    Loaded {
        /// The settled state.
        settled: Box<Settled>,
        /// How far the changelog was read.
        applied: Applied,
        /// The records that the store still lacks, if it was complete before and can write them in one batch.
        rest: Option<LoadBuffer>,
    },
}

impl<C: Cluster> Loading<C> {
    /// Starts reading `changelog` into a store that has `applied` a part of it. The store has begun its load, or
    /// `is_complete` and begins it when it is first written to.
    pub fn new(
        context: &Context,
        cluster: &C,
        changelog: &TopicPartition,
        settled: Settled,
        applied: Applied,
        (synced_at, is_complete): (i64, bool),
    ) -> Result<Self, Setback> {
        let from = applied.next;
        let reader = cluster.reader(changelog, from.0)?;
        let now = context.clock.monotonic();
        let restoring = Restoring::begin(now, settled.changelog_end.since(from));
        Ok(Self {
            settled,
            reader,
            buffer: None,
            pending_loads: 0,
            is_complete,
            from,
            read_up_to: from,
            synced_at,
            former_position: applied.position,
            last_position: applied.position,
            records: 0,
            began_at: now,
            progressed_at: now,
            restoring,
        })
    }

    /// Makes the store ingest the loads that are ready, and reads a slice of the changelog. A load is handed over with
    /// the position after the last record read, and the store keeps the order of the loads. So after a crash, every
    /// missing record is beyond the store's position. Files that survive a crash and hold more records do not claim a
    /// position: the position record is written together with the store's meta record.
    pub fn step(
        &mut self,
        context: &Context,
        locked_store: &mut LockedStore,
        (changelog, input): (&TopicPartition, &TopicPartition),
        metrics: &TaskMetrics,
        batch: &mut C::Batch,
    ) -> Result<LoadStep, Setback> {
        let (before, now) = (self.progress(), context.clock.monotonic());
        self.absorb(&mut locked_store.store)?;
        self.read(context, changelog, batch)?;
        let has_progressed = self.report(before, input, metrics, now)?;
        Ok(match self.finish(context, locked_store, input, now)? {
            Some(loaded) => loaded,
            None if has_progressed => LoadStep::Worked,
            None => LoadStep::Waiting,
        })
    }

    /// How far the changelog was read, but no further than its end when the load started.
    fn position(&self) -> ChangelogOffset {
        ChangelogOffset(self.reader.position()).min(self.settled.changelog_end)
    }

    fn progress(&self) -> LoadProgress {
        LoadProgress { position: self.position(), records: self.records, pending_loads: self.pending_loads }
    }

    fn is_read(&self) -> bool {
        self.position() >= self.settled.changelog_end
    }

    /// Makes the store ingest the files that were built from the buffers it was handed.
    fn absorb(&mut self, store: &mut Store) -> Result<(), Setback> {
        let pending_loads = store.ingest_ready_loads()?;
        if pending_loads < self.pending_loads {
            crash::point(crash::Point::DuringLoad);
        }
        self.pending_loads = pending_loads;
        Ok(())
    }

    /// Reads a slice of the changelog.
    fn read(&mut self, context: &Context, changelog: &TopicPartition, batch: &mut C::Batch) -> Result<(), Setback> {
        for _ in 0..SLICE_READS_MAX {
            if self.is_read() {
                break;
            }
            if !self.make_room(context) {
                // The buffer is full, or other loads occupy all buffers: the changelog was not read.
                self.progressed_at = context.clock.monotonic();
                break;
            }
            self.read_once(changelog, batch)?;
            if batch.is_empty() {
                break;
            }
            let last = ChangelogOffset(batch.record(batch.len() - 1).offset);
            self.read_up_to = last.next().min(self.settled.changelog_end);
            crash::point(crash::Point::DuringRestore);
        }
        Ok(())
    }

    /// Makes sure that there is a buffer to read into. Returns false if the buffer is full, or other loads occupy
    /// all buffers.
    fn make_room(&mut self, context: &Context) -> bool {
        if self.buffer.is_none() {
            self.buffer = context.memory.load_buffer();
        }
        self.buffer.as_ref().is_some_and(|buffer| buffer.has_room(READ_RECORDS_MAX))
    }

    /// Reads the available records, up to a bound, into the buffer, which has room for them.
    fn read_once(&mut self, changelog: &TopicPartition, batch: &mut C::Batch) -> Result<(), Setback> {
        let read = self.reader.read(batch, READ_RECORDS_MAX, Duration::ZERO);
        read.map_err(Setback::Unread)?;
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        for index in 0..batch.len() {
            let record = batch.record(index);
            // This is a later owner's record: with only a part of its transaction, the store would not be the result of
            // any transaction.
            let offset = ChangelogOffset(record.offset);
            if offset >= self.settled.changelog_end {
                break;
            }
            self.records += 1;
            let Some(key) = record.key else {
                return Err(Setback::Keyless { changelog: changelog.clone(), offset });
            };
            buffer.put(key, record.value);
            if key == POSITION_KEY {
                self.last_position = Some(offset);
            }
        }
        Ok(())
    }

    /// Publishes the load's progress. Returns whether it has progressed since `before`, or an error if it has not
    /// progressed for a long time and has to be restarted.
    fn report(
        &mut self,
        before: LoadProgress,
        input: &TopicPartition,
        metrics: &TaskMetrics,
        now: Duration,
    ) -> Result<bool, Setback> {
        let position = self.position();
        let has_progressed = before != self.progress();
        // While buffers are under way, the wait is for this machine's disk, not for the changelog.
        if has_progressed || self.pending_loads > 0 {
            self.progressed_at = now;
        }
        let (done, remaining) = (position.since(self.from), self.settled.changelog_end.since(position));
        self.restoring.report(now, done, remaining, input, metrics);
        if has_progressed {
            metrics.restored(self.records - before.records);
        }
        if now.saturating_sub(self.progressed_at) > NO_PROGRESS_WAIT {
            let end = self.settled.changelog_end;
            return Err(Setback::Silent { waited: NO_PROGRESS_WAIT, position, end });
        }
        Ok(has_progressed)
    }

    /// Hands the store a full buffer or, once everything is read, the last buffer. The load ends when the store has
    /// ingested it. If the store is complete, the last buffer is left to the caller, provided that it fits into one
    /// write batch.
    fn finish(
        &mut self,
        context: &Context,
        locked_store: &mut LockedStore,
        input: &TopicPartition,
        now: Duration,
    ) -> Result<Option<LoadStep>, Setback> {
        let is_read = self.is_read();
        if is_read
            && self.is_complete
            && self.buffer.as_ref().is_none_or(|rest| locked_store.store.fits_one_write(rest))
        {
            let rest = self.buffer.take();
            return Ok(Some(self.loaded(input, now, rest)));
        }
        let must_hand_over =
            |buffer: &LoadBuffer| !buffer.is_empty() && (is_read || !buffer.has_room(READ_RECORDS_MAX));
        if let Some(buffer) = self.buffer.take_if(|buffer| must_hand_over(buffer)) {
            self.hand_over(context, locked_store, input.partition, buffer)?;
        }
        Ok((is_read && self.pending_loads == 0).then(|| self.loaded(input, now, None)))
    }

    /// Hands the store a buffer. A complete store is copied first: from then on it is incomplete.
    fn hand_over(
        &mut self,
        context: &Context,
        locked_store: &mut LockedStore,
        partition: i32,
        buffer: LoadBuffer,
    ) -> Result<(), Setback> {
        let meta_at = |changelog_offset, position_offset| StoreMeta {
            changelog_id: self.settled.changelog_id.0,
            partition,
            changelog_offset,
            token: None,
            synced_at: self.synced_at,
            position_offset,
        };
        if self.is_complete {
            // The store keeps its current position record until the load brings another.
            let meta = meta_at(self.from, self.former_position);
            locked_store.copy_aside(context)?;
            locked_store.store.begin_load(&meta)?;
        }
        let end =
            if sabotage::is_on(Sabotage::LoadPositionAhead) { self.settled.changelog_end } else { self.read_up_to };
        let meta = meta_at(end, self.last_position);
        self.is_complete = false;
        self.pending_loads += 1;
        Ok(locked_store.store.load(buffer, meta)?)
    }

    /// Logs and returns the end of the load: everything was read and, except for the `rest`, is in the store.
    fn loaded(&self, input: &TopicPartition, now: Duration, rest: Option<LoadBuffer>) -> LoadStep {
        let (took, position) = (now.saturating_sub(self.began_at), self.position());
        tracing::info!(
            task = %input,
            records = self.records,
            from = self.from.0,
            to = position.0,
            took_ms = took.as_millis() as u64,
            records_per_second = rate(self.records, took),
            "store restored"
        );
        let applied = Applied { next: position, position: self.last_position };
        LoadStep::Loaded { settled: Box::new(self.settled.clone()), applied, rest }
    }
}

/// Records per second; `None` for too few records.
fn rate(records: u64, took: Duration) -> Option<u64> {
    (records >= RATE_RECORDS_MIN).then(|| (records as f64 / took.as_secs_f64().max(0.001)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_few_records_is_not_logged() {
        let took = Duration::from_millis(20);
        assert_eq!((rate(2, took), rate(499, took), rate(500, took)), (None, None, Some(25_000)));
    }
}
