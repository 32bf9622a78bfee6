//! Grants: the position record says up to which offset calls need no reservations of their own, and since when.
//!
//! After a restore, every unsettled record before that offset counts as called: a refusal then says nothing about an
//! earlier attempt, so the call is in doubt. So a grant reaches no further than necessary: about as far as the next
//! transactions will reach and, after an orderly stop, only to the last call that is still open. Grants of former
//! owners are always kept: a former owner may have called under its grants, and a frozen owner still may.

use crate::effect::call::{KeyWindow, Policy, Reserve};
use crate::engine::share::Position;
use crate::format::Called as Granted;

use super::window::{CalledRecord, Slot, SlotStage, Window};

/// The grant that the next transaction writes: it reaches up to `end`, if it may be extended; `None` if the topology
/// reserves each call. `position` is the task's position in that transaction.
///
/// The time of a grant is renewed only if neither this owner nor a former one can have called under it. Once it is too
/// old to authorise calls, the grant is not extended either, so that the settled prefix reaches its end.
pub fn next(policy: &Policy, window: &Window, position: &Position, end: i64, wall_ms: i64) -> Option<Granted> {
    let key = key_window(policy)?;
    let Some(former) = position.calls.called.last().copied() else {
        return Some(Granted { to: end, since_ms: wall_ms });
    };
    let has_begun = |slot: &Slot| match &slot.stage {
        SlotStage::Called(called) => called.call.first_attempt_at_ms().is_some(),
        // Its call may have been sent: see `shortened_end`.
        SlotStage::Stops(_) => true,
        SlotStage::Unjudged | SlotStage::Judged(_) | SlotStage::Settled => false,
    };
    // All grants of former owners end within the settled prefix, and no open call has been sent.
    let is_idle = || position.next >= window.former_grants_end() && !window.slots().any(has_begun);
    let to = former.to.max(end);
    Some(match () {
        () if position.next >= former.to || is_idle() => Granted { to, since_ms: wall_ms },
        () if key.grants(former.since_ms, wall_ms) => Granted { to, ..former },
        () => former,
    })
}

fn key_window(policy: &Policy) -> Option<KeyWindow> {
    policy.key.filter(|_| policy.reserve == Reserve::Auto)
}

/// The offset to which a leaving task can shorten its grants, if they reach further: after the last unsettled call that
/// may have been sent. A record at which the task stops counts as well: the transaction with its reservation may have
/// been aborted.
pub fn shortened_end(window: &Window, position: &Position) -> Option<i64> {
    let granted = position.calls.called.last()?;
    let is_open =
        |called: &CalledRecord| called.call.attempt() > 0 && called.call.may_have_acted() && !called.is_written;
    let open_to = window.slots().filter_map(|slot| match &slot.stage {
        SlotStage::Called(called) if is_open(called) => Some(slot.offset() + 1),
        SlotStage::Stops(_) => Some(slot.offset() + 1),
        _ => None,
    });
    let to = open_to.max().unwrap_or(i64::MIN).max(window.former_grants_end());
    (to < granted.to).then_some(to)
}
