//! Calls to a provider: the lane's part in them.
//!
//! - [`window`] holds the records that a task has read and not settled
//! - [`judging`] decides which of them call the provider
//! - [`grants`] decides up to which offset calls need no reservations of their own
//! - [`writing`] puts reservations, grants and settlements into the task's share of the open transaction
//! - [`results`] writes the provider's answers, [`secrets`] withholds the bodies of answers that contain a secret
//! - `sending` sends and withdraws calls, `events` handles what the provider reports, `numbers` numbers calls
//! - [`health`] tracks whether the provider is up, `blocked` reports a handler that blocks the others
//!
//! [`crate::effect::call`] decides what happens to a call; the provider's driver handles what is on the wire. In each
//! round ([`super::lane`]) a lane takes in new records, handles answers, judges, writes and commits all that is due in
//! one transaction, and then sends the calls that this transaction has authorised. No transaction is open while the
//! lane waits for an answer, and during a commit it goes on with whatever needs no transaction.
//!
//! **Failure**: after a clean abort everything is as it was before the transaction, and nothing is read again. Any
//! other failure of a transaction sends its tasks through their restore, with new windows: answers to calls that are
//! still on the wire are ignored, and the reservations of these calls say that they may have happened.

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

/// While calls are queued, the next transaction begins this long after the last one: the time of several commits.
const BATCH_WAIT: Duration = Duration::from_millis(20);

/// A lane's calls.
pub struct Calling {
    calls: Box<dyn Calls>,
    /// The task and offset of each call that is under way.
    under_way: HashMap<CallNumber, (TaskId, i64)>,
    random: Random,
    health: Health,
    blocked: Blocked,
    secrets: Secrets,
    /// Whether an answer has contained a secret, which is reported once.
    has_hidden: bool,
    /// Whether there were enough unsent calls when calls were last sent.
    has_enough: bool,
    /// When the last transaction of this lane's windows ended; `None` while one is open.
    pub(super) committed_at: Option<Duration>,
    pub(super) metrics: CallMetrics,
    pub(super) said: Said,
    pub(super) numbers: Numbers,
    pub(super) asker: Asker,
    pub(super) round: Round,
}

/// The windows of a lane's tasks.
pub trait Windows {
    /// The window of a task, if the task is at work.
    fn window(&mut self, id: TaskId) -> Option<&mut Window>;

    /// The tasks at work, in order.
    fn at_work(&self) -> Vec<TaskId>;
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
            asker: Asker::new(&context.topology).expect("a topology with a provider makes calls"),
            round: Round::default(),
        }
    }

    /// The time.
    pub fn now(context: &Context) -> Now {
        Now { wall_ms: context.clock.wall_ms(), monotonic: context.clock.monotonic() }
    }

    /// How many calls are under way or queued in the driver.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// How long to delay the next transaction: while calls are queued, an earlier one would not end any of them
    /// earlier, and a large transaction costs little more than a small one.
    pub fn writes_in(&self, terms: &Terms, now: Duration) -> Duration {
        match self.committed_at {
            Some(committed_at) if self.under_way.len() > terms.in_flight => {
                (committed_at + BATCH_WAIT).saturating_sub(now)
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether calls are held: the provider is down or refuses them.
    pub fn is_held(&self) -> bool {
        self.health.is_held()
    }

    /// Tells a window whether the open transaction was committed or certainly not. After a commit, handlers go on.
    pub fn ended(&mut self, context: &Context, policy: &Policy, window: &mut Window, is_committed: bool) {
        let (now, random) = (Self::now(context), &mut self.random);
        let mut draw = |most| random.up_to(most);
        if !is_committed {
            let kept = if sabotage::is_on(Sabotage::StepsKeptAfterAbort) { window.written_steps() } else { Vec::new() };
            window.on_abort(policy, now, &mut draw);
            return kept.into_iter().for_each(|(number, at_ms)| self.calls.journaled(number, at_ms));
        }
        let let_go = window.on_commit(policy, now, &mut draw);
        if let_go.calls {
            crash::point(crash::Point::AfterReservation);
        }
        for (number, first_at_ms) in let_go.handlers {
            crash::point(crash::Point::AfterStep);
            self.calls.journaled(number, first_at_ms);
        }
    }
}
