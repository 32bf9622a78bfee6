//! Named points at which a drill can kill or freeze the process.
//!
//! `RATCHET_CRASH_AT=POINT:COUNT` ends the process by SIGKILL when it passes POINT for the COUNT-th time, as
//! a power cut would: nothing is flushed, nothing is left. `POINT:COUNT:freeze` stops it there by SIGSTOP, until
//! somebody sends it SIGCONT. The demo and the recovery tests use it; without the variable a point costs one load
//! and one branch.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Before a process freezes after its sends, its other threads get this long to bring them to the broker.
const BEFORE_FREEZING: Duration = Duration::from_secs(1);

/// Where a drill can kill or freeze the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A transaction's records are sent, changelog and position included; it is not committed.
    AfterSends,
    /// Kafka has committed; the store has not been written.
    AfterCommit,
    /// Changelog records were read for a store that is being restored.
    DuringRestore,
    /// A part of what a restore has read is in the store.
    DuringLoad,
    /// While the store's write is under way: another thread strikes as it begins.
    DuringStoreWrite,
    /// A store that cannot be built upon was set aside, and none is in its place.
    StoreSetAside,
    /// The store that was built is complete, on the disk too; the one set aside is there still.
    BeforeAsideRemoved,
    /// A task is refused: what was built is gone, and the store set aside is not back in its place.
    BeforePutBack,
    /// A part of a changelog was written anew.
    DuringRebuild,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::AfterSends,
        Self::AfterCommit,
        Self::DuringRestore,
        Self::DuringLoad,
        Self::DuringStoreWrite,
        Self::StoreSetAside,
        Self::BeforeAsideRemoved,
        Self::BeforePutBack,
        Self::DuringRebuild,
    ];

    /// The name that `RATCHET_CRASH_AT` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfterSends => "after_sends",
            Self::AfterCommit => "after_commit",
            Self::DuringRestore => "during_restore",
            Self::DuringLoad => "during_load",
            Self::DuringStoreWrite => "during_store_write",
            Self::StoreSetAside => "store_set_aside",
            Self::BeforeAsideRemoved => "before_aside_removed",
            Self::BeforePutBack => "before_put_back",
            Self::DuringRebuild => "during_rebuild",
        }
    }
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Kill,
    Freeze,
}

struct Plan {
    point: Point,
    left: AtomicU64,
    blow: Blow,
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

fn parse(text: &str) -> Result<(Point, u64, Blow), String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let point = Point::ALL.into_iter().find(|point| point.name() == name);
    let count = parts.next().map_or(Some(1), |count| count.parse().ok().filter(|&count| count > 0));
    let blow = match (parts.next(), parts.next()) {
        (None, None) => Some(Blow::Kill),
        (Some("freeze"), None) => Some(Blow::Freeze),
        _ => None,
    };
    match (point, count, blow) {
        (Some(point), Some(count), Some(blow)) => Ok((point, count, blow)),
        _ => {
            let names: Vec<_> = Point::ALL.iter().map(|point| point.name()).collect();
            Err(format!(
                "RATCHET_CRASH_AT is {text:?}: write POINT:COUNT, or POINT:COUNT:freeze, with POINT one of {}",
                names.join(", ")
            ))
        }
    }
}

/// Reads `RATCHET_CRASH_AT`; to be called once, at start.
pub fn arm(variable: Option<&str>) -> Result<(), String> {
    let plan = variable.map(parse).transpose()?;
    let plan = plan.map(|(point, count, blow)| Plan { point, left: AtomicU64::new(count), blow });
    if let Some(plan) = &plan {
        tracing::warn!(point = plan.point.name(), "a crash drill is armed");
    }
    // A second arming changes nothing: the first one of the process counts.
    let _ = PLAN.set(plan);
    Ok(())
}

/// Passes `point`, unless the drill kills the process here; during a store's write another thread does that, and the
/// write goes on until then.
#[expect(clippy::disallowed_methods, reason = "a drill stops the whole process: whose clock it is does not matter")]
pub fn point(point: Point) {
    let Some(Some(plan)) = PLAN.get() else { return };
    if plan.point != point || plan.left.fetch_sub(1, Ordering::Relaxed) != 1 {
        return;
    }
    let number = match plan.blow {
        Blow::Kill => {
            tracing::warn!(point = point.name(), "crash drill: killing this process");
            libc::SIGKILL
        }
        Blow::Freeze => {
            tracing::warn!(point = point.name(), "crash drill: freezing this process");
            libc::SIGSTOP
        }
    };
    match (point, plan.blow) {
        (Point::DuringStoreWrite, _) => drop(std::thread::spawn(move || signal(number))),
        (Point::AfterSends, Blow::Freeze) => {
            std::thread::sleep(BEFORE_FREEZING);
            signal(number);
        }
        _ => signal(number),
    }
}

fn signal(number: libc::c_int) {
    // SAFETY: `kill` and `getpid` take and return plain numbers.
    unsafe { libc::kill(libc::getpid(), number) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_parsed_by_name_count_and_blow() {
        assert_eq!(parse("after_sends:3"), Ok((Point::AfterSends, 3, Blow::Kill)));
        assert_eq!(parse("during_restore"), Ok((Point::DuringRestore, 1, Blow::Kill)));
        assert_eq!(parse("after_sends:5:freeze"), Ok((Point::AfterSends, 5, Blow::Freeze)));
        for wrong in ["", "nowhere:1", "after_sends:0", "after_sends:x", "after_sends:1:melt", "after_sends:1:freeze:2"]
        {
            assert!(parse(wrong).unwrap_err().contains("after_commit"), "{wrong}");
        }
    }
}
