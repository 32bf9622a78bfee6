//! The thread that makes the calls for a lane's records: one small runtime, on which requests are started in order.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::job::Job;
use super::rate::Bucket;

/// Starts tasks on the thread's runtime. A panic in one of them ends the thread: the state that the tasks share may be
/// inconsistent.
#[derive(Clone)]
pub(in crate::provider) struct Tasks {
    panicked: mpsc::UnboundedSender<Box<dyn Any + Send>>,
}

impl Tasks {
    /// Starts a task.
    pub fn start(&self, task: impl Future<Output = ()> + 'static) {
        let panicked = self.panicked.clone();
        // Boxed because each move of the bare future would copy everything that it may hold.
        let task = Box::pin(task);
        tokio::task::spawn_local(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let _ = panicked.send(panic);
            }
        });
    }
}

/// Makes calls until `stopped` gets a message, its sender is dropped, or `main` has ended. Blocking work, such as
/// looking up a name, runs on at most `blocking_max` threads.
pub(in crate::provider) fn run<F: Future<Output = ()>>(
    blocking_max: usize,
    stopped: oneshot::Receiver<()>,
    main: impl FnOnce(Tasks) -> F,
) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().max_blocking_threads(blocking_max).thread_name("blocking").build() {
        Ok(runtime) => runtime,
        // The jobs are dropped with their channel, and so reported as not sent.
        Err(error) => return tracing::error!(%error, "the runtime for calls could not be started"),
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        LocalSet::new().block_on(&runtime, async {
            let (panicked, mut panics) = mpsc::unbounded_channel();
            tokio::select! {
                biased;
                _ = stopped => {}
                Some(panic) = panics.recv() => resume_unwind(panic),
                () = main(Tasks { panicked }) => {}
            }
        });
    }));
    // Does not wait for the blocking work, such as name lookups.
    runtime.shutdown_background();
    if outcome.is_err() {
        tracing::error!("a panic ended the thread that makes a lane's calls: the calls under way are lost");
    }
}

/// Starts requests in order, each with a permit, which counts it as in flight until the permit is dropped: at most
/// `in_flight` at once, and at most at `rate`, in requests per second.
pub(in crate::provider) async fn start_in_order(
    mut jobs: mpsc::UnboundedReceiver<Job>,
    (in_flight, rate): (usize, Option<f64>),
    mut start: impl FnMut(Job, OwnedSemaphorePermit),
) {
    let started_at = Instant::now();
    let permits = Arc::new(Semaphore::new(in_flight.min(Semaphore::MAX_PERMITS)));
    let mut bucket = rate.map(|rate| Bucket::new(rate, Duration::ZERO));
    while let Some(job) = jobs.recv().await {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        if job.is_withdrawn() {
            continue;
        }
        if let Some(bucket) = &mut bucket {
            let wait = bucket.take(started_at.elapsed());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        start(job, permit);
    }
}
