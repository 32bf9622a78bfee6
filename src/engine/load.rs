//! Reading a changelog into a store that is behind it, a bounded slice a call.
//!
//! Three things go on at once: the cluster's client fetches, the lane takes the records over into a buffer, and the
//! store's builders make files of the full ones. The buffers are the process's and bounded: where there is none,
//! nothing is read, and so nothing more is fetched.

use std::time::Duration;

use crate::cluster::{Cluster, Reader, RecordBatch, Settled};
use crate::format::{POSITION_KEY, StoreMeta};
use crate::observe::TaskMetrics;
use crate::record::TopicPartition;
use crate::sabotage::{self, Sabotage};
use crate::state::{LoadBuffer, Store};

use super::context::Context;
use super::crash;
use super::hold::Held;
use super::progress::Restoring;
use super::restore::Setback;
use super::task::{Phase, Task};

/// For how long a changelog may bring nothing before its end.
const NO_PROGRESS_WAIT: Duration = Duration::from_secs(60);
/// Changelog records taken in one read.
const READ_RECORDS_MAX: usize = 2048;
/// Reads in one slice: some milliseconds, for which the lane's other tasks wait.
const SLICE_READS_MAX: usize = 8;

/// A store being rebuilt.
pub struct Loading<C: Cluster> {
    settled: Settled,
    reader: C::Reader,
    /// What is read into, while there is room for it.
    buffer: Option<LoadBuffer>,
    /// Loads that the store was given and has not taken over.
    under_way: usize,
    /// Whether the store is complete as it is, and nothing of the load is in it.
    is_whole: bool,
    from: i64,
    /// Up to behind the last record that was read. What reading has passed over since was taken back: as long as the load
    /// has not ended, nothing says that nothing else will stand there.
    read_up_to: i64,
    /// When what the load builds upon was synced: until the load has ended the store is no younger.
    synced_at: i64,
    /// Where the position record stands that the store has had before, where that is known.
    former_position_offset: Option<i64>,
    /// Where the last position record stands that the store has or is to have, where that is known.
    position_offset: Option<i64>,
    records: u64,
    began: Duration,
    progressed: Duration,
    told: Restoring,
}

/// How far a load has come.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Reached {
    position: i64,
    records: u64,
    under_way: usize,
}

/// What a slice has come to.
pub enum Progress {
    /// Nothing was there yet.
    Waiting,
    /// Something was done, and more is to be.
    Worked,
    /// The store holds what the changelog holds below `position`.
    Loaded {
        /// What was learnt before.
        settled: Box<Settled>,
        /// Up to where the changelog was read.
        position: i64,
        /// Where the last position record stands, where that is known.
        position_offset: Option<i64>,
        /// What the store lacks of that, where it was complete before and takes this as one.
        rest: Option<LoadBuffer>,
    },
}

impl<C: Cluster> Loading<C> {
    /// Begins to read `changelog` from `from` on, into a store that was told so, or one that `is_whole` and shall be told
    /// so when it is written to; where its position record stands is `position_offset`.
    pub fn new(
        context: &Context,
        cluster: &C,
        changelog: &TopicPartition,
        settled: Settled,
        (from, position_offset): (i64, Option<i64>),
        (synced_at, is_whole): (i64, bool),
    ) -> Result<Self, Setback> {
        let reader = cluster.reader(changelog, from)?;
        let now = context.clock.monotonic();
        let told = Restoring::begin(now, settled.changelog_end - from);
        Ok(Self {
            settled,
            reader,
            buffer: None,
            under_way: 0,
            is_whole,
            from,
            read_up_to: from,
            synced_at,
            former_position_offset: position_offset,
            position_offset,
            records: 0,
            began: now,
            progressed: now,
            told,
        })
    }

    /// Up to where the changelog was read, and at most to where it ended when the load began.
    fn position(&self) -> i64 {
        self.reader.position().min(self.settled.changelog_end)
    }

    fn reached(&self) -> Reached {
        Reached { position: self.position(), records: self.records, under_way: self.under_way }
    }

    fn is_read(&self) -> bool {
        self.position() >= self.settled.changelog_end
    }

    /// The store takes over what was made of what it was handed.
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
                // Other loads have all the room: nothing was asked of the changelog.
                self.progressed = context.clock.monotonic();
                break;
            }
            self.read_once(changelog, batch)?;
            if batch.is_empty() {
                break;
            }
            self.read_up_to = (batch.record(batch.len() - 1).offset + 1).min(self.settled.changelog_end);
            crash::point(crash::Point::DuringRestore);
        }
        Ok(())
    }

    /// Sees to it that there is something to read into; not while other loads have all the room.
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
            // A later owner's: with a part of its transaction the store would be the result of none.
            if record.offset >= self.settled.changelog_end {
                break;
            }
            self.records += 1;
            let Some(key) = record.key else {
                return Err(Setback::Keyless { changelog: changelog.clone(), offset: record.offset });
            };
            buffer.put(key, record.value);
            if key == POSITION_KEY {
                self.position_offset = Some(record.offset);
            }
        }
        Ok(())
    }

    /// Publishes how far the load has come. Whether that is any further than `before`; where it has not been for long, it
    /// is tried anew.
    fn report(
        &mut self,
        before: Reached,
        input: &TopicPartition,
        metrics: &TaskMetrics,
        now: Duration,
    ) -> Result<bool, Setback> {
        let position = self.position();
        let worked = before != self.reached();
        // What is waited for, where something is under way, is this machine's disk and not the changelog.
        if worked || self.under_way > 0 {
            self.progressed = now;
        }
        self.told.at(now, position - self.from, self.settled.changelog_end - position, input, metrics);
        metrics.restored(self.records - before.records);
        if now.saturating_sub(self.progressed) > NO_PROGRESS_WAIT {
            let end = self.settled.changelog_end;
            return Err(Setback::Silent { waited: NO_PROGRESS_WAIT, position, end });
        }
        Ok(worked)
    }

    /// Hands the store what there is no more room for, or, once all was read, the rest; and ends when the store has taken
    /// it over. Of a store that is complete the caller gets the rest to write, if it can be written as one.
    fn finish(
        &mut self,
        context: &Context,
        held: &mut Held,
        input: &TopicPartition,
        now: Duration,
    ) -> Result<Option<Progress>, Setback> {
        let is_read = self.is_read();
        if is_read && self.is_whole && self.buffer.as_ref().is_none_or(|rest| held.store.takes_at_once(rest)) {
            let rest = self.buffer.take();
            return Ok(Some(self.loaded(input, now, rest)));
        }
        let is_due = |buffer: &LoadBuffer| !buffer.is_empty() && (is_read || !buffer.has_room(READ_RECORDS_MAX));
        if let Some(buffer) = self.buffer.take_if(|buffer| is_due(buffer)) {
            self.hand_over(context, held, input.partition, buffer)?;
        }
        Ok((is_read && self.under_way == 0).then(|| self.loaded(input, now, None)))
    }

    /// Hands what was read so far to the store. Of one that is complete, a copy is kept first: from then on it is not.
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
        if self.is_whole {
            // Of the position record that it has, which stays until the load brings another.
            let meta = stands_at(self.from, self.former_position_offset);
            held.keep_copy(context)?;
            held.store.begin_load(&meta)?;
        }
        let reached =
            if sabotage::is_on(Sabotage::LoadPositionAhead) { self.settled.changelog_end } else { self.read_up_to };
        let meta = stands_at(reached, self.position_offset);
        self.is_whole = false;
        self.under_way += 1;
        Ok(held.store.load(buffer, meta)?)
    }

    /// All was read, and, but for the `rest`, is in the store.
    fn loaded(&self, input: &TopicPartition, now: Duration, rest: Option<LoadBuffer>) -> Progress {
        let (took, position) = (now.saturating_sub(self.began), self.position());
        tracing::info!(
            task = %input,
            records = self.records,
            from = self.from,
            to = position,
            took_ms = took.as_millis() as u64,
            records_per_second = (self.records as f64 / took.as_secs_f64().max(0.001)) as u64,
            "store restored"
        );
        let position_offset = self.position_offset;
        Progress::Loaded { settled: Box::new(self.settled.clone()), position, position_offset, rest }
    }
}

/// Takes what is ready into the store and reads a slice of the changelog. The position that a load names is behind the
/// last record that was read when it was handed to the store, which keeps their order: so after a crash all that is missing
/// lies behind the store's position. What files that outlived it hold of that tells of no position: the record comes with
/// what says where the store stands.
pub fn step<C: Cluster>(context: &Context, task: &mut Task<C>, batch: &mut C::Batch) -> Result<Progress, Setback> {
    let Task { phase: Phase::Loading(loading), held: Some(held), changelog, input, metrics, .. } = task else {
        return Ok(Progress::Waiting);
    };
    let (before, now) = (loading.reached(), context.clock.monotonic());
    loading.absorb(&mut held.store)?;
    loading.read(context, changelog, batch)?;
    let worked = loading.report(before, input, metrics, now)?;
    Ok(match loading.finish(context, held, input, now)? {
        Some(loaded) => loaded,
        None if worked => Progress::Worked,
        None => Progress::Waiting,
    })
}
