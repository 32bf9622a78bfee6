//! A lane: one thread's consumer, transactional producer and tasks. Lanes share nothing but settings.
//!
//! [`Lane::step`] is the whole of it: serve the group, take a batch through the tasks, let restores and isolated
//! tasks do a slice each, sweep a little, and commit when the input is drained or a bound is reached. Low load
//! so gives small transactions and a short latency, high load large ones.
//!
//! **Failure**: whatever goes wrong with a transaction, the way back aborts it and sends its tasks through
//! their restore. A step answers with an error only where the lane itself cannot go on.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{self, Cluster, GroupEvent, Kind, Member, RecordBatch};
use crate::observe::LaneMetrics;
use crate::record::TopicPartition;

use super::context::{Context, backoff};
use super::isolate::{self, Isolated, Outcome, Quarantine};
use super::plan::Refusal;
use super::process::{Scratch, process};
use super::restore::{self, Setback, Slice};
use super::status::{Counts, LaneStatus};
use super::sweep;
use super::task::{Phase, Task, TaskId, Tasks};
use super::transact::{Aborted, Transactor};
use super::trouble::{Cause, Trouble};

/// Records taken in one poll.
const POLL_RECORDS_MAX: usize = 4096;
/// How long an idle lane waits for a record before it looks after the group again.
const IDLE_WAIT: Duration = Duration::from_millis(20);
/// How long a lane waits that has restores or isolated tasks to look after.
const BUSY_WAIT: Duration = Duration::from_millis(2);
/// How often stores are flushed, so that a quiet one does not keep an old position on disk.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);
/// How often gauges are brought up to date.
const GAUGE_INTERVAL: Duration = Duration::from_millis(500);

/// One thread's work.
pub struct Lane<C: Cluster> {
    context: Arc<Context>,
    cluster: C,
    member: C::Member,
    index: usize,
    transactional_id: String,
    random: u64,
    isolations: u64,
    transactor: Transactor<C>,
    tasks: Tasks<C>,
    next_id: TaskId,
    batch: C::Batch,
    restore_batch: C::Batch,
    scratch: Scratch,
    /// The records of the batch at hand, by task.
    shares: Vec<(TaskId, Vec<usize>)>,
    metrics: LaneMetrics,
    status: Arc<LaneStatus>,
    restoring: bool,
    flushed_at: Duration,
    gauged_at: Duration,
}

impl<C: Cluster> Lane<C> {
    /// Joins the group. `random` is this start's own and makes the transactional id.
    pub fn join(
        context: Arc<Context>,
        cluster: C,
        index: usize,
        random: u64,
        status: Arc<LaneStatus>,
    ) -> Result<Self, cluster::Error> {
        let topics: Vec<Arc<str>> = context.topology.topics.iter().map(|topic| Arc::from(topic.as_str())).collect();
        let member = cluster.member(&context.topology.group(), &topics)?;
        let transactional_id = context.topology.transactional_id(random, index);
        let now = context.clock.monotonic();
        // Made at once, so that missing rights show here and not with the first record.
        let mut transactor = Transactor::new(transactional_id.clone(), random);
        transactor.prepare(&cluster)?;
        Ok(Self {
            transactor,
            scratch: Scratch::new(&context),
            metrics: context.metrics.lane(&context.topology.name),
            cluster,
            member,
            index,
            transactional_id,
            random,
            isolations: 0,
            tasks: Tasks::new(),
            next_id: 0,
            batch: C::Batch::default(),
            restore_batch: C::Batch::default(),
            shares: Vec::new(),
            status,
            restoring: false,
            flushed_at: now,
            gauged_at: Duration::ZERO,
            context,
        })
    }

    /// Does what there is to do, waiting some milliseconds for records where there is nothing.
    pub fn step(&mut self) -> Result<(), cluster::Error> {
        let wait = self.wait();
        match self.member.poll(&mut self.batch, POLL_RECORDS_MAX, wait) {
            Ok(None) => {}
            Ok(Some(event)) => self.on_event(event)?,
            Err(error) => self.on_poll_error(error)?,
        }
        let drained = self.batch.is_empty();
        if !drained {
            self.process_batch();
        }
        self.restore_slices();
        self.step_isolated();
        if drained {
            self.pass_markers();
        }
        let due = drained || self.transactor.is_due(&self.context);
        if due {
            self.sweep();
            self.commit();
        }
        self.housekeeping();
        Ok(())
    }

    /// Finishes the transaction, flushes the stores and leaves the group.
    pub fn leave(mut self) -> Result<(), cluster::Error> {
        self.commit();
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        for id in ids {
            self.release(id);
        }
        self.member.leave()
    }

    fn wait(&self) -> Duration {
        if self.transactor.is_open() {
            return Duration::ZERO;
        }
        let busy = self.restoring || self.tasks.values().any(|task| matches!(task.phase, Phase::Isolated(_)));
        if busy { BUSY_WAIT } else { IDLE_WAIT }
    }

    // ---- the group ----

    fn on_event(&mut self, event: GroupEvent) -> Result<(), cluster::Error> {
        self.metrics.rebalance();
        match event {
            GroupEvent::Assigned(partitions) => {
                tracing::info!(topology = self.context.topology.name, partitions = %listed(&partitions), "partitions assigned");
                self.member.accept_assigned(&partitions)?;
                partitions.into_iter().for_each(|partition| self.take_over(partition));
                self.context.health.lane_joined(&self.context.topology.name, self.index, true);
                Ok(())
            }
            GroupEvent::Revoked(partitions) => {
                tracing::info!(topology = self.context.topology.name, partitions = %listed(&partitions), "partitions revoked");
                self.commit();
                self.let_go(&partitions);
                self.member.accept_revoked(&partitions)
            }
            GroupEvent::Lost(partitions) => {
                tracing::warn!(topology = self.context.topology.name, partitions = %listed(&partitions), "partitions lost");
                if self.transactor.is_open() {
                    let message = "the partitions belong to another member";
                    self.way_back(Trouble::cluster(cluster::Error::new(Kind::Abort, message)));
                }
                self.let_go(&partitions);
                self.member.accept_revoked(&partitions)
            }
        }
    }

    fn on_poll_error(&mut self, error: cluster::Error) -> Result<(), cluster::Error> {
        match error.kind {
            Kind::Retry => {
                tracing::warn!(topology = self.context.topology.name, reason = error.message, "reading is disturbed");
                Ok(())
            }
            // Something cannot be read at its position: the restore finds out what, task by task.
            Kind::Refused => {
                tracing::warn!(topology = self.context.topology.name, reason = error.message, "reading is refused");
                self.way_back(Trouble::cluster(cluster::Error::new(Kind::Abort, error.message)));
                let running: Vec<TaskId> = self.tasks_in(|phase| matches!(phase, Phase::Running));
                running.into_iter().for_each(|id| self.restart(id));
                Ok(())
            }
            Kind::Abort | Kind::Fenced | Kind::Unknown => Err(error),
        }
    }

    fn take_over(&mut self, partition: TopicPartition) {
        let task_count = self.context.topics[&partition.topic].task_count;
        let group = self.context.topology.group();
        let changelog = TopicPartition::new(self.context.topology.changelog(&partition.topic), partition.partition);
        let settling = self.cluster.settle(&group, &partition, &changelog);
        let mut task = Task::new(&self.context, partition, task_count, settling);
        if task.input.partition >= task_count as i32 {
            let found = task.input.partition as u32 + 1;
            task.fail(&Refusal::Rescaled { known: task_count, found }.to_string());
        }
        self.context.health.task_assigned(&self.context.topology.name, &task.input);
        self.restoring = true;
        self.tasks.insert(self.next_id, task);
        self.next_id += 1;
    }

    fn let_go(&mut self, partitions: &[TopicPartition]) {
        let gone: Vec<TaskId> =
            self.tasks.iter().filter(|(_, task)| partitions.contains(&task.input)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.release(id));
    }

    /// Drops a task that is in no open transaction of the lane's, its store flushed.
    fn release(&mut self, id: TaskId) {
        debug_assert!(!self.transactor.touches(id), "a task leaves only between transactions");
        let Some(mut task) = self.tasks.remove(&id) else { return };
        if let Phase::Isolated(isolated) = &mut task.phase {
            isolated.abandon(&self.metrics);
        }
        let running = matches!(task.phase, Phase::Running | Phase::Isolated(_));
        if let (true, Some(held)) = (running, &task.held)
            && let Err(error) = held.store.flush()
        {
            tracing::warn!(task = %task.input, reason = %error, "store not flushed; it will be restored from further back");
        }
        self.shares.retain(|(of, _)| *of != id);
        self.context.health.task_released(&self.context.topology.name, &task.input);
    }

    // ---- records ----

    /// Sorts the batch by task and takes each task's records through it.
    fn process_batch(&mut self) {
        let began = self.context.clock.monotonic();
        self.share_out();
        let shares = std::mem::take(&mut self.shares);
        for (id, indices) in shares.iter().filter(|(_, indices)| !indices.is_empty()) {
            if let Err(trouble) = self.process_share(*id, indices) {
                // The other tasks' records were read and not processed: they read them again.
                self.way_back(trouble);
                shares.iter().filter(|(_, indices)| !indices.is_empty()).for_each(|(id, _)| self.restart_running(*id));
                break;
            }
        }
        self.shares = shares;
        self.metrics.processing(self.context.clock.monotonic().saturating_sub(began));
    }

    fn share_out(&mut self) {
        self.shares.iter_mut().for_each(|(_, indices)| indices.clear());
        let of_source: Vec<Option<usize>> = self
            .batch
            .partitions()
            .iter()
            .map(|partition| {
                let at_work = |task: &Task<C>| matches!(task.phase, Phase::Running) && task.stop_at.is_none();
                let (&id, _) = self.tasks.iter().find(|(_, task)| task.input == *partition && at_work(task))?;
                let known = self.shares.iter().position(|(of, _)| *of == id);
                Some(known.unwrap_or_else(|| {
                    self.shares.push((id, Vec::new()));
                    self.shares.len() - 1
                }))
            })
            .collect();
        for index in 0..self.batch.len() {
            if let Some(share) = of_source[self.batch.source(index)] {
                self.shares[share].1.push(index);
            }
        }
    }

    /// Takes a task into the open transaction; begins one if none is open.
    fn touch(&mut self, id: TaskId) -> Result<(), Trouble> {
        self.transactor.prepare(&self.cluster).map_err(Trouble::cluster)?;
        self.transactor.touch(&self.context, id).map_err(Trouble::cluster)
    }

    fn process_share(&mut self, id: TaskId, indices: &[usize]) -> Result<(), Trouble> {
        self.touch(id)?;
        let producer = self.transactor.producer();
        let task = self.tasks.get_mut(&id).expect("shares are of tasks at hand");
        let added = process(&self.context, id, task, &self.batch, indices, producer, &mut self.scratch)?;
        self.transactor.add(added);
        if task.stop_at.is_some() {
            self.member.pause(&task.input).map_err(Trouble::cluster)?;
        }
        Ok(())
    }

    /// Takes transaction markers and other gaps at the end of the input into the position, so that a committed
    /// offset never stands before something that retention will remove.
    fn pass_markers(&mut self) {
        for id in self.tasks_in(|phase| matches!(phase, Phase::Running)) {
            let task = &self.tasks[&id];
            let Some(position) = self.member.position(&task.input) else { continue };
            if position <= task.pending.next || task.stop_at.is_some() {
                continue;
            }
            if let Err(trouble) = self.touch(id) {
                self.way_back(trouble);
                return self.restart_running(id);
            }
            self.tasks.get_mut(&id).expect("looked at above").pending.next = position;
        }
    }

    fn sweep(&mut self) {
        let due = self.tasks.iter().find(|(_, task)| sweep::is_due(&self.context, task)).map(|(id, _)| *id);
        let Some(id) = due else { return };
        let task = self.tasks.get_mut(&id).expect("found above");
        let swept = match sweep::slice(&self.context, task) {
            Ok(0) => return,
            Ok(_) => self.touch(id),
            Err(error) => Err(Trouble::state(id, error)),
        };
        if let Err(trouble) = swept {
            self.way_back(trouble);
            self.restart_running(id);
        }
    }

    fn commit(&mut self) {
        if !self.transactor.is_open() {
            return;
        }
        let Self { context, transactor, tasks, member, metrics, .. } = self;
        let committed =
            transactor.seal(context, tasks).and_then(|()| transactor.commit(context, tasks, member, metrics));
        match committed {
            Ok(troubles) => troubles.into_iter().for_each(|trouble| self.on_task_trouble(trouble)),
            Err(trouble) => return self.way_back(trouble),
        }
        let stopped = self.tasks.values_mut().filter(|task| matches!(task.phase, Phase::Running));
        for task in stopped {
            if let Some(reason) = task.stop_at.take() {
                task.fail(&reason);
            }
        }
    }

    // ---- the way back ----

    /// Aborts the open transaction and sends its tasks through their restore.
    fn way_back(&mut self, trouble: Trouble) {
        let Aborted { touched, undelivered } = self.transactor.abort(&trouble.cause, &self.metrics);
        tracing::warn!(
            topology = self.context.topology.name, reason = %trouble.cause, tasks = touched.len(),
            "transaction aborted; its tasks restore"
        );
        for id in touched {
            let failure = undelivered.iter().find(|(of, _, _)| *of == id);
            if let (Some((_, refused, message)), Some(task)) = (failure, self.tasks.get_mut(&id)) {
                tracing::warn!(task = %task.input, reason = message, "the output fails this task; it goes on alone");
                task.quarantine = Some(Quarantine::new(task.pending.next, *refused));
            }
            self.restart(id);
        }
        if trouble.task.is_some() {
            self.on_task_trouble(trouble);
        }
    }

    /// What follows for the one task whose trouble it is.
    fn on_task_trouble(&mut self, trouble: Trouble) {
        let Some(id) = trouble.task else { return };
        self.restart(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match trouble.cause {
            Cause::Refused(reason) => task.fail(&reason),
            Cause::State(error) => restore::set_back(&self.context, task, &error.into()),
            Cause::Cluster(error) => restore::set_back(&self.context, task, &error.into()),
        }
    }

    fn restart_running(&mut self, id: TaskId) {
        if self.tasks.get(&id).is_some_and(|task| matches!(task.phase, Phase::Running)) {
            self.restart(id);
        }
    }

    /// Sends a task to the beginning of its restore: at once the first time, later if it fails again and again
    /// without a commit between.
    fn restart(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if matches!(task.phase, Phase::Failed) {
            return;
        }
        if let Err(error) = self.member.pause(&task.input) {
            tracing::debug!(task = %task.input, reason = error.message, "could not be paused");
        }
        task.rewind();
        task.sweep.reset();
        let wait = task.attempts.checked_sub(1).map_or(Duration::ZERO, backoff);
        task.attempts += 1;
        task.set_phase(Phase::Waiting { until: self.context.clock.monotonic() + wait });
        self.restoring = true;
    }

    fn restore_slices(&mut self) {
        if !self.restoring {
            return;
        }
        let restoring = self.tasks_in(|phase| {
            matches!(phase, Phase::Waiting { .. } | Phase::Settling(_) | Phase::Claiming { .. } | Phase::Loading(_))
        });
        self.restoring = !restoring.is_empty();
        for id in restoring {
            let task = self.tasks.get_mut(&id).expect("listed above");
            let stepped = restore::step(&self.context, &self.cluster, task, &mut self.restore_batch);
            let ready = match stepped {
                Ok(Slice::Ready) => self.begin_work(id),
                Ok(Slice::Waiting | Slice::Worked) => Ok(()),
                Err(setback) => Err(setback),
            };
            if let Err(setback) = ready {
                let task = self.tasks.get_mut(&id).expect("listed above");
                if matches!(setback, Setback::Refused(_)) {
                    // Nobody waits for the records of a stopped task.
                    let _ = self.member.pause(&task.input);
                }
                restore::set_back(&self.context, task, &setback);
            }
        }
    }

    /// A task whose store is current goes to work: in the lane's transactions, or alone.
    fn begin_work(&mut self, id: TaskId) -> Result<(), Setback> {
        let task = self.tasks.get_mut(&id).expect("listed by the caller");
        self.context.health.task_restored(&self.context.topology.name, &task.input);
        if task.quarantine.is_none() {
            self.member.start(&task.input, task.committed.next)?;
            task.set_phase(Phase::Running);
            return Ok(());
        }
        // Ids and tokens of its own each time: see the transactor's renewals.
        self.isolations += 1;
        let transactional_id = format!("{}-i{}", self.transactional_id, self.isolations);
        let transactor = Transactor::new(transactional_id, self.random.wrapping_add(self.isolations));
        let isolated = Isolated::new(&self.cluster, &task.input, task.committed.next, transactor)?;
        task.set_phase(Phase::Isolated(Box::new(isolated)));
        Ok(())
    }

    fn step_isolated(&mut self) {
        for id in self.tasks_in(|phase| matches!(phase, Phase::Isolated(_))) {
            let Self { context, cluster, tasks, member, scratch, metrics, .. } = self;
            match isolate::step(context, cluster, id, tasks, member, scratch, metrics) {
                Outcome::Waiting | Outcome::Worked => {}
                Outcome::Recovered => {
                    let task = self.tasks.get_mut(&id).expect("stepped above");
                    tracing::info!(task = %task.input, next = task.committed.next, "the output takes this task's records again");
                    task.quarantine = None;
                    self.restart(id);
                }
                Outcome::SetBack(cause) => {
                    let task = match cause {
                        Cause::Cluster(_) => None,
                        Cause::State(_) | Cause::Refused(_) => Some(id),
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
        }
    }

    // ---- looking after ----

    fn tasks_in(&self, phase: impl Fn(&Phase<C>) -> bool) -> Vec<TaskId> {
        self.tasks.iter().filter(|(_, task)| phase(&task.phase)).map(|(id, _)| *id).collect()
    }

    fn housekeeping(&mut self) {
        let now = self.context.clock.monotonic();
        if now.saturating_sub(self.gauged_at) >= GAUGE_INTERVAL {
            self.gauged_at = now;
            let wall_ms = self.context.clock.wall_ms();
            for task in self.tasks.values() {
                gauge(task, self.member.end(&task.input), wall_ms);
            }
        }
        self.report();
        if now.saturating_sub(self.flushed_at) < FLUSH_INTERVAL {
            return;
        }
        self.flushed_at = now;
        for task in self.tasks.values().filter(|task| matches!(task.phase, Phase::Running)) {
            if let Some(held) = &task.held
                && let Err(error) = held.store.flush()
            {
                tracing::warn!(task = %task.input, reason = %error, "store not flushed");
            }
        }
    }

    /// Tells the supervisor how the tasks stand.
    fn report(&self) {
        let open = self.transactor.is_open();
        let drained = |task: &Task<C>| {
            let end = self.member.end(&task.input);
            !open && matches!(task.phase, Phase::Running) && end.is_some_and(|end| task.committed.next >= end)
        };
        let count = |of: &dyn Fn(&Task<C>) -> bool| self.tasks.values().filter(|task| of(task)).count();
        let at_rest = |task: &Task<C>| matches!(task.phase, Phase::Running | Phase::Isolated(_) | Phase::Failed);
        self.status.set(Counts {
            tasks: self.tasks.len(),
            drained: count(&drained),
            failed: count(&|task| matches!(task.phase, Phase::Failed)),
            restoring: count(&|task| !at_rest(task)),
        });
    }
}

fn gauge<C: Cluster>(task: &Task<C>, end: Option<i64>, wall_ms: i64) {
    if let Some(held) = &task.held {
        task.metrics.state(held.store.entries_estimate(), held.store.bytes());
    }
    let Some(end) = end.filter(|_| matches!(task.phase, Phase::Running | Phase::Isolated(_))) else { return };
    let records = (end - task.committed.next).max(0);
    let age_ms = task.last_timestamp.map_or(0, |last| (wall_ms - last).max(0));
    task.metrics.lag(records, if records == 0 { 0.0 } else { age_ms as f64 / 1000.0 });
}

fn listed(partitions: &[TopicPartition]) -> String {
    partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
