//! Grants: the position record says up to which offset calls may go without reservations of their own, and since when.
//!
//! After a restore whatever lies before that offset and is not settled counts as called: a refusal says nothing about
//! the attempt before it, and is in doubt. So a grant reaches no further than it has to: about as far as the next
//! transactions come, and after a stop in order to the last call that is still open. What former owners were granted
//! stays in any case: they may have called there, and one that is frozen still may.

use crate::effect::call::{KeyWindow, Policy, Reserve};
use crate::engine::share::Position;
use crate::format::Called as Granted;

use super::window::{Called, Slot, SlotStage, Window};

/// The grant that the next transaction writes: one that reaches to `end`, if it may. `position` is as of that
/// transaction; `None` where the topology reserves each call.
///
/// The time of grants is renewed only where nobody can have called under them: neither this owner nor a former one. Once
/// it is too old to let anything go, the grant is not extended either, so that the settled prefix reaches its end.
pub fn next(policy: &Policy, window: &Window, position: &Position, end: i64, wall_ms: i64) -> Option<Granted> {
    let key = key(policy)?;
    let Some(former) = position.calls.called.last().copied() else {
        return Some(Granted { to: end, since_ms: wall_ms });
    };
    let has_begun = |slot: &Slot| match &slot.stage {
        SlotStage::Called(called) => called.call.first_at_ms().is_some(),
        // It may have been called before: see [`end_of_open`].
        SlotStage::Stops(_) => true,
        SlotStage::Unjudged | SlotStage::Judged(_) | SlotStage::Settled => false,
    };
    // Nobody before this owner can have called beyond its settled prefix.
    let is_idle = || position.next >= window.former_to() && !window.slots().any(has_begun);
    let to = former.to.max(end);
    Some(match () {
        () if position.next >= former.to || is_idle() => Granted { to, since_ms: wall_ms },
        () if key.grants(former.since_ms, wall_ms) => Granted { to, ..former },
        () => former,
    })
}

fn key(policy: &Policy) -> Option<KeyWindow> {
    policy.key.filter(|_| policy.reserve == Reserve::Auto)
}

/// Where the grants of a task that leaves may end: behind the last call that may have been sent and is not settled. One at
/// which its task stops is among them: the transaction that was to say so of it may have been aborted.
pub fn end_of_open(window: &Window, position: &Position) -> Option<i64> {
    let granted = position.calls.called.last()?;
    let is_open = |called: &Called| called.call.attempt() > 0 && called.call.may_have_acted() && !called.is_written;
    let open_to = window.slots().filter_map(|slot| match &slot.stage {
        SlotStage::Called(called) if is_open(called) => Some(slot.offset() + 1),
        SlotStage::Stops(_) => Some(slot.offset() + 1),
        _ => None,
    });
    let to = open_to.max().unwrap_or(i64::MIN).max(window.former_to());
    (to < granted.to).then_some(to)
}
