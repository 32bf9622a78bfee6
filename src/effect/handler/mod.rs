//! The driver for handlers: functions of the user's, run step by step as if they were a provider.
//!
//! - [`Handler`] is the [`Provider`], made of a [`Function`] and [`Settings`]. Each lane's handlers run on a thread of
//!   their own, `calls-<n>`, with a small runtime, many at once and one at a time.
//! - [`Steps`] is what a function does its work by; [`Record`], [`Reply`] and [`StepError`] are what goes in and comes out.
//! - [`Attempt`] is one attempt: runs the function from the journal on, and says what it has come to. It needs no runtime
//!   by itself, so that the simulation makes it in a time of its own.
//!
//! **What a step has come to is committed before the next one begins.** The last one's result is left to the settlement, if
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

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::call::KeyWindow;
use super::http::WallClock;
use super::lane::Lane;
use super::postgres::steps::{Database, Pool};
use super::provider::{CallNumber, Calls, Heard, Provider, Request, Told};
use super::thread;

mod error;
mod journal;
mod record;
mod run;
mod steps;

pub use super::call::Key;
pub use super::postgres::steps::{Came, Transaction};
pub use error::StepError;
pub use record::{Record, Reply};
pub use run::{Attempt, Ended};
pub use steps::Steps;

/// How many threads of a lane may be at blocking work that functions start.
const BLOCKING_MAX: usize = 64;

/// How handlers are run.
#[derive(Clone)]
pub struct Settings {
    /// For how long whoever is called honours a step's key; `None` if nobody does.
    pub window: Option<KeyWindow>,
    /// How long a step may take, and what the function does around it.
    pub timeout: Duration,
    /// How many functions of a lane run at once, at most.
    pub in_flight: usize,
    /// How many functions of a lane begin in a second, at most; a tenth of that at once.
    pub rate: Option<f64>,
    /// Up to how many bytes of a reply are kept; `None` if nobody wants it.
    pub result_max: Option<usize>,
    /// Where steps' transactions are; `None` if there are none.
    pub database: Option<Database>,
    /// The wall clock.
    pub clock: WallClock,
}

/// What a run of a function comes to, with the steps that it was given.
type Ran = Pin<Box<dyn Future<Output = (Result<Reply, StepError>, Steps)>>>;

/// A function that does a record's work.
#[derive(Clone)]
pub struct Function(Arc<dyn Fn(Record, Steps) -> Ran + Send + Sync>);

impl Function {
    /// The function `function`. It runs on its lane's thread, so what it does there must not block.
    pub fn new<F, R>(function: F) -> Self
    where
        F: AsyncFn(&Record, &mut Steps) -> Result<R, StepError> + Send + Sync + 'static,
        R: Into<Reply>,
    {
        let function = Arc::new(function);
        Self(Arc::new(move |record, mut steps| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let came = function(&record, &mut steps).await.map(Into::into);
                (came, steps)
            })
        }))
    }
}

/// A handler, as all lanes of its topology share it.
#[derive(Clone)]
pub struct Handler {
    function: Function,
    settings: Arc<Settings>,
}

impl Handler {
    /// A handler that does records' work by this function. Connects to nothing.
    pub fn new(function: Function, settings: Settings) -> Self {
        Self { function, settings: Arc::new(settings) }
    }
}

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

/// The functions of a lane that are running.
struct Runs {
    running: Mutex<HashMap<CallNumber, Running>>,
    /// The function that is being polled, and since when: it has the thread until its next `await`.
    at_work: Mutex<Option<(CallNumber, Instant)>>,
    tell: Sender<Told>,
}

/// A function that is running. It ends where it is once this is dropped.
struct Running {
    /// Tells it that its steps are committed, and since when the next one may act.
    committed: mpsc::UnboundedSender<i64>,
    _alive: oneshot::Sender<()>,
}

impl Runs {
    fn running(&self) -> MutexGuard<'_, HashMap<CallNumber, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at_work(&self) -> MutexGuard<'_, Option<(CallNumber, Instant)>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
