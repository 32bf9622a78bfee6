//! The sweeper: walks a task's store slowly and removes what has expired, from the changelog too.
//!
//! It only ever writes tombstones into the overlay of the lane's open transaction, so they are committed with
//! the task's offsets or not at all: a stale owner's tombstones cannot commit. A key that the transaction has
//! written is left alone. The pace is stream time's: a walk begins when stream time has moved on by a share
//! of the retention, never by the wall clock.

use crate::cluster::Cluster;
use crate::dedup::{self, Retention};
use crate::format::{EntryRef, NO_TIME};
use crate::mistakes::{self, Mistake};

use super::context::Context;
use super::progress::{Walked, Walks};
use super::task::{Phase, Task};
use crate::state;

/// A walk begins when stream time has moved on by this part of the retention.
const WALK_SHARE: i64 = 16;
/// ... but by no less than this.
const WALK_MS_MIN: i64 = 1_000;

/// How far the sweeper has walked in a store.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// The last key looked at, while a walk is under way.
    cursor: Option<Vec<u8>>,
    /// Stream time when the last walk began.
    walked_at: Option<i64>,
    walking: bool,
    /// What is told of the walks.
    walks: Walks,
    /// What the open transaction removes.
    removed: u64,
}

impl Sweep {
    /// Begins at the front again: the store may have changed under the cursor.
    pub fn reset(&mut self) {
        *self = Self { walks: std::mem::take(&mut self.walks), ..Self::default() };
    }

    /// What was removed by the transaction that is now committed.
    pub fn take_removed(&mut self) -> u64 {
        std::mem::take(&mut self.removed)
    }
}

/// Whether there is something to walk for.
pub fn is_due<C: Cluster>(context: &Context, task: &Task<C>) -> bool {
    let Retention::For { ms } = context.rules.retention else { return false };
    let stream_time = task.pending.progress.stream_time;
    if !matches!(task.phase, Phase::Running) || stream_time == NO_TIME {
        return false;
    }
    let share = (ms / WALK_SHARE).max(WALK_MS_MIN);
    task.sweep.walking || task.sweep.walked_at.is_none_or(|at| stream_time.saturating_sub(at) >= share)
}

/// Looks at the next keys and puts tombstones for the expired ones into the overlay. Gives their number; with
/// any, the task must be in the open transaction.
pub fn slice<C: Cluster>(context: &Context, task: &mut Task<C>) -> Result<usize, state::Error> {
    let held = task.held.as_ref().expect("a task at work holds its store");
    let progress = &task.pending.progress;
    let sweep = &mut task.sweep;
    if !sweep.walking {
        (sweep.cursor, sweep.walked_at, sweep.walking) = (None, Some(progress.stream_time), true);
        sweep.walks.begin(context.clock.monotonic(), held.store.entries_estimate());
    }
    let by_wall = mistakes::made(Mistake::SweepByWallClock)
        .then(|| dedup::Progress { stream_time: context.clock.wall_ms(), ..progress.clone() });
    let progress = by_wall.as_ref().unwrap_or(progress);
    let mut walked = 0;
    let mut expired: Vec<Vec<u8>> = Vec::new();
    let cursor = held.store.scan(sweep.cursor.as_deref(), context.limits.sweep_keys_max, |key, value| {
        walked += 1;
        // An entry of another format is left for its record to meet: that stops the task with the reason.
        let entry = EntryRef::decode(value);
        let is_expired = entry.is_ok_and(|entry| dedup::is_expired(&context.rules, progress, entry.last_seen));
        if is_expired && task.overlay.get(key).is_none() {
            expired.push(key.to_vec());
        }
    })?;
    // More keys than were estimated: there is at least one slice to come.
    let left = || held.store.entries_estimate().saturating_sub(sweep.walks.walked() + walked).max(1);
    let told = Walked { walked, removed: expired.len() as u64, remaining: cursor.is_some().then(left) };
    sweep.walks.at(context.clock.monotonic(), told, &task.input, &task.metrics);
    sweep.walking = cursor.is_some();
    if !sweep.walking {
        task.panics.walk_ended();
    }
    sweep.cursor = cursor;
    sweep.removed += expired.len() as u64;
    for key in &expired {
        task.overlay.put(key, None);
    }
    Ok(expired.len())
}
