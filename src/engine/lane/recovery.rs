//! A lane's way back: aborted transactions, restores, isolated tasks.

use std::time::Duration;

use crate::cluster::{self, Cluster, Kind, Member};
use crate::engine::claims::Commitment;
use crate::engine::context::backoff;
use crate::engine::fallback;
use crate::engine::isolate::{self, Isolated, Means, Outcome, Quarantine};
use crate::engine::panics::{AtHand, Panic, caught};
use crate::engine::process::Scratch;
use crate::engine::restore::{self, Setback, Slice};
use crate::engine::task::{Phase, Task, TaskId};
use crate::engine::transact::{Aborted, Transactor};
use crate::engine::trouble::{Cause, Trouble};
use crate::mistakes::{self, Mistake};

use super::{DISK_SLICE, Lane};

impl<C: Cluster> Lane<C> {
    /// Aborts the open transaction and sends its tasks through their restore.
    pub(super) fn way_back(&mut self, trouble: Trouble) {
        let Aborted { touched, ended, undelivered, delivered } =
            self.transactor.abort(&self.cluster, &trouble.cause, &self.metrics);
        let fallen_back = fallback::told(&mut self.tasks, &delivered);
        tracing::warn!(
            topology = self.context.topology.name, reason = %trouble.cause, tasks = touched.len(),
            "transaction aborted; its tasks restore"
        );
        // At once: the tasks settle meanwhile.
        if let Err(error) = self.transactor.prepare(&self.cluster) {
            tracing::debug!(reason = %error.message, "no producer yet");
        }
        // A producer that has lost its place says nothing of the output.
        let fenced = matches!(&trouble.cause, Cause::Cluster(error) if error.kind == Kind::Fenced);
        for id in touched {
            if self.goes_on_by_mistake(id, &trouble.cause) {
                continue;
            }
            if let Some(task) = self.tasks.get_mut(&id).filter(|_| !ended) {
                task.unsettle();
            }
            let failure = undelivered.iter().find(|(of, _, _)| *of == id && !fenced);
            if let (Some((_, refused, message)), Some(task)) = (failure, self.tasks.get_mut(&id)) {
                tracing::warn!(task = %task.input, reason = %message, "the output fails this task; it goes on alone");
                task.quarantine = Some(Quarantine::new(&self.context, task.pending.next, *refused));
            }
            self.restart(id);
        }
        if let (Some(task), Cause::Cluster(_)) = (trouble.task.and_then(|id| self.tasks.get_mut(&id)), &trouble.cause) {
            tracing::warn!(task = %task.input, reason = %trouble.cause, "the output fails this task; it goes on alone");
            let until = task.committed.next + 1;
            task.quarantine.get_or_insert_with(|| Quarantine::new(&self.context, until, false));
        } else if trouble.task.is_some() {
            self.on_task_trouble(trouble);
        }
        fallen_back.into_iter().for_each(|trouble| self.on_task_trouble(trouble));
    }

    /// Deliberate mistakes: whether a task goes on without a restore.
    fn goes_on_by_mistake(&mut self, id: TaskId, cause: &Cause) -> bool {
        if mistakes::made(Mistake::TasksNotRestarted) {
            return true;
        }
        let unknown = matches!(cause, Cause::Cluster(error) if error.kind == Kind::Unknown);
        if !(unknown && mistakes::made(Mistake::UnknownTakenForAbort)) {
            return false;
        }
        let Some(task) = self.tasks.get_mut(&id) else { return false };
        task.rewind();
        self.member.start(&task.input, task.committed.next).is_ok()
    }

    /// What follows for the one task whose trouble it is.
    pub(super) fn on_task_trouble(&mut self, trouble: Trouble) {
        let Some(id) = trouble.task else { return };
        self.restart(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match trouble.cause {
            Cause::Refused(reason) => task.fail(&reason),
            // What comes before was in the transaction that was given up.
            Cause::RefusedAt(at, reason) => task.refused_at = Some((at, reason)),
            Cause::State(error) => restore::set_back(&self.context, task, &error.into()),
            Cause::Cluster(error) => restore::set_back(&self.context, task, &error.into()),
            Cause::Panicked { at, panic } => self.on_panic(id, at, &panic),
        }
    }

    /// A task has panicked, with this at hand: it is made anew with all that it has changed, and tries
    /// again, or stops, if it was once too often. Its transaction was given up before.
    fn on_panic(&mut self, id: TaskId, at: AtHand, panic: &Panic) {
        self.scratch = Scratch::new(&self.context);
        (self.batch, self.restore_batch) = (C::Batch::default(), C::Batch::default());
        let Some(mut former) = self.tasks.remove(&id) else { return };
        former.panics.note(at, panic);
        let wait = backoff(former.panics.times().saturating_sub(1));
        let until = self.context.clock.monotonic() + wait;
        tracing::error!(
            task = %former.input, at = at.record(), reason = %panic, times = former.panics.times(),
            "the task panicked; it is made anew"
        );
        let held = former.held.take();
        let mut task = former.anew(&self.context, until);
        // A record that is to blame is not processed, but what comes before it is.
        if task.panics.are_too_many() && task.panics.stop_before().is_none_or(|_| at.record().is_none()) {
            let reason = format!("{}: {}", task.input, task.panics);
            restore::stop(&self.context, &mut task, held, &reason);
        }
        self.restoring = true;
        self.tasks.insert(self.next_id, task);
        self.next_id += 1;
    }

    pub(super) fn restart_running(&mut self, id: TaskId) {
        if self.tasks.get(&id).is_some_and(|task| matches!(task.phase, Phase::Running)) {
            self.restart(id);
        }
    }

    /// Sends a task to the beginning of its restore: at once the first time, later if it fails again and again
    /// without a commit between.
    pub(super) fn restart(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if matches!(task.phase, Phase::Failed) {
            return;
        }
        if let Err(error) = self.member.pause(&task.input) {
            tracing::debug!(task = %task.input, reason = %error.message, "could not be paused");
        }
        task.rewind();
        task.sweep.reset();
        let wait = task.attempts.checked_sub(1).map_or(Duration::ZERO, backoff);
        task.attempts += 1;
        task.set_phase(Phase::Waiting { until: self.context.clock.monotonic() + wait });
        self.restoring = true;
    }

    /// Sends a task through its restore that has committed all before a record which looks like one of the future: there it
    /// learns Kafka's time.
    pub(super) fn ask_time(&mut self, id: TaskId) {
        let Some(wait) = self.tasks.get_mut(&id).and_then(|task| task.doubts(&self.context)) else { return };
        let sweep = self.tasks.get(&id).map(|task| task.sweep.clone());
        self.restart(id);
        let until = self.context.clock.monotonic() + wait;
        if let (Some(task), Some(sweep)) = (self.tasks.get_mut(&id), sweep) {
            task.set_phase(Phase::Waiting { until });
            // Nothing is done to the store meanwhile: the walk goes on, however often the time is asked.
            task.sweep = sweep;
        }
    }

    /// Gives every task that restores its slice. An error means that the lane's membership is of no use.
    pub(super) fn restore_slices(&mut self) -> Result<(), cluster::Error> {
        self.loading = false;
        if !self.restoring {
            return Ok(());
        }
        let mut restoring = self.tasks_in(|phase| {
            matches!(phase, Phase::Waiting { .. } | Phase::Settling(_) | Phase::Claiming { .. } | Phase::Loading(_))
        });
        self.restoring = !restoring.is_empty();
        if !self.restoring {
            // What was read last takes memory, and what has read it on Kafka a client with its threads.
            self.restore_batch = C::Batch::default();
        }
        let began = self.context.clock.monotonic();
        // Those go first that had no slice last time.
        let first = restoring.partition_point(|id| *id < self.restore_next);
        restoring.rotate_left(first);
        self.restore_next = 0;
        for id in restoring {
            if self.context.clock.monotonic().saturating_sub(began) >= DISK_SLICE {
                (self.restore_next, self.loading) = (id, true);
                break;
            }
            let may_load =
                self.tasks_in(|phase| matches!(phase, Phase::Loading(_))).len() < self.context.limits.loads_max;
            let task = self.tasks.get_mut(&id).expect("listed above");
            let step = || restore::step(&self.context, &self.cluster, task, &mut self.restore_batch, may_load);
            let stepped = match caught(step) {
                Ok(stepped) => stepped,
                Err(panic) => {
                    self.on_panic(id, AtHand::Nothing, &panic);
                    continue;
                }
            };
            self.loading |= matches!(stepped, Ok(Slice::Worked));
            let ready = match stepped {
                Ok(Slice::Ready) => match self.begin_work(id) {
                    Err(error) if error.kind == Kind::Fenced => return Err(error),
                    begun => begun.map_err(Setback::from),
                },
                Ok(Slice::Waiting | Slice::Worked) => Ok(()),
                Err(setback) => Err(setback),
            };
            if let Err(setback) = ready {
                let task = self.tasks.get_mut(&id).expect("listed above");
                if matches!(setback, Setback::Refused(_) | Setback::Denied(_)) {
                    // Nobody waits for the records of a stopped task.
                    let _ = self.member.pause(&task.input);
                }
                restore::set_back(&self.context, task, &setback);
            }
        }
        Ok(())
    }

    /// A task whose store is current goes to work: in the lane's transactions, or alone.
    pub(super) fn begin_work(&mut self, id: TaskId) -> Result<(), cluster::Error> {
        let task = self.tasks.get_mut(&id).expect("listed by the caller");
        task.report_restored();
        self.context.proven.add(&task.input.topic);
        if !std::mem::replace(&mut task.taken_over, true) {
            self.metrics.takeover(if task.restored { "restored" } else { "current" });
            let took_ms = self.context.clock.monotonic().saturating_sub(task.assigned).as_millis() as u64;
            let owner = task.commitment.as_ref().map_or("none", Commitment::owner);
            tracing::info!(task = %task.input, owner, restored = task.restored, took_ms, "task taken over");
        }
        if task.quarantine.is_none() {
            let mut next = task.committed.next;
            if mistakes::made(Mistake::ReadPositionKept) {
                next = self.member.position(&task.input).unwrap_or(next);
            }
            self.member.start(&task.input, next)?;
            task.set_phase(Phase::Running);
            return Ok(());
        }
        task.set_phase(Phase::Queued { since: self.context.clock.monotonic() });
        Ok(())
    }

    /// Gives those tasks the means to work alone whose turn it is: the ones that have waited for longest, as many as may be
    /// at work at once. Clients have threads and memory of their own. Says whether others wait for a place.
    fn admit(&mut self) -> bool {
        let queue = self.queue();
        let at_work = self.tasks_in(|phase| matches!(phase, Phase::Isolated(_))).len();
        let places = self.context.limits.isolated_max.saturating_sub(at_work);
        for &id in queue.iter().take(places) {
            if let Err(error) = self.isolate(id) {
                let task = self.tasks.get_mut(&id).expect("listed above");
                restore::set_back(&self.context, task, &error.into());
            }
        }
        queue.len() > places
    }

    /// The tasks that may try to work alone by now, in the order of their turns.
    fn queue(&self) -> Vec<TaskId> {
        let now = self.context.clock.monotonic();
        let waits = |(&id, task): (&TaskId, &Task<C>)| {
            let may_try = task.quarantine.as_ref().is_none_or(|quarantine| quarantine.may_try(now));
            let Phase::Queued { since } = task.phase else { return None };
            may_try.then_some((since, id))
        };
        let mut queue: Vec<_> = self.tasks.iter().filter_map(waits).collect();
        queue.sort_unstable();
        queue.into_iter().map(|(_, id)| id).collect()
    }

    fn isolate(&mut self, id: TaskId) -> Result<(), cluster::Error> {
        let task = self.tasks.get_mut(&id).expect("listed by the caller");
        // Ids and tokens of its own each time: see the transactor's renewals.
        self.isolations += 1;
        let transactional_id = format!("{}-i{}", self.transactional_id, self.isolations);
        let transactor =
            Transactor::new(transactional_id, self.random.wrapping_add(self.isolations), self.context.ids.clone());
        let (group, from) = (self.context.topology.group(), (&task.input, task.committed.next));
        let isolated = Isolated::new(&self.cluster, &group, from, transactor)?;
        task.set_phase(Phase::Isolated(Box::new(isolated)));
        Ok(())
    }

    pub(super) fn step_isolated(&mut self) {
        let others_wait = self.admit();
        for id in self.tasks_in(|phase| matches!(phase, Phase::Isolated(_))) {
            let Self { context, cluster, tasks, member, scratch, metrics, .. } = self;
            let means = &mut Means { context, cluster, tasks, member, scratch, metrics };
            let stepped = caught(|| isolate::step(means, id))
                .unwrap_or_else(|panic| Outcome::SetBack(Cause::Panicked { at: self.scratch.at_hand(), panic }));
            match stepped {
                Outcome::Waiting | Outcome::Worked => {}
                // Nobody knows when there will be something to read: its turn comes again. It has not failed.
                Outcome::Idle if others_wait => {
                    self.tasks.get_mut(&id).expect("stepped above").attempts = 0;
                    self.restart(id);
                }
                Outcome::Idle => {}
                Outcome::Recovered => {
                    let task = self.tasks.get_mut(&id).expect("stepped above");
                    tracing::info!(task = %task.input, next = task.committed.next, "the output takes this task's records again");
                    task.quarantine = None;
                    self.restart(id);
                }
                Outcome::SetBack(Cause::Cluster(error)) if error.kind == Kind::Refused && error.partition.is_some() => {
                    tracing::warn!(task = %self.tasks[&id].input, reason = %error.message, "reading is refused");
                    // The right to read may be granted anew; a task that works alone has read.
                    if error.right { self.restart(id) } else { self.on_unreadable(id, &error.message) }
                }
                Outcome::SetBack(cause) => {
                    let task = match &cause {
                        Cause::Cluster(error) => {
                            tracing::warn!(
                                task = %self.tasks[&id].input, reason = %error.message,
                                "the output fails this task still; it restores and tries again"
                            );
                            None
                        }
                        Cause::State(_) | Cause::Refused(_) | Cause::RefusedAt(..) | Cause::Panicked { .. } => Some(id),
                    };
                    self.restart(id);
                    self.on_task_trouble(Trouble { task, cause });
                }
            }
            if let Some(task) = self.tasks.get_mut(&id)
                && matches!(task.phase, Phase::Isolated(_))
                && task.token.is_none()
                && let Some(reason) = task.stop_at.take()
            {
                task.fail(&reason);
            }
            if self.tasks.get(&id).is_some_and(|task| matches!(task.phase, Phase::Isolated(_)) && task.token.is_none())
            {
                self.ask_time(id);
            }
        }
    }
}
