//! Handles the driver's events: ended attempts of calls, and the progress that handlers report during an attempt.
//!
//! A **handler** is a user's function that carries out a call in steps. Before a step acts, the handler waits until the
//! outcomes of its earlier steps are committed. Calls are **held** while the provider is down or refuses them: then
//! only one call at a time is sent, as a probe.
//!
//! **For tests**: `crash::point` can end the process at that point, and `sabotage::is_on` says whether a test has
//! switched on a deliberate fault.

use std::time::Duration;

use crate::effect::call::{Action, AttemptOutcome, Class, Event, Now, Policy, Stage, Status};
use crate::effect::provider::{AttemptEnd, CallNumber, HandlerReport, Payload};
use crate::engine::context::Context;
use crate::engine::crash;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Terms;

use super::window::{CalledRecord, LastResponse, ReportedSteps, Slot, SlotStage, Window};
use super::{Calling, Windows};

impl Calling {
    /// Applies the driver's events to their records. Returns whether there were any.
    pub fn handle_events(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) -> bool {
        let mut has_events = self.handle_progress(windows);
        while let Some(ended) = self.next_ended_attempt(windows) {
            has_events = true;
            let now = Self::now(context);
            self.count_attempt(&terms.policy, &ended);
            let (owner, was_held) = (self.under_way.remove(&ended.number), self.health.is_held());
            let ends_hold = self.health.on_attempt_end(&terms.policy, ended.number, &ended.outcome, now.monotonic);
            if ends_hold && self.logged_reasons.forget() {
                tracing::info!(topology = context.topology.name, "the provider works again");
            }
            let Some((id, offset)) = owner else { continue };
            let Some(window) = windows.window(id) else { continue };
            let Some(index) = window.find(offset) else { continue };
            let SlotStage::Called(called) = &mut window.slot_mut(index).stage else { continue };
            if called.number == ended.number {
                self.on_attempt_end(context, terms, called, ended, now);
                crash::point(crash::Point::AfterAnswer);
            }
            // Immediately: otherwise the driver would continue to send queued calls while further events are handled.
            if self.health.is_held() && !was_held {
                self.withdraw_all_but_probe(context, terms, windows);
            }
        }
        if self.health.is_held() {
            self.withdraw_all_but_probe(context, terms, windows);
        }
        self.metrics.in_flight(self.calls.in_flight());
        self.metrics.held(self.health.is_held());
        self.report_blocked(context, windows);
        has_events
    }

    /// The next ended attempt. Progress that it reported before its end may have arrived only now. That progress is
    /// handled first, since later progress belongs to the next attempt, which has the same call number.
    fn next_ended_attempt(&mut self, windows: &mut impl Windows) -> Option<AttemptEnd> {
        let ended = self.calls.take_end()?;
        self.handle_progress(windows);
        Some(ended)
    }

    /// Applies the progress that handlers report during an attempt to their records. Returns whether there was any.
    fn handle_progress(&mut self, windows: &mut impl Windows) -> bool {
        let mut has_events = false;
        while let Some(progress) = self.calls.take_report() {
            has_events = true;
            let (HandlerReport::Steps { number, attempt, .. } | HandlerReport::MustStopTask { number, attempt, .. }) =
                &progress;
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
                HandlerReport::Steps { steps, .. } => {
                    called.reported_steps = Some(ReportedSteps { steps, written_ms: None });
                    if sabotage::is_on(Sabotage::StepBeforeJournal) {
                        self.calls.resume_after_commit(number, called.call.first_attempt_at_ms().unwrap_or_default());
                    }
                }
                HandlerReport::MustStopTask { reason, .. } => {
                    slot.stage = SlotStage::MustStopTask(format!("{place}: {reason}"));
                    self.forget_call(number);
                }
            }
        }
        has_events
    }

    /// The slot whose call waits for this attempt.
    fn slot_of_attempt<'w>(
        &self,
        windows: &'w mut impl Windows,
        number: CallNumber,
        attempt: u32,
    ) -> Option<&'w mut Slot> {
        let (id, offset) = self.under_way.get(&number).copied()?;
        let window = windows.window(id)?;
        let index = window.find(offset)?;
        let SlotStage::Called(called) = &window.slot(index).stage else { return None };
        let is_awaited =
            called.number == number && called.call.attempt() == attempt && called.call.stage() == Stage::Sent;
        is_awaited.then(|| window.slot_mut(index))
    }

    /// Stops a window's handlers that wait for a commit. The outcomes of their steps are still written, and the next
    /// owner continues after these steps.
    pub fn stop_handlers(&mut self, context: &Context, terms: &Terms, window: &mut Window) {
        let now = Self::now(context);
        for index in 0..window.len() {
            let waits = |called: &CalledRecord| called.call.stage() == Stage::Sent && called.has_unwritten_steps();
            if !matches!(&window.slot(index).stage, SlotStage::Called(called) if waits(called)) {
                continue;
            }
            let SlotStage::Called(called) = &mut window.slot_mut(index).stage else { continue };
            self.calls.abandon(called.number);
            let attempt = called.call.attempt();
            // If the last step was only announced, it has not begun: the handler waited for the commit.
            called.reported_steps.iter_mut().for_each(ReportedSteps::remove_begin_mark);
            called.reported_steps.take_if(|steps| steps.steps.is_empty());
            let (number, random) = (called.number, &mut self.random);
            let event = Event::Withdrawn { attempt };
            called.apply_event(&terms.policy, event, now, &mut |max| random.up_to(max));
            self.forget_call(number);
        }
    }

    /// Counts an attempt, even if its record no longer waits for it.
    fn count_attempt(&self, policy: &Policy, ended: &AttemptEnd) {
        let class = policy.answers.read(&ended.outcome, policy.key.is_some()).class;
        let is_sent = matches!(
            ended.outcome,
            AttemptOutcome::Status(_) | AttemptOutcome::Refused | AttemptOutcome::HalfDone | AttemptOutcome::Lost
        );
        self.metrics.attempt(class as usize, is_sent.then_some(ended.duration));
    }

    /// Applies the end of an attempt to its call.
    fn on_attempt_end(
        &mut self,
        context: &Context,
        terms: &Terms,
        called: &mut CalledRecord,
        ended: AttemptEnd,
        now: Now,
    ) {
        let AttemptEnd { attempt, outcome, body, message, .. } = ended;
        let outcome = if sabotage::is_on(Sabotage::ReplayTakenForResult) { as_success(outcome) } else { outcome };
        let class = terms.policy.answers.read(&outcome, terms.policy.key.is_some()).class;
        let is_down = called.ended_at.is_some_and(|ended_at| self.health.is_down_since(ended_at, class));
        let is_down = is_down && !sabotage::is_on(Sabotage::LetterWhileDown);
        // A refusal, such as 401, may concern its record alone, so the other calls wait for a shorter time. A refusal
        // with `Retry-After` delays all calls.
        let is_refused =
            class == Class::Hold && !matches!(outcome, AttemptOutcome::Status(Status { retry_after: Some(_), .. }));
        called.ended_at = Some(now.monotonic);
        // Reported steps that are not in the open transaction are repeated, under the same keys.
        called.reported_steps.take_if(|steps| steps.written_ms.is_none());
        let random = &mut self.random;
        let event = Event::AttemptEnded { attempt, outcome, is_down };
        let action = called.apply_event(&terms.policy, event, now, &mut |max| random.up_to(max));
        let status = match (outcome, &called.payload) {
            (AttemptOutcome::Status(status), Payload::Http(_)) => Some(status.code),
            // The driver assigns status codes to the outcomes of handlers; they are not shown.
            _ => None,
        };
        let (body, is_redacted) = self.secrets.redact(body);
        if is_redacted && !std::mem::replace(&mut self.has_reported_secret, true) {
            tracing::warn!(
                topology = context.topology.name,
                "a response contains a secret from `sink.http.headers`; only the digest of such a response is stored"
            );
        }
        called.last_response = Some(LastResponse { status, body, message });
        match action {
            Some(Action::Hold(until)) => {
                let reason = called.last_response.as_ref().and_then(LastResponse::describe).unwrap_or_default();
                self.hold_calls(context, terms, (until, is_refused), reason, now.monotonic);
            }
            // If calls are held, the next probe waits as well.
            Some(Action::SendAt(until)) => {
                let until = if is_refused { self.others_wait_until(terms, until, now.monotonic) } else { until };
                self.health.delay_probe(until);
            }
            _ => {}
        }
    }

    /// Holds all calls, since the provider seems to be down, or has refused a call (`is_refused`). The call whose
    /// attempt has ended waits until `until`, and the others at least as long; after one of the first few refusals the
    /// others wait for a shorter time.
    fn hold_calls(
        &mut self,
        context: &Context,
        terms: &Terms,
        (until, is_refused): (Duration, bool),
        reason: String,
        now: Duration,
    ) {
        let failures = self.health.failures();
        let others_until = match failures {
            _ if is_refused => self.others_wait_until(terms, until, now),
            0 => until.max(now),
            failures => until.max(now + terms.policy.retry.wait(failures, &mut |max| self.random.up_to(max))),
        };
        self.health.hold(others_until);
        // The first refusal may concern its record alone.
        if !(is_refused && failures == 0) && self.logged_reasons.is_due(&reason, now) {
            tracing::warn!(topology = context.topology.name, reason, "no call gets through; trying one at a time");
        }
    }

    /// Until when the other calls wait after a refusal; the refused call itself waits until `until`.
    fn others_wait_until(&mut self, terms: &Terms, until: Duration, now: Duration) -> Duration {
        let random = &mut self.random;
        self.health
            .others_wait_until(until, now, |failures| terms.policy.retry.wait(failures, &mut |max| random.up_to(max)))
    }
}

/// For a sabotage: treats a replayed response as a success.
fn as_success(outcome: AttemptOutcome) -> AttemptOutcome {
    match outcome {
        AttemptOutcome::Status(status) if status.is_replayed => AttemptOutcome::Status(Status { code: 201, ..status }),
        outcome => outcome,
    }
}

impl LastResponse {
    /// A description of the response; `None` if there is neither a status nor a message.
    pub fn describe(&self) -> Option<String> {
        match (self.status, &self.message) {
            (Some(status), Some(message)) => Some(format!("it answered {status}: {message}")),
            (Some(status), None) => Some(format!("it answered {status}")),
            (None, message) => message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: an attempt's progress is handled before its end, however late its lane polls the driver.

    use std::collections::HashMap;

    use super::*;
    use crate::dedup::{Decoder, Format};
    use crate::effect::provider::{Body, Calls, OwnedStep, OwnedStepState, Request};
    use crate::engine::calling::blocked::Blocked;
    use crate::engine::calling::health::Health;
    use crate::engine::calling::judging::JudgingBuffers;
    use crate::engine::calling::numbers::{CallNumbers, Random};
    use crate::engine::calling::secrets::Secrets;
    use crate::engine::calling::window::tests::{handled, window};
    use crate::engine::share::TaskId;
    use crate::engine::sink_trouble::LoggedReasons;
    use crate::format::Outcome;
    use crate::observe::Metrics;
    use crate::rendering::work::{WorkMaker, WorkRenderer};
    use crate::schemas::Sources;

    /// A driver whose handler reports a step, and ends, after the lane has called `take_report` and before it calls
    /// `take_end`.
    struct QuickDriver {
        /// The report that becomes available once the lane calls `take_end`.
        unreported: Option<HandlerReport>,
        /// The report that `take_report` returns next.
        available: Option<HandlerReport>,
        ended: Option<AttemptEnd>,
    }

    impl Calls for QuickDriver {
        fn submit(&mut self, _: Request) {}

        fn take_end(&mut self) -> Option<AttemptEnd> {
            self.available = self.unreported.take();
            self.ended.take()
        }

        fn withdraw(&mut self, _: CallNumber) -> bool {
            false
        }

        fn in_flight(&self) -> usize {
            0
        }

        fn take_report(&mut self) -> Option<HandlerReport> {
            self.available.take()
        }
    }

    struct SingleWindow(Window);

    impl Windows for SingleWindow {
        fn window(&mut self, _: TaskId) -> Option<&mut Window> {
            Some(&mut self.0)
        }

        fn active_tasks(&self) -> Vec<TaskId> {
            vec![0]
        }
    }

    #[test]
    fn progress_of_an_attempt_is_handled_before_its_end() {
        let mut window = window(&[], 0..1);
        handled(&mut window, 0);
        let steps = vec![OwnedStep { name: "charge".to_owned(), state: OwnedStepState::Done(b"1".to_vec()) }];
        let (number, attempt) = (5, 1);
        let (outcome, body, message, duration) = (AttemptOutcome::Lost, Body::None, None, std::time::Duration::ZERO);
        let driver = QuickDriver {
            unreported: Some(HandlerReport::Steps { number, attempt, steps: steps.clone() }),
            available: None,
            ended: Some(AttemptEnd { number, attempt, outcome, body, message, duration }),
        };
        let decoder = Decoder::of([Format::Bytes; 2], 1, &Sources::default());
        let mut calling = Calling {
            calls: Box::new(driver),
            under_way: HashMap::from([(number, (0, 0))]),
            random: Random(1),
            health: Health::default(),
            blocked: Blocked::default(),
            secrets: Secrets::default(),
            has_reported_secret: false,
            has_enough_unsent: false,
            transaction_ended_at: None,
            metrics: Metrics::new().calls(
                "t",
                "handler",
                (&Class::ALL.map(Class::as_str), &Outcome::ALL.map(Outcome::as_str)),
            ),
            logged_reasons: LoggedReasons::default(),
            numbers: CallNumbers::default(),
            work_renderer: WorkRenderer::Handler(Box::new(WorkMaker::new("t", decoder))),
            judging_buffers: JudgingBuffers::default(),
        };
        let mut windows = SingleWindow(window);
        assert!(!calling.handle_progress(&mut windows));
        assert!(calling.next_ended_attempt(&mut windows).is_some());
        let SlotStage::Called(called) = &windows.0.slot(0).stage else { panic!("the slot holds no call") };
        assert_eq!(called.reported_steps, Some(ReportedSteps { steps, written_ms: None }));
    }
}
