//! The driver for handlers: the user's functions, which run step by step in place of a provider.
//!
//! - [`Handler`] is the [`Provider`], made of a [`Function`] and [`Settings`]. Each lane's handlers run on a thread of
//!   their own, `calls-<n>`, with a small runtime: many can be in progress, but only one runs at a time.
//! - A function does its work on a record in steps, through [`Steps`]; each step has an effect on another system. The
//!   function gets a [`Record`], and returns a [`Reply`] or a [`StepError`].
//! - [`Attempt`] is one attempt: it runs the function, which gets recorded outcomes from the journal, and reports the
//!   outcome. It needs no runtime of its own, so that the simulation can run it in simulated time.
//!
//! **A step's outcome is committed before the next step begins.** The committed outcomes are the record's journal. If
//! the function succeeds right after its last step, that step's outcome is not committed separately: the settlement
//! (the record's final outcome) follows at once. After a crash in between, the step is done again, under its key. A
//! function that is run again gets the committed outcomes, and acts from the first step without a committed outcome.
//!
//! **What is certain.** An attempt is [`Lost`](crate::effect::call::AttemptOutcome::Lost) if it may have acted in a
//! step whose outcome is unknown. It is [`NotSent`](crate::effect::call::AttemptOutcome::NotSent) if it has ended
//! between steps or in a transaction: its steps until then are committed. The key's window (how long the provider
//! honours a key) is checked when each step begins. Without keys, a mark is committed before each call begins: the call
//! may have happened.
//!
//! **Failure.** A panic of the function ends its own attempt only. A function whose steps differ from its journal stops
//! its task.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};

use super::lane::Lane;
use super::thread;
use crate::effect::provider::{AttemptEnd, CallNumber, Calls, HandlerReport, Provider, Request};
use crate::postgres::steps::Pool;

mod error;
mod function;
mod journal;
mod progress;
mod record;
mod run;
mod runs;
mod settings;
mod steps;

pub use crate::effect::call::Key;
pub use crate::postgres::steps::{StepOutcome, Transaction};
pub use error::StepError;
pub use function::{Function, Handler};
pub use record::{Record, Reply};
pub use run::{Attempt, Ended};
pub use settings::Settings;
pub use steps::Steps;

use runs::Runs;

/// The most threads of a lane for the blocking work that its functions start.
const BLOCKING_MAX: usize = 64;

impl Provider for Handler {
    fn kind(&self) -> &'static str {
        "handler"
    }

    fn calls(&self) -> Box<dyn Calls> {
        let (reports, report_receiver) = unbounded();
        let runs = Arc::new(Runs { running: Mutex::default(), polled: Mutex::default(), reports });
        let (handler, thread_runs) = (self.clone(), Arc::clone(&runs));
        let thread_main = move |jobs, stopped| {
            thread::run(BLOCKING_MAX, stopped, |tasks| {
                let (handler, runs) = (handler.clone(), Arc::clone(&thread_runs));
                async move {
                    let settings = &handler.settings;
                    let bounds = (settings.in_flight, settings.rate);
                    let pool = settings.database.as_ref().map(|database| Rc::new(Pool::new(database.clone())));
                    thread::start_in_order(jobs, bounds, |job, permit| {
                        let (handler, runs, pool) = (handler.clone(), Arc::clone(&runs), pool.clone());
                        let context = run::RunContext { handler, runs, pool };
                        tasks.start(run::run_attempt(context, job, permit));
                    })
                    .await;
                }
            });
        };
        Box::new(HandlerCalls { lane: Lane::new(Arc::new(thread_main)), runs, report_receiver })
    }
}

/// One lane's handlers.
struct HandlerCalls {
    lane: Lane,
    runs: Arc<Runs>,
    report_receiver: Receiver<HandlerReport>,
}

impl Calls for HandlerCalls {
    fn submit(&mut self, request: Request) {
        self.lane.submit(request);
    }

    fn take_end(&mut self) -> Option<AttemptEnd> {
        self.lane.take_end()
    }

    fn withdraw(&mut self, number: CallNumber) -> bool {
        self.lane.withdraw(number)
    }

    fn in_flight(&self) -> usize {
        self.lane.in_flight()
    }

    fn take_report(&mut self) -> Option<HandlerReport> {
        self.report_receiver.try_recv().ok()
    }

    fn resume_after_commit(&mut self, number: CallNumber, first_attempt_at_ms: i64) {
        if let Some(run) = self.runs.running().get(&number) {
            // The run cannot have ended: it waits for this.
            let _ = run.commits.send(first_attempt_at_ms);
        }
    }

    fn blocked(&self) -> Option<(CallNumber, Duration)> {
        let polled = *self.runs.polled();
        polled.map(|(number, since)| (number, since.elapsed()))
    }

    fn abandon(&mut self, number: CallNumber) {
        self.runs.running().remove(&number);
    }
}

#[cfg(test)]
mod tests;
