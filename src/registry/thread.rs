//! The thread that asks the registry: one small runtime, on which each schema that is wanted is a task.
//!
//! **Failure**: a panic ends a task alone, and its schema stays pending; the thread ends with the registry's handle.

use std::cell::Cell;
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

/// What is said once there is no thread any more.
pub const ENDED: &str = "the thread that asks the schema registry has ended";
/// How many questions are asked at once.
const IN_FLIGHT: usize = 4;
/// How often an absent schema is asked for before it counts as absent, at first.
const ABSENT_ASKS: u32 = 3;
/// For how many schemas that is done at once. Records that name random ids would be waited for again and again.
const PATIENCE_MAX: u32 = 10;
/// How often there is patience for one more.
const PATIENCE_AGAIN: Duration = Duration::from_secs(6);
/// How often absent schemas are looked through for those whose time is over; a part of it.
const SWEEPS: u32 = 60;
/// How often the latest version of a subject is asked for.
const LATEST_ASKS: u32 = 3;
/// A fifth less or more, so that processes that failed together do not come again together.
const JITTER: std::ops::RangeInclusive<f64> = 0.8..=1.2;

/// Something to ask for.
pub enum Job {
    /// A schema.
    Schema(Id),
    /// The latest version of a subject.
    Latest {
        /// The subject.
        subject: String,
        /// Where the answer goes.
        reply: SyncSender<Result<Option<Latest>, String>>,
    },
}

/// What tasks share.
struct Asking {
    client: Client,
    shelf: Arc<Shelf>,
    timing: Timing,
    permits: Semaphore,
    /// For how many schemas that are absent there is patience.
    patience: Cell<u32>,
}

/// Starts the thread.
pub fn start(
    client: Client,
    shelf: Arc<Shelf>,
    (jobs, timing): (UnboundedReceiver<Job>, Timing),
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    let run = move || {
        let asking =
            Asking { client, shelf, timing, permits: Semaphore::new(IN_FLIGHT), patience: Cell::new(PATIENCE_MAX) };
        LocalSet::new().block_on(&runtime, Rc::new(asking).run(jobs));
        // Without waiting for a name that is being looked up.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name("schema-registry".to_owned()).spawn(run).map(drop)
}

/// Does something again and again.
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
    /// Asks for what is wanted, until nobody wants anything any more.
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
                    // Fails if nobody waits any more.
                    let _ = reply.send(own.latest(&subject).await);
                })),
            }
        }
    }

    /// Asks for a schema until it is there, or absent.
    async fn obtain(&self, id: Id) {
        let (mut pause, mut asked) = (self.timing.pause_min, 0);
        loop {
            let found = self.schema(id).await;
            match found {
                Ok(written) => {
                    tracing::debug!("{id} has come from the schema registry");
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

    /// Asks for a schema once, and notes whether the registry answers.
    async fn schema(&self, id: Id) -> Result<crate::schemas::Written, Missing> {
        let _permit = self.permits.acquire().await;
        let found = self.client.schema(id).await;
        match &found {
            Err(Missing::Refused(why) | Missing::Failed(why)) => {
                let why = format!("the schema registry {why}");
                if self.shelf.failed(why.clone()) {
                    tracing::warn!("{why}; it is asked again and again, and records that need a schema wait");
                }
            }
            _ if self.shelf.answered() => tracing::info!("the schema registry answers again"),
            _ => {}
        }
        found
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

    /// Compares what is known with what the registry has, now and then: a registry that was set up anew gives its ids to
    /// other schemas.
    async fn compare(self: Rc<Self>) {
        let mut said: Vec<Id> = Vec::new();
        loop {
            sleep(jittered(self.timing.compare)).await;
            for (id, known) in self.shelf.known() {
                let Ok(now) = self.schema(id).await else { continue };
                if now != *known && !said.contains(&id) {
                    said.push(id);
                    tracing::error!(
                        "the schema registry has another text for {id} than before: records are read by the first one, and \
                         by the other after a restart; ids must never be given twice"
                    );
                }
            }
        }
    }
}
