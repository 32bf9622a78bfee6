//! A lane's recovery: aborted transactions, restores, isolated tasks.
//!
//! A task is the work of one input partition. A task that **restores** starts again from what was committed last: it
//! settles (makes sure that no former owner can still write), makes its store current and begins to work, all in slices
//! of time between the lane's other work. A task whose output fails is put into **quarantine**: after its restore it
//! queues for one of the lane's few **slots** for isolated tasks, and then works **isolated**, in transactions of its
//! own ([`crate::engine::isolate`]). A task that has **stopped** is not tried again.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::time::Duration;

use crate::cluster::{self, Cluster, ErrorKind, Member};
use crate::engine::changelog_loss;
use crate::engine::commitment::Commitment;
use crate::engine::context::backoff;
use crate::engine::control::commands::ACKNOWLEDGEMENT_TICKET;
use crate::engine::failure::{Cause, Failure};
use crate::engine::isolate::{self, IsolatedWork, LaneParts, Quarantine, StepOutcome};
use crate::engine::panics::{InProgress, Panic, caught};
use crate::engine::present::FutureSuspicion;
use crate::engine::process::Scratch;
use crate::engine::restore::{self, Slice};
use crate::engine::setback::{Consequence, Setback};
use crate::engine::share::TaskId;
use crate::engine::task::{Phase, Task};
use crate::engine::transact::Transactor;
use crate::sabotage::{self, Sabotage};

use super::{DISK_SLICE, Lane};

impl<C: Cluster> Lane<C> {
    /// Aborts the open transaction and restores its tasks. If the transaction certainly has no effect, tasks with a
    /// sink may read their records again instead, and tasks with calls continue.
    pub(super) fn abort_and_restore(&mut self, failure: Failure) {
        if let Cause::Sink(undone) = failure.cause {
            return self.on_undone(undone);
        }
        let aborted = self.transactor.abort(&self.cluster, &failure.cause, &self.metrics);
        let losses = changelog_loss::detect(&mut self.tasks, &aborted.delivered);
        if aborted.undelivered.iter().any(|record| record.number == ACKNOWLEDGEMENT_TICKET) {
            let now = self.context.clock.monotonic();
            self.destination.calls_mut().into_iter().for_each(|calls| calls.commands.postpone(now));
        }
        let topology = &self.context.topology.name;
        match aborted.never_commits && self.destination.keeps_tasks_on_abort() {
            true => tracing::warn!(topology, reason = %failure.cause, "transaction aborted; its calls continue"),
            false => tracing::warn!(
                topology, reason = %failure.cause, tasks = aborted.tasks().count(),
                "transaction aborted; its tasks restore"
            ),
        }
        // The next producer is prepared at once, while the tasks settle.
        if let Err(error) = self.transactor.prepare(&self.cluster) {
            tracing::debug!(reason = %error.message, "no producer yet");
        }
        // If the producer was fenced (replaced by a newer one), undelivered records say nothing about the output.
        let is_fenced = matches!(&failure.cause, Cause::Cluster(error) if error.kind == ErrorKind::Fenced);
        for id in aborted.tasks() {
            if self.continues_by_sabotage(id, &failure.cause) {
                continue;
            }
            // The task's restore must not assume that the transaction has ended.
            if let Some(task) = self.tasks.get_mut(&id).filter(|_| !aborted.ended) {
                task.unsettle();
            }
            let undelivered = aborted.undelivered.iter().find(|record| record.number == id && !is_fenced);
            let may_continue = aborted.never_commits && failure.task != Some(id);
            if !self.on_aborted(id, &aborted.shares, undelivered, may_continue) {
                self.restart(id);
            }
        }
        // A cluster error that concerns a single task counts as a failure of that task's output.
        let is_of_output = matches!(failure.cause, Cause::Cluster(_)) && self.destination.isolates_failed_tasks();
        match failure.task.and_then(|id| self.tasks.get_mut(&id)).filter(|_| is_of_output) {
            Some(task) => {
                tracing::warn!(
                    task = %task.input, reason = %failure.cause,
                    "this task's output fails; isolating the task"
                );
                let until = task.committed.next + 1;
                task.trouble.quarantine.get_or_insert_with(|| Quarantine::new(&self.context, until, false));
            }
            None => self.on_task_failure(failure),
        }
        losses.into_iter().for_each(|failure| self.on_task_failure(failure));
    }

    /// Sabotage: whether a task continues without a restore.
    fn continues_by_sabotage(&mut self, id: TaskId, cause: &Cause) -> bool {
        if sabotage::is_on(Sabotage::TasksNotRestarted) {
            return true;
        }
        let is_unknown = matches!(cause, Cause::Cluster(error) if error.kind == ErrorKind::Unknown);
        if !(is_unknown && sabotage::is_on(Sabotage::UnknownTakenForAbort)) {
            return false;
        }
        let Some(task) = self.tasks.get(&id) else { return false };
        self.member.start(&task.input, task.committed.next).is_ok()
    }

    /// Handles a failure that concerns one task; does nothing if it concerns a whole transaction.
    pub(super) fn on_task_failure(&mut self, failure: Failure) {
        let Some(id) = failure.task else { return };
        self.restart(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match failure.cause {
            Cause::Refused(refusal) => task.fail(&refusal.to_string(), false),
            // The records before this one were in the aborted transaction, and are processed first.
            Cause::RefusedAt(offset, reason) => task.trouble.refused_at = Some((offset, reason)),
            Cause::State(error) => restore::set_back(&self.context, task, &error.into()),
            Cause::Cluster(error) => restore::set_back(&self.context, task, &error.into()),
            // The sink has not committed, or not confirmed, the task's own transaction, and the task already restores.
            Cause::Sink(undone) => {
                self.note_undone(&undone);
                self.note_rejected(undone.rejected);
            }
            Cause::Panicked { at, panic } => self.on_panic(id, at, &panic),
        }
    }

    /// Recreates a task that has panicked while working on `at`, and with it everything that the task may have changed.
    /// The task tries again, or stops if it has panicked too often. The caller has aborted its transaction.
    fn on_panic(&mut self, id: TaskId, at: InProgress, panic: &Panic) {
        self.scratch = Scratch::new(&self.context);
        (self.batch, self.restore_batch) = (C::Batch::default(), C::Batch::default());
        self.drop_window(id);
        let Some(mut former) = self.tasks.remove(&id) else { return };
        self.transactor.free_spare(id);
        former.trouble.panics.add(at, panic);
        let wait = backoff(former.trouble.panics.times().saturating_sub(1));
        let until = self.context.clock.monotonic() + wait;
        tracing::error!(
            task = %former.input, at = at.record(), reason = %panic, times = former.trouble.panics.times(),
            "the task panicked; restarting it"
        );
        let held = former.state.store.take();
        let mut task = former.recreated(&self.context, until);
        // If a record causes the panics, the task processes the records before it, and only then stops. If no record
        // does, or this panic happened without one, it stops now.
        if task.trouble.panics.are_too_many() && task.trouble.panics.stop_before().is_none_or(|_| at.record().is_none())
        {
            let reason = format!("{}: {}", task.input, task.trouble.panics);
            restore::stop(&self.context, &mut task, held, (&reason, true));
        }
        self.restores.pending = true;
        self.tasks.insert(self.next_id, task);
        self.next_id += 1;
    }

    pub(super) fn restart_if_running(&mut self, id: TaskId) {
        if self.tasks.get(&id).is_some_and(|task| matches!(task.phase, Phase::Running)) {
            self.restart(id);
        }
    }

    /// Sends a task back to the beginning of its restore: at once the first time, later if it keeps failing without a
    /// commit in between.
    pub(super) fn restart(&mut self, id: TaskId) {
        debug_assert!(!self.transactor.includes(id), "a task in the open transaction must not restart");
        self.drop_window(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        // `Isolated(None)`: a panic has destroyed the task's isolated work. Such a task is recreated instead, and waits
        // as long as its panics require.
        if matches!(task.phase, Phase::Failed | Phase::Isolated(None)) {
            return;
        }
        if let Err(error) = self.member.pause(&task.input) {
            tracing::debug!(task = %task.input, reason = %error.message, "the partition could not be paused");
        }
        task.sweep.reset();
        let wait = task.trouble.attempts.checked_sub(1).map_or(Duration::ZERO, backoff);
        task.trouble.attempts += 1;
        task.set_phase(Phase::Waiting { until: self.context.clock.monotonic() + wait });
        self.restores.pending = true;
    }

    /// Restores a task to learn Kafka's time. The task has committed everything before a record that seems to be from
    /// the future.
    pub(super) fn request_kafka_time(&mut self, id: TaskId, suspicion: FutureSuspicion) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let (wait, sweep) = (task.on_future_suspicion(&self.context, suspicion), task.sweep.clone());
        self.restart(id);
        let until = self.context.clock.monotonic() + wait;
        if let Some(task) = self.tasks.get_mut(&id) {
            task.set_phase(Phase::Waiting { until });
            // The store is not touched meanwhile: the sweep continues, however often the time is asked.
            task.sweep = sweep;
        }
    }

    /// Gives every restoring task its slice. An error means that the lane's membership is unusable.
    pub(super) fn restore_slices(&mut self) -> Result<(), cluster::Error> {
        self.restores.has_work_left = false;
        if !self.restores.pending {
            return Ok(());
        }
        let mut restoring = self.tasks_in(|phase| {
            matches!(
                phase,
                Phase::Waiting { .. }
                    | Phase::Settling(_)
                    | Phase::Locking { .. }
                    | Phase::Loading(_)
                    | Phase::Claiming { .. }
                    | Phase::Redoing(_)
                    | Phase::Held(_)
            )
        });
        self.restores.pending = !restoring.is_empty();
        if !self.restores.pending {
            // The last batch takes memory, and on Kafka its reader is a client with threads.
            self.restore_batch = C::Batch::default();
        }
        let began = self.context.clock.monotonic();
        // Tasks that had no slice in the last step go first.
        let first = restoring.partition_point(|id| *id < self.restores.next_task);
        restoring.rotate_left(first);
        self.restores.next_task = 0;
        for id in restoring {
            if self.context.clock.monotonic().saturating_sub(began) >= DISK_SLICE {
                (self.restores.next_task, self.restores.has_work_left) = (id, true);
                break;
            }
            match self.tasks[&id].phase {
                Phase::Redoing(_) => self.step_redo(id),
                Phase::Held(by) => self.resume_held(id, by)?,
                _ => self.restore_slice(id)?,
            }
        }
        Ok(())
    }

    /// Gives one restoring task a slice. An error means that the lane's membership is unusable.
    fn restore_slice(&mut self, id: TaskId) -> Result<(), cluster::Error> {
        let loading = self.tasks_in(|phase| matches!(phase, Phase::Loading(_))).len();
        let may_load = loading < self.context.limits.loads_max;
        let task = self.tasks.get_mut(&id).expect("listed by the caller");
        let step = || restore::step(&self.context, &self.cluster, task, &mut self.restore_batch, may_load);
        let stepped = match caught(step) {
            Ok(stepped) => stepped,
            Err(panic) => {
                self.on_panic(id, InProgress::Nothing, &panic);
                return Ok(());
            }
        };
        self.restores.has_work_left |= matches!(stepped, Ok(Slice::Worked));
        let ready = match stepped {
            Ok(Slice::Ready) => match self.on_store_current(id) {
                Err(setback) => Err(setback),
                Ok(false) => Ok(()),
                Ok(true) => match self.begin_work(id) {
                    Err(error) if error.kind == ErrorKind::Fenced => return Err(error),
                    begun => begun.map_err(Setback::from),
                },
            },
            Ok(Slice::Waiting | Slice::Worked) => Ok(()),
            Err(setback) => Err(setback),
        };
        if let Err(setback) = ready {
            let task = self.tasks.get_mut(&id).expect("listed by the caller");
            if matches!(setback.consequence(), Consequence::Stop | Consequence::StopUnlessProven) {
                // The records of a stopped task are not needed.
                let _ = self.member.pause(&task.input);
            }
            restore::set_back(&self.context, task, &setback);
        }
        Ok(())
    }

    /// Starts the work of a task whose store is current, in the lane's transactions; if the task is in quarantine, it
    /// queues for isolated work instead.
    pub(super) fn begin_work(&mut self, id: TaskId) -> Result<(), cluster::Error> {
        let task = self.tasks.get_mut(&id).expect("listed by the caller");
        task.report.on_work_begun();
        task.report.set_gated(false);
        task.report.awaits_schema(false, false);
        self.context.proven.add(&task.input.topic);
        if !std::mem::replace(&mut task.report.has_worked, true) {
            self.metrics.takeover(if task.state.is_restored { "restored" } else { "current" });
            let took_ms = self.context.clock.monotonic().saturating_sub(task.report.assigned_at).as_millis() as u64;
            let owner = task.last.commitment.as_ref().map_or("none", Commitment::owner);
            tracing::info!(task = %task.input, owner, restored = task.state.is_restored, took_ms, "task taken over");
        }
        if task.trouble.quarantine.is_none() {
            self.member.start(&task.input, task.committed.next)?;
            task.set_phase(Phase::Running);
            self.on_work_begun(id);
            return Ok(());
        }
        task.set_phase(Phase::Queued { since: self.context.clock.monotonic() });
        Ok(())
    }

    /// Isolates the queued tasks that have waited longest. Only a few tasks may be isolated at once, since their
    /// clients have threads and memory of their own. Returns whether other tasks wait for a slot.
    fn isolate_queued(&mut self) -> bool {
        let queue = self.queued_tasks();
        let working = self.tasks_in(|phase| matches!(phase, Phase::Isolated(_))).len();
        let free = self.context.limits.isolated_max.saturating_sub(working);
        for &id in queue.iter().take(free) {
            if let Err(error) = self.isolate(id) {
                let task = self.tasks.get_mut(&id).expect("listed above");
                restore::set_back(&self.context, task, &error.into());
            }
        }
        queue.len() > free
    }

    /// The queued tasks whose next attempt is due, the one that has waited longest first.
    fn queued_tasks(&self) -> Vec<TaskId> {
        let now = self.context.clock.monotonic();
        let queued = |(&id, task): (&TaskId, &Task<C>)| {
            let is_due = task.trouble.quarantine.as_ref().is_none_or(|quarantine| quarantine.is_attempt_due(now));
            let Phase::Queued { since } = task.phase else { return None };
            is_due.then_some((since, id))
        };
        let mut queue: Vec<_> = self.tasks.iter().filter_map(queued).collect();
        queue.sort_unstable();
        queue.into_iter().map(|(_, id)| id).collect()
    }

    /// A new transactor (a transactional producer and its transaction) beside the lane's, with a transactional id and
    /// tokens of its own.
    pub(super) fn separate_transactor(&mut self) -> Transactor<C> {
        self.names.isolations += 1;
        let transactional_id = format!("{}-i{}", self.names.transactional_id, self.names.isolations);
        Transactor::new(
            transactional_id,
            self.names.random.wrapping_add(self.names.isolations),
            self.context.ids.clone(),
        )
    }

    fn isolate(&mut self, id: TaskId) -> Result<(), cluster::Error> {
        let transactor = self.separate_transactor();
        let task = self.tasks.get_mut(&id).expect("listed by the caller");
        let (group, from) = (self.context.topology.group(), (&task.input, task.committed.next));
        let isolated = IsolatedWork::new(&self.cluster, &group, from, transactor)?;
        task.set_phase(Phase::Isolated(Some(Box::new(isolated))));
        Ok(())
    }

    pub(super) fn step_isolated(&mut self) {
        let others_wait = self.isolate_queued();
        for id in self.tasks_in(|phase| matches!(phase, Phase::Isolated(_))) {
            let Self { context, cluster, tasks, member, scratch, metrics, destination, .. } = self;
            let parts =
                &mut LaneParts { context, cluster, tasks, member, scratch, metrics, sink: destination.sink_mut() };
            let stepped = caught(|| isolate::step(parts, id)).unwrap_or_else(|panic| {
                StepOutcome::SetBack(Cause::Panicked { at: self.scratch.in_progress(), panic })
            });
            match stepped {
                StepOutcome::Waiting | StepOutcome::Worked => {}
                StepOutcome::Stopped(stop) => self.on_stop(id, stop),
                // More records may arrive only much later: the task returns its slot and queues again. It did not fail.
                StepOutcome::Idle if others_wait => {
                    self.tasks.get_mut(&id).expect("stepped above").trouble.attempts = 0;
                    self.restart(id);
                }
                StepOutcome::Idle => {}
                StepOutcome::Recovered => {
                    let task = self.tasks.get_mut(&id).expect("stepped above");
                    tracing::info!(
                        task = %task.input, next = task.committed.next,
                        "the output accepts this task's records again"
                    );
                    task.trouble.quarantine = None;
                    self.restart(id);
                }
                StepOutcome::SetBack(Cause::Cluster(error))
                    if error.kind == ErrorKind::Refused && error.partition.is_some() =>
                {
                    tracing::warn!(task = %self.tasks[&id].input, reason = %error.message, "reading is refused");
                    // The right to read may be granted again; an isolated task has read this partition before.
                    if error.is_denied() { self.restart(id) } else { self.on_unreadable(id, &error) }
                }
                StepOutcome::SetBack(cause) => {
                    let task = match &cause {
                        Cause::Cluster(error) => {
                            tracing::warn!(
                                task = %self.tasks[&id].input, reason = %error.message,
                                "this task's output still fails; the task restores and tries again"
                            );
                            None
                        }
                        Cause::State(_)
                        | Cause::Sink(_)
                        | Cause::Refused(_)
                        | Cause::RefusedAt(..)
                        | Cause::Panicked { .. } => Some(id),
                    };
                    self.restart(id);
                    self.on_task_failure(Failure { task, cause });
                }
            }
        }
    }
}
