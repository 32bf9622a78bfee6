//! What a lane reports, and when its gauges and flushes are due.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::share::TaskId;
use crate::engine::status::LaneStatus;

/// How often stores are flushed, so that a store without changes does not keep an old position on disk.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);
/// How often gauges are updated.
const GAUGE_INTERVAL: Duration = Duration::from_millis(500);

/// A lane's reports to its supervisor.
pub(super) struct Reports {
    /// The lane's status for the supervisor.
    pub status: Arc<LaneStatus>,
    /// Whether the lane is reported as a member of its group.
    pub is_joined: bool,
    /// Whether, at the last report, each of its tasks had committed all records that it knew of, or had stopped.
    pub is_at_rest: bool,
    /// When gauges were last updated, on the monotonic clock.
    pub gauged_at: Duration,
}

impl Reports {
    /// The reports of a new lane.
    pub fn of(status: Arc<LaneStatus>) -> Self {
        Self { status, is_joined: false, is_at_rest: false, gauged_at: Duration::ZERO }
    }

    /// When gauges are updated next, on the monotonic clock.
    pub fn next_gauge(&self) -> Duration {
        self.gauged_at + GAUGE_INTERVAL
    }
}

/// Flushes of the stores of tasks at work. A round of flushes covers each store once.
pub(super) struct Flushes {
    /// When the last round began, on the monotonic clock.
    pub began_at: Duration,
    /// The tasks whose stores are still to be flushed in this round.
    pub pending: Vec<TaskId>,
}

impl Flushes {
    /// Flushes whose first round begins an interval after `now`.
    pub fn starting_at(now: Duration) -> Self {
        Self { began_at: now, pending: Vec::new() }
    }

    /// Whether another round is due.
    pub fn is_round_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.began_at) >= FLUSH_INTERVAL
    }

    /// Whether a store is still to be flushed.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}
