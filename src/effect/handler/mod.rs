//! The driver for handlers: functions of the user's, run step by step as if they were a provider.
//!
//! - [`Handler`] is the [`Provider`], made of a [`Function`] and [`Settings`]. Each lane's handlers run on a thread of
//!   their own, `calls-<n>`, with a small runtime, many at once and one at a time.
//! - [`Steps`] is what a function does its work by; [`Record`], [`Reply`] and [`StepError`] are what goes in and comes out.
//! - [`Attempt`] is one attempt: runs the function from the journal on, and reports its outcome. It needs no runtime
//!   by itself, so that the simulation makes it in a time of its own.
//!
//! **A step's outcome is committed before the next step begins.** The last one's result is left to the settlement, if
//! the function ends well right after it; a crash in between does that step again, under its key. A function that is run
//! again gets what was committed, and acts from there on.
//!
//! **What is certain.** An attempt that may have acted in a step of which nothing is known is
//! [`Lost`](super::call::Answer::Lost); one that has ended between steps, or in a transaction, is
//! [`NotSent`](super::call::Answer::NotSent): its steps so far are committed. The key's window is looked at as each step
//! begins. Without keys a mark is committed before each call begins.
//!
//! **Failure.** A panic of the function ends its attempt, and no other. A function whose steps differ from its journal
//! stops its task: nothing is guessed.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};

use super::lane::Lane;
use super::postgres::steps::Pool;
use super::provider::{CallNumber, Calls, Heard, Provider, Request, Told};
use super::thread;

mod error;
mod function;
mod journal;
mod progress;
mod record;
mod run;
mod runs;
mod settings;
mod steps;

pub use super::call::Key;
pub use super::postgres::steps::{Came, Transaction};
pub use error::StepError;
pub use function::{Function, Handler};
pub use record::{Record, Reply};
pub use run::{Attempt, Ended};
pub use settings::Settings;
pub use steps::Steps;

use runs::Runs;

/// How many threads of a lane may be at blocking work that functions start.
const BLOCKING_MAX: usize = 64;

impl Provider for Handler {
    fn kind(&self) -> &'static str {
        "handler"
    }

    fn calls(&self) -> Box<dyn Calls> {
        let (tell, told) = unbounded();
        let runs = Arc::new(Runs { running: Mutex::default(), at_work: Mutex::default(), tell });
        let (handler, of_thread) = (self.clone(), Arc::clone(&runs));
        let work = move |jobs, stopped| {
            thread::run(BLOCKING_MAX, stopped, |tasks| {
                let (handler, runs) = (handler.clone(), Arc::clone(&of_thread));
                async move {
                    let settings = &handler.settings;
                    let bounds = (settings.in_flight, settings.rate);
                    let pool = settings.database.as_ref().map(|database| Rc::new(Pool::new(database.clone())));
                    thread::let_go(jobs, bounds, |job, permit| {
                        let lane = run::Lane { handler: handler.clone(), runs: Arc::clone(&runs), pool: pool.clone() };
                        tasks.start(run::make(lane, job, permit));
                    })
                    .await;
                }
            });
        };
        Box::new(HandlerCalls { lane: Lane::new(Arc::new(work)), runs, told })
    }
}

/// One lane's handlers.
struct HandlerCalls {
    lane: Lane,
    runs: Arc<Runs>,
    told: Receiver<Told>,
}

impl Calls for HandlerCalls {
    fn submit(&mut self, request: Request) {
        self.lane.submit(request);
    }

    fn take(&mut self) -> Option<Heard> {
        self.lane.take()
    }

    fn withdraw(&mut self, number: CallNumber) -> bool {
        self.lane.withdraw(number)
    }

    fn in_flight(&self) -> usize {
        self.lane.in_flight()
    }

    fn told(&mut self) -> Option<Told> {
        self.told.try_recv().ok()
    }

    fn journaled(&mut self, number: CallNumber, first_at_ms: i64) {
        if let Some(run) = self.runs.running().get(&number) {
            // It cannot have ended: it waits for this.
            let _ = run.committed.send(first_at_ms);
        }
    }

    fn blocked(&self) -> Option<(CallNumber, Duration)> {
        let at_work = *self.runs.at_work();
        at_work.map(|(number, since)| (number, since.elapsed()))
    }

    fn abandon(&mut self, number: CallNumber) {
        self.runs.running().remove(&number);
    }
}

#[cfg(test)]
mod tests;
