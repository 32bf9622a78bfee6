//! How much a lane does at once, and how much of a past it keeps: constants wherever ratchet runs. Nothing that a user can
//! configure leads here; the simulation sets others, small enough to be met.

use crate::dedup::Bounds;

/// Bounds of a lane's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records taken in one poll.
    pub poll_records_max: usize,
    /// How many tasks of a lane load at once: each takes memory for what it gathers.
    pub loads_max: usize,
    /// Keys that the sweeper looks at in one slice.
    pub sweep_keys_max: usize,
    /// How many tasks of a lane that are isolated are at work at once: each takes clients of its own.
    pub isolated_max: usize,
    /// Records in one transaction of an isolated task.
    pub isolated_records_max: usize,
    /// How often in a row a lane may panic, before it is given up.
    pub lane_panics_max: u32,
    /// How often a restore asks again where it is refused for what a broker has answered
    /// ([`is_doubtful`](super::resume::Refusal::is_doubtful)).
    pub doubts_max: u32,
    /// What is kept of a task's past.
    pub kept: Bounds,
}

impl Limits {
    /// Those that hold wherever ratchet runs.
    pub const USUAL: Self = Self {
        poll_records_max: 4096,
        loads_max: 4,
        sweep_keys_max: 2_000,
        isolated_max: 4,
        isolated_records_max: 500,
        lane_panics_max: 5,
        // Within some three seconds.
        doubts_max: 5,
        kept: Bounds::USUAL,
    };
}
