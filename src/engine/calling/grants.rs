//! Grants: a grant in the task's position record permits the calls of all records before an offset, its end, and says
//! since when they may have been sent. These calls need no reservations of their own.
//!
//! A grant does not say which calls were sent. So after a restore, every unsettled record before the grant's end counts
//! as called. If the provider refuses such a call, an earlier attempt may nevertheless have acted, so the call is in
//! doubt. Therefore a grant reaches no further than necessary: about as far as the next transactions will reach and,
//! after an orderly stop, only to the last call that is still open. The grants of former owners are never shortened: a
//! former owner may have called under them, and a frozen one still may.

use crate::effect::call::{KeyWindow, Policy, Reserve};
use crate::engine::share::Position;
use crate::format::Grant;

use super::window::{CalledRecord, Slot, SlotStage, Window};

/// The grant that the next transaction writes: it reaches up to `end`, if it may be extended; `None` if each call has a
/// reservation of its own. `position` is the task's position in that transaction.
///
/// The time of a grant (`since_ms`) is renewed only if no unsettled record can have been called under it, by this owner
/// or a former one. Once the time is so old that the grant permits no further calls, the grant is not extended either:
/// when all records before its end are settled, the time can be renewed.
pub fn next(policy: &Policy, window: &Window, position: &Position, end: i64, wall_ms: i64) -> Option<Grant> {
    let key_window = grantable_key_window(policy)?;
    let Some(last) = position.calls.grants.last().copied() else {
        return Some(Grant { to: end, since_ms: wall_ms });
    };
    let has_begun = |slot: &Slot| match &slot.stage {
        SlotStage::Called(called) => called.call.first_attempt_at_ms().is_some(),
        // Its call may have been sent, although nothing else says so: see `shortened_end`.
        SlotStage::MustStopTask(_) => true,
        SlotStage::Unjudged | SlotStage::Judged(_) | SlotStage::Settled => false,
    };
    // All grants of former owners end within the settled prefix, and no open call has been sent.
    let is_idle = || position.next >= window.former_grants_end() && !window.slots().any(has_begun);
    let to = last.to.max(end);
    Some(match () {
        () if position.next >= last.to || is_idle() => Grant { to, since_ms: wall_ms },
        () if key_window.grants(last.since_ms, wall_ms) => Grant { to, ..last },
        () => last,
    })
}

/// The window in which the provider honours a key; `None` if grants are not used, since the provider honours no keys or
/// the topology reserves each call.
fn grantable_key_window(policy: &Policy) -> Option<KeyWindow> {
    policy.key.filter(|_| policy.reserve == Reserve::Auto)
}

/// The offset to which a leaving task can shorten its last grant, if the grant reaches further: behind the last
/// unsettled call of this owner that may have acted, and not before the end of the grants of former owners; `i64::MIN`
/// if there are neither such calls nor such grants. A record at which the task stops counts as such a call: the call
/// may have been sent under a grant, and the transaction with the reservation that says so may have been aborted.
pub fn shortened_end(window: &Window, position: &Position) -> Option<i64> {
    let last = position.calls.grants.last()?;
    let is_open =
        |called: &CalledRecord| called.call.attempt() > 0 && called.call.may_have_acted() && !called.is_written;
    let open_to = window.slots().filter_map(|slot| match &slot.stage {
        SlotStage::Called(called) if is_open(called) => Some(slot.offset() + 1),
        SlotStage::MustStopTask(_) => Some(slot.offset() + 1),
        _ => None,
    });
    let to = open_to.max().unwrap_or(i64::MIN).max(window.former_grants_end());
    (to < last.to).then_some(to)
}
