//! A lane's membership of its group: assigned, revoked and lost partitions, and failures to read.
//!
//! Each assigned partition gets a task, which does the partition's work. A task begins with a restore, which first
//! settles (makes sure that no former owner can still write), and restores again after failures.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cluster::{self, Cluster, ErrorKind, GroupEvent, Member};
use crate::engine::catalog::Growth;
use crate::engine::claims::Ownership;
use crate::engine::failure::{Cause, Failure};
use crate::engine::restore;
use crate::engine::share::TaskId;
use crate::engine::task::{Phase, Task};
use crate::observe::KeptSeries;
use crate::record::TopicPartition;
use crate::sabotage::{self, Sabotage};

use super::Lane;

/// How many times a record that cannot be read is tried before its task stops.
const UNREADABLE_TIMES_MAX: u32 = 5;

impl<C: Cluster> Lane<C> {
    /// Follows a change of the membership.
    pub(super) fn on_event(&mut self, event: GroupEvent) -> Result<(), cluster::Error> {
        self.metrics.rebalance();
        match event {
            GroupEvent::Assigned(partitions) => {
                tracing::info!(
                    topology = self.context.topology.name, partitions = %partition_list(&partitions),
                    "partitions assigned"
                );
                self.member.accept_assigned(&partitions)?;
                partitions.into_iter().try_for_each(|partition| self.create_task(partition))?;
                // If a topic was given more partitions, all members rebalance, not only the one that gets the new ones.
                self.context.check_topics_now.store(true, Ordering::Relaxed);
                self.set_joined(true);
                // The partitions' owners are known again: no metric series need to be kept (see `keep_series`).
                self.reports.status.retain_series(Vec::new());
                Ok(())
            }
            GroupEvent::Revoked(partitions) => {
                tracing::info!(
                    topology = self.context.topology.name, partitions = %partition_list(&partitions),
                    "partitions revoked"
                );
                if sabotage::is_on(Sabotage::ReleasedInTransaction) {
                    self.tasks_of(&partitions).into_iter().for_each(|id| self.transactor.forget(id));
                } else {
                    self.commit();
                    self.drain(&self.tasks_of(&partitions));
                }
                self.release_partitions(self.tasks_of(&partitions));
                self.drop_tasks(&partitions);
                self.member.accept_revoked(&partitions)
            }
            GroupEvent::Lost(partitions) => {
                tracing::warn!(
                    topology = self.context.topology.name, partitions = %partition_list(&partitions),
                    "partitions lost"
                );
                if self.transactor.is_open() {
                    let message = "the partitions belong to another member";
                    self.abort_and_restore(Failure::cluster(cluster::Error::new(ErrorKind::Abort, message)));
                }
                self.set_joined(false);
                self.keep_series();
                self.drop_tasks(&partitions);
                self.member.accept_revoked(&partitions)
            }
        }
    }

    /// Reports whether the lane is a member of its group.
    pub(super) fn set_joined(&mut self, joined: bool) {
        self.reports.is_joined = joined;
        self.context.health.lane_joined(&self.context.topology.name, self.names.index, joined);
    }

    /// Keeps the tasks' metric series after the tasks have left, until the lane has joined again: while no broker
    /// responds, no other member has these partitions, and series that end would look like partitions without lag.
    pub(super) fn keep_series(&mut self) {
        let kept: Vec<KeptSeries> = self.tasks.values().map(|task| task.report.metrics.keep()).collect();
        if !kept.is_empty() {
            self.reports.status.retain_series(kept);
        }
    }

    /// Handles a failed poll. Returns the error if the lane cannot continue.
    pub(super) fn on_poll_error(&mut self, error: cluster::Error) -> Result<(), cluster::Error> {
        match error.kind {
            ErrorKind::Retry => {
                tracing::warn!(
                    topology = self.context.topology.name, reason = %error.message,
                    "reading failed; trying again"
                );
                Ok(())
            }
            // Some partition cannot be read at its position: the tasks' restores find out which.
            ErrorKind::Refused => {
                tracing::warn!(topology = self.context.topology.name, reason = %error.message, "reading is refused");
                let is_affected =
                    |id: &TaskId| error.partition.as_ref().is_none_or(|partition| self.tasks[id].input == *partition);
                let mut affected = self.tasks_in(|phase| matches!(phase, Phase::Running));
                affected.retain(is_affected);
                if affected.iter().any(|id| self.transactor.includes(*id)) {
                    self.abort_and_restore(Failure::cluster(cluster::Error::new(
                        ErrorKind::Abort,
                        error.message.clone(),
                    )));
                }
                for id in affected {
                    // An error that is not about one partition says nothing about the next record.
                    match error.partition {
                        // The partition was readable before: the right to read it may be granted again.
                        Some(_) if error.is_denied() && self.has_read(id) => self.restart_if_running(id),
                        Some(_) => self.on_unreadable(id, &error),
                        None => self.restart_if_running(id),
                    }
                }
                Ok(())
            }
            ErrorKind::Abort | ErrorKind::Fenced | ErrorKind::Unknown => Err(error),
        }
    }

    /// Whether anything was ever fetched for the task.
    fn has_read(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(|task| self.member.end(&task.input).is_some())
    }

    /// Subscribes again when topics that the topology reads were created or deleted. The lane continues to read the
    /// remaining partitions meanwhile.
    pub(super) fn follow_catalog(&mut self) -> Result<(), cluster::Error> {
        let edition = self.context.topics.edition();
        if self.topics.edition == edition {
            return Ok(());
        }
        self.topics.edition = edition;
        self.member.subscribe(&self.context.topics.names())
    }

    /// Restores all tasks at work, once, after a topic was found to have been recreated.
    pub(super) fn restore_after_recreation(&mut self) {
        let recreated_count = self.context.recreated_count.load(Ordering::Relaxed);
        if self.topics.recreated_count == recreated_count {
            return;
        }
        self.topics.recreated_count = recreated_count;
        self.batch = C::Batch::default();
        self.abort_and_restore(Failure::cluster(cluster::Error::new(ErrorKind::Abort, "a topic was recreated")));
        let working = self.tasks_in(|phase| matches!(phase, Phase::Running | Phase::Held(_) | Phase::Queued { .. }));
        working.into_iter().for_each(|id| self.restart(id));
    }

    /// Stops all tasks of topics that were given more partitions: their identities may now be on other partitions.
    pub(super) fn stop_rescaled(&mut self) {
        let growth_count = self.context.topics.growth_count();
        if self.topics.growth_count == growth_count {
            return;
        }
        self.topics.growth_count = growth_count;
        let growth_of = |task: &Task<C>| self.context.topics.growth_of(&task.input.topic);
        let is_stopped = |task: &Task<C>| matches!(task.phase, Phase::Failed);
        let not_stopped = self.tasks.iter().filter(|(_, task)| !is_stopped(task));
        let grown: Vec<(TaskId, Growth)> = not_stopped.filter_map(|(id, task)| Some((*id, growth_of(task)?))).collect();
        if grown.iter().any(|(id, _)| self.transactor.includes(*id)) {
            self.abort_and_restore(Failure::cluster(cluster::Error::new(
                ErrorKind::Abort,
                "partitions were added to a topic",
            )));
        }
        for (id, growth) in grown {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            match &mut task.phase {
                Phase::Isolated(Some(isolated)) => isolated.abandon(&self.cluster, &self.metrics),
                Phase::Redoing(redoing) => redoing.abandon(&self.cluster, &self.metrics),
                _ => {}
            }
            if let Err(error) = self.member.pause(&task.input) {
                tracing::debug!(task = %task.input, reason = %error.message, "the partition could not be paused");
            }
            let (held, refusal) = (task.state.store.take(), growth.refusal(task.topics.facts.task_count));
            restore::stop(&self.context, task, held, (&refusal.to_string(), false));
        }
    }

    /// Called when a task's next record cannot be read: restores the task, to try the record again. After
    /// `UNREADABLE_TIMES_MAX` failures at the same record, stops the task, and no other.
    pub(super) fn on_unreadable(&mut self, id: TaskId, error: &cluster::Error) {
        self.restart(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        // The offset of the last unreadable record, and how often in a row it was tried.
        let (offset, times) = task.trouble.unreadable;
        task.trouble.unreadable = (task.committed.next, if offset == task.committed.next { times + 1 } else { 1 });
        if task.trouble.unreadable.1 >= UNREADABLE_TIMES_MAX {
            task.fail(&error.message, error.may_pass());
        }
    }

    /// Creates the task of a partition that was assigned.
    pub(super) fn create_task(&mut self, partition: TopicPartition) -> Result<(), cluster::Error> {
        let Some(topic) = self.context.topics.get(&partition.topic) else {
            // The topic was removed meanwhile. This error ends the lane; its successor does not subscribe to the topic.
            return Err(cluster::Error::new(
                ErrorKind::Fenced,
                format!("{partition} was assigned but is no longer read"),
            ));
        };
        let task_count = topic.task_count;
        let mut task = Task::new(&self.context, partition, topic, Phase::Waiting { until: Duration::ZERO });
        task.set_phase(Phase::Settling(self.cluster.settle(restore::inquiry(&self.context, &task))));
        if task.input.partition >= task_count as i32 {
            self.context.topics.grow(&task.input.topic, Growth::Input(task.input.partition as u32 + 1));
            self.context.wakers.wake();
        }
        if let Some(growth) = self.context.topics.growth_of(&task.input.topic) {
            task.fail(&growth.refusal(task_count).to_string(), false);
        }
        self.restores.pending = true;
        self.tasks.insert(self.next_id, task);
        self.next_id += 1;
        Ok(())
    }

    /// Drops the tasks of these partitions.
    pub(super) fn drop_tasks(&mut self, partitions: &[TopicPartition]) {
        self.tasks_of(partitions).into_iter().for_each(|id| self.drop_task(id));
    }

    fn tasks_of(&self, partitions: &[TopicPartition]) -> Vec<TaskId> {
        self.tasks.iter().filter(|(_, task)| partitions.contains(&task.input)).map(|(id, _)| *id).collect()
    }

    /// Notes beside the committed offsets that these tasks have no open transaction, so that the next owner need not
    /// fence one (end it by force).
    pub(super) fn release_partitions(&mut self, mut ids: Vec<TaskId>) {
        let Self { context, cluster, tasks, transactor, member, names, metrics, .. } = self;
        ids.retain(|id| {
            // Included are tasks that restore after a clean abort, as happens when the group's generation changes.
            let phase = &tasks[id].phase;
            let may_be_released = matches!(
                phase,
                Phase::Running
                    | Phase::Held(_)
                    | Phase::Queued { .. }
                    | Phase::Waiting { .. }
                    | Phase::Settling(_)
                    | Phase::Claiming { .. }
            );
            may_be_released && !tasks[id].last.unsettled
        });
        if transactor.is_open() || !transactor.is_prepared() {
            return;
        }
        let result = Ownership { context, tasks, member, transactor, metrics }.release(ids, &names.transactional_id);
        if let Err(error) = result {
            tracing::debug!(
                topology = context.topology.name, reason = %error.message,
                "the partitions could not be released"
            );
            transactor.abort(cluster, &Cause::Cluster(error), metrics);
        }
    }

    /// Drops a task that is in no open transaction of the lane, after flushing its store.
    pub(super) fn drop_task(&mut self, id: TaskId) {
        debug_assert!(!self.transactor.includes(id), "a task leaves only between transactions");
        self.drop_window(id);
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let now = self.context.clock.monotonic();
        task.report.log_rest(&self.context.topology.dead_letter, now);
        match &mut task.phase {
            Phase::Isolated(Some(isolated)) => isolated.abandon(&self.cluster, &self.metrics),
            Phase::Redoing(redoing) => redoing.abandon(&self.cluster, &self.metrics),
            _ => {}
        }
        let has_worked =
            matches!(task.phase, Phase::Running | Phase::Held(_) | Phase::Queued { .. } | Phase::Isolated(_));
        if let (true, Some(held)) = (has_worked, &mut task.state.store)
            && let Err(error) = held.store.flush()
        {
            tracing::warn!(
                task = %task.input, reason = %error,
                "the store was not flushed; its next restore starts at an older position"
            );
        }
        self.indices_by_task.retain(|(task, _)| *task != id);
        self.transactor.free_spare(id);
    }
}

fn partition_list(partitions: &[TopicPartition]) -> String {
    if partitions.is_empty() {
        return "none".to_owned();
    }
    partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
