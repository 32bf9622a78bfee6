//! How much a lane does at once, and how much of its past a task keeps: constants in production. No user configuration
//! reaches them; the simulation sets smaller ones that it can run into.

use crate::dedup::Bounds;

/// Bounds of a lane's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records per poll.
    pub poll_records_max: usize,
    /// How many tasks of a lane load at once: each takes memory for its buffers.
    pub loads_max: usize,
    /// Keys that the sweeper examines in one slice.
    pub sweep_keys_max: usize,
    /// How many isolated tasks of a lane are at work at once: each takes clients of its own.
    pub isolated_max: usize,
    /// Records per transaction of an isolated task.
    pub isolated_records_max: usize,
    /// Records that a task has read and not settled, where it calls a provider: it reads on once half of them are.
    pub window_records_max: usize,
    /// How often in a row a lane may panic before it is given up.
    pub lane_panics_max: u32,
    /// How often a restore asks again after a refusal because of a broker's response
    /// ([`is_doubtful`](super::resume::Refusal::is_doubtful)).
    pub doubts_max: u32,
    /// How much of a task's past is kept.
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
