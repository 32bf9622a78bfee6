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
use super::hold::{Applied, Held};
use super::long_work::Restoring;
use super::setback::Setback;

/// How long a changelog may deliver nothing before its end.
const NO_PROGRESS_WAIT: Duration = Duration::from_secs(60);
/// Changelog records per read.
const READ_RECORDS_MAX: usize = 2048;
/// Reads per slice: some milliseconds, during which the lane's other tasks wait.
const SLICE_READS_MAX: usize = 8;
/// Fewer records than this have no rate: it would be that of starting up.
const RATE_RECORDS_MIN: u64 = 500;

/// A store being rebuilt.
pub struct Loading<C: Cluster> {
    settled: Settled,
    reader: C::Reader,
    /// The buffer being filled, unless there is no room for one.
    buffer: Option<LoadBuffer>,
    /// Loads that the store was given and has not finished.
    under_way: usize,
    /// Whether the store is still complete, with nothing of the load in it.
    is_complete: bool,
    from: ChangelogOffset,
    /// The offset after the last record read. Whatever reading has skipped since was aborted, but until the load has
    /// ended there may yet be something else at those offsets.
    read_up_to: ChangelogOffset,
    /// When the state that the load builds upon was synced: the store keeps this age until the load has ended.
    synced_at: i64,
    /// Where the store's previous position record is, if known.
    former_position: Option<ChangelogOffset>,
    /// Where the last position record that the store has or will get is, if known.
    last_position: Option<ChangelogOffset>,
    records: u64,
    began: Duration,
    progressed: Duration,
    report: Restoring,
}

/// How far a load has got.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Reached {
    position: ChangelogOffset,
    records: u64,
    under_way: usize,
}

/// The result of a slice.
pub enum LoadStep {
    /// Nothing was there yet.
    Waiting,
    /// Something was done, and there is more to do.
    Worked,
    /// The store holds what the changelog holds up to where it was read.
    Loaded {
        /// What settling found out.
        settled: Box<Settled>,
        /// How far the changelog was read.
        applied: Applied,
        /// What the store still lacks, if it was complete before and takes this in one batch.
        rest: Option<LoadBuffer>,
    },
}

impl<C: Cluster> Loading<C> {
    /// Starts reading `changelog` at `from` into a store that has begun its load, or that `is_complete` and begins it when
    /// it is first written to. It has `applied` the changelog so far.
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
        let report = Restoring::begin(now, settled.changelog_end.since(from));
        Ok(Self {
            settled,
            reader,
            buffer: None,
            under_way: 0,
            is_complete,
            from,
            read_up_to: from,
            synced_at,
            former_position: applied.position,
            last_position: applied.position,
            records: 0,
            began: now,
            progressed: now,
            report,
        })
    }

    /// Has the store take in what is ready and reads a slice of the changelog. A load is handed over with the position
    /// after the last record read, and the store keeps the loads' order: so after a crash, everything missing is beyond the
    /// store's position. Files that survive a crash and hold more do not claim a position: that record is written together
    /// with the store's meta record.
    pub fn step(
        &mut self,
        context: &Context,
        held: &mut Held,
        (changelog, input): (&TopicPartition, &TopicPartition),
        metrics: &TaskMetrics,
        batch: &mut C::Batch,
    ) -> Result<LoadStep, Setback> {
        let (before, now) = (self.reached(), context.clock.monotonic());
        self.absorb(&mut held.store)?;
        self.read(context, changelog, batch)?;
        let worked = self.report(before, input, metrics, now)?;
        Ok(match self.finish(context, held, input, now)? {
            Some(loaded) => loaded,
            None if worked => LoadStep::Worked,
            None => LoadStep::Waiting,
        })
    }

    /// How far the changelog was read, but no further than its end when the load started.
    fn position(&self) -> ChangelogOffset {
        ChangelogOffset(self.reader.position()).min(self.settled.changelog_end)
    }

    fn reached(&self) -> Reached {
        Reached { position: self.position(), records: self.records, under_way: self.under_way }
    }

    fn is_read(&self) -> bool {
        self.position() >= self.settled.changelog_end
    }

    /// Has the store take in what was built from the buffers it was handed.
    fn absorb(&mut self, store: &mut Store) -> Result<(), Setback> {
        let under_way = store.take_loaded()?;
        if under_way < self.under_way {
            crash::point(crash::Point::DuringLoad);
        }
        self.under_way = under_way;
        Ok(())
    }

    /// Reads a slice of the changelog.
    fn read(&mut self, context: &Context, changelog: &TopicPartition, batch: &mut C::Batch) -> Result<(), Setback> {
        for _ in 0..SLICE_READS_MAX {
            if self.is_read() {
                break;
            }
            if !self.make_room(context) {
                // Other loads have all the room: the changelog was not read.
                self.progressed = context.clock.monotonic();
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

    /// Makes sure there is a buffer to read into, unless other loads have all the room.
    fn make_room(&mut self, context: &Context) -> bool {
        if self.buffer.is_none() {
            self.buffer = context.memory.load_buffer();
        }
        self.buffer.as_ref().is_some_and(|buffer| buffer.has_room(READ_RECORDS_MAX))
    }

    /// Reads what is there, up to a bound, into the buffer, which has room for it.
    fn read_once(&mut self, changelog: &TopicPartition, batch: &mut C::Batch) -> Result<(), Setback> {
        let read = self.reader.read(batch, READ_RECORDS_MAX, Duration::ZERO);
        read.map_err(Setback::Unread)?;
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        for index in 0..batch.len() {
            let record = batch.record(index);
            // A later owner's record: with only a part of its transaction the store would be the result of none.
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

    /// Publishes how far the load has got. Returns whether that is further than `before`; an error if the load
    /// has made no progress for long and has to be restarted.
    fn report(
        &mut self,
        before: Reached,
        input: &TopicPartition,
        metrics: &TaskMetrics,
        now: Duration,
    ) -> Result<bool, Setback> {
        let position = self.position();
        let worked = before != self.reached();
        // While buffers are under way, the wait is for this machine's disk, not for the changelog.
        if worked || self.under_way > 0 {
            self.progressed = now;
        }
        self.report.at(now, position.since(self.from), self.settled.changelog_end.since(position), input, metrics);
        if worked {
            metrics.restored(self.records - before.records);
        }
        if now.saturating_sub(self.progressed) > NO_PROGRESS_WAIT {
            let end = self.settled.changelog_end;
            return Err(Setback::Silent { waited: NO_PROGRESS_WAIT, position, end });
        }
        Ok(worked)
    }

    /// Hands the store a full buffer or, once everything is read, the rest; ends when the store has taken it in. If the
    /// store is complete, the rest is left to the caller, provided that it can be written in one batch.
    fn finish(
        &mut self,
        context: &Context,
        held: &mut Held,
        input: &TopicPartition,
        now: Duration,
    ) -> Result<Option<LoadStep>, Setback> {
        let is_read = self.is_read();
        if is_read && self.is_complete && self.buffer.as_ref().is_none_or(|rest| held.store.takes_at_once(rest)) {
            let rest = self.buffer.take();
            return Ok(Some(self.loaded(input, now, rest)));
        }
        let is_due = |buffer: &LoadBuffer| !buffer.is_empty() && (is_read || !buffer.has_room(READ_RECORDS_MAX));
        if let Some(buffer) = self.buffer.take_if(|buffer| is_due(buffer)) {
            self.hand_over(context, held, input.partition, buffer)?;
        }
        Ok((is_read && self.under_way == 0).then(|| self.loaded(input, now, None)))
    }

    /// Hands the store what was read so far. A complete store is copied first: from then on it is incomplete.
    fn hand_over(
        &mut self,
        context: &Context,
        held: &mut Held,
        partition: i32,
        buffer: LoadBuffer,
    ) -> Result<(), Setback> {
        let stands_at = |changelog_offset, position_offset| StoreMeta {
            changelog_id: self.settled.changelog_id.0,
            partition,
            changelog_offset,
            token: None,
            synced_at: self.synced_at,
            position_offset,
        };
        if self.is_complete {
            // With its current position record, which stays until the load brings another.
            let meta = stands_at(self.from, self.former_position);
            held.keep_copy(context)?;
            held.store.begin_load(&meta)?;
        }
        let reached =
            if sabotage::is_on(Sabotage::LoadPositionAhead) { self.settled.changelog_end } else { self.read_up_to };
        let meta = stands_at(reached, self.last_position);
        self.is_complete = false;
        self.under_way += 1;
        Ok(held.store.load(buffer, meta)?)
    }

    /// Everything was read and, except for the `rest`, is in the store.
    fn loaded(&self, input: &TopicPartition, now: Duration, rest: Option<LoadBuffer>) -> LoadStep {
        let (took, position) = (now.saturating_sub(self.began), self.position());
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

/// Records per second, of enough records to mean something.
fn rate(records: u64, took: Duration) -> Option<u64> {
    (records >= RATE_RECORDS_MIN).then(|| (records as f64 / took.as_secs_f64().max(0.001)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_few_records_is_left_out() {
        let took = Duration::from_millis(20);
        assert_eq!((rate(2, took), rate(499, took), rate(500, took)), (None, None, Some(25_000)));
    }
}
