//! Reading a changelog into a store that is behind it, a bounded slice a call.
//!
//! Three things go on at once: the cluster's client fetches, the lane takes the records over into a buffer, and the
//! store's builders make files of the full ones. The buffers are the process's and bounded: where there is none,
//! nothing is read, and so nothing more is fetched.

use std::time::Duration;

use crate::cluster::{Cluster, Reader, RecordBatch, Settled};
use crate::format::POSITION_KEY;
use crate::mistakes::{self, Mistake};
use crate::record::TopicPartition;
use crate::state::LoadBuffer;

use super::context::Context;
use super::crash;
use super::plan::ANEW;
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
    /// Where the last position record stands that the store has or is to have, where that is known.
    position_offset: Option<i64>,
    records: u64,
    began: Duration,
    progressed: Duration,
    told: Restoring,
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
        let wrong =
            mistakes::made(Mistake::RestoreFromOtherPartition).then(|| TopicPartition::new(changelog.topic.clone(), 0));
        let reader = cluster.reader(wrong.as_ref().unwrap_or(changelog), from)?;
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

    /// Sees to it that there is something to read into; not while other loads have all the room.
    fn make_room(&mut self, context: &Context) -> bool {
        if self.buffer.is_none() {
            self.buffer = context.memory.load_buffer();
        }
        self.buffer.as_ref().is_some_and(|buffer| buffer.has_room(READ_RECORDS_MAX))
    }

    /// Reads what is there, up to a bound, into the buffer, which has room for it.
    fn read(&mut self, changelog: &TopicPartition, batch: &mut C::Batch) -> Result<(), Setback> {
        // Records that were removed meanwhile are no reason to stop: the next try begins where the changelog does.
        let read = self.reader.read(batch, READ_RECORDS_MAX, Duration::ZERO);
        read.map_err(|error| Setback::Later(error.message))?;
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        for index in 0..batch.len() {
            let record = batch.record(index);
            // A later owner's: with a part of its transaction the store would be the result of none.
            if record.offset >= self.settled.changelog_end {
                break;
            }
            self.records += 1;
            let Some(key) = record.key else {
                let offset = record.offset;
                return Err(Setback::Refused(format!(
                    "{changelog}:{offset} has no key: another program writes to the changelog; stop that program and \
                     {ANEW}"
                )));
            };
            if record.value.is_none() && mistakes::made(Mistake::TombstoneDropped) {
                continue;
            }
            buffer.put(key, record.value);
            if key == POSITION_KEY {
                self.position_offset = Some(record.offset);
            }
        }
        Ok(())
    }
}

/// Takes what is ready into the store and reads a slice of the changelog. The position that a load names is behind the
/// last record that was read when it was handed to the store, which keeps their order: so after a crash all that is missing
/// lies behind the store's position. What files that outlived it hold of that tells of no position: the record comes with
/// what says where the store stands.
pub fn step<C: Cluster>(context: &Context, task: &mut Task<C>, batch: &mut C::Batch) -> Result<Progress, Setback> {
    let store = &mut task.held.as_mut().expect("claimed before").store;
    let under_way = store.take_loaded()?;
    let Phase::Loading(loading) = &mut task.phase else { return Ok(Progress::Waiting) };
    let mut end = loading.settled.changelog_end;
    let before = (loading.position(), loading.records, loading.under_way);
    if under_way < loading.under_way {
        crash::point(crash::Point::DuringLoad);
    }
    loading.under_way = under_way;
    let now = context.clock.monotonic();
    for _ in 0..SLICE_READS_MAX {
        if loading.reader.position() >= end {
            break;
        }
        if !loading.make_room(context) {
            // Other loads have all the room: nothing was asked of the changelog.
            loading.progressed = now;
            break;
        }
        loading.read(&task.changelog, batch)?;
        if batch.is_empty() {
            if mistakes::made(Mistake::OpenTransactionPassed) {
                end = loading.reader.position();
            }
            break;
        }
        loading.read_up_to = (batch.record(batch.len() - 1).offset + 1).min(loading.settled.changelog_end);
        crash::point(crash::Point::DuringRestore);
    }
    let position = loading.position();
    if loading.under_way > 0 {
        // What is waited for is this machine's disk, not the changelog.
        loading.progressed = now;
    }
    let worked = before != (position, loading.records, loading.under_way);
    loading.told.at(now, position - loading.from, end - position, &task.input, &task.metrics);
    if worked {
        loading.progressed = now;
        task.metrics.restored(loading.records - before.1);
    } else if now.saturating_sub(loading.progressed) > NO_PROGRESS_WAIT {
        return Err(Setback::Later(format!(
            "the changelog brought nothing for {} s: at offset {position} of {end}",
            NO_PROGRESS_WAIT.as_secs()
        )));
    }
    let read_all =
        if mistakes::made(Mistake::RestoreToLastRecord) { loading.read_up_to >= end } else { position >= end };
    if read_all && loading.is_whole {
        let store = &task.held.as_ref().expect("claimed before").store;
        if loading.buffer.as_ref().is_none_or(|rest| store.takes_at_once(rest)) {
            let rest = loading.buffer.take();
            return Ok(loaded(&task.input.clone(), loading, now, rest));
        }
    }
    let full = loading.buffer.as_ref().filter(|buffer| read_all || !buffer.has_room(READ_RECORDS_MAX));
    if full.is_some_and(|buffer| !buffer.is_empty()) {
        let read_up_to = loading.read_up_to;
        hand_over(context, task, if mistakes::made(Mistake::LoadPositionAhead) { end } else { read_up_to })?;
    }
    let Phase::Loading(loading) = &task.phase else { return Ok(Progress::Waiting) };
    if !read_all || loading.under_way > 0 {
        return Ok(if worked { Progress::Worked } else { Progress::Waiting });
    }
    Ok(loaded(&task.input, loading, now, None))
}

/// All was read, and, but for the `rest`, is in the store.
fn loaded<C: Cluster>(
    input: &TopicPartition,
    loading: &Loading<C>,
    now: Duration,
    rest: Option<LoadBuffer>,
) -> Progress {
    let (took, position) = (now.saturating_sub(loading.began), loading.position());
    tracing::info!(
        task = %input,
        records = loading.records,
        from = loading.from,
        to = position,
        took_ms = took.as_millis() as u64,
        records_per_second = (loading.records as f64 / took.as_secs_f64().max(0.001)) as u64,
        "store restored"
    );
    let position_offset = loading.position_offset;
    Progress::Loaded { settled: Box::new(loading.settled.clone()), position, position_offset, rest }
}

/// Hands what was read so far to the store. Of one that is complete, a copy is kept first: from then on it is not.
fn hand_over<C: Cluster>(context: &Context, task: &mut Task<C>, position: i64) -> Result<(), Setback> {
    let Phase::Loading(loading) = &mut task.phase else { return Ok(()) };
    let (from, synced_at, Some(buffer)) = (loading.from, loading.synced_at, loading.buffer.take()) else {
        return Ok(());
    };
    loading.under_way += 1;
    let position_offset = loading.position_offset;
    if std::mem::take(&mut loading.is_whole) {
        // Of the position record that it has, which stays until the load brings another.
        let meta = task.store_meta((from, task.position_offset), None, synced_at);
        let held = task.held.as_mut().expect("claimed before");
        held.keep_copy(context)?;
        held.store.begin_load(&meta)?;
    }
    let meta = task.store_meta((position, position_offset), None, synced_at);
    Ok(task.held.as_mut().expect("claimed before").store.load(buffer, meta)?)
}
