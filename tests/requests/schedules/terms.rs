//! What a seed is about: the kind of store, how the layer is set, how bad things are.

use std::time::Duration;

use ratchet::http::{OnInDoubt, OnStoreDown};

use super::store::Line;
use super::world::World;

/// What kind of store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A server: its clock may be set at any time.
    Shared,
    /// A folder of one process's: its clock is set while it is closed, and what was not synced may be lost.
    Embedded,
}

/// All of it.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub kind: Kind,
    /// Nothing is lost, nobody is silent, and the clock is as good as right; processes die all the same.
    pub is_quiet: bool,
    pub line: Line,
    pub on_in_doubt: OnInDoubt,
    pub on_store_down: OnStoreDown,
    /// So short that answers are forgotten, or longer than all of a run.
    pub retention: Duration,
}

impl Terms {
    pub fn draw(world: &World) -> Terms {
        let is_quiet = world.chance(400);
        let bad = |bound: u64| if is_quiet { 0 } else { world.below(bound) };
        let line = Line { lost: bad(150), answer_lost: bad(150), slow: bad(100) };
        let on_in_doubt = if world.chance(400) { OnInDoubt::Refuse } else { OnInDoubt::Run };
        let on_store_down = if world.chance(250) { OnStoreDown::Pass } else { OnStoreDown::Refuse };
        let kind = if world.chance(250) { Kind::Embedded } else { Kind::Shared };
        let short = Duration::from_secs(5 + world.below(10));
        let retention = if world.chance(500) { short } else { Duration::from_secs(24 * 3_600) };
        Terms { kind, is_quiet, line, on_in_doubt, on_store_down, retention }
    }

    /// How many processes there are.
    pub fn processes(&self) -> usize {
        match self.kind {
            Kind::Shared => 3,
            Kind::Embedded => 1,
        }
    }

    pub fn retention_ms(&self) -> i64 {
        i64::try_from(self.retention.as_millis()).expect("a day")
    }
}
