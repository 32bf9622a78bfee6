//! A batch's way through a lane, up to the commit of its transaction.
//!
//! A task is the work of one input partition. A task's [`Share`] is all that the open transaction would change for the
//! task; `enlist` begins it. The lane's field `indices_by_task` holds the indices of the batch's records, by task.
//! A task **restores** when it starts again from what was committed last.

use std::time::Duration;

use crate::cluster::{Cluster, Member, Producer, RecordBatch};
use crate::effect::CommitError;
use crate::engine::claims::{self, Ownership};
use crate::engine::failure::{Cause, Failure};
use crate::engine::panics::{InProgress, caught};
use crate::engine::process::{BatchPortion, process};
use crate::engine::share::{Share, Stop, TaskId};
use crate::engine::sweep;
use crate::engine::task::{Phase, Task, Tasks};
use crate::engine::transact::{CommitOutcome, Transactor};

use super::Lane;
use super::destination::CallsDestination;
use super::round::{Deferred, Round};
use super::sorting::sort_by_task;

impl<C: Cluster> Lane<C> {
    /// Sorts the batch by task and processes each task's records. With a sink, the transaction ends with the
    /// batch: if the sink refuses some of its records, the others are processed again without being read again.
    pub(super) fn process_batch(&mut self) {
        let began = self.context.clock.monotonic();
        self.sort_batch();
        while let Err(failure) = self.process_batch_by_task() {
            let Some(failure) = self.prepare_retry(failure) else { continue };
            // The other tasks' records were read but not processed: they are read again.
            let others: Vec<TaskId> =
                self.indices_by_task.iter().filter(|(_, indices)| !indices.is_empty()).map(|(id, _)| *id).collect();
            let is_of_sink = matches!(failure.cause, Cause::Sink(_));
            self.abort_and_restore(failure);
            others
                .into_iter()
                .for_each(|id| if is_of_sink { self.read_again(id) } else { self.restart_if_running(id) });
            break;
        }
        self.metrics.processing(self.context.clock.monotonic().saturating_sub(began));
    }

    fn process_batch_by_task(&mut self) -> Result<(), Failure> {
        let indices_by_task = std::mem::take(&mut self.indices_by_task);
        let mut with_records = indices_by_task.iter().filter(|(_, indices)| !indices.is_empty());
        let processed = with_records.try_for_each(|(id, indices)| self.process_records_of(*id, indices));
        let ended = processed.and_then(|()| if self.destination.commits_each_batch() { self.finish() } else { Ok(()) });
        self.indices_by_task = indices_by_task;
        ended
    }

    /// Whether the batch can be processed again: without the records that the sink has named, or with fewer records at
    /// once, so that the sink can name the refused ones.
    fn can_retry_without_refused(&mut self, failed: &CommitError) -> bool {
        match failed {
            CommitError::Rejected(_) => true,
            CommitError::Refused(_) => self.transactor.start_bisect(),
            CommitError::Fenced(_) | CommitError::Held(_) | CommitError::Unknown(_) => false,
        }
    }

    /// Prepares the batch to be processed again if the sink has only refused some of its records. Returns any other
    /// failure.
    fn prepare_retry(&mut self, failure: Failure) -> Option<Failure> {
        match failure.cause {
            Cause::Sink(undone) if self.can_retry_without_refused(&undone.failed) => {
                self.on_refused(undone);
                self.sort_batch();
                let Self { indices_by_task, tasks, batch, .. } = self;
                for (id, indices) in indices_by_task.iter_mut().filter(|(_, indices)| !indices.is_empty()) {
                    let next = tasks[id].committed.next;
                    indices.retain(|index| batch.record(*index).offset >= next);
                }
                None
            }
            cause => Some(Failure { cause, ..failure }),
        }
    }

    fn sort_batch(&mut self) {
        let Self { batch, indices_by_task, tasks, transactor, .. } = self;
        sort_by_task(batch, indices_by_task, tasks, |id, task| accepts_records(transactor, id, task));
    }

    /// Makes sure that the group names this lane's transactional id before that id writes for a task; for all tasks at
    /// work at once. That takes a transaction of its own, so the open transaction ends first.
    pub(super) fn claim_partition(&mut self, id: TaskId) -> Result<(), Failure> {
        self.transactor.prepare(&self.cluster).map_err(Failure::cluster)?;
        if !claims::is_unclaimed(&self.tasks[&id], self.transactor.producer().id()) {
            return Ok(());
        }
        self.finish()?;
        let Self { context, tasks, transactor, member, metrics, .. } = self;
        let is_at_work = |task: &Task<C>| matches!(task.phase, Phase::Running);
        Ownership { context, tasks, member, transactor, metrics }.claim(id, is_at_work).map_err(Failure::cluster)
    }

    /// A task's share in the open transaction, which is begun if necessary. `None` if the task is no longer at work.
    pub(super) fn enlist(&mut self, id: TaskId) -> Result<Option<&mut Share>, Failure> {
        self.claim_partition(id)?;
        let Some(work) = self.tasks.get(&id).and_then(Task::work) else { return Ok(None) };
        let enlisted = self.transactor.enlist(&self.context, id, &work.task.committed);
        enlisted.map(|(share, _)| Some(share)).map_err(Failure::cluster)
    }

    fn accepts_records(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(|task| accepts_records(&self.transactor, id, task))
    }

    /// Processes a task's records in one transaction or, if they do not fit, in several.
    fn process_records_of(&mut self, id: TaskId, indices: &[usize]) -> Result<(), Failure> {
        let mut rest = indices;
        // A commit, including the commit before a claim, may stop the task or make it restore: the task then reads the
        // remaining records again.
        while !rest.is_empty() && self.accepts_records(id) {
            if self.transactor.is_full(&self.context) {
                self.finish()?;
            } else {
                let done = self.process_part(id, rest)?;
                rest = &rest[done..];
            }
        }
        Ok(())
    }

    /// Processes the first of these records, and returns how many: as many as surely fit into the open transaction, or
    /// a few more; fewer if the task has to stop before a record. There may be room left afterwards, since dropped
    /// records take none.
    fn process_part(&mut self, id: TaskId, indices: &[usize]) -> Result<usize, Failure> {
        self.claim_partition(id)?;
        let Self { context, transactor, tasks, batch, scratch, member, .. } = self;
        let Some(work) = tasks.get(&id).and_then(Task::work) else { return Ok(0) };
        let portion = BatchPortion { batch, indices, room: transactor.room(context) };
        let (share, producer) = transactor.enlist(context, id, &work.task.committed).map_err(Failure::cluster)?;
        let processed = caught(|| process(context, &work, share, &portion, producer, scratch));
        let added = processed.unwrap_or_else(|panic| Err(Failure::panicked(id, scratch.in_progress(), panic)))?;
        if let Some(stop) = &mut share.stop {
            if let (Stop::SeemsFuture(suspicion), Some(end)) = (stop, member.end(&work.task.input)) {
                suspicion.extend_to(end);
            }
            member.pause(&work.task.input).map_err(Failure::cluster)?;
        }
        transactor.add(added);
        Ok(added.records)
    }

    /// Moves the tasks' positions past transaction markers and other gaps at the end of their inputs, so that a
    /// committed offset never points at something that retention will remove.
    pub(super) fn advance_past_markers(&mut self) {
        for id in self.tasks_in(|phase| matches!(phase, Phase::Running)) {
            if !self.accepts_records(id)
                || self.tasks[&id].destination.window().is_some_and(|window| !window.is_empty() || window.is_waiting())
            {
                continue;
            }
            let task = &self.tasks[&id];
            let next = self.transactor.share(id).map_or(&task.committed, |share| &share.position).next;
            let position = self.member.position(&task.input).unwrap_or(next);
            // `commit_start`: the position has to be committed even if nothing was read.
            if position <= next && !task.last.commit_start {
                continue;
            }
            let new_position = self.tasks.get_mut(&id).and_then(|task| task.destination.window_mut()).map(|window| {
                window.advance_to(position);
                window.position_after_commit()
            });
            match self.enlist(id) {
                Ok(Some(share)) => {
                    share.position.next = share.position.next.max(position);
                    new_position.into_iter().for_each(|new_position| new_position.write_to(&mut share.position));
                }
                Ok(None) => {}
                Err(failure) => {
                    self.abort_and_restore(failure);
                    return self.restart_if_running(id);
                }
            }
        }
    }

    /// Removes some expired entries of one task whose sweep is due.
    pub(super) fn sweep(&mut self) {
        let Self { context, tasks, transactor, .. } = self;
        let is_due = |id: TaskId, task: &Task<C>| sweep::is_due(context, task, transactor.share(id));
        let Some((&id, task)) = tasks.iter_mut().find(|(id, task)| is_due(**id, task)) else { return };
        let swept = match caught(|| sweep::slice(context, task, transactor.share(id))) {
            Ok(Ok(expired)) if expired.is_empty() => return,
            Ok(Ok(expired)) => {
                self.enlist(id).map(|share| share.into_iter().for_each(|share| sweep::remove(share, &expired)))
            }
            Ok(Err(error)) => Err(Failure::state(id, error)),
            Err(panic) => Err(Failure::panicked(id, InProgress::Walk, panic)),
        };
        if let Err(failure) = swept {
            self.abort_and_restore(failure);
            self.restart_if_running(id);
        }
    }

    pub(super) fn commit(&mut self) {
        if let Err(failure) = self.finish() {
            self.abort_and_restore(failure);
        }
    }

    /// Commits the open transaction, if there is one; after a failure, the caller has to abort it.
    fn finish(&mut self) -> Result<(), Failure> {
        self.finish_deferring(None)
    }

    /// Like `finish`. With `deferred`, which collects what has to be handled afterwards, the lane continues with its
    /// calls meanwhile.
    pub(super) fn finish_deferring(&mut self, deferred: Option<&mut Deferred>) -> Result<(), Failure> {
        if !self.transactor.is_open() {
            return Ok(());
        }
        self.pace.commit_began_at = Some(self.context.clock.monotonic());
        let Self { context, transactor, tasks, member, destination, .. } = self;
        transactor.seal(context, tasks, member, destination.sink_mut())?;
        // With a provider, these tasks keep the records of the transaction until they learn its outcome.
        let awaiting = self.tasks_awaiting_outcome();
        let CommitOutcome { failures, stops, settled } = self.commit_deferring(deferred)?;
        self.report_outcome(awaiting, true);
        self.destination.calls().into_iter().for_each(|calls| calls.calling.metrics.settled(settled));
        failures.into_iter().for_each(|failure| self.on_task_failure(failure));
        stops.into_iter().for_each(|(id, stop)| self.on_stop(id, stop));
        Ok(())
    }

    fn commit_deferring(&mut self, deferred: Option<&mut Deferred>) -> Result<CommitOutcome, Failure> {
        let Self { context, transactor, tasks, member, metrics, destination, scratch, batch, indices_by_task, .. } =
            self;
        let membership = transactor.membership(member)?;
        let Some((deferred, calls)) = deferred.zip(destination.calls_mut()) else {
            return transactor.commit(context, tasks, membership, metrics, None);
        };
        let mut during_commit = |tasks: &mut Tasks<C>, wait: Duration| {
            let (scratch, batch, indices_by_task) = (&mut *scratch, &mut *batch, &mut *indices_by_task);
            let (CallsDestination { terms, calling, .. }, member) = (&mut *calls, &mut *member);
            Round { context, terms, calling, scratch, batch, indices_by_task, tasks, member }
                .work_during_commit(deferred, wait);
        };
        transactor.commit(context, tasks, membership, metrics, Some(&mut during_commit))
    }

    /// Stops a task before a record, once everything before that record is committed; unless its store has failed
    /// meanwhile.
    pub(super) fn on_stop(&mut self, id: TaskId, stop: Stop) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.work().is_some()) else { return };
        match stop {
            Stop::Refused(reason) => {
                // Whether a later start may succeed: the cause of panics may be gone by then.
                let may_pass = task.trouble.panics.are_too_many();
                task.fail(&reason, may_pass);
            }
            Stop::SeemsFuture(suspicion) => self.request_kafka_time(id, suspicion),
            Stop::Gated => self.hold_for_gate(id),
            Stop::AwaitsSchema(schema) => self.hold_for_schema(id, schema),
        }
    }
}

/// Whether the open transaction accepts more records of the task.
fn accepts_records<C: Cluster>(transactor: &Transactor<C>, id: TaskId, task: &Task<C>) -> bool {
    task.is_running() && transactor.share(id).is_none_or(|share| share.stop.is_none())
}
