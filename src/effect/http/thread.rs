//! The thread that makes a lane's calls: one small runtime, on which requests go in order.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::pool::Pool;
use super::rate::Bucket;
use super::request::Job;
use super::{Shared, attempt};

/// How often connections that nobody uses are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// How many names are looked up at once, each on a thread.
const LOOK_UPS_MAX: usize = 4;

/// Starts tasks on the thread's runtime. A panic in one of them ends the thread: what the tasks share may be half done.
#[derive(Clone)]
pub(super) struct Tasks {
    panicked: mpsc::UnboundedSender<Box<dyn Any + Send>>,
}

impl Tasks {
    /// Starts a task.
    pub fn start(&self, task: impl Future<Output = ()> + 'static) {
        let panicked = self.panicked.clone();
        tokio::task::spawn_local(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let _ = panicked.send(panic);
            }
        });
    }
}

/// Makes calls until `stopped` is heard, or dropped.
pub(super) fn run(shared: Arc<Shared>, jobs: mpsc::UnboundedReceiver<Job>, stopped: oneshot::Receiver<()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().max_blocking_threads(LOOK_UPS_MAX).thread_name("names").build() {
        Ok(runtime) => runtime,
        // The requests are dropped, and heard of so.
        Err(error) => return tracing::error!(%error, "no runtime for calls"),
    };
    let made = catch_unwind(AssertUnwindSafe(|| {
        LocalSet::new().block_on(&runtime, async {
            let (panicked, mut panics) = mpsc::unbounded_channel();
            tokio::select! {
                biased;
                _ = stopped => {}
                Some(panic) = panics.recv() => resume_unwind(panic),
                () = feed(shared, jobs, Tasks { panicked }) => {}
            }
        });
    }));
    // Without waiting for a name that is being looked up.
    runtime.shutdown_background();
    if made.is_err() {
        tracing::error!("a panic has ended the thread that makes a lane's calls: what was under way is lost");
    }
}

/// Lets requests go: in order, each with a permit and at the rate.
async fn feed(shared: Arc<Shared>, mut jobs: mpsc::UnboundedReceiver<Job>, tasks: Tasks) {
    let began = Instant::now();
    let permits = Arc::new(Semaphore::new(shared.in_flight.min(Semaphore::MAX_PERMITS)));
    let mut bucket = shared.rate.map(|rate| Bucket::new(rate, Duration::ZERO));
    let pool = Rc::new(Pool::new(Arc::clone(&shared), tasks.clone()));
    tasks.start(Rc::clone(&pool).sweep(SWEEP));
    while let Some(job) = jobs.recv().await {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        if job.is_withdrawn() {
            continue;
        }
        if let Some(bucket) = &mut bucket {
            let wait = bucket.take(began.elapsed());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        tasks.start(attempt::make(Rc::clone(&pool), job, permit));
    }
}
