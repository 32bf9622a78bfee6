//! Calls to a provider: a lane's part in what a record's call goes through.
//!
//! - [`window`] holds a task's records that were read and are not settled
//! - [`judging`] finds out which of them call
//! - [`grants`] says up to where calls may go without reservations of their own
//! - [`writing`] puts reservations, grants and settlements into the task's share of the open transaction
//! - [`results`] writes what was answered, and [`secrets`] keeps answers back that repeat one
//! - `sending` sends what may go and takes it back, `events` takes in what is said to it; calls have `numbers`
//! - [`health`] knows whether the provider is there, `blocked` whether a handler holds up the others
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
use std::time::Duration;

use crate::effect::call::{Class, Now, Policy};
use crate::effect::provider::{CallNumber, Calls, Provider};
use crate::format::Outcome as Commanded;
use crate::observe::CallMetrics;
use crate::rendering::work::Asker;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Terms;

use super::context::Context;
use super::crash;
use super::share::TaskId;
use super::sink_trouble::Said;

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

pub use numbers::Numbers;

use blocked::Blocked;
use health::Health;
use judging::Round;
use numbers::Random;
use secrets::Secrets;
use window::Window;

/// How long after the last transaction the next one begins while calls wait for their turn: several commits' time.
const BATCH_WAIT: Duration = Duration::from_millis(20);

/// A lane's calls.
pub struct Calling {
    calls: Box<dyn Calls>,
    /// Whose they are: task and offset.
    under_way: HashMap<CallNumber, (TaskId, i64)>,
    random: Random,
    health: Health,
    blocked: Blocked,
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
    pub fn new(context: &Context, provider: &dyn Provider, random: u64) -> Self {
        Self {
            calls: provider.calls(),
            under_way: HashMap::new(),
            random: Random(random),
            health: Health::default(),
            blocked: Blocked::default(),
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
            asker: Asker::new(&context.topology).expect("a topology with a provider calls it"),
            round: Round::default(),
        }
    }

    /// The time.
    pub fn now(context: &Context) -> Now {
        Now { wall_ms: context.clock.wall_ms(), monotonic: context.clock.monotonic() }
    }

    /// How many calls are under way, or wait for their turn in the driver.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
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
}
