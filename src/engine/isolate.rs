//! Isolated tasks: a task (the work of one input partition) whose output has failed continues on its own.
//!
//! After a delivery failure the task leaves the transactions that the lane's tasks share: it reads its input with its
//! own reader and writes with its own producer, never waiting for a delivery, so that an output partition without a
//! leader holds up only its own input partition. If the cluster refuses a record in a batch, the task tries half as
//! many records, until the record is found; the topology's `on_unsendable` then applies to it. The task is in
//! quarantine ([`Quarantine`]) until it is past the refused or undelivered records; then it returns to the shared
//! transactions.
//!
//! One step reads and processes records and **seals** their transaction: everything is sent, and with a sink the sink
//! has committed. Later steps commit the transaction once all is delivered. After a failure the transaction is aborted,
//! the task **restores** (it starts again from what is committed), and another attempt follows.
//!
//! A lane has a few slots for this ([`super::limits::Limits::isolated_max`]), since each takes two clients with memory,
//! connections and perhaps threads of their own; the lane decides which task is next. A task returns its slot at the
//! first failure, or when no record has arrived for `IDLE_MAX`.

use std::time::Duration;

use crate::cluster::{self, Cluster, ErrorKind, Reader, RecordBatch};
use crate::effect::{self, CommitError};
use crate::observe::LaneMetrics;

use super::changelog_loss;
use super::claims::Ownership;
use super::context::{Context, backoff};
use super::failure::{Cause, Failure, Undone};
use super::process::{BatchPortion, Scratch, process};
use super::resume::Refusal;
use super::share::{Stop, TaskId};
use super::task::{Phase, Task, Tasks};
use super::transact::{CommitOutcome, LaneSink};

mod isolated;

pub use isolated::{IsolatedWork, Quarantine};

/// How long a task with a slot may read no record while other tasks wait for a slot.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// The result of a step of an isolated task.
pub enum StepOutcome {
    /// Nothing to do yet.
    Waiting,
    /// No record has arrived for a long time: another task may have its slot.
    Idle,
    /// There was progress.
    Worked,
    /// Everything before a record is committed, and the task stops there.
    Stopped(Stop),
    /// The task is past the refused or undelivered records: it can share transactions again.
    Recovered,
    /// Its transaction was aborted: the task must restore.
    SetBack(Cause),
}

/// The parts of the lane that an isolated task works with.
pub struct LaneParts<'a, C: Cluster> {
    /// What all lanes share.
    pub context: &'a Context,
    /// The cluster.
    pub cluster: &'a C,
    /// The lane's tasks.
    pub tasks: &'a mut Tasks<C>,
    /// The lane's membership, which its commits need.
    pub member: &'a C::Member,
    /// Memory for batches.
    pub scratch: &'a mut Scratch,
    /// The lane's metrics.
    pub metrics: &'a LaneMetrics,
    /// Access to the topology's sink, if it has one.
    pub sink: Option<&'a mut LaneSink>,
}

/// Performs the next step of an isolated task. Never waits for a delivery.
pub fn step<C: Cluster>(parts: &mut LaneParts<'_, C>, id: TaskId) -> StepOutcome {
    let task = parts.tasks.get_mut(&id).expect("the lane steps its own tasks");
    let Phase::Isolated(isolated) = &mut task.phase else { return StepOutcome::Waiting };
    let Some(mut isolated) = isolated.take() else { return StepOutcome::Waiting };
    let stepped = if isolated.sealed { finish(parts, id, &mut isolated) } else { advance(parts, id, &mut isolated) };
    let task = parts.tasks.get_mut(&id).expect("still there");
    let failure = match stepped {
        Ok(outcome) => {
            task.phase = Phase::Isolated(Some(isolated));
            return outcome;
        }
        Err(failure) => failure,
    };
    task.set_phase(Phase::Waiting { until: Duration::ZERO });
    // The restore must not assume that this transaction has ended.
    task.unsettle();
    let aborted = isolated.transactor.abort(parts.cluster, &failure.cause, parts.metrics);
    if let Some(loss) = changelog_loss::detect(parts.tasks, &aborted.delivered).pop() {
        return StepOutcome::SetBack(loss.cause);
    }
    let task = parts.tasks.get_mut(&id).expect("still there");
    if parts.sink.is_some() {
        return StepOutcome::SetBack(set_back_by_sink(parts.context, task, isolated.attempted, failure.cause));
    }
    let refused = aborted.undelivered.into_iter().find(|failure| failure.refused).map(|failure| failure.message);
    let last = aborted.shares.first().map(|share| share.position.next - 1);
    let attempted = (isolated.attempted, last.unwrap_or(task.committed.next - 1));
    StepOutcome::SetBack(narrow_down(parts.context, task, refused, attempted).unwrap_or(failure.cause))
}

/// Evaluates a failed attempt without a sink: if a single record was refused, it is unsendable; if one of several was
/// refused, the next attempt sends half as many; after any other failure the task tries again later. Returns the reason
/// to stop if the dead letter topic refuses the record as well. The attempt sent `attempted` records, the last of them
/// from offset `last`. `refused`: the cluster's message if it has refused a record for good.
fn narrow_down<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    refused: Option<String>,
    (attempted, last): (usize, i64),
) -> Option<Cause> {
    let quarantine = task.trouble.quarantine.as_mut()?;
    match refused {
        Some(message) if quarantine.unsendable.as_ref().is_some_and(|(offset, _)| *offset == last) => {
            return Some(Cause::Refused(Refusal::Undeliverable { input: task.input.clone(), offset: last, message }));
        }
        Some(message) => {
            quarantine.on_refused(attempted, (last, message));
            // The search for the record surely ends, since each attempt is smaller: the next attempt need not wait.
            task.trouble.attempts = 0;
        }
        None => {
            quarantine.retry_at = context.clock.monotonic() + backoff(quarantine.attempts);
            quarantine.attempts += 1;
        }
    }
    None
}

/// Evaluates a failed attempt with a sink. If the sink refuses a record that it cannot name, the next attempt has half
/// as many records. If it has named the refused records, `on_rejected` applies to them in the next attempt. After any
/// other failure the task tries again later.
///
/// A record that a topic of Kafka refuses was already committed by the sink. So the task's restore writes to Kafka what
/// the sink has kept of that transaction, the redo; a redo that can never be written stops the task.
fn set_back_by_sink<C: Cluster>(context: &Context, task: &mut Task<C>, attempted: usize, cause: Cause) -> Cause {
    let Some(quarantine) = &mut task.trouble.quarantine else { return cause };
    match &cause {
        Cause::Sink(Undone { failed: CommitError::Refused(_), .. }) => quarantine.bisect.on_refused(attempted),
        Cause::Sink(Undone { failed: CommitError::Rejected(_), .. }) => {}
        cause => {
            if let Cause::Sink(Undone { failed: CommitError::Held(error), .. }) = cause
                && error.kind == effect::ErrorKind::Permanent
            {
                // A transaction with more records may show whether a single record is the cause.
                quarantine.bisect.end();
            }
            quarantine.retry_at = context.clock.monotonic() + backoff(quarantine.attempts);
            quarantine.attempts += 1;
        }
    }
    cause
}

/// Reads the next records, processes them and seals the transaction.
fn advance<C: Cluster>(
    parts: &mut LaneParts<'_, C>,
    id: TaskId,
    isolated: &mut IsolatedWork<C>,
) -> Result<StepOutcome, Failure> {
    let LaneParts { context, cluster, tasks, scratch, member, metrics, sink } = parts;
    let task = tasks.get_mut(&id).expect("the lane steps its own tasks");
    let quarantine = task.trouble.quarantine.as_ref().expect("an isolated task is in quarantine");
    if task.committed.next >= quarantine.until {
        return Ok(StepOutcome::Recovered);
    }
    // A record found to be unsendable is handled on its own.
    let records_max = if quarantine.unsendable.is_some() { 1 } else { quarantine.bisect.records_max() };
    if isolated.processed_count >= isolated.batch.len() {
        isolated.processed_count = 0;
        isolated.reader.read(&mut isolated.batch, records_max, Duration::ZERO).map_err(Failure::cluster)?;
    }
    if isolated.batch.is_empty() {
        if isolated.reader.position() >= quarantine.until {
            return Ok(StepOutcome::Recovered);
        }
        let now = context.clock.monotonic();
        let idle = now.saturating_sub(*isolated.idle_since.get_or_insert(now));
        return Ok(if idle >= IDLE_MAX { StepOutcome::Idle } else { StepOutcome::Waiting });
    }
    isolated.idle_since = None;
    isolated.transactor.prepare(cluster).map_err(Failure::cluster)?;
    let indices: Vec<usize> = (isolated.processed_count..isolated.batch.len()).collect();
    isolated.attempted = indices.len();
    // Before a transaction writes for a partition, the committed offset has to name its transactional id as the owner.
    let ownership = Ownership { context, tasks, member, transactor: &mut isolated.transactor, metrics };
    ownership.claim(id, |_| false).map_err(Failure::cluster)?;
    let Some(work) = tasks.get(&id).and_then(Task::work) else { return Ok(StepOutcome::Waiting) };
    let (share, producer) = isolated.transactor.enlist(context, id, &work.task.committed).map_err(Failure::cluster)?;
    let portion = BatchPortion { batch: &isolated.batch, indices: &indices, room: context.isolated_room };
    let added = process(context, &work, share, &portion, producer, scratch)?;
    isolated.attempted = added.records;
    isolated.processed_count += added.records;
    isolated.transactor.add(added);
    isolated.transactor.seal(context, tasks, member, sink.as_deref_mut())?;
    isolated.sealed = true;
    Ok(StepOutcome::Worked)
}

/// Commits once everything is delivered; fails as soon as a delivery has failed.
fn finish<C: Cluster>(
    parts: &mut LaneParts<'_, C>,
    id: TaskId,
    isolated: &mut IsolatedWork<C>,
) -> Result<StepOutcome, Failure> {
    if isolated.transactor.has_failed() {
        // Waiting is useless: the client keeps the other records until they time out.
        return Err(Failure::cluster(cluster::Error::new(ErrorKind::Abort, "a record could not be delivered")));
    }
    if isolated.transactor.in_flight() > 0 {
        return Ok(StepOutcome::Waiting);
    }
    let membership = isolated.transactor.membership(parts.member)?;
    let CommitOutcome { failures, stops, .. } =
        isolated.transactor.commit(parts.context, parts.tasks, membership, parts.metrics, None)?;
    isolated.sealed = false;
    let task = parts.tasks.get_mut(&id).expect("still there");
    if let Some(quarantine) = &mut task.trouble.quarantine {
        quarantine.attempts = 0;
        quarantine.unsendable = None;
        quarantine.bisect.on_success();
    }
    match (failures.into_iter().next(), stops.into_iter().next()) {
        (Some(failure), _) => Err(failure),
        (None, Some((_, stop))) => Ok(StepOutcome::Stopped(stop)),
        (None, None) => Ok(StepOutcome::Worked),
    }
}
