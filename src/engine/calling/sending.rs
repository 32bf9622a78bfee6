//! What a lane sends to its provider, and takes back.

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

/// How many calls may wait for their turn in the driver for each that may be under way: it goes on with them while the
/// lane does something else, for some milliseconds. More of them, and a call that is made again would wait behind all
/// that came before it.
const QUEUED_PER_CALL: usize = 2;
/// How many may wait in any case.
const QUEUED_MIN: usize = 64;
/// How many calls are to be there that were not sent, for each that may be under way: while there are so many, nothing
/// more is read. A transaction that lets them go takes 10 ms and more, in which a fast provider does hundreds.
const UNSENT_PER_CALL: usize = 16;
/// How many are to be there in any case.
const UNSENT_MIN: usize = 64;

impl Calling {
    /// How many records are worth reading now: none while there are enough calls, so that no window has to be paused,
    /// which has records read twice, and rounds look at few slots.
    pub fn reads_max(&self, terms: &Terms, records_max: usize) -> usize {
        if self.has_enough { 0 } else { records_max.min(unsent_max(terms)) }
    }

    /// Takes back whatever is not on the wire yet, but for the call that is being tried.
    pub(super) fn withdraw_all(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) {
        // It is all that is under way most of the time, and windows are long.
        if self.under_way.keys().all(|number| self.health.is_probe(*number)) {
            return;
        }
        for id in windows.at_work() {
            let Some(window) = windows.window(id) else { continue };
            self.withdraw_if(context, terms, window, |health, number| !health.is_probe(number));
        }
    }

    /// Takes back the calls of a window that are not on the wire yet.
    pub fn withdraw(&mut self, context: &Context, terms: &Terms, window: &mut Window) {
        self.withdraw_if(context, terms, window, |_, _| true);
    }

    fn withdraw_if(
        &mut self,
        context: &Context,
        terms: &Terms,
        window: &mut Window,
        is_meant: impl Fn(&Health, CallNumber) -> bool,
    ) {
        let now = Self::now(context);
        for at in 0..window.len() {
            let SlotStage::Called(called) = &window.slot(at).stage else { continue };
            let is_sent = called.call.stage() == Stage::Sent && is_meant(&self.health, called.number);
            if !is_sent || !self.calls.withdraw(called.number) {
                continue;
            }
            self.forget(called.number);
            let attempt = called.call.attempt();
            if let SlotStage::Called(called) = &mut window.slot_mut(at).stage {
                let random = &mut self.random;
                let event = Event::Withdrawn { attempt };
                called.happen(&terms.policy, event, now, &mut |most| random.up_to(most));
            }
        }
    }

    pub(super) fn forget(&mut self, number: CallNumber) {
        self.under_way.remove(&number);
        self.health.dropped(number);
    }

    /// Nobody waits for the calls of this window any more: what is not on the wire is taken back.
    pub fn drop_window(&mut self, window: &Window) {
        for slot in window.slots() {
            if let SlotStage::Called(called) = &slot.stage
                && called.call.stage() == Stage::Sent
            {
                // Either way nobody hears of it.
                if !self.calls.withdraw(called.number) {
                    self.calls.abandon(called.number);
                }
                self.forget(called.number);
            }
        }
    }

    /// Sends what is ready, as much as there is room for.
    pub fn send(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) {
        let now = Self::now(context);
        self.has_enough = false;
        if self.health.is_held() {
            return self.send_one(terms, windows, now);
        }
        let (under_way_max, mut unsent) = (terms.in_flight + queued_max(terms), 0);
        for id in windows.at_work() {
            let Some(window) = windows.window(id) else { continue };
            for at in 0..window.len() {
                let slot = window.slot(at);
                let SlotStage::Called(called) = &slot.stage else { continue };
                match called.call.stage() {
                    // What its handler has told is not committed yet, or it is not time.
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

    /// While the provider is down: sends the call that has waited longest, so that one which fails for reasons of its own
    /// does not keep the others from finding it alive.
    fn send_one(&mut self, terms: &Terms, windows: &mut impl Windows, now: Now) {
        if !self.health.may_send(now.monotonic) {
            return;
        }
        let mut first: Option<(Duration, TaskId, usize)> = None;
        for id in windows.at_work() {
            let Some(window) = windows.window(id) else { continue };
            for (at, slot) in window.slots().enumerate() {
                let SlotStage::Called(called) = &slot.stage else { continue };
                let is_ready = called.is_ready() && called.send_at <= now.monotonic;
                if is_ready && first.is_none_or(|(send_at, ..)| called.send_at < send_at) {
                    first = Some((called.send_at, id, at));
                }
            }
        }
        let Some((_, id, at)) = first else { return };
        let Some(window) = windows.window(id) else { return };
        let offset = window.slot(at).offset();
        if let SlotStage::Called(called) = &mut window.slot_mut(at).stage {
            self.dispatch(terms, (id, offset), called, now);
        }
    }

    fn dispatch(&mut self, terms: &Terms, (id, offset): (TaskId, i64), called: &mut Called, now: Now) {
        let random = &mut self.random;
        let may_have_acted = called.call.may_have_acted();
        let action = called.happen(&terms.policy, Event::Dispatch, now, &mut |most| random.up_to(most));
        let Some(Action::Send { attempt }) = action else { return };
        let first_at_ms = called.call.first_at_ms().expect("what is sent has begun");
        let number = called.number;
        self.under_way.insert(number, (id, offset));
        self.health.sent(number);
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

    /// When something is to be sent, on the monotonic clock, if anything waits for that.
    pub fn next_send(&self, ready: Option<Duration>) -> Option<Duration> {
        match (ready, self.health.is_held()) {
            (Some(ready), true) => self.health.tries_at().map(|tries_at| tries_at.max(ready)),
            (ready, _) => ready,
        }
    }
}

/// Whether a call is to be sent, once it is time.
fn is_ready(called: &Called) -> bool {
    called.is_ready() || sabotage::is_on(Sabotage::RunAgainInCommit)
}

/// How many calls may wait for their turn in the driver.
fn queued_max(terms: &Terms) -> usize {
    (terms.in_flight * QUEUED_PER_CALL).max(QUEUED_MIN)
}

/// How many calls are to be there that were not sent.
fn unsent_max(terms: &Terms) -> usize {
    (terms.in_flight * UNSENT_PER_CALL).max(UNSENT_MIN)
}

/// For a sabotage: another key, of this one and a number.
fn other_key(key: &Key, number: i64) -> Key {
    let of = KeyOf { topology: key.as_str(), identity: &number.to_be_bytes(), epoch: None, version: None, step: None };
    Key::of(of)
}
