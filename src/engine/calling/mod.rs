//! Calls to a provider: a lane's part in what a record's call goes through.
//!
//! - [`window`] holds a task's records that were read and are not settled
//! - [`judging`] finds out which of them call
//! - [`grants`] says up to where calls may go without reservations of their own
//! - [`writing`] puts reservations, grants and settlements into the task's share of the open transaction
//! - [`results`] writes what was answered, and [`secrets`] keeps answers back that repeat one
//! - [`health`] knows whether the provider is there
//!
//! What becomes of a call is decided by [`crate::effect::call`]; what is on the wire is the provider's driver's. A lane
//! goes round ([`super::lane`]): it takes in what was read, hears answers, judges, writes and commits all that is due in
//! one transaction, and then sends what that has let go. No transaction is open while it waits for an answer, and while
//! one is being committed the lane goes on with whatever needs none.
//!
//! **Failure**: after a clean abort everything is as it was before the transaction, and nothing is read again. Any other
//! end of a transaction sends its tasks through their restore, with new windows: what is still on the wire then is heard
//! by nobody, and its reservation says that it may have happened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::effect::call::{Action, Answer, Class, Event, Key, KeyOf, Now, Policy, Stage, Status};
use crate::effect::provider::{Asks, CallNumber, Calls, Heard, Provider, Rendered, Request, Told};
use crate::format::Outcome as Commanded;
use crate::observe::CallMetrics;
use crate::rendering::work::Asker;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Terms;

use super::context::Context;
use super::crash;
use super::share::TaskId;
use super::sink_trouble::Said;

pub mod grants;
pub mod health;
pub mod judging;
pub mod results;
pub mod secrets;
pub mod window;
pub mod writing;

use health::Health;
use judging::Round;
use secrets::Secrets;
use window::{Called, HeardLast, Slot, SlotStage, Steps, Window};

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
/// How long after the last transaction the next one begins while calls wait for their turn: several commits' time.
const BATCH_WAIT: Duration = Duration::from_millis(20);

/// Numbers a lane's calls.
#[derive(Debug, Default)]
pub struct Numbers(CallNumber);

impl Numbers {
    /// A number that no other call of the lane has.
    pub fn take(&mut self) -> CallNumber {
        self.0 += 1;
        self.0
    }
}

/// Random numbers for waits (SplitMix64): nothing depends on them but when calls that failed together come again.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// A number between 0 and `most`, both included.
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        match most.checked_add(1) {
            Some(count) => mixed % count,
            None => mixed,
        }
    }
}

/// A lane's calls.
pub struct Calling {
    calls: Box<dyn Calls>,
    /// Whose they are: task and offset.
    under_way: HashMap<CallNumber, (TaskId, i64)>,
    random: Random,
    health: Health,
    secrets: Secrets,
    has_hidden: bool,
    /// Whether there were enough calls when some were sent last.
    has_enough: bool,
    /// When the last transaction of what is due here has ended; `None` while one is open.
    pub(super) committed_at: Option<Duration>,
    /// Where counts go.
    pub(super) metrics: CallMetrics,
    pub(super) said: Said,
    pub(super) numbers: Numbers,
    pub(super) asker: Asker,
    pub(super) round: Round,
}

/// The windows of a lane's tasks.
pub trait Windows {
    /// A task's window, if it is at work.
    fn window(&mut self, id: TaskId) -> Option<&mut Window>;

    /// The tasks at work, in order.
    fn at_work(&self) -> Vec<TaskId>;
}

impl Calling {
    /// A lane's way to its topology's provider; `random` is the start of its random numbers.
    pub fn new(context: &Context, provider: &dyn Provider, random: u64) -> Option<Self> {
        Some(Self {
            calls: provider.calls(),
            under_way: HashMap::new(),
            random: Random(random),
            health: Health::default(),
            secrets: context.topology.http().map(Secrets::of).unwrap_or_default(),
            has_hidden: false,
            has_enough: false,
            committed_at: Some(Duration::ZERO),
            metrics: context.metrics.calls(
                &context.topology.name,
                provider.kind(),
                (&Class::ALL.map(Class::as_str), &Commanded::ALL.map(Commanded::as_str)),
            ),
            said: Said::default(),
            numbers: Numbers::default(),
            asker: Asker::new(&context.topology)?,
            round: Round::default(),
        })
    }

    /// The time.
    pub fn now(context: &Context) -> Now {
        Now { wall_ms: context.clock.wall_ms(), monotonic: context.clock.monotonic() }
    }

    /// How many calls are under way, or wait for their turn in the driver.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// How many records are worth reading now: none while there are enough calls, so that no window has to be paused,
    /// which has records read twice, and rounds look at few slots.
    pub fn reads_max(&self, terms: &Terms, records_max: usize) -> usize {
        if self.has_enough { 0 } else { records_max.min(unsent_max(terms)) }
    }

    /// For how long a transaction is worth waiting with: while calls wait for their turn, sooner ends none of them sooner,
    /// and a larger transaction costs little more than a small one.
    pub fn writes_in(&self, terms: &Terms, now: Duration) -> Duration {
        match self.committed_at {
            Some(committed_at) if self.under_way.len() > terms.in_flight => {
                (committed_at + BATCH_WAIT).saturating_sub(now)
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether calls wait for the provider.
    pub fn is_held(&self) -> bool {
        self.health.is_held()
    }

    /// What the open transaction has become for a window: committed, or certainly not.
    pub fn ended(&mut self, context: &Context, policy: &Policy, window: &mut Window, is_committed: bool) {
        let (now, random) = (Self::now(context), &mut self.random);
        let mut draw = |most| random.up_to(most);
        if !is_committed {
            let kept = if sabotage::is_on(Sabotage::StepsKeptAfterAbort) { window.written_steps() } else { Vec::new() };
            window.aborted(policy, now, &mut draw);
            return kept.into_iter().for_each(|(number, at_ms)| self.calls.journaled(number, at_ms));
        }
        let let_go = window.committed(policy, now, &mut draw);
        if let_go.calls {
            crash::point(crash::Point::AfterReservation);
        }
        for (number, first_at_ms) in let_go.handlers {
            crash::point(crash::Point::AfterStep);
            self.calls.journaled(number, first_at_ms);
        }
    }

    /// Takes what was heard to the records that it is about. Says whether there was anything.
    pub fn hear(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) -> bool {
        let mut has_heard = self.listen(windows);
        while let Some(heard) = self.calls.take() {
            has_heard = true;
            let now = Self::now(context);
            self.count(&terms.policy, &heard);
            let (owner, was_held) = (self.under_way.remove(&heard.number), self.health.is_held());
            let ends_hold = self.health.answered(&terms.policy, heard.number, &heard.answer, now.monotonic);
            if ends_hold && self.said.forget() {
                tracing::info!(topology = context.topology.name, "the provider works again");
            }
            let Some((id, offset)) = owner else { continue };
            let Some(window) = windows.window(id) else { continue };
            let Some(at) = window.find(offset) else { continue };
            let SlotStage::Called(called) = &mut window.slot_mut(at).stage else { continue };
            if called.number == heard.number {
                self.answered(context, terms, called, heard, now);
                crash::point(crash::Point::AfterAnswer);
            }
            // At once: while answers come, the driver would go on with what is queued for it.
            if self.health.is_held() && !was_held {
                self.withdraw_all(context, terms, windows);
            }
        }
        if self.health.is_held() {
            self.withdraw_all(context, terms, windows);
        }
        self.metrics.in_flight(self.calls.in_flight());
        self.metrics.held(self.health.is_held());
        has_heard
    }

    /// Takes what handlers tell in mid-attempt to the records that it is about. Says whether there was anything.
    fn listen(&mut self, windows: &mut impl Windows) -> bool {
        let mut has_heard = false;
        while let Some(told) = self.calls.told() {
            has_heard = true;
            let (Told::Steps { number, attempt, .. } | Told::Stops { number, attempt, .. }) = &told;
            let (number, attempt) = (*number, *attempt);
            let Some(slot) = self.telling(windows, number, attempt) else {
                // Nobody will ever answer it.
                self.calls.abandon(number);
                self.forget(number);
                continue;
            };
            let place = slot.place();
            let SlotStage::Called(called) = &mut slot.stage else { continue };
            match told {
                Told::Steps { steps, .. } => {
                    called.steps = Some(Steps { steps, written_ms: None });
                    if sabotage::is_on(Sabotage::StepBeforeJournal) {
                        self.calls.journaled(number, called.call.first_at_ms().unwrap_or_default());
                    }
                }
                Told::Stops { reason, .. } => {
                    slot.stage = SlotStage::Stops(format!("{place}: {reason}"));
                    self.forget(number);
                }
            }
        }
        has_heard
    }

    /// The slot that waits for this attempt.
    fn telling<'w>(&self, windows: &'w mut impl Windows, number: CallNumber, attempt: u32) -> Option<&'w mut Slot> {
        let (id, offset) = self.under_way.get(&number).copied()?;
        let window = windows.window(id)?;
        let at = window.find(offset)?;
        let SlotStage::Called(called) = &window.slot(at).stage else { return None };
        let is_it = called.number == number && called.call.attempt() == attempt && called.call.stage() == Stage::Sent;
        is_it.then(|| window.slot_mut(at))
    }

    /// Has the handlers of a window that wait for a commit go no further: what they have come to is written all the same,
    /// and whoever comes next goes on from there.
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
            called.happen(&terms.policy, event, now, &mut |most| random.up_to(most));
            self.forget(number);
        }
    }

    /// Counts an attempt, whether anybody waits for it or not.
    fn count(&self, policy: &Policy, heard: &Heard) {
        let class = policy.answers.read(&heard.answer, policy.key.is_some()).class;
        let is_sent = matches!(heard.answer, Answer::Status(_) | Answer::Refused | Answer::HalfDone | Answer::Lost);
        self.metrics.attempt(class as usize, is_sent.then_some(heard.took));
    }

    fn answered(&mut self, context: &Context, terms: &Terms, called: &mut Called, heard: Heard, now: Now) {
        let Heard { attempt, answer, body, message, .. } = heard;
        let answer = if sabotage::is_on(Sabotage::ReplayTakenForResult) { as_result(answer) } else { answer };
        let is_down = called.ended_at.is_some_and(|ended_at| self.health.is_down_since(ended_at));
        let is_down = is_down && !sabotage::is_on(Sabotage::LetterWhileDown);
        called.ended_at = Some(now.monotonic);
        // Its thread has ended in mid-attempt: the step is done again, under its key.
        called.steps.take_if(|steps| steps.written_ms.is_none());
        let random = &mut self.random;
        let event = Event::Answered { attempt, answer, is_down };
        let action = called.happen(&terms.policy, event, now, &mut |most| random.up_to(most));
        let status = match (answer, &called.asks) {
            (Answer::Status(status), Asks::Http(_)) => Some(status.code),
            // A handler's are the driver's own.
            _ => None,
        };
        let (body, is_hidden) = self.secrets.hide(body);
        if is_hidden && !std::mem::replace(&mut self.has_hidden, true) {
            tracing::warn!(
                topology = context.topology.name,
                "an answer repeats a secret of `sink.http.headers`; of such answers the digest is kept"
            );
        }
        called.heard = Some(HeardLast { status, body, message });
        match action {
            Some(Action::Hold(until)) => {
                self.health.hold(until);
                let reason = called.heard.as_ref().and_then(HeardLast::words).unwrap_or_default();
                if self.said.is_due(&reason, now.monotonic) {
                    tracing::warn!(
                        topology = context.topology.name,
                        reason,
                        "the provider is down; trying one call at a time"
                    );
                }
            }
            // It was the one that was tried.
            Some(Action::SendAt(at)) => self.health.put_off(at),
            _ => {}
        }
    }

    /// Takes back whatever is not on the wire yet.
    fn withdraw_all(&mut self, context: &Context, terms: &Terms, windows: &mut impl Windows) {
        for id in windows.at_work() {
            let Some(window) = windows.window(id) else { continue };
            self.withdraw(context, terms, window);
        }
    }

    /// Takes back the calls of a window that are not on the wire yet.
    pub fn withdraw(&mut self, context: &Context, terms: &Terms, window: &mut Window) {
        let now = Self::now(context);
        for at in 0..window.len() {
            let SlotStage::Called(called) = &window.slot(at).stage else { continue };
            if called.call.stage() != Stage::Sent || !self.calls.withdraw(called.number) {
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

    fn forget(&mut self, number: CallNumber) {
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

/// For a sabotage: what is repeated, as if it were what was done.
fn as_result(answer: Answer) -> Answer {
    match answer {
        Answer::Status(status) if status.is_replayed => Answer::Status(Status { code: 201, ..status }),
        answer => answer,
    }
}

impl HeardLast {
    /// What it says about the provider, in words.
    pub fn words(&self) -> Option<String> {
        match (self.status, &self.message) {
            (Some(status), Some(message)) => Some(format!("it answered {status}: {message}")),
            (Some(status), None) => Some(format!("it answered {status}")),
            (None, message) => message.clone(),
        }
    }
}
