//! An attempt: a run of a function (the user's code that works on a record in steps) with its journal (the committed
//! outcomes of steps). The attempt's outcome is reported to its lane.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crossbeam_channel::Sender;
use futures_util::FutureExt as _;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;

use super::error::StepError;
use super::function::Handler;
use super::progress::{Progress, RunOutcome};
use super::record::{Record, Reply};
use super::runs::{RunningFunction, Runs};
use super::settings::Settings;
use super::steps::{Parts, Steps};
use crate::effect::call::{AttemptOutcome, RetryAfter, Status};
use crate::effect::provider::{Body, HandlerReport, Payload, Request};
use crate::postgres::steps::Pool;
use crate::provider::job::Job;

/// The parts that the runs of a lane share. A lane is a thread that processes records; its functions run on a thread of
/// their own.
pub(super) struct RunContext {
    pub handler: Handler,
    pub runs: Arc<Runs>,
    pub pool: Option<Rc<Pool>>,
}

/// An attempt, which runs while it is polled.
pub struct Attempt {
    run: Pin<Box<dyn Future<Output = RunOutcome>>>,
    progress: Rc<Progress>,
    reply_bytes_max: Option<usize>,
}

/// The outcome of an attempt, as reported to its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The attempt has ended.
    Over {
        /// Its outcome.
        outcome: AttemptOutcome,
        /// The function's reply.
        body: Body,
        /// Why the attempt has failed.
        message: Option<String>,
    },
    /// The function cannot continue, for this reason, and only another version of it would help: its task stops.
    MustStopTask(String),
}

impl Attempt {
    /// An attempt whose steps have no database of their own ([`Steps::transaction_by`]). After it has reported steps it
    /// waits for their commit: the returned sender sends it the time from which the next step may act. `None` if the
    /// request is not for a handler.
    pub fn of(
        handler: &Handler,
        request: &Request,
        reports: &Sender<HandlerReport>,
    ) -> Option<(Self, mpsc::UnboundedSender<i64>)> {
        Self::new(handler, request, (None, reports))
    }

    fn new(
        handler: &Handler,
        request: &Request,
        (pool, reports): (Option<Rc<Pool>>, &Sender<HandlerReport>),
    ) -> Option<(Self, mpsc::UnboundedSender<i64>)> {
        let Payload::Handler(work) = &request.payload else { return None };
        let (commit_sender, commits) = mpsc::unbounded_channel();
        let Settings { timeout, reply_bytes_max, .. } = *handler.settings;
        let progress = Rc::new(Progress::new(timeout));
        let steps = Steps::new(Parts {
            work: Arc::clone(work),
            request: request.clone(),
            settings: Arc::clone(&handler.settings),
            pool,
            progress: Rc::clone(&progress),
            reports: reports.clone(),
            commits,
        });
        let (function, record) = (Arc::clone(&handler.function.0), Record::of(Arc::clone(work)));
        let run = async move {
            let (result, steps) = function(record, steps).await;
            steps.finish(result).await
        };
        let run = AssertUnwindSafe(run).catch_unwind();
        let run = run.map(|result| result.unwrap_or_else(|panic| RunOutcome::Failed(panic_error(&*panic))));
        Some((Self { run: Box::pin(run), progress, reply_bytes_max }, commit_sender))
    }

    /// Ends an attempt that has taken too long: its function does not continue beyond its current `await`.
    pub fn overdue(self, timeout: Duration) -> Ended {
        let error = StepError::unknown(format!("a step, with the work around it, has taken longer than {timeout:?}"));
        self.to_ended(RunOutcome::Failed(error))
    }

    fn to_ended(&self, run_outcome: RunOutcome) -> Ended {
        let status = |code| AttemptOutcome::Status(Status::of(code));
        let (outcome, body, message) = match run_outcome {
            RunOutcome::Done(reply) => (status(200), body(reply, self.reply_bytes_max), None),
            RunOutcome::Rejected { reason, certainly_not_done: true } => {
                (AttemptOutcome::Refused, Body::None, Some(reason))
            }
            RunOutcome::Rejected { reason, certainly_not_done: false } => (status(422), Body::None, Some(reason)),
            // Like a provider's replayed error: another attempt would not show what happened.
            RunOutcome::InDoubt(message) => {
                (AttemptOutcome::Status(Status { is_replayed: true, ..Status::of(500) }), Body::None, Some(message))
            }
            RunOutcome::HalfDone(message) => (AttemptOutcome::HalfDone, Body::None, Some(message)),
            RunOutcome::Failed(error) => {
                (outcome_of_failure(&error, self.progress.may_have_acted()), Body::None, Some(error.to_string()))
            }
            RunOutcome::TooLate => {
                (AttemptOutcome::TooLate, Body::None, Some("the window of a step's key has passed".to_owned()))
            }
            RunOutcome::MustStopTask(reason) => return Ended::MustStopTask(reason),
        };
        Ended::Over { outcome, body, message }
    }
}

impl Future for Attempt {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        self.run.as_mut().poll(context).map(|run_outcome| self.to_ended(run_outcome))
    }
}

/// Runs an attempt, and reports its end.
pub(super) async fn run_attempt(shared: RunContext, mut job: Job, _permit: OwnedSemaphorePermit) {
    let request = job.request().clone();
    let attempt = Attempt::new(&shared.handler, &request, (shared.pool.clone(), &shared.runs.reports));
    let Some((mut attempt, commit_sender)) = attempt else {
        return job.report_not_sent("the request is not for a handler".to_owned());
    };
    // The lane abandons the run by dropping `alive`, with the entry that holds it.
    let (alive, abandoned) = oneshot::channel::<()>();
    // Inserted before the job is taken: once the lane cannot withdraw the attempt any more, it can abandon it.
    shared.runs.running().insert(request.number, RunningFunction { commits: commit_sender, _alive: alive });
    if !job.take_from_lane() {
        shared.runs.running().remove(&request.number);
        return;
    }
    job.mark_may_act();
    let progress = Rc::clone(&attempt.progress);
    let mut watched = poll_fn(|context| {
        // The lane reads this on its own thread, to notice a function that blocks this thread: meanwhile no timer of
        // this thread fires.
        *shared.runs.polled() = Some((request.number, Instant::now()));
        let polled = Pin::new(&mut attempt).poll(context);
        *shared.runs.polled() = None;
        polled
    });
    let ended = tokio::select! {
        biased;
        // Nobody waits for the run any more: it is dropped at its current `await`.
        _ = abandoned => return,
        ended = &mut watched => Some(ended),
        () = progress.wait_until_overdue() => None,
    };
    let ended = ended.unwrap_or_else(|| attempt.overdue(shared.handler.settings.timeout));
    // Removed before the end is reported: the next attempt has the same number.
    shared.runs.running().remove(&request.number);
    match ended {
        Ended::Over { outcome, body, message } => job.report(outcome, body, message),
        Ended::MustStopTask(reason) => {
            let (number, attempt) = (request.number, request.attempt);
            let _ = shared.runs.reports.send(HandlerReport::MustStopTask { number, attempt, reason });
            // The end was reported above; the job itself reports nothing.
            job.silence();
        }
    }
}

fn panic_error(panic: &(dyn Any + Send)) -> StepError {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word");
    StepError::unknown(format!("the handler panicked: {message}"))
}

/// The outcome of an attempt that has failed with this error; a wait that the error asks for is passed on.
fn outcome_of_failure(error: &StepError, may_have_acted: bool) -> AttemptOutcome {
    let Some(wait) = error.wait() else {
        return if may_have_acted { AttemptOutcome::Lost } else { AttemptOutcome::NotSent };
    };
    let retry_after = Some(RetryAfter::Seconds(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
    // Like the response of a provider that may have acted (408), or has not (429).
    AttemptOutcome::Status(Status { retry_after, ..Status::of(if may_have_acted { 408 } else { 429 }) })
}

/// The reply as it is kept: as a whole or, if it is too long, as a digest. `bytes_max` is `None` if replies are not
/// wanted.
fn body(reply: Reply, bytes_max: Option<usize>) -> Body {
    match (reply.into_bytes(), bytes_max) {
        (None, _) | (_, None) => Body::None,
        (Some(bytes), Some(bytes_max)) if bytes.len() <= bytes_max => Body::Whole(bytes),
        (Some(bytes), Some(_)) => Body::Digest { sha256: Sha256::digest(&bytes).into(), bytes: bytes.len() as u64 },
    }
}
