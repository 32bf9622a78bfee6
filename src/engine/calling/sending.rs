//! Sends calls to the provider, and withdraws them.
//!
//! A call is **under way** from its submission to the driver until its attempt ends or is withdrawn. The driver queues
//! the call first; once the call is **in flight**, it can no longer be withdrawn. While calls are **held**, since the
//! provider is down or refuses them, only one call at a time is sent, the **probe**.
//!
//! **For tests**: `crash::point` can end the process at that point, and `sabotage::is_on` says whether a test has
//! switched on a deliberate fault.

use std::sync::Arc;
use std::time::Duration;

use crate::effect::call::{Action, Event, Key, KeyParts, Now, Stage};
use crate::effect::provider::{CallNumber, Payload, RenderedRequest, Request};
use crate::engine::context::Context;
use crate::engine::crash;
use crate::engine::share::TaskId;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Terms;

use super::health::Health;
use super::window::{CalledRecord, SlotStage, Window};
use super::{Calling, Windows};

/// The most calls that the driver may queue, per call that may be in flight. The queue keeps the driver busy for the
/// milliseconds in which the lane does something else. Behind a longer queue, a retried call would wait too long.
const QUEUED_PER_CALL: usize = 2;
/// The driver may always queue this many calls.
const QUEUED_MIN: usize = 64;
/// How many unsent calls are enough, per call that may be in flight: with that many, no more records are read. A call
/// counts as unsent while it waits for a transaction, or for room in the driver, but not while it waits for its
/// backoff. A transaction that authorises calls takes 10 ms or more, in which a fast provider handles hundreds of
/// calls.
const UNSENT_PER_CALL: usize = 16;
/// Fewer unsent calls than this are never enough.
const UNSENT_MIN: usize = 64;

impl Calling {
    /// How many records to read at most now: zero while enough calls are unsent. So no window has to be paused, which
    /// would cause records to be read twice, and rounds have few slots to scan.
    pub fn read_limit(&self, terms: &Terms, records_max: usize) -> usize {
        if self.has_enough_unsent { 0 } else { records_max.min(unsent_max(terms)) }
    }

    /// Withdraws all calls that are not in flight yet, except the current probe.
    pub(super) fn withdraw_all_but_probe(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) {
        // Usually no other call is under way, and windows are long.
        if self.under_way.keys().all(|number| self.health.is_probe(*number)) {
            return;
        }
        for id in windows.active_tasks() {
            let Some(window) = windows.window(id) else { continue };
            self.withdraw_if(context, terms, window, |health, number| !health.is_probe(number));
        }
    }

    /// Withdraws the calls of a window that are not in flight yet.
    pub fn withdraw(&mut self, context: &Context, terms: &Terms, window: &mut Window) {
        self.withdraw_if(context, terms, window, |_, _| true);
    }

    /// Withdraws the calls of a window that are not in flight yet and for which `is_included` returns true.
    fn withdraw_if(
        &mut self,
        context: &Context,
        terms: &Terms,
        window: &mut Window,
        is_included: impl Fn(&Health, CallNumber) -> bool,
    ) {
        let now = Self::now(context);
        for index in 0..window.len() {
            let SlotStage::Called(called) = &window.slot(index).stage else { continue };
            let is_candidate = called.call.stage() == Stage::Sent && is_included(&self.health, called.number);
            if !is_candidate || !self.calls.withdraw(called.number) {
                continue;
            }
            self.forget_call(called.number);
            let attempt = called.call.attempt();
            if let SlotStage::Called(called) = &mut window.slot_mut(index).stage {
                let random = &mut self.random;
                let event = Event::Withdrawn { attempt };
                called.apply_event(&terms.policy, event, now, &mut |max| random.up_to(max));
            }
        }
    }

    /// Forgets a call that was withdrawn, or whose record no longer waits for it.
    pub(super) fn forget_call(&mut self, number: CallNumber) {
        self.under_way.remove(&number);
        self.health.on_dropped(number);
    }

    /// Gives up the calls of a window: withdraws the calls that are not in flight, and abandons the others.
    pub fn drop_window(&mut self, window: &Window) {
        for slot in window.slots() {
            if let SlotStage::Called(called) = &slot.stage
                && called.call.stage() == Stage::Sent
            {
                // Either way the response is ignored.
                if !self.calls.withdraw(called.number) {
                    self.calls.abandon(called.number);
                }
                self.forget_call(called.number);
            }
        }
    }

    /// Sends the calls that are ready, as many as may be in flight or queued.
    pub fn send(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) {
        let now = Self::now(context);
        self.has_enough_unsent = false;
        if self.health.is_held() {
            return self.send_probe(terms, windows, now);
        }
        let (under_way_max, mut unsent_count) = (terms.in_flight + queued_max(terms), 0);
        for id in windows.active_tasks() {
            let Some(window) = windows.window(id) else { continue };
            for index in 0..window.len() {
                let slot = window.slot(index);
                let SlotStage::Called(called) = &slot.stage else { continue };
                match called.call.stage() {
                    // The progress of its handler is not committed yet, or the call has to wait.
                    Stage::Ready if !is_ready(called) || called.send_at > now.monotonic => continue,
                    Stage::Ready if self.under_way.len() < under_way_max => {}
                    Stage::Ready | Stage::Waits(_) | Stage::Writing(_) => {
                        unsent_count += 1;
                        continue;
                    }
                    Stage::Sent | Stage::Decided(_) => continue,
                }
                let offset = slot.offset();
                let SlotStage::Called(called) = &mut window.slot_mut(index).stage else { continue };
                self.dispatch(terms, (id, offset), called, now);
            }
        }
        self.has_enough_unsent = unsent_count >= unsent_max(terms);
    }

    /// While calls are held, sends the call that has waited longest. So a call that fails for reasons of its own cannot
    /// be the only probe.
    fn send_probe(&mut self, terms: &Terms, windows: &mut impl Windows, now: Now) {
        if !self.health.may_send(now.monotonic) {
            return;
        }
        let mut longest_waiting: Option<(Duration, TaskId, usize)> = None;
        for id in windows.active_tasks() {
            let Some(window) = windows.window(id) else { continue };
            for (index, slot) in window.slots().enumerate() {
                let SlotStage::Called(called) = &slot.stage else { continue };
                let is_ready = called.is_ready() && called.send_at <= now.monotonic;
                if is_ready && longest_waiting.is_none_or(|(send_at, ..)| called.send_at < send_at) {
                    longest_waiting = Some((called.send_at, id, index));
                }
            }
        }
        let Some((_, id, index)) = longest_waiting else { return };
        let Some(window) = windows.window(id) else { return };
        let offset = window.slot(index).offset();
        if let SlotStage::Called(called) = &mut window.slot_mut(index).stage {
            self.dispatch(terms, (id, offset), called, now);
        }
    }

    /// Submits a call to the driver.
    fn dispatch(&mut self, terms: &Terms, (id, offset): (TaskId, i64), called: &mut CalledRecord, now: Now) {
        let random = &mut self.random;
        let may_have_acted = called.call.may_have_acted();
        let action = called.apply_event(&terms.policy, Event::Dispatch, now, &mut |max| random.up_to(max));
        let Some(Action::Send { attempt }) = action else { return };
        let first_attempt_at_ms = called.call.first_attempt_at_ms().expect("a call that is sent has a first attempt");
        let number = called.number;
        self.under_way.insert(number, (id, offset));
        self.health.on_sent(number);
        let mut payload = called.payload.clone();
        let sabotage_number = match () {
            () if sabotage::is_on(Sabotage::KeyOfAttempt) => Some(i64::from(attempt)),
            () if sabotage::is_on(Sabotage::KeyOfPlace) => Some(offset),
            () => None,
        };
        if let (Some(sabotage_number), Payload::Http(rendered)) = (sabotage_number, &mut payload) {
            let key = rendered.key.as_ref().map(|key| sabotaged_key(key, sabotage_number));
            *rendered = Arc::new(RenderedRequest { key, ..(**rendered).clone() });
        }
        crash::point(crash::Point::BeforeSubmit);
        let journal = Arc::clone(&called.journal);
        self.calls.submit(Request { number, attempt, first_attempt_at_ms, may_have_acted, payload, journal });
    }

    /// When to send the next call, on the monotonic clock. `ready` is when the first call is ready, if any.
    pub fn next_send(&self, ready: Option<Duration>) -> Option<Duration> {
        match (ready, self.health.is_held()) {
            (Some(ready), true) => self.health.next_probe_at().map(|next_probe_at| next_probe_at.max(ready)),
            (ready, _) => ready,
        }
    }
}

/// Whether a call can be sent, apart from its backoff.
fn is_ready(called: &CalledRecord) -> bool {
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

/// For a sabotage: another key, derived from this one and a number.
fn sabotaged_key(key: &Key, number: i64) -> Key {
    let parts =
        KeyParts { topology: key.as_str(), identity: &number.to_be_bytes(), epoch: None, version: None, step: None };
    Key::of(parts)
}
