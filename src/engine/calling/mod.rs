//! A lane's calls to its topology's provider.
//!
//! A record is **settled** once a transaction has committed its outcome. Before a call may be sent, a transaction must
//! commit a permit for it: a **reservation**, which is stored with the identity of the call's record, or a **grant** in
//! the task's position record, for all records up to an offset. Both say that the call may have been sent.
//!
//! - [`window`] holds the records that a task has read and not settled
//! - [`judging`] decides which of them call the provider
//! - [`grants`] decides up to which offset calls need no reservations of their own
//! - [`writing`] puts reservations, grants and settlements into the task's share of the open transaction
//! - [`results`] writes the provider's responses, [`secrets`] withholds response bodies that contain a secret
//! - `sending` sends and withdraws calls, `events` handles the driver's events, `numbers` numbers calls
//! - [`health`] tracks whether the provider is up, `blocked` reports a handler that blocks the others
//!
//! [`crate::effect::call`] decides what happens to a call; the provider's driver ([`Calls`]) sends the requests. In
//! each round ([`super::lane`]) a lane reads new records, handles responses, judges records, writes and commits
//! everything due in one transaction, and then sends the calls that this transaction has authorised. No transaction is
//! open while the lane waits for a response, and during a commit the lane continues with all work that needs no
//! transaction.
//!
//! **Failure**: a clean abort returns every window to its state before the transaction, and no record is read again.
//! After any other failure of a transaction, its tasks are restored with new windows: responses to calls that are still
//! in flight are ignored, and the reservations of these calls record that they may have happened.
//!
//! **For tests**: `crash::point` can end the process at that point, and `sabotage::is_on` says whether a test has
//! switched on a deliberate fault.

use std::collections::HashMap;
use std::time::Duration;

use crate::effect::call::{Class, Now, Policy};
use crate::effect::provider::{CallNumber, Calls, Provider};
use crate::format::Outcome as CommandOutcome;
use crate::observe::CallMetrics;
use crate::rendering::work::WorkRenderer;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Terms;

use super::context::Context;
use super::crash;
use super::share::TaskId;
use super::sink_trouble::LoggedReasons;

mod blocked;
mod events;
pub mod grants;
pub mod health;
pub mod judging;
mod numbers;
pub mod results;
pub mod secrets;
mod sending;
pub mod window;
pub mod writing;

pub use numbers::CallNumbers;

use blocked::Blocked;
use health::Health;
use judging::JudgingBuffers;
use numbers::Random;
use secrets::Secrets;
use window::Window;

/// While calls are queued, the next transaction begins this long after the last one ended: the time of several commits.
const BATCH_WAIT: Duration = Duration::from_millis(20);

/// A lane's calls.
pub struct Calling {
    calls: Box<dyn Calls>,
    /// The task and offset of each call that is under way: queued in the driver, or in flight.
    under_way: HashMap<CallNumber, (TaskId, i64)>,
    random: Random,
    health: Health,
    blocked: Blocked,
    secrets: Secrets,
    /// Whether a response with a secret was reported: that is done only once.
    has_reported_secret: bool,
    /// Whether enough calls were left unsent by the last [`Calling::send`]: then no more records are read for now.
    has_enough_unsent: bool,
    /// When the last transaction of this lane's windows ended; `None` while one is open.
    pub(super) transaction_ended_at: Option<Duration>,
    pub(super) metrics: CallMetrics,
    pub(super) logged_reasons: LoggedReasons,
    pub(super) numbers: CallNumbers,
    /// Renders records into requests, or into the work of handlers.
    pub(super) work_renderer: WorkRenderer,
    pub(super) judging_buffers: JudgingBuffers,
}

/// The windows of a lane's tasks.
pub trait Windows {
    /// The window of a task, if the task is active.
    fn window(&mut self, id: TaskId) -> Option<&mut Window>;

    /// The active tasks, in order.
    fn active_tasks(&self) -> Vec<TaskId>;
}

impl Calling {
    /// A lane's calls to its topology's provider; `random` seeds its random numbers.
    pub fn new(context: &Context, provider: &dyn Provider, random: u64) -> Self {
        Self {
            calls: provider.calls(),
            under_way: HashMap::new(),
            random: Random(random),
            health: Health::default(),
            blocked: Blocked::default(),
            secrets: context.topology.http().map(Secrets::of).unwrap_or_default(),
            has_reported_secret: false,
            has_enough_unsent: false,
            transaction_ended_at: Some(Duration::ZERO),
            metrics: context.metrics.calls(
                &context.topology.name,
                provider.kind(),
                (&Class::ALL.map(Class::as_str), &CommandOutcome::ALL.map(CommandOutcome::as_str)),
            ),
            logged_reasons: LoggedReasons::default(),
            numbers: CallNumbers::default(),
            work_renderer: WorkRenderer::new(&context.topology).expect("a topology with a provider makes calls"),
            judging_buffers: JudgingBuffers::default(),
        }
    }

    /// The current time.
    pub fn now(context: &Context) -> Now {
        Now { wall_ms: context.clock.wall_ms(), monotonic: context.clock.monotonic() }
    }

    /// How many calls are under way: queued in the driver, or in flight.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// How long to delay the next transaction: while calls are queued, an earlier transaction would not complete any
    /// call earlier, and a large transaction costs little more than a small one.
    pub fn write_delay(&self, terms: &Terms, now: Duration) -> Duration {
        match self.transaction_ended_at {
            Some(ended_at) if self.under_way.len() > terms.in_flight => (ended_at + BATCH_WAIT).saturating_sub(now),
            _ => Duration::ZERO,
        }
    }

    /// Whether calls are held: the provider is down or refuses them.
    pub fn is_held(&self) -> bool {
        self.health.is_held()
    }

    /// Tells a window whether the open transaction was committed or certainly aborted. A commit resumes handlers.
    pub fn on_transaction_end(&mut self, context: &Context, policy: &Policy, window: &mut Window, is_committed: bool) {
        let (now, random) = (Self::now(context), &mut self.random);
        let mut draw = |max| random.up_to(max);
        if !is_committed {
            let steps =
                if sabotage::is_on(Sabotage::StepsKeptAfterAbort) { window.written_steps() } else { Vec::new() };
            window.on_abort(policy, now, &mut draw);
            return steps.into_iter().for_each(|(number, at_ms)| self.calls.resume_after_commit(number, at_ms));
        }
        let effects = window.on_commit(policy, now, &mut draw);
        if effects.allows_calls {
            crash::point(crash::Point::AfterReservation);
        }
        for (number, first_attempt_at_ms) in effects.resumed_handlers {
            crash::point(crash::Point::AfterStep);
            self.calls.resume_after_commit(number, first_attempt_at_ms);
        }
    }
}
