//! The thread that asks the registry: a runtime with a task for each requested schema. It ends when the
//! [`super::Registry`] is dropped.
//!
//! **Failure**: a panic ends one task, whose schema then stays pending.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use rand::RngExt as _;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep};

use super::answer::Missing;
use super::client::Client;
use super::fetch::Latest;
use super::shelf::Shelf;
use super::timing::Timing;
use crate::schemas::Id;

/// The error after the thread has ended.
pub const ENDED: &str = "the thread that asks the schema registry has ended";
/// How many schemas are fetched at the same time.
const IN_FLIGHT: usize = 4;
/// After how many answers that the registry does not have a schema the schema counts as absent.
const ABSENT_ASKS: u32 = 3;
/// For how many schemas the registry is asked that often; any other counts as absent after one answer. Otherwise
/// damaged records, each with a random id, would each be held up for seconds.
const PATIENCE_MAX: u32 = 10;
/// The interval after which the registry may be asked that often for one more schema.
const PATIENCE_AGAIN: Duration = Duration::from_secs(6);
/// While a schema counts as absent, this many searches look for absent schemas whose time is over.
const SWEEPS: u32 = 60;
/// How many times the latest version of a subject is requested.
const LATEST_ASKS: u32 = 3;
/// Pauses are up to a fifth shorter or longer, so that instances that failed together do not ask again together.
const JITTER: std::ops::RangeInclusive<f64> = 0.8..=1.2;
/// The least time between two warnings. Requests for several schemas may fail for different reasons in turn.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// A request of the thread.
pub enum Job {
    /// Fetch a schema.
    Schema(Id),
    /// Fetch the latest version of a subject.
    Latest {
        /// The subject.
        subject: String,
        /// Receives the result.
        reply: SyncSender<Result<Option<Latest>, String>>,
    },
}

/// The state that the tasks share.
struct Asking {
    client: Client,
    shelf: Arc<Shelf>,
    timing: Timing,
    permits: Semaphore,
    /// For how many more absent schemas the registry is asked [`ABSENT_ASKS`] times.
    patience: Cell<u32>,
    /// When the last warning was logged, and its text; the text is `None` if the registry has answered since.
    warned: RefCell<Option<(Instant, Option<String>)>>,
}

/// Starts the thread.
pub fn start(
    client: Client,
    shelf: Arc<Shelf>,
    (jobs, timing): (UnboundedReceiver<Job>, Timing),
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    let run = move || {
        let (permits, patience) = (Semaphore::new(IN_FLIGHT), Cell::new(PATIENCE_MAX));
        let asking = Asking { client, shelf, timing, permits, patience, warned: RefCell::new(None) };
        LocalSet::new().block_on(&runtime, Rc::new(asking).run(jobs));
        // A host name that is still being resolved is not waited for.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("schema-registry".to_owned()).spawn(run).map(drop)
}

/// Does the work once in each interval, for ever.
async fn repeat<F: Future<Output = ()>>(every: Duration, mut work: impl FnMut() -> F) {
    loop {
        sleep(every).await;
        work().await;
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(JITTER))
}

impl Asking {
    /// Carries out jobs until their sender is dropped.
    async fn run(self: Rc<Self>, mut jobs: UnboundedReceiver<Job>) {
        let own = Rc::clone(&self);
        spawn_local(repeat(self.timing.absent_for / SWEEPS, move || {
            own.shelf.expire(Instant::now());
            std::future::ready(())
        }));
        let own = Rc::clone(&self);
        spawn_local(repeat(PATIENCE_AGAIN, move || {
            own.patience.set((own.patience.get() + 1).min(PATIENCE_MAX));
            std::future::ready(())
        }));
        spawn_local(Rc::clone(&self).compare());
        while let Some(job) = jobs.recv().await {
            let own = Rc::clone(&self);
            match job {
                Job::Schema(id) => drop(spawn_local(async move { own.obtain(id).await })),
                Job::Latest { subject, reply } => drop(spawn_local(async move {
                    // Fails if the caller has stopped waiting.
                    let _ = reply.send(own.latest(&subject).await);
                })),
            }
        }
    }

    /// Requests a schema until it arrives or is absent.
    async fn obtain(&self, id: Id) {
        let (mut pause, mut asked) = (self.timing.pause_min, 0);
        loop {
            let found = self.schema(id).await;
            match found {
                Ok(written) => {
                    tracing::debug!("{id} was fetched from the schema registry");
                    return self.shelf.put(id, written);
                }
                Err(Missing::Absent(why)) => {
                    asked += 1;
                    let is_first = asked == 1;
                    if asked >= ABSENT_ASKS || is_first && !self.is_patient() {
                        return self.absent(id, format!("{id} is not in the schema registry: {why}"));
                    }
                    sleep(jittered(self.timing.absent_pause * asked)).await;
                }
                Err(Missing::Unusable(why)) => {
                    return self.absent(id, format!("{id} of the schema registry cannot be used: {why}"));
                }
                Err(Missing::Refused(_) | Missing::Failed(_)) => {
                    sleep(jittered(pause)).await;
                    pause = (pause * 2).min(self.timing.pause_max);
                }
            }
        }
    }

    /// Requests a schema once, and records whether the registry answers.
    async fn schema(&self, id: Id) -> Result<crate::schemas::Written, Missing> {
        let _permit = self.permits.acquire().await;
        let found = self.client.schema(id).await;
        match &found {
            Err(Missing::Refused(why) | Missing::Failed(why)) => self.on_failure(format!("the schema registry {why}")),
            _ => self.on_answer(),
        }
        found
    }

    fn on_failure(&self, why: String) {
        let mut warned = self.warned.borrow_mut();
        let is_due =
            warned.as_ref().is_none_or(|(at, last)| at.elapsed() >= WARN_INTERVAL && last.as_ref() != Some(&why));
        if is_due {
            tracing::warn!("{why}; ratchet keeps asking, and records whose schemas are not known yet wait");
            *warned = Some((Instant::now(), Some(why.clone())));
        }
        self.shelf.failed(why);
    }

    fn on_answer(&self) {
        self.shelf.answered();
        if let Some((_, last)) = &mut *self.warned.borrow_mut()
            && last.take().is_some()
        {
            tracing::info!("the schema registry answers again");
        }
    }

    fn is_patient(&self) -> bool {
        let left = self.patience.get();
        self.patience.set(left.saturating_sub(1));
        left > 0
    }

    fn absent(&self, id: Id, why: String) {
        tracing::warn!("{why}");
        self.shelf.absent(id, why, Instant::now() + self.timing.absent_for);
    }

    async fn latest(&self, subject: &str) -> Result<Option<Latest>, String> {
        let mut pause = self.timing.pause_min;
        for asked in 1.. {
            let permit = self.permits.acquire().await;
            let found = self.client.latest(subject).await;
            drop(permit);
            match found {
                Ok(latest) => return Ok(latest),
                Err(Missing::Unusable(why)) => {
                    return Err(format!("the latest schema of {subject} cannot be used: {why}"));
                }
                Err(Missing::Absent(why)) => return Err(format!("the latest schema of {subject}: {why}")),
                Err(Missing::Failed(_)) if asked < LATEST_ASKS => {
                    sleep(jittered(pause)).await;
                    pause *= 2;
                }
                Err(Missing::Refused(why) | Missing::Failed(why)) => return Err(format!("the schema registry {why}")),
            }
        }
        Ok(None)
    }

    /// Compares the known schemas with those of the registry, once in each interval: a registry that was set up anew
    /// may give their ids to other schemas.
    async fn compare(self: Rc<Self>) {
        let mut reported: Vec<Id> = Vec::new();
        loop {
            sleep(jittered(self.timing.compare)).await;
            for (id, known) in self.shelf.known() {
                let Ok(now) = self.schema(id).await else { continue };
                if now != *known && !reported.contains(&id) {
                    reported.push(id);
                    tracing::error!(
                        "the schema registry has another text for {id} than before: ratchet reads records by the first \
                         text, and by the other one after a restart; an id must never be given to two schemas"
                    );
                }
            }
        }
    }
}
