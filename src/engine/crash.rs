//! Named points at which a drill can kill the process.
//!
//! `RATCHET_CRASH_AT=POINT:COUNT` ends the process by SIGKILL when it passes POINT for the COUNT-th time, as
//! a power cut would: nothing is flushed, nothing is left. The demo and the recovery tests use it; without
//! the variable a point costs one load and one branch.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a drill can kill the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A transaction's records are sent, changelog and position included; it is not committed.
    AfterSends,
    /// Kafka has committed; the store has not been written.
    AfterCommit,
    /// Changelog records were read for a store that is being restored.
    DuringRestore,
    /// While the store's write is under way: another thread kills as it begins.
    DuringStoreWrite,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::AfterSends, Self::AfterCommit, Self::DuringRestore, Self::DuringStoreWrite];

    /// The name that `RATCHET_CRASH_AT` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfterSends => "after_sends",
            Self::AfterCommit => "after_commit",
            Self::DuringRestore => "during_restore",
            Self::DuringStoreWrite => "during_store_write",
        }
    }
}

struct Plan {
    point: Point,
    left: AtomicU64,
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

fn parse(text: &str) -> Result<(Point, u64), String> {
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    let point = Point::ALL.into_iter().find(|point| point.name() == name);
    match (point, count.parse()) {
        (Some(point), Ok(count)) if count > 0 => Ok((point, count)),
        _ => {
            let names: Vec<_> = Point::ALL.iter().map(|point| point.name()).collect();
            Err(format!("RATCHET_CRASH_AT is {text:?}: write POINT:COUNT with POINT one of {}", names.join(", ")))
        }
    }
}

/// Reads `RATCHET_CRASH_AT`; to be called once, at start.
pub fn arm(variable: Option<&str>) -> Result<(), String> {
    let plan = variable.map(parse).transpose()?.map(|(point, count)| Plan { point, left: AtomicU64::new(count) });
    if let Some(plan) = &plan {
        tracing::warn!(point = plan.point.name(), "a crash drill is armed");
    }
    // A second arming changes nothing: the first one of the process counts.
    let _ = PLAN.set(plan);
    Ok(())
}

/// Passes `point`; does not return if the drill ends here.
pub fn point(point: Point) {
    let Some(Some(plan)) = PLAN.get() else { return };
    if plan.point != point || plan.left.fetch_sub(1, Ordering::Relaxed) != 1 {
        return;
    }
    tracing::warn!(point = point.name(), "crash drill: killing this process");
    if point == Point::DuringStoreWrite {
        std::thread::spawn(kill);
    } else {
        kill();
    }
}

fn kill() {
    // SAFETY: `kill` and `getpid` take and return plain numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_parsed_by_name_and_count() {
        assert_eq!(parse("after_sends:3"), Ok((Point::AfterSends, 3)));
        assert_eq!(parse("during_restore"), Ok((Point::DuringRestore, 1)));
        for wrong in ["", "nowhere:1", "after_sends:0", "after_sends:x"] {
            assert!(parse(wrong).unwrap_err().contains("after_commit"), "{wrong}");
        }
    }
}
