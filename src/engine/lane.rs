//! A lane: one thread's consumer, transactional producer and tasks. A task is the work of one input partition. Lanes
//! share no records and no state.
//!
//! [`Lane::step`] does everything: it follows changes of the group, takes a batch through the tasks, gives a slice of
//! time to each task that restores or is isolated, sweeps (removes some expired entries), and commits. To **restore**
//! is to bring a task back to what was committed last; an **isolated** task works in transactions of its own, because
//! its output has failed.
//!
//! A lane commits when a bound is reached, or once the input is drained, no records are about to arrive and the last
//! commit began long enough ago. So low load gives small transactions and low latency, high load large transactions. If
//! the topology calls a provider, reading and calling continue during a commit (`round`). The differences between a
//! topic, a sink and calls are in `hooks`.
//!
//! **Failure**: recovery aborts a failed transaction, and its tasks restore unless the abort is certain to leave them
//! unchanged. A step returns an error only if the lane itself cannot continue. A panic during the work of a
//! single task affects that task alone; any other panic ends the lane ([`run`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::{self, Cluster, Member, RecordBatch, Waker};
use crate::observe::LaneMetrics;

use super::context::Context;
use super::panics::{Panic, caught};
use super::process::Scratch;
use super::share::TaskId;
use super::status::LaneStatus;
use super::sweep;
use super::task::{Phase, Task, Tasks};
use super::transact::Transactor;

mod calls;
mod control;
mod destination;
mod group;
mod held;
mod hooks;
mod housekeeping;
mod records;
mod recovery;
mod reports;
mod round;
mod rows;
mod sorting;

use destination::Destination;
use reports::{Flushes, Reports};

/// The longest wait of an idle lane for records, group events or a wake-up: see [`Lane::common_idle_wait`].
const IDLE_WAIT_MAX: Duration = Duration::from_millis(250);
/// How long a lane waits for records if work is due soon.
const SOON_WAIT: Duration = Duration::from_millis(20);
/// How long a lane waits if it has restores or isolated tasks to serve.
const BUSY_WAIT: Duration = Duration::from_millis(2);
/// How long a lane waits for records that are about to arrive before it serves its producer again.
const MORE_WAIT: Duration = Duration::from_millis(1);
/// How long a lane may spend on its stores' files before it serves its group again: disks may be slow.
const DISK_SLICE: Duration = Duration::from_millis(500);

/// Why a lane cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The lane's member or its producer is unusable.
    #[error("{0}")]
    Failure(#[from] cluster::Error),
    /// The lane has panicked outside of any single task's work.
    #[error("panicked: {0}")]
    Panicked(Panic),
}

/// Runs a lane: joins the group, steps until `stop` is set, then leaves. Cleans up however the lane ends.
pub fn run<C: Cluster>(
    join: impl FnOnce() -> Result<Lane<C>, cluster::Error>,
    stop: &AtomicBool,
) -> Result<(), LaneError> {
    let mut lane = caught(join).map_err(LaneError::Panicked)??;
    let result: Result<Result<(), cluster::Error>, Panic> = caught(|| {
        while !stop.load(Ordering::Relaxed) {
            lane.step()?;
        }
        Ok(())
    });
    match result {
        Ok(Ok(())) => Ok(caught(|| lane.leave()).map_err(LaneError::Panicked)??),
        result => {
            let (cluster, id) = (lane.cluster.clone(), lane.transactor.id());
            lane.keep_series();
            // Not during unwinding: a second panic would abort the process.
            let dropped = caught(|| drop(lane));
            if result.is_err() {
                // After a panic: a transaction left open would hold up the partitions' next owner until it times out.
                cluster.fence(&id);
            }
            result.map_err(LaneError::Panicked)?.map_err(LaneError::Failure)?;
            dropped.map_err(LaneError::Panicked)
        }
    }
}

/// One thread's consumer, producer and tasks.
pub struct Lane<C: Cluster> {
    context: Arc<Context>,
    cluster: C,
    member: C::Member,
    names: Names,
    transactor: Transactor<C>,
    tasks: Tasks<C>,
    next_id: TaskId,
    /// Where surviving records go.
    destination: Destination<C>,
    pace: Pace,
    batch: C::Batch,
    /// The indices of the current batch's records, by task.
    indices_by_task: Vec<(TaskId, Vec<usize>)>,
    scratch: Scratch,
    restores: Restores,
    restore_batch: C::Batch,
    topics: SeenTopics,
    flushes: Flushes,
    metrics: LaneMetrics,
    /// Reports to the supervisor.
    reports: Reports,
    /// Keeps alive the waker that the context refers to.
    _waker: Waker,
}

/// A lane's names.
struct Names {
    /// Its number among its topology's lanes in this process.
    index: usize,
    transactional_id: String,
    /// Random for each start.
    random: u64,
    /// How many separate transactors the lane has made for its tasks; the number makes their transactional ids unique.
    isolations: u64,
}

/// When a lane last ended a round, and last began a commit. A round ends when no more records are awaited, or when a
/// bound is reached; with a provider, each step of the lane is a round.
struct Pace {
    /// When the last round ended, with a sweep and usually a commit.
    round_ended_at: Duration,
    /// When it last began to commit a transaction, if ever.
    commit_began_at: Option<Duration>,
}

/// A lane's restores.
#[derive(Default)]
struct Restores {
    /// Whether a task may be restoring.
    pending: bool,
    /// Whether the last slices left work to do: then the next slices follow at once.
    has_work_left: bool,
    /// The first task to get a slice in the next step, if time ran out before its turn.
    next_task: TaskId,
}

/// How far a lane has followed the changes of the topics that its topology reads.
struct SeenTopics {
    /// The edition of the catalog (the list of topics to read) that the member subscribes to.
    edition: u64,
    /// The count of recreated topics when the tasks last restored because a topic was recreated.
    recreated_count: u64,
    /// How often topics were given more partitions, by the catalog's count as last seen.
    growth_count: u64,
}

impl<C: Cluster> Lane<C> {
    /// Joins the group. `random` is unique to this start and makes the transactional id unique.
    pub fn join(
        context: Arc<Context>,
        cluster: C,
        index: usize,
        random: u64,
        status: Arc<LaneStatus>,
    ) -> Result<Self, cluster::Error> {
        // The edition is read first: a topic that appears in between then leads to another subscription.
        let edition = context.topics.edition();
        let topics = context.topics.names();
        let transactional_id = context.topology.transactional_id(random, index);
        let recreated_count = context.recreated_count.load(Ordering::Relaxed);
        let now = context.clock.monotonic();
        // The producer is created at once, so that missing rights show up here and not with the first record.
        let mut transactor = Transactor::new(transactional_id.clone(), random, context.ids.clone());
        transactor.prepare(&cluster)?;
        // The member joins last, so that a lane that cannot write does not make the group rebalance again and again.
        let member = cluster.member(&context.topology.group(), &topics)?;
        let waker = member.waker();
        context.wakers.add(&waker);
        Ok(Self {
            transactor,
            scratch: Scratch::new(&context),
            metrics: context.metrics.lane(&context.topology.name),
            cluster,
            member,
            names: Names { index, transactional_id, random, isolations: 0 },
            tasks: Tasks::new(),
            next_id: 0,
            destination: Destination::of(&context, random, now),
            pace: Pace { round_ended_at: now, commit_began_at: None },
            batch: C::Batch::default(),
            indices_by_task: Vec::new(),
            restores: Restores::default(),
            restore_batch: C::Batch::default(),
            topics: SeenTopics { edition, recreated_count, growth_count: 0 },
            flushes: Flushes::starting_at(now),
            reports: Reports::of(status),
            _waker: waker,
            context,
        })
    }

    /// Does all work that is due; waits a moment for records if there is none.
    pub fn step(&mut self) -> Result<(), cluster::Error> {
        self.poll()?;
        self.follow_catalog()?;
        self.restore_after_recreation();
        self.stop_rescaled();
        self.handle_batch();
        let awaits_more = self.batch.is_empty() && self.awaits_more_records();
        if awaits_more {
            self.transactor.serve();
        }
        let drained = self.batch.is_empty() && !awaits_more;
        self.restore_slices()?;
        self.step_isolated();
        self.serve_calls();
        let commits_anyway = self.destination.commits_each_step();
        let is_due = !drained && !commits_anyway && self.is_due();
        if drained || is_due {
            self.advance_past_markers();
        }
        if drained || is_due || commits_anyway {
            self.pace.round_ended_at = self.context.clock.monotonic();
            self.tidy();
            self.sweep();
            self.end_transaction(is_due)?;
        }
        self.resume_after_transaction();
        self.housekeeping();
        Ok(())
    }

    /// Reads the next records, or handles an event of the group.
    fn poll(&mut self) -> Result<(), cluster::Error> {
        let (wait, records_max) = (self.poll_wait(), self.records_max());
        let polled = self.member.poll(&mut self.batch, records_max, wait);
        if records_max == 0 && matches!(polled, Ok(None)) {
            self.context.clock.wait(wait, &AtomicBool::new(false));
        }
        match polled {
            Ok(None) => Ok(()),
            Ok(Some(event)) => self.on_event(event),
            Err(error) => self.on_poll_error(error),
        }
    }

    /// Finishes the transaction, flushes the stores and leaves the group.
    pub fn leave(mut self) -> Result<(), cluster::Error> {
        self.commit();
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        self.drain(&ids);
        // A task that panicked meanwhile was recreated under another id.
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        self.release_partitions(ids.clone());
        for id in ids {
            self.drop_task(id);
        }
        self.member.leave()
    }

    /// Whether to end the round, and its transaction, although records keep coming. Rounds are timed separately, since
    /// transactions also end with their batch or when full.
    fn is_due(&self) -> bool {
        let since = self.context.clock.monotonic().saturating_sub(self.pace.round_ended_at);
        self.transactor.is_due(&self.context) || since >= Duration::from_millis(self.context.commit.interval_ms)
    }

    /// Whether the transaction stays open although nothing is left to do: the last commit began just before, or records
    /// are about to arrive. Otherwise a trickle would be committed record by record, at full cost to the brokers each
    /// time, and a lane faster than its broker would commit after each fetch response. Lanes with a sink or a provider
    /// commit each batch, and a task that is about to stop does not wait.
    fn awaits_more_records(&self) -> bool {
        let may_stay_open = self.destination.waits_for_records() && self.transactor.stopping_tasks().is_empty();
        self.transactor.is_open() && may_stay_open && (self.has_just_committed() || self.member.has_more())
    }

    /// Whether the last commit began too recently for a drained input to end the transaction.
    fn has_just_committed(&self) -> bool {
        let spacing = Duration::from_millis(self.context.commit.spacing_ms);
        self.pace.commit_began_at.is_some_and(|began| self.context.clock.monotonic().saturating_sub(began) < spacing)
    }

    /// How long to wait for records in this step.
    fn poll_wait(&self) -> Duration {
        if self.restores.has_work_left {
            return Duration::ZERO;
        }
        if self.transactor.is_open() {
            return if self.awaits_more_records() { MORE_WAIT } else { Duration::ZERO };
        }
        let is_queued_or_isolated = |task: &Task<C>| matches!(task.phase, Phase::Queued { .. } | Phase::Isolated(_));
        let is_busy = self.restores.pending || self.tasks.values().any(is_queued_or_isolated);
        if is_busy { BUSY_WAIT } else { self.idle_wait() }
    }

    /// How long a lane without work waits. Records, events of the group, the end of the run and topic changes end the
    /// wait; everything else that becomes due is taken into account here. A lane waits only briefly while it has not
    /// committed all records that it knows of, or does not know the end of its input.
    fn common_idle_wait(&self) -> Duration {
        let sweeps = || self.tasks.values().any(|task| sweep::is_due(&self.context, task, None));
        if !self.reports.is_at_rest || self.destination.is_busy() || self.flushes.has_pending() || sweeps() {
            return SOON_WAIT;
        }
        let deadline = self.destination.next_command_read().min(self.reports.next_gauge());
        idle_wait_until(deadline, self.context.clock.monotonic())
    }

    /// How many records are worth reading now.
    fn records_max(&self) -> usize {
        self.destination.read_limit(self.context.limits.poll_records_max)
    }

    fn tasks_in(&self, is_in_phase: impl Fn(&Phase<C>) -> bool) -> Vec<TaskId> {
        self.tasks.iter().filter(|(_, task)| is_in_phase(&task.phase)).map(|(id, _)| *id).collect()
    }
}

/// How long an idle lane waits until `deadline`. Overdue work cannot be done at present, so the lane tries again soon.
fn idle_wait_until(deadline: Duration, now: Duration) -> Duration {
    deadline.saturating_sub(now).clamp(SOON_WAIT, IDLE_WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_rests_until_something_is_due_and_never_spins() {
        let [now, soon, late] = [10_000, 10_090, 60_000].map(Duration::from_millis);
        assert_eq!(idle_wait_until(soon, now), soon - now);
        assert_eq!(idle_wait_until(late, now), IDLE_WAIT_MAX);
        // For example, commands are overdue in a control topic that cannot be reached.
        for overdue in [Duration::ZERO, now] {
            assert_eq!(idle_wait_until(overdue, now), SOON_WAIT);
        }
    }
}
