//! Sends calls to the provider, and withdraws them.

use std::sync::Arc;
use std::time::Duration;

use crate::effect::call::{Action, Event, Key, KeyOf, Now, Stage};
use crate::effect::provider::{Asks, CallNumber, Rendered, Request};
use crate::engine::context::Context;
use crate::engine::crash;
use crate::engine::share::TaskId;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Terms;

use super::health::Health;
use super::window::{Called, SlotStage, Window};
use super::{Calling, Windows};

/// The most calls that the driver may queue per call that may be under way. They keep it busy for the milliseconds in
/// which the lane does something else. Behind a longer queue, a repeated call would wait too long.
const QUEUED_PER_CALL: usize = 2;
/// The driver may always queue this many.
const QUEUED_MIN: usize = 64;
/// How many unsent calls are enough, per call that may be under way: with that many, nothing more is read. A
/// transaction that authorises calls takes 10 ms or more, in which a fast provider handles hundreds.
const UNSENT_PER_CALL: usize = 16;
/// Fewer unsent calls than this are never enough.
const UNSENT_MIN: usize = 64;

impl Calling {
    /// How many records are worth reading now: none while there are enough calls. So no window has to be paused, which
    /// would have records read twice, and rounds have few slots to look at.
    pub fn reads_max(&self, terms: &Terms, records_max: usize) -> usize {
        if self.has_enough { 0 } else { records_max.min(unsent_max(terms)) }
    }

    /// Withdraws all calls that are not on the wire yet, except the one that is being tried.
    pub(super) fn withdraw_all(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) {
        // Usually no other call is under way, and windows are long.
        if self.under_way.keys().all(|number| self.health.is_probe(*number)) {
            return;
        }
        for id in windows.at_work() {
            let Some(window) = windows.window(id) else { continue };
            self.withdraw_if(context, terms, window, |health, number| !health.is_probe(number));
        }
    }

    /// Withdraws the calls of a window that are not on the wire yet.
    pub fn withdraw(&mut self, context: &Context, terms: &Terms, window: &mut Window) {
        self.withdraw_if(context, terms, window, |_, _| true);
    }

    /// Withdraws those of a window's calls that are not on the wire yet and for which `is_included` returns true.
    fn withdraw_if(
        &mut self,
        context: &Context,
        terms: &Terms,
        window: &mut Window,
        is_included: impl Fn(&Health, CallNumber) -> bool,
    ) {
        let now = Self::now(context);
        for at in 0..window.len() {
            let SlotStage::Called(called) = &window.slot(at).stage else { continue };
            let is_to_withdraw = called.call.stage() == Stage::Sent && is_included(&self.health, called.number);
            if !is_to_withdraw || !self.calls.withdraw(called.number) {
                continue;
            }
            self.forget_call(called.number);
            let attempt = called.call.attempt();
            if let SlotStage::Called(called) = &mut window.slot_mut(at).stage {
                let random = &mut self.random;
                let event = Event::Withdrawn { attempt };
                called.apply_event(&terms.policy, event, now, &mut |most| random.up_to(most));
            }
        }
    }

    /// Forgets a call that was withdrawn, or whose record no longer waits for it.
    pub(super) fn forget_call(&mut self, number: CallNumber) {
        self.under_way.remove(&number);
        self.health.on_dropped(number);
    }

    /// Gives up the calls of a window: withdraws those that are not on the wire, and abandons the others.
    pub fn drop_window(&mut self, window: &Window) {
        for slot in window.slots() {
            if let SlotStage::Called(called) = &slot.stage
                && called.call.stage() == Stage::Sent
            {
                // Either way its answer is ignored.
                if !self.calls.withdraw(called.number) {
                    self.calls.abandon(called.number);
                }
                self.forget_call(called.number);
            }
        }
    }

    /// Sends the calls that are ready, as many as there is room for.
    pub fn send(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) {
        let now = Self::now(context);
        self.has_enough = false;
        if self.health.is_held() {
            return self.send_probe(terms, windows, now);
        }
        let (under_way_max, mut unsent) = (terms.in_flight + queued_max(terms), 0);
        for id in windows.at_work() {
            let Some(window) = windows.window(id) else { continue };
            for at in 0..window.len() {
                let slot = window.slot(at);
                let SlotStage::Called(called) = &slot.stage else { continue };
                match called.call.stage() {
                    // Its handler's progress is not committed yet, or its time has not come.
                    Stage::Ready if !is_ready(called) || called.send_at > now.monotonic => continue,
                    Stage::Ready if self.under_way.len() < under_way_max => {}
                    Stage::Ready | Stage::Waits(_) | Stage::Writing(_) => {
                        unsent += 1;
                        continue;
                    }
                    Stage::Sent | Stage::Decided(_) => continue,
                }
                let offset = slot.offset();
                let SlotStage::Called(called) = &mut window.slot_mut(at).stage else { continue };
                self.dispatch(terms, (id, offset), called, now);
            }
        }
        self.has_enough = unsent >= unsent_max(terms);
    }

    /// While calls are held: sends the call that has waited longest, so that one that fails for reasons of its own
    /// does not keep the others from finding the provider alive.
    fn send_probe(&mut self, terms: &Terms, windows: &mut impl Windows, now: Now) {
        if !self.health.may_send(now.monotonic) {
            return;
        }
        let mut longest: Option<(Duration, TaskId, usize)> = None;
        for id in windows.at_work() {
            let Some(window) = windows.window(id) else { continue };
            for (at, slot) in window.slots().enumerate() {
                let SlotStage::Called(called) = &slot.stage else { continue };
                let is_ready = called.is_ready() && called.send_at <= now.monotonic;
                if is_ready && longest.is_none_or(|(send_at, ..)| called.send_at < send_at) {
                    longest = Some((called.send_at, id, at));
                }
            }
        }
        let Some((_, id, at)) = longest else { return };
        let Some(window) = windows.window(id) else { return };
        let offset = window.slot(at).offset();
        if let SlotStage::Called(called) = &mut window.slot_mut(at).stage {
            self.dispatch(terms, (id, offset), called, now);
        }
    }

    /// Gives a call to the driver.
    fn dispatch(&mut self, terms: &Terms, (id, offset): (TaskId, i64), called: &mut Called, now: Now) {
        let random = &mut self.random;
        let may_have_acted = called.call.may_have_acted();
        let action = called.apply_event(&terms.policy, Event::Dispatch, now, &mut |most| random.up_to(most));
        let Some(Action::Send { attempt }) = action else { return };
        let first_at_ms = called.call.first_at_ms().expect("a call that is sent has a first attempt");
        let number = called.number;
        self.under_way.insert(number, (id, offset));
        self.health.on_sent(number);
        let mut asks = called.asks.clone();
        let other = match () {
            () if sabotage::is_on(Sabotage::KeyOfAttempt) => Some(i64::from(attempt)),
            () if sabotage::is_on(Sabotage::KeyOfPlace) => Some(offset),
            () => None,
        };
        if let (Some(other), Asks::Http(rendered)) = (other, &mut asks) {
            let key = rendered.key.as_ref().map(|key| other_key(key, other));
            *rendered = Arc::new(Rendered { key, ..(**rendered).clone() });
        }
        crash::point(crash::Point::BeforeSubmit);
        let journal = Arc::clone(&called.journal);
        self.calls.submit(Request { number, attempt, first_at_ms, may_have_acted, asks, journal });
    }

    /// When the next call is to be sent, on the monotonic clock; `ready` is when the first one is ready, if any is.
    pub fn next_send(&self, ready: Option<Duration>) -> Option<Duration> {
        match (ready, self.health.is_held()) {
            (Some(ready), true) => self.health.next_try().map(|next_try| next_try.max(ready)),
            (ready, _) => ready,
        }
    }
}

/// Whether a call is to be sent, once it is time.
fn is_ready(called: &Called) -> bool {
    called.is_ready() || sabotage::is_on(Sabotage::RunAgainInCommit)
}

/// The most calls that the driver may queue.
fn queued_max(terms: &Terms) -> usize {
    (terms.in_flight * QUEUED_PER_CALL).max(QUEUED_MIN)
}

/// How many unsent calls are enough.
fn unsent_max(terms: &Terms) -> usize {
    (terms.in_flight * UNSENT_PER_CALL).max(UNSENT_MIN)
}

/// For a sabotage: another key, made from this one and a number.
fn other_key(key: &Key, number: i64) -> Key {
    let parts =
        KeyOf { topology: key.as_str(), identity: &number.to_be_bytes(), epoch: None, version: None, step: None };
    Key::of(parts)
}
