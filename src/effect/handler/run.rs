//! One attempt: a function is run with its journal, and its outcome is reported.

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
use super::progress::{End, Progress};
use super::record::{Record, Reply};
use super::runs::{Running, Runs};
use super::settings::Settings;
use super::steps::{Parts, Steps};
use crate::effect::call::{Answer, RetryAfter, Status};
use crate::effect::job::Job;
use crate::effect::postgres::steps::Pool;
use crate::effect::provider::{Asks, Body, Request, Told};

/// What a lane's runs share.
pub(super) struct Lane {
    pub handler: Handler,
    pub runs: Arc<Runs>,
    pub pool: Option<Rc<Pool>>,
}

/// An attempt, which runs while it is polled.
pub struct Attempt {
    run: Pin<Box<dyn Future<Output = End>>>,
    progress: Rc<Progress>,
    reply_bytes_max: Option<usize>,
}

/// The outcome of an attempt, as reported to its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is over.
    Over {
        /// Its outcome.
        answer: Answer,
        /// What its function has returned.
        body: Body,
        /// Why it has failed.
        message: Option<String>,
    },
    /// It cannot go on, for this reason, and only a different program would help.
    Stops(String),
}

impl Attempt {
    /// An attempt whose steps have no database of their own ([`Steps::transaction_by`]). After it has reported steps it
    /// waits until the returned sender gives it the time from which the next step may act. `None` if the request is not
    /// for a handler.
    pub fn of(handler: &Handler, request: &Request, tell: &Sender<Told>) -> Option<(Self, mpsc::UnboundedSender<i64>)> {
        Self::new(handler, request, (None, tell))
    }

    fn new(
        handler: &Handler,
        request: &Request,
        (pool, tell): (Option<Rc<Pool>>, &Sender<Told>),
    ) -> Option<(Self, mpsc::UnboundedSender<i64>)> {
        let Asks::Handler(work) = &request.asks else { return None };
        let (tell_run, committed) = mpsc::unbounded_channel();
        let Settings { timeout, reply_bytes_max, .. } = *handler.settings;
        let progress = Rc::new(Progress::new(timeout));
        let steps = Steps::new(Parts {
            work: Arc::clone(work),
            request: request.clone(),
            settings: Arc::clone(&handler.settings),
            pool,
            progress: Rc::clone(&progress),
            tell: tell.clone(),
            committed,
        });
        let (function, record) = (Arc::clone(&handler.function.0), Record::of(Arc::clone(work)));
        let run = async move {
            let (came, steps) = function(record, steps).await;
            steps.finish(came).await
        };
        let run = AssertUnwindSafe(run).catch_unwind();
        let run = run.map(|ran| ran.unwrap_or_else(|panic| End::Failed(panicked(&*panic))));
        Some((Self { run: Box::pin(run), progress, reply_bytes_max }, tell_run))
    }

    /// Ends an attempt that has taken too long, wherever it is.
    pub fn overdue(self, timeout: Duration) -> Ended {
        let error = StepError::unknown(format!("a step has not ended within {timeout:?}"));
        self.ended(End::Failed(error))
    }

    fn ended(&self, end: End) -> Ended {
        let status = |code| Answer::Status(Status::of(code));
        let (answer, body, message) = match end {
            End::Done(reply) => (status(200), body(reply, self.reply_bytes_max), None),
            End::Rejected { reason, is_certain: true } => (Answer::Refused, Body::None, Some(reason)),
            End::Rejected { reason, is_certain: false } => (status(422), Body::None, Some(reason)),
            // Like a provider's replayed error: nobody will find out what happened.
            End::InDoubt(words) => {
                (Answer::Status(Status { is_replayed: true, ..Status::of(500) }), Body::None, Some(words))
            }
            End::HalfDone(words) => (Answer::HalfDone, Body::None, Some(words)),
            End::Failed(error) => (failed(&error, self.progress.may_have_acted()), Body::None, Some(error.to_string())),
            End::TooLate => (Answer::TooLate, Body::None, Some("the window of a step's key has passed".to_owned())),
            End::Stops(reason) => return Ended::Stops(reason),
        };
        Ended::Over { answer, body, message }
    }
}

impl Future for Attempt {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        self.run.as_mut().poll(context).map(|end| self.ended(end))
    }
}

/// Makes an attempt.
pub(super) async fn make(lane: Lane, mut job: Job, _permit: OwnedSemaphorePermit) {
    let request = job.request().clone();
    let made = Attempt::new(&lane.handler, &request, (lane.pool.clone(), &lane.runs.tell));
    let Some((mut attempt, tell_run)) = made else {
        return job.not_sent("the request is not for a handler".to_owned());
    };
    let (alive, abandoned) = oneshot::channel::<()>();
    // Inserted before the claim, so that a lane that can no longer withdraw it can abandon it.
    lane.runs.running().insert(request.number, Running { committed: tell_run, _alive: alive });
    if !job.claim() {
        lane.runs.running().remove(&request.number);
        return;
    }
    job.written();
    let progress = Rc::clone(&attempt.progress);
    let mut watched = poll_fn(|context| {
        // The lane's thread reads this: no timer of this thread fires while the function occupies it.
        *lane.runs.at_work() = Some((request.number, Instant::now()));
        let polled = Pin::new(&mut attempt).poll(context);
        *lane.runs.at_work() = None;
        polled
    });
    let ended = tokio::select! {
        biased;
        // Nobody waits for it: the run is dropped where it is.
        _ = abandoned => return,
        ended = &mut watched => Some(ended),
        () = progress.overdue() => None,
    };
    let ended = ended.unwrap_or_else(|| attempt.overdue(lane.handler.settings.timeout));
    // Removed before the end is reported: the next attempt has the same number.
    lane.runs.running().remove(&request.number);
    match ended {
        Ended::Over { answer, body, message } => job.conclude(answer, body, message),
        Ended::Stops(reason) => {
            let (number, attempt) = (request.number, request.attempt);
            let _ = lane.runs.tell.send(Told::Stops { number, attempt, reason });
            job.silence();
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> StepError {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word");
    StepError::unknown(format!("the handler panicked: {words}"))
}

fn failed(error: &StepError, may_have_acted: bool) -> Answer {
    let Some(wait) = error.wait() else { return if may_have_acted { Answer::Lost } else { Answer::NotSent } };
    let retry_after = Some(RetryAfter::Seconds(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
    // Like a provider that may have acted (408), or has not (429).
    Answer::Status(Status { retry_after, ..Status::of(if may_have_acted { 408 } else { 429 }) })
}

fn body(reply: Reply, most: Option<usize>) -> Body {
    match (reply.into_bytes(), most) {
        (None, _) | (_, None) => Body::None,
        (Some(bytes), Some(most)) if bytes.len() <= most => Body::Whole(bytes),
        (Some(bytes), Some(_)) => Body::Digest { sha256: Sha256::digest(&bytes).into(), bytes: bytes.len() as u64 },
    }
}
