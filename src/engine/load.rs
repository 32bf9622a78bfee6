//! Reading a changelog into a store that is behind it, a bounded slice a call.

use std::time::Duration;

use crate::cluster::{Cluster, Reader, RecordBatch, Settled};
use crate::record::TopicPartition;
use crate::state::LoadBuffer;

use super::context::Context;
use super::crash;
use super::progress::Restoring;
use super::restore::Setback;
use super::task::{Phase, Task};

/// For how long a changelog may bring nothing before its end.
const NO_PROGRESS_WAIT: Duration = Duration::from_secs(60);
/// Changelog records taken in one read.
const READ_RECORDS_MAX: usize = 10_000;
/// Reads in one slice.
const SLICE_READS_MAX: usize = 4;

/// A store being rebuilt.
pub struct Loading<C: Cluster> {
    settled: Settled,
    reader: C::Reader,
    buffer: LoadBuffer,
    from: i64,
    /// When what the load builds upon was synced: until the load has ended the store is no younger.
    synced_at: i64,
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
        settled: Settled,
        /// Up to where the changelog was read.
        position: i64,
    },
}

impl<C: Cluster> Loading<C> {
    /// Begins to read `changelog` from `from` on, into a store that was told so.
    pub fn new(
        context: &Context,
        cluster: &C,
        changelog: &TopicPartition,
        settled: Settled,
        from: i64,
        synced_at: i64,
    ) -> Result<Self, Setback> {
        let reader = cluster.reader(changelog, from)?;
        let now = context.clock.monotonic();
        let buffer = LoadBuffer::default();
        let told = Restoring::begin(now, settled.changelog_end - from);
        Ok(Self { settled, reader, buffer, from, synced_at, records: 0, began: now, progressed: now, told })
    }
}

/// Reads a slice of the changelog.
pub fn step<C: Cluster>(context: &Context, task: &mut Task<C>, batch: &mut C::Batch) -> Result<Progress, Setback> {
    let Phase::Loading(loading) = &mut task.phase else { return Ok(Progress::Waiting) };
    let end = loading.settled.changelog_end;
    let now = context.clock.monotonic();
    let before = loading.reader.position();
    let records_before = loading.records;
    for _ in 0..SLICE_READS_MAX {
        // Records that were removed meanwhile are no reason to stop: the next try begins where the changelog does.
        let read = loading.reader.read(batch, READ_RECORDS_MAX, Duration::ZERO);
        read.map_err(|error| Setback::Later(error.message))?;
        for index in 0..batch.len() {
            let record = batch.record(index);
            let Some(key) = record.key else {
                let (topic, offset) = (&task.changelog, record.offset);
                return Err(Setback::Refused(format!(
                    "{topic}:{offset} has no key: another program writes to the changelog"
                )));
            };
            loading.buffer.put(key, record.value);
            loading.records += 1;
        }
        if !batch.is_empty() {
            crash::point(crash::Point::DuringRestore);
        }
        if batch.is_empty() || loading.reader.position() >= end {
            break;
        }
    }
    let position = loading.reader.position();
    let worked = loading.records > records_before || position > before;
    loading.told.at(now, position - loading.from, end - position, &task.input, &task.metrics);
    if worked {
        loading.progressed = now;
        task.metrics.restored(loading.records - records_before);
    } else if now.saturating_sub(loading.progressed) > NO_PROGRESS_WAIT {
        return Err(Setback::Later(format!(
            "the changelog brought nothing for {} s: at offset {position} of {end}",
            NO_PROGRESS_WAIT.as_secs()
        )));
    }
    let done = position >= end;
    if done || loading.buffer.bytes() >= context.load_buffer_bytes_max {
        write_loaded(task, position)?;
    }
    if !done {
        return Ok(if worked { Progress::Worked } else { Progress::Waiting });
    }
    let Phase::Loading(loading) = &task.phase else { return Ok(Progress::Waiting) };
    let took = now.saturating_sub(loading.began);
    tracing::info!(
        task = %task.input,
        records = loading.records,
        from = loading.from,
        to = position,
        took_ms = took.as_millis() as u64,
        records_per_second = (loading.records as f64 / took.as_secs_f64().max(0.001)) as u64,
        "store restored"
    );
    Ok(Progress::Loaded { settled: loading.settled.clone(), position })
}

/// Writes what was read into the store.
fn write_loaded<C: Cluster>(task: &mut Task<C>, position: i64) -> Result<(), Setback> {
    let Phase::Loading(loading) = &task.phase else { return Ok(()) };
    let meta = task.store_meta(position, None, loading.synced_at);
    let Phase::Loading(loading) = &mut task.phase else { return Ok(()) };
    let held = task.held.as_mut().expect("claimed before");
    Ok(held.store.load(&mut loading.buffer, &meta)?)
}
