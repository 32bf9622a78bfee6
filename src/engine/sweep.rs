//! The sweeper: walks slowly through a task's store and removes what has expired, from the changelog too. A slice of
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
use super::long_work::Walked;
use super::share::Share;
use super::task::{Phase, Task};
use crate::state;

mod walk;

pub use walk::Sweep;

/// A walk starts when stream time has advanced by this fraction of the retention.
const WALK_SHARE: i64 = 16;
/// ... but by no less than this.
const WALK_MS_MIN: i64 = 1_000;

/// Whether the sweeper has work to do; `share` is the task's, if it is in the open transaction.
pub fn is_due<C: Cluster>(context: &Context, task: &Task<C>, share: Option<&Share>) -> bool {
    let Retention::For { ms } = context.rules.retention else { return false };
    let stream_time = share.map_or(&task.committed, |share| &share.position).progress.stream_time;
    if !matches!(task.phase, Phase::Running) || stream_time == NO_TIME {
        return false;
    }
    let share = (ms / WALK_SHARE).max(WALK_MS_MIN);
    task.sweep.walking || task.sweep.walked_at.is_none_or(|at| stream_time.saturating_sub(at) >= share)
}

/// Examines the next keys. Returns the expired ones, to be removed in the open transaction ([`remove`]).
pub fn slice<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    share: Option<&Share>,
) -> Result<Vec<Vec<u8>>, state::Error> {
    let Some(held) = &mut task.state.held else { return Ok(Vec::new()) };
    let progress = &share.map_or(&task.committed, |share| &share.position).progress;
    let sweep = &mut task.sweep;
    if !sweep.walking {
        (sweep.cursor, sweep.walked_at, sweep.walking) = (None, Some(progress.stream_time), true);
        sweep.walks.begin(context.clock.monotonic(), held.store.entries_estimate());
        // The walk is over what is flushed; the next one is soon enough for what is not.
        if let Err(error) = held.store.begin_flush() {
            tracing::warn!(task = %task.input, reason = %error, "store not flushed");
        }
    }
    let by_wall = sabotage::is_on(Sabotage::SweepByWallClock)
        .then(|| dedup::Progress { stream_time: context.clock.wall_ms(), ..progress.clone() });
    let progress = by_wall.as_ref().unwrap_or(progress);
    let mut walked = 0;
    let mut expired: Vec<Vec<u8>> = Vec::new();
    let cursor = held.store.scan(sweep.cursor.as_deref(), context.limits.sweep_keys_max, |key, value| {
        walked += 1;
        if has_expired(context, progress, value) && share.is_none_or(|share| share.overlay.get(key).is_none()) {
            expired.push(key.to_vec());
        }
    })?;
    // More keys than estimated: there is at least one more slice.
    let left = || held.store.entries_estimate().saturating_sub(sweep.walks.walked() + walked).max(1);
    let slice = Walked { walked, removed: expired.len() as u64, remaining: cursor.is_some().then(left) };
    sweep.walks.at(context.clock.monotonic(), slice, &task.input, &task.report.metrics);
    sweep.walking = cursor.is_some();
    if !sweep.walking {
        task.trouble.panics.walk_ended();
    }
    sweep.cursor = cursor;
    Ok(expired)
}

/// Whether nothing is left to remember of an entry. What is under way is never forgotten. An entry of another format is
/// left for its record to run into: that stops the task with the reason.
fn has_expired(context: &Context, progress: &dedup::Progress, entry: &[u8]) -> bool {
    let Ok(Remembered { settled: Some(settled), under_way: None }) = Remembered::decode(entry) else { return false };
    dedup::is_expired(&context.rules, progress, settled.entry.last_seen)
}

/// Puts tombstones for these keys, found expired in the task's store, into its share.
pub fn remove(share: &mut Share, expired: &[Vec<u8>]) {
    share.removed += expired.len() as u64;
    expired.iter().for_each(|key| share.overlay.put(key, None));
}
