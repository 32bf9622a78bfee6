//! One attempt of a function's: it is run from its journal on, and its end is heard of.

use std::any::Any;
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;

use super::steps::{Parts, Steps};
use super::{Handler, Record, Reply, Running, Runs, StepError};
use crate::effect::call::{Answer, RetryAfter, Status};
use crate::effect::job::Job;
use crate::effect::postgres::steps::Pool;
use crate::effect::provider::{Asks, Body, Told};

/// What a lane's runs share.
pub(super) struct Lane {
    pub handler: Handler,
    pub runs: Arc<Runs>,
    pub pool: Option<Rc<Pool>>,
}

/// What an attempt has come to.
pub(super) enum End {
    Done(Reply),
    Rejected { reason: String, is_certain: bool },
    InDoubt(String),
    Failed(StepError),
    TooLate,
    Stops(String),
}

/// How far a run is, for whoever watches it.
pub(super) struct Progress {
    timeout: Duration,
    /// Whether it may have acted in a way that nothing committed says.
    acting: Cell<bool>,
    /// When it is overdue; `None` while it waits for a commit.
    deadline: Cell<Option<Instant>>,
    changed: Notify,
}

impl Progress {
    fn new(timeout: Duration) -> Self {
        let deadline = Cell::new(Some(Instant::now() + timeout));
        Self { timeout, acting: Cell::new(false), deadline, changed: Notify::new() }
    }

    /// It may act from now on, or has certainly not acted.
    pub fn is_acting(&self, is_acting: bool) {
        self.acting.set(is_acting);
    }

    /// It waits for a commit, for as long as that takes.
    pub fn waits(&self) {
        self.deadline.set(None);
    }

    /// All that it has done is committed.
    pub fn goes_on(&self) {
        self.acting.set(false);
        self.deadline.set(Some(Instant::now() + self.timeout));
        self.changed.notify_one();
    }

    /// Waits until it is overdue.
    async fn overdue(&self) {
        loop {
            match self.deadline.get() {
                None => self.changed.notified().await,
                Some(deadline) if Instant::now() >= deadline => return,
                Some(deadline) => tokio::time::sleep_until(deadline).await,
            }
        }
    }
}

/// Makes an attempt.
pub(super) async fn make(lane: Lane, mut job: Job, _permit: OwnedSemaphorePermit) {
    let request = job.request().clone();
    let Asks::Handler(work) = &request.asks else { return job.not_sent("it is no work of a handler".to_owned()) };
    let ((tell_run, committed), (alive, abandoned)) = (mpsc::unbounded_channel(), oneshot::channel::<()>());
    // Before it is claimed: whoever finds that it cannot be taken back any more can abandon it.
    lane.runs.running().insert(request.number, Running { committed: tell_run, _alive: alive });
    if !job.claim() {
        lane.runs.running().remove(&request.number);
        return;
    }
    job.written();
    let progress = Rc::new(Progress::new(lane.handler.settings.timeout));
    let steps = Steps::new(Parts {
        work: Arc::clone(work),
        request: request.clone(),
        settings: Arc::clone(&lane.handler.settings),
        pool: lane.pool.clone(),
        progress: Rc::clone(&progress),
        tell: lane.runs.tell.clone(),
        committed,
    });
    let function = Arc::clone(&lane.handler.function.0);
    let run = async {
        let (came, steps) = function(Record::of(Arc::clone(work)), steps).await;
        steps.finish(came).await
    };
    let end = tokio::select! {
        biased;
        // Nobody waits for it: the run is dropped where it is.
        _ = abandoned => return,
        ran = AssertUnwindSafe(run).catch_unwind() => ran.unwrap_or_else(|panic| End::Failed(panicked(&*panic))),
        () = progress.overdue() => {
            let timeout = lane.handler.settings.timeout;
            End::Failed(StepError::unknown(format!("a step has not ended within {timeout:?}")))
        }
    };
    // Before it is heard of: the next attempt has the same number.
    lane.runs.running().remove(&request.number);
    conclude(&lane, job, end, progress.acting.get());
}

fn panicked(panic: &(dyn Any + Send)) -> StepError {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word");
    StepError::unknown(format!("the handler has panicked: {words}"))
}

/// Has the lane hear what an attempt has come to.
fn conclude(lane: &Lane, mut job: Job, end: End, may_have_acted: bool) {
    let status = |code| Answer::Status(Status::of(code));
    let (answer, body, message) = match end {
        End::Done(reply) => (status(200), body(reply, lane.handler.settings.result_max), None),
        End::Rejected { reason, is_certain: true } => (Answer::Refused, Body::None, Some(reason)),
        End::Rejected { reason, is_certain: false } => (status(422), Body::None, Some(reason)),
        // As a provider says that it will not find out.
        End::InDoubt(words) => {
            (Answer::Status(Status { is_replayed: true, ..Status::of(500) }), Body::None, Some(words))
        }
        End::Failed(error) => (failed(&error, may_have_acted), Body::None, Some(error.to_string())),
        End::TooLate => (Answer::TooLate, Body::None, Some("the window of a step's key has passed".to_owned())),
        End::Stops(reason) => {
            let (number, attempt) = (job.request().number, job.request().attempt);
            let _ = lane.runs.tell.send(Told::Stops { number, attempt, reason });
            return job.silence();
        }
    };
    job.conclude(answer, body, message);
}

fn failed(error: &StepError, may_have_acted: bool) -> Answer {
    let Some(wait) = error.wait() else { return if may_have_acted { Answer::Lost } else { Answer::NotSent } };
    let retry_after = Some(RetryAfter::Seconds(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
    // As a provider says that it may have acted, or has not.
    Answer::Status(Status { retry_after, ..Status::of(if may_have_acted { 408 } else { 429 }) })
}

fn body(reply: Reply, most: Option<usize>) -> Body {
    match (reply.into_bytes(), most) {
        (None, _) | (_, None) => Body::None,
        (Some(bytes), Some(most)) if bytes.len() <= most => Body::Whole(bytes),
        (Some(bytes), Some(_)) => Body::Digest { sha256: Sha256::digest(&bytes).into(), bytes: bytes.len() as u64 },
    }
}
