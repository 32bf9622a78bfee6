//! Isolated tasks: a task whose output has failed continues on its own.
//!
//! After a delivery failure the task leaves the lane's shared transactions: it reads its input with its own reader and
//! writes with its own producer, never waiting for a delivery, so that an output partition without a leader holds up
//! only its own input partition. If the cluster refuses a record in a batch, the task tries half as many records, until
//! the record is found; `on_unsendable` then applies to it. Once the task is past the trouble it returns to the shared
//! transactions.
//!
//! A lane has a few slots for this ([`super::limits::Limits::isolated_max`]), since each takes two clients with memory,
//! connections and perhaps threads of their own; the lane decides which task is next. A turn ends at the first trouble,
//! and when nothing could be read for `IDLE_MAX`.

use std::time::Duration;

use crate::cluster::{self, Cluster, ErrorKind, Reader, RecordBatch};
use crate::effect::{self, Failed};
use crate::observe::LaneMetrics;

use super::changelog_loss;
use super::claims::Ownership;
use super::context::{Context, backoff};
use super::failure::{Cause, Failure, Undone};
use super::process::{Portion, Scratch, process};
use super::resume::Refusal;
use super::share::{Stop, TaskId};
use super::task::{Phase, Task, Tasks};
use super::transact::{Committed, OpenSink};

mod isolated;

pub use isolated::{Isolated, Quarantine};

/// How long a task with a slot may find nothing to read while others wait for one.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// The result of a step of an isolated task.
pub enum Outcome {
    /// Nothing to do yet.
    Waiting,
    /// Nothing to read for a long time: others may have its slot.
    Idle,
    /// Something was done.
    Worked,
    /// Everything before a record is committed, and the task stops there.
    Stopped(Stop),
    /// The trouble is over: the task can share transactions again.
    Recovered,
    /// Its transaction was aborted: the task must restore.
    SetBack(Cause),
}

/// The parts of the lane that an isolated task works with.
pub struct Means<'a, C: Cluster> {
    /// What all lanes share.
    pub context: &'a Context,
    /// Where topics live.
    pub cluster: &'a C,
    /// The lane's tasks.
    pub tasks: &'a mut Tasks<C>,
    /// The lane's membership, which its commits need.
    pub member: &'a C::Member,
    /// Memory for batches.
    pub scratch: &'a mut Scratch,
    /// Where counts go.
    pub metrics: &'a LaneMetrics,
    /// Access to the topology's sink, if it has one.
    pub sink: Option<&'a mut OpenSink>,
}

/// Takes an isolated task one step further. Never waits for a delivery.
pub fn step<C: Cluster>(means: &mut Means<'_, C>, id: TaskId) -> Outcome {
    let task = means.tasks.get_mut(&id).expect("the lane steps its own tasks");
    let Phase::Isolated(own) = &mut task.phase else { return Outcome::Waiting };
    let Some(mut isolated) = own.take() else { return Outcome::Waiting };
    let stepped = if isolated.sealed { finish(means, id, &mut isolated) } else { advance(means, id, &mut isolated) };
    let task = means.tasks.get_mut(&id).expect("still there");
    let failure = match stepped {
        Ok(outcome) => {
            task.phase = Phase::Isolated(Some(isolated));
            return outcome;
        }
        Err(failure) => failure,
    };
    task.set_phase(Phase::Waiting { until: Duration::ZERO });
    task.unsettle();
    let aborted = isolated.transactor.abort(means.cluster, &failure.cause, means.metrics);
    if let Some(fallen_back) = changelog_loss::detect(means.tasks, &aborted.delivered).pop() {
        return Outcome::SetBack(fallen_back.cause);
    }
    let task = means.tasks.get_mut(&id).expect("still there");
    if means.sink.is_some() {
        return Outcome::SetBack(set_back_by_sink(means.context, task, isolated.tried, failure.cause));
    }
    let refused = aborted.undelivered.into_iter().find(|failure| failure.refused).map(|failure| failure.message);
    let last = aborted.shares.first().map(|share| share.position.next - 1);
    let tried = (isolated.tried, last.unwrap_or(task.committed.next - 1));
    Outcome::SetBack(narrow_down(means.context, task, refused, tried).unwrap_or(failure.cause))
}

/// Learns from a failed try: if a single record was refused, it is unsendable; if it was one of several, half as many
/// are tried next; after any other failure the task tries again later. Returns the reason to stop if there is no way
/// forward, because the dead letter topic refuses the record as well. `tried` records were sent, the last of them from
/// offset `last`.
fn narrow_down<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    refused: Option<String>,
    (tried, last): (usize, i64),
) -> Option<Cause> {
    let quarantine = task.trouble.quarantine.as_mut()?;
    match refused {
        Some(message) if quarantine.unsendable.as_ref().is_some_and(|(offset, _)| *offset == last) => {
            return Some(Cause::Refused(Refusal::Undeliverable { input: task.input.clone(), offset: last, message }));
        }
        Some(message) => {
            quarantine.refused(tried, (last, message));
            // The search for the record gets closer each time and so ends: no need to wait before the next try.
            task.trouble.attempts = 0;
        }
        None => {
            quarantine.retry_at = context.clock.monotonic() + backoff(quarantine.attempts);
            quarantine.attempts += 1;
        }
    }
    None
}

/// With a sink, a record that a topic refused is already committed by the sink: its redo is played, and a redo that
/// cannot be played stops the task. A transaction that the sink refuses is tried with fewer records; anything else is
/// tried again later.
fn set_back_by_sink<C: Cluster>(context: &Context, task: &mut Task<C>, tried: usize, cause: Cause) -> Cause {
    let Some(quarantine) = &mut task.trouble.quarantine else { return cause };
    match &cause {
        Cause::Sink(Undone { failed: Failed::Refused(_), .. }) => quarantine.bisect.on_refused(tried),
        Cause::Sink(Undone { failed: Failed::Rejected(_), .. }) => {}
        cause => {
            if let Cause::Sink(Undone { failed: Failed::Held(error), .. }) = cause
                && error.kind == effect::ErrorKind::Lasting
            {
                // Beside other records it may show whether a record is to blame.
                quarantine.bisect.end();
            }
            quarantine.retry_at = context.clock.monotonic() + backoff(quarantine.attempts);
            quarantine.attempts += 1;
        }
    }
    cause
}

/// Reads the next records, takes them through the task and seals the transaction.
fn advance<C: Cluster>(means: &mut Means<'_, C>, id: TaskId, isolated: &mut Isolated<C>) -> Result<Outcome, Failure> {
    let Means { context, cluster, tasks, scratch, member, metrics, sink } = means;
    let task = tasks.get_mut(&id).expect("the lane steps its own tasks");
    let quarantine = task.trouble.quarantine.as_ref().expect("an isolated task is in quarantine");
    if task.committed.next >= quarantine.until {
        return Ok(Outcome::Recovered);
    }
    // A record found to be unsendable is handled on its own.
    let records_max = if quarantine.unsendable.is_some() { 1 } else { quarantine.bisect.records_max() };
    if isolated.taken >= isolated.batch.len() {
        isolated.taken = 0;
        isolated.reader.read(&mut isolated.batch, records_max, Duration::ZERO).map_err(Failure::cluster)?;
    }
    if isolated.batch.is_empty() {
        if isolated.reader.position() >= quarantine.until {
            return Ok(Outcome::Recovered);
        }
        let now = context.clock.monotonic();
        let idle = now.saturating_sub(*isolated.idle_since.get_or_insert(now));
        return Ok(if idle >= IDLE_MAX { Outcome::Idle } else { Outcome::Waiting });
    }
    isolated.idle_since = None;
    isolated.transactor.prepare(cluster).map_err(Failure::cluster)?;
    let indices: Vec<usize> = (isolated.taken..isolated.batch.len()).collect();
    isolated.tried = indices.len();
    let ownership = Ownership { context, tasks, member, transactor: &mut isolated.transactor, metrics };
    ownership.claim(id, |_| false).map_err(Failure::cluster)?;
    let Some(work) = tasks.get(&id).and_then(Task::work) else { return Ok(Outcome::Waiting) };
    let (share, producer) = isolated.transactor.touch(context, id, &work.task.committed).map_err(Failure::cluster)?;
    let portion = Portion { batch: &isolated.batch, indices: &indices, room: context.isolated_room };
    let added = process(context, &work, share, &portion, producer, scratch)?;
    isolated.tried = added.records;
    isolated.taken += added.records;
    isolated.transactor.add(added);
    isolated.transactor.seal(context, tasks, member, sink.as_deref_mut())?;
    isolated.sealed = true;
    Ok(Outcome::Worked)
}

/// Commits once everything is delivered; fails as soon as a delivery has failed.
fn finish<C: Cluster>(means: &mut Means<'_, C>, id: TaskId, isolated: &mut Isolated<C>) -> Result<Outcome, Failure> {
    if isolated.transactor.has_failed() {
        // No use waiting: the client keeps the other records until they time out.
        return Err(Failure::cluster(cluster::Error::new(ErrorKind::Abort, "a record could not be delivered")));
    }
    if isolated.transactor.in_flight() > 0 {
        return Ok(Outcome::Waiting);
    }
    let membership = isolated.transactor.membership(means.member)?;
    let Committed { failures, stops, .. } =
        isolated.transactor.commit(means.context, means.tasks, membership, means.metrics, None)?;
    isolated.sealed = false;
    let task = means.tasks.get_mut(&id).expect("still there");
    if let Some(quarantine) = &mut task.trouble.quarantine {
        quarantine.attempts = 0;
        quarantine.unsendable = None;
        quarantine.bisect.on_success();
    }
    match (failures.into_iter().next(), stops.into_iter().next()) {
        (Some(failure), _) => Err(failure),
        (None, Some((_, stop))) => Ok(Outcome::Stopped(stop)),
        (None, None) => Ok(Outcome::Worked),
    }
}
