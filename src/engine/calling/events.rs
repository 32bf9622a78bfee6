//! Handles provider events: responses, and handlers' progress during an attempt.

use std::time::Duration;

use crate::effect::call::{Action, Answer, Class, Event, Now, Policy, Stage, Status};
use crate::effect::provider::{Asks, CallNumber, Heard, Told};
use crate::engine::context::Context;
use crate::engine::crash;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Terms;

use super::window::{Called, LastAnswer, Slot, SlotStage, Steps, Window};
use super::{Calling, Windows};

impl Calling {
    /// Passes the driver's events to their records. Returns whether there were any.
    pub fn handle_events(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) -> bool {
        let mut has_events = self.handle_progress(windows);
        while let Some(heard) = self.next_ended(windows) {
            has_events = true;
            let now = Self::now(context);
            self.count_attempt(&terms.policy, &heard);
            let (owner, was_held) = (self.under_way.remove(&heard.number), self.health.is_held());
            let ends_hold = self.health.on_answer(&terms.policy, heard.number, &heard.answer, now.monotonic);
            if ends_hold && self.said.forget() {
                tracing::info!(topology = context.topology.name, "the provider works again");
            }
            let Some((id, offset)) = owner else { continue };
            let Some(window) = windows.window(id) else { continue };
            let Some(at) = window.find(offset) else { continue };
            let SlotStage::Called(called) = &mut window.slot_mut(at).stage else { continue };
            if called.number == heard.number {
                self.on_answer(context, terms, called, heard, now);
                crash::point(crash::Point::AfterAnswer);
            }
            // At once: otherwise the driver would go on sending queued calls while further answers are handled.
            if self.health.is_held() && !was_held {
                self.withdraw_all(context, terms, windows);
            }
        }
        if self.health.is_held() {
            self.withdraw_all(context, terms, windows);
        }
        self.metrics.in_flight(self.calls.in_flight());
        self.metrics.held(self.health.is_held());
        self.report_blocked(context, windows);
        has_events
    }

    /// The next attempt that is over. Progress that it reported before its end may have arrived only now: it is handled
    /// first, since later progress belongs to the next attempt, which has the same call number.
    fn next_ended(&mut self, windows: &mut impl Windows) -> Option<Heard> {
        let heard = self.calls.take()?;
        self.handle_progress(windows);
        Some(heard)
    }

    /// Passes the progress that handlers report during an attempt to their records. Returns whether there was any.
    fn handle_progress(&mut self, windows: &mut impl Windows) -> bool {
        let mut has_events = false;
        while let Some(progress) = self.calls.told() {
            has_events = true;
            let (Told::Steps { number, attempt, .. } | Told::Stops { number, attempt, .. }) = &progress;
            let (number, attempt) = (*number, *attempt);
            let Some(slot) = self.slot_of_attempt(windows, number, attempt) else {
                // The commit that the handler waits for will never come.
                self.calls.abandon(number);
                self.forget_call(number);
                continue;
            };
            let place = slot.place();
            let SlotStage::Called(called) = &mut slot.stage else { continue };
            match progress {
                Told::Steps { steps, .. } => {
                    called.steps = Some(Steps { steps, written_ms: None });
                    if sabotage::is_on(Sabotage::StepBeforeJournal) {
                        self.calls.journaled(number, called.call.first_at_ms().unwrap_or_default());
                    }
                }
                Told::Stops { reason, .. } => {
                    slot.stage = SlotStage::Stops(format!("{place}: {reason}"));
                    self.forget_call(number);
                }
            }
        }
        has_events
    }

    /// The slot that waits for this attempt.
    fn slot_of_attempt<'w>(
        &self,
        windows: &'w mut impl Windows,
        number: CallNumber,
        attempt: u32,
    ) -> Option<&'w mut Slot> {
        let (id, offset) = self.under_way.get(&number).copied()?;
        let window = windows.window(id)?;
        let at = window.find(offset)?;
        let SlotStage::Called(called) = &window.slot(at).stage else { return None };
        let is_awaited =
            called.number == number && called.call.attempt() == attempt && called.call.stage() == Stage::Sent;
        is_awaited.then(|| window.slot_mut(at))
    }

    /// Stops a window's handlers that wait for a commit. The outcomes of their steps are still written, and the next
    /// owner goes on from there.
    pub fn stop_handlers(&mut self, context: &Context, terms: &Terms, window: &mut Window) {
        let now = Self::now(context);
        for at in 0..window.len() {
            let waits = |called: &Called| called.call.stage() == Stage::Sent && called.has_steps_due();
            if !matches!(&window.slot(at).stage, SlotStage::Called(called) if waits(called)) {
                continue;
            }
            let SlotStage::Called(called) = &mut window.slot_mut(at).stage else { continue };
            self.calls.abandon(called.number);
            let attempt = called.call.attempt();
            called.steps.iter_mut().for_each(Steps::take_mark_back);
            called.steps.take_if(|steps| steps.steps.is_empty());
            let (number, random) = (called.number, &mut self.random);
            let event = Event::Withdrawn { attempt };
            called.apply_event(&terms.policy, event, now, &mut |most| random.up_to(most));
            self.forget_call(number);
        }
    }

    /// Counts an attempt, even if its record no longer waits for it.
    fn count_attempt(&self, policy: &Policy, heard: &Heard) {
        let class = policy.answers.read(&heard.answer, policy.key.is_some()).class;
        let is_sent = matches!(heard.answer, Answer::Status(_) | Answer::Refused | Answer::HalfDone | Answer::Lost);
        self.metrics.attempt(class as usize, is_sent.then_some(heard.took));
    }

    /// Passes the end of an attempt to its call.
    fn on_answer(&mut self, context: &Context, terms: &Terms, called: &mut Called, heard: Heard, now: Now) {
        let Heard { attempt, answer, body, message, .. } = heard;
        let answer = if sabotage::is_on(Sabotage::ReplayTakenForResult) { as_result(answer) } else { answer };
        let class = terms.policy.answers.read(&answer, terms.policy.key.is_some()).class;
        let is_down = called.ended_at.is_some_and(|ended_at| self.health.is_down_since(ended_at, class));
        let is_down = is_down && !sabotage::is_on(Sabotage::LetterWhileDown);
        // `Retry-After` applies to all calls.
        let is_refused = class == Class::Hold && !matches!(answer, Answer::Status(Status { retry_after: Some(_), .. }));
        called.ended_at = Some(now.monotonic);
        // The handler's thread ended during the attempt: the step is repeated, under the same key.
        called.steps.take_if(|steps| steps.written_ms.is_none());
        let random = &mut self.random;
        let event = Event::Answered { attempt, answer, is_down };
        let action = called.apply_event(&terms.policy, event, now, &mut |most| random.up_to(most));
        let status = match (answer, &called.asks) {
            (Answer::Status(status), Asks::Http(_)) => Some(status.code),
            // The driver makes up the status codes of handlers.
            _ => None,
        };
        let (body, is_hidden) = self.secrets.hide(body);
        if is_hidden && !std::mem::replace(&mut self.has_hidden, true) {
            tracing::warn!(
                topology = context.topology.name,
                "an answer contains a secret from `sink.http.headers`; only the digest of such an answer is kept"
            );
        }
        called.last_answer = Some(LastAnswer { status, body, message });
        match action {
            Some(Action::Hold(until)) => {
                let reason = called.last_answer.as_ref().and_then(LastAnswer::words).unwrap_or_default();
                self.hold_calls(context, terms, (until, is_refused), reason, now.monotonic);
            }
            // If calls are held, the next try waits as well.
            Some(Action::SendAt(at)) => {
                let until = if is_refused { self.refused_until(terms, at, now.monotonic) } else { at };
                self.health.put_off(until);
            }
            _ => {}
        }
    }

    /// A call waits until `until`, since the provider did not answer it, or refused it: the others wait as well.
    fn hold_calls(
        &mut self,
        context: &Context,
        terms: &Terms,
        (until, is_refused): (Duration, bool),
        reason: String,
        now: Duration,
    ) {
        let failed = self.health.failures();
        let others_until = match failed {
            _ if is_refused => self.refused_until(terms, until, now),
            0 => until.max(now),
            failed => until.max(now + terms.policy.retry.wait(failed, &mut |most| self.random.up_to(most))),
        };
        self.health.hold(others_until);
        // The first refusal may be about its record alone.
        if !(is_refused && failed == 0) && self.said.is_due(&reason, now) {
            tracing::warn!(topology = context.topology.name, reason, "no call gets through; trying one at a time");
        }
    }

    /// Until when the other calls wait for a refused call, which itself waits until `until`.
    fn refused_until(&mut self, terms: &Terms, until: Duration, now: Duration) -> Duration {
        let random = &mut self.random;
        self.health.refused_until(until, now, |failed| terms.policy.retry.wait(failed, &mut |most| random.up_to(most)))
    }
}

/// For a sabotage: treats a replayed answer as a success.
fn as_result(answer: Answer) -> Answer {
    match answer {
        Answer::Status(status) if status.is_replayed => Answer::Status(Status { code: 201, ..status }),
        answer => answer,
    }
}

impl LastAnswer {
    /// The answer in words; `None` if there is nothing to say.
    pub fn words(&self) -> Option<String> {
        match (self.status, &self.message) {
            (Some(status), Some(message)) => Some(format!("it answered {status}: {message}")),
            (Some(status), None) => Some(format!("it answered {status}")),
            (None, message) => message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: an attempt's progress is handled before its end, however late its lane looks.

    use std::collections::HashMap;

    use super::*;
    use crate::effect::provider::{Body, Calls, OwnedHow, OwnedStep, Request};
    use crate::engine::calling::blocked::Blocked;
    use crate::engine::calling::health::Health;
    use crate::engine::calling::judging::Round;
    use crate::engine::calling::numbers::{Numbers, Random};
    use crate::engine::calling::secrets::Secrets;
    use crate::engine::calling::window::tests::{handled, window};
    use crate::engine::share::TaskId;
    use crate::engine::sink_trouble::Said;
    use crate::format::Outcome;
    use crate::observe::Metrics;
    use crate::rendering::work::Asker;

    /// A driver whose handler reports a step and ends after the lane has called `told` and before it calls `take`.
    struct Quick {
        /// What it reports once the lane calls `take`.
        unreported: Option<Told>,
        told: Option<Told>,
        heard: Option<Heard>,
    }

    impl Calls for Quick {
        fn submit(&mut self, _: Request) {}

        fn take(&mut self) -> Option<Heard> {
            self.told = self.unreported.take();
            self.heard.take()
        }

        fn withdraw(&mut self, _: CallNumber) -> bool {
            false
        }

        fn in_flight(&self) -> usize {
            0
        }

        fn told(&mut self) -> Option<Told> {
            self.told.take()
        }
    }

    struct OneWindow(Window);

    impl Windows for OneWindow {
        fn window(&mut self, _: TaskId) -> Option<&mut Window> {
            Some(&mut self.0)
        }

        fn at_work(&self) -> Vec<TaskId> {
            vec![0]
        }
    }

    #[test]
    fn progress_of_an_attempt_is_handled_before_its_end() {
        let mut window = window(&[], 0..1);
        handled(&mut window, 0);
        let steps = vec![OwnedStep { name: "charge".to_owned(), how: OwnedHow::Done(b"1".to_vec()) }];
        let (number, attempt) = (5, 1);
        let (answer, body, message, took) = (Answer::Lost, Body::None, None, std::time::Duration::ZERO);
        let driver = Quick {
            unreported: Some(Told::Steps { number, attempt, steps: steps.clone() }),
            told: None,
            heard: Some(Heard { number, attempt, answer, body, message, took }),
        };
        let mut calling = Calling {
            calls: Box::new(driver),
            under_way: HashMap::from([(number, (0, 0))]),
            random: Random(1),
            health: Health::default(),
            blocked: Blocked::default(),
            secrets: Secrets::default(),
            has_hidden: false,
            has_enough: false,
            committed_at: None,
            metrics: Metrics::new().calls(
                "t",
                "handler",
                (&Class::ALL.map(Class::as_str), &Outcome::ALL.map(Outcome::as_str)),
            ),
            said: Said::default(),
            numbers: Numbers::default(),
            asker: Asker::Handler("t".into()),
            round: Round::default(),
        };
        let mut windows = OneWindow(window);
        assert!(!calling.handle_progress(&mut windows));
        assert!(calling.next_ended(&mut windows).is_some());
        let SlotStage::Called(called) = &windows.0.slot(0).stage else { panic!("the slot holds no call") };
        assert_eq!(called.steps, Some(Steps { steps, written_ms: None }));
    }
}
