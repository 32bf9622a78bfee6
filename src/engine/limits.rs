//! Bounds of a lane's work and of the history that a task keeps. They are constants in production and cannot be
//! configured; the simulation sets smaller ones, so that it reaches them.

use crate::dedup::Bounds;

/// Bounds of a lane's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records per poll.
    pub poll_records_max: usize,
    /// How many tasks of a lane load at once: each needs memory for its buffers.
    pub loads_max: usize,
    /// Keys that the sweeper examines in one slice.
    pub sweep_keys_max: usize,
    /// How many isolated tasks of a lane are active at once: each needs clients of its own.
    pub isolated_max: usize,
    /// Records per transaction of an isolated task.
    pub isolated_records_max: usize,
    /// Records that a task may have read and not settled, if it calls a provider. A full window continues to read once
    /// half of them are settled.
    pub window_records_max: usize,
    /// How often in a row a lane may panic before it is given up.
    pub lane_panics_max: u32,
    /// How often a restore is repeated after a refusal because of a broker's response
    /// ([`is_doubtful`](super::resume::Refusal::is_doubtful)).
    pub doubts_max: u32,
    /// Bounds of the history that a task keeps.
    pub kept: Bounds,
}

impl Limits {
    /// The limits in production.
    pub const DEFAULT: Self = Self {
        poll_records_max: 4096,
        loads_max: 4,
        sweep_keys_max: 2_000,
        isolated_max: 4,
        isolated_records_max: 500,
        window_records_max: 4096,
        lane_panics_max: 5,
        // Within about three seconds.
        doubts_max: 5,
        kept: Bounds::DEFAULT,
    };
}
