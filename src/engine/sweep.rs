//! The sweeper: walks slowly through a task's store and removes expired entries, from the changelog too. A slice of
//! the walk examines at most [`sweep_keys_max`](super::limits::Limits::sweep_keys_max) keys.
//!
//! Expired entries become tombstones in the task's share of the open transaction, so they are committed with the task's
//! offsets or not at all: a stale owner's tombstones cannot commit. A key that the transaction has written is left
//! alone. Stream time sets the pace, never the wall clock: a walk starts when stream time has advanced by a share of
//! the retention.

use crate::cluster::Cluster;
use crate::dedup::{self, Retention};
use crate::format::{NO_TIME, Remembered};
use crate::sabotage::{self, Sabotage};

use super::context::Context;
use super::long_work::WalkSlice;
use super::share::Share;
use super::task::{Phase, Task};
use crate::state;

mod walk;

pub use walk::Sweep;

/// A walk starts when stream time has advanced by the retention divided by this number.
const WALK_SHARE: i64 = 16;
/// The least advance of stream time that starts a walk, in milliseconds.
const WALK_MS_MIN: i64 = 1_000;

/// Whether the sweeper has work to do; `share` is the task's, if it is in the open transaction.
pub fn is_due<C: Cluster>(context: &Context, task: &Task<C>, share: Option<&Share>) -> bool {
    let Retention::For { ms } = context.rules.retention else { return false };
    let stream_time = share.map_or(&task.committed, |share| &share.position).progress.stream_time;
    if !matches!(task.phase, Phase::Running) || stream_time == NO_TIME {
        return false;
    }
    let interval_ms = (ms / WALK_SHARE).max(WALK_MS_MIN);
    task.sweep.is_walking || task.sweep.walked_at.is_none_or(|at| stream_time.saturating_sub(at) >= interval_ms)
}

/// Examines the next keys. Returns the expired ones, to be removed in the open transaction ([`remove`]).
pub fn slice<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    share: Option<&Share>,
) -> Result<Vec<Vec<u8>>, state::Error> {
    let Some(locked_store) = &mut task.state.store else { return Ok(Vec::new()) };
    let progress = &share.map_or(&task.committed, |share| &share.position).progress;
    let sweep = &mut task.sweep;
    if !sweep.is_walking {
        (sweep.cursor, sweep.walked_at, sweep.is_walking) = (None, Some(progress.stream_time), true);
        sweep.walks.begin(context.clock.monotonic(), locked_store.store.entries_estimate());
        // The walk covers flushed entries; entries that are not flushed yet can wait for the next walk.
        if let Err(error) = locked_store.store.begin_flush() {
            tracing::warn!(task = %task.input, reason = %error, "store not flushed");
        }
    }
    let wall_clock_progress = sabotage::is_on(Sabotage::SweepByWallClock)
        .then(|| dedup::Progress { stream_time: context.clock.wall_ms(), ..progress.clone() });
    let progress = wall_clock_progress.as_ref().unwrap_or(progress);
    let mut walked = 0;
    let mut expired: Vec<Vec<u8>> = Vec::new();
    let cursor = locked_store.store.scan(sweep.cursor.as_deref(), context.limits.sweep_keys_max, |key, value| {
        walked += 1;
        if has_expired(context, progress, value) && share.is_none_or(|share| share.overlay.get(key).is_none()) {
            expired.push(key.to_vec());
        }
    })?;
    // More keys than estimated: there is at least one more slice.
    let remaining = || locked_store.store.entries_estimate().saturating_sub(sweep.walks.walked() + walked).max(1);
    let slice = WalkSlice { walked, removed: expired.len() as u64, remaining: cursor.is_some().then(remaining) };
    sweep.walks.report(context.clock.monotonic(), slice, &task.input, &task.report.metrics);
    sweep.is_walking = cursor.is_some();
    if !sweep.is_walking {
        task.trouble.panics.on_walk_end();
    }
    sweep.cursor = cursor;
    Ok(expired)
}

/// Whether an entry has expired. An entry with a call under way never expires. An entry of another format is left in
/// place: the next record of its identity stops the task with the reason.
fn has_expired(context: &Context, progress: &dedup::Progress, entry: &[u8]) -> bool {
    let Ok(Remembered { settled: Some(settled), reservation: None }) = Remembered::decode(entry) else { return false };
    dedup::is_expired(&context.rules, progress, settled.entry.last_seen)
}

/// Puts tombstones for these keys, found expired in the task's store, into its share.
pub fn remove(share: &mut Share, expired: &[Vec<u8>]) {
    share.removed += expired.len() as u64;
    expired.iter().for_each(|key| share.overlay.put(key, None));
}
