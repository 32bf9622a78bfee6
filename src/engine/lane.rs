//! A lane: one thread's consumer, transactional producer and tasks. Lanes share no records and no state.
//!
//! [`Lane::step`] is all of it: serve the group, take a batch through the tasks, give restores and isolated tasks a
//! slice each, sweep a little, and commit: when the input is drained, nothing is known to be on its way and the last
//! commit was not begun just before, or when a bound is reached. So low load gives small transactions and low latency,
//! high load large transactions. Where the topology calls a provider, reading and calling go on while it commits
//! (`round`).
//!
//! **Failure**: whatever goes wrong with a transaction, recovery aborts it and sends its tasks through their restore. A
//! step returns an error only if the lane itself cannot continue. A panic is one task's trouble if that task was at
//! work alone; anywhere else it ends the lane ([`live`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::{self, Cluster, Member, RecordBatch, Waker};
use crate::observe::LaneMetrics;

use super::calling::Calling;
use super::calling::window::Window;
use super::context::Context;
use super::control::orders::Orders;
use super::panics::{Panic, caught};
use super::process::Scratch;
use super::share::TaskId;
use super::status::{Counts, LaneStatus};
use super::sweep;
use super::task::{Phase, Task, Tasks};
use super::transact::{OpenSink, Transactor};

mod calls;
mod control;
mod gated;
mod group;
mod records;
mod recovery;
mod round;
mod rows;

/// How long a lane at rest waits at most for records, for its group or to be woken: see [`Lane::rest`].
const REST_MAX: Duration = Duration::from_millis(250);
/// How long a lane waits for records if it has work soon.
const SOON_WAIT: Duration = Duration::from_millis(20);
/// How long a lane waits if it has restores or isolated tasks to serve.
const BUSY_WAIT: Duration = Duration::from_millis(2);
/// How long a lane waits for records that are on their way before it sees to what it has written.
const MORE_WAIT: Duration = Duration::from_millis(1);
/// How often stores are flushed, so that a quiet one does not keep an old position on disk.
const FLUSH_INTERVAL: Duration = Duration::from_secs(60);
/// How long a lane may spend on its stores' files before it serves its group again: disks may be slow.
const DISK_SLICE: Duration = Duration::from_millis(500);
/// How often gauges are updated.
const GAUGE_INTERVAL: Duration = Duration::from_millis(500);

/// Why a lane cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Its member or its producer is unusable.
    #[error("{0}")]
    Failure(#[from] cluster::Error),
    /// It has panicked outside of any single task's work.
    #[error("panicked: {0}")]
    Panicked(Panic),
}

/// A lane from start to end: steps until `stop` is set, then leaves. However it ends, nothing of it remains.
pub fn live<C: Cluster>(
    join: impl FnOnce() -> Result<Lane<C>, cluster::Error>,
    stop: &AtomicBool,
) -> Result<(), Ended> {
    let mut lane = caught(join).map_err(Ended::Panicked)??;
    let ended: Result<Result<(), cluster::Error>, Panic> = caught(|| {
        while !stop.load(Ordering::Relaxed) {
            lane.step()?;
        }
        Ok(())
    });
    match ended {
        Ok(Ok(())) => Ok(caught(|| lane.leave()).map_err(Ended::Panicked)??),
        ended => {
            let (cluster, id) = (lane.cluster.clone(), lane.transactor.id());
            lane.keep_lag();
            // Not during unwinding: a second panic would abort the process.
            let dropped = caught(|| drop(lane));
            if ended.is_err() {
                // A transaction left open would hold up the next owner until it times out.
                cluster.fence(&id);
            }
            ended.map_err(Ended::Panicked)?.map_err(Ended::Failure)?;
            dropped.map_err(Ended::Panicked)
        }
    }
}

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
    /// The way into the topology's sink, if it has one.
    sink: Option<OpenSink>,
    /// Its calls, if the topology calls a provider.
    calling: Option<Calling>,
    /// The commands to its tasks, if they can be given any.
    orders: Option<Orders<C>>,
    /// When the rows of idle tasks were last looked at.
    looked_at: Duration,
    /// When the lane last passed markers, swept, and committed unless it was too soon.
    ended_at: Duration,
    /// When the lane last began to commit a transaction, if it has.
    commit_began_at: Option<Duration>,
    /// Whether the sink may have more to tidy up.
    tidying: bool,
    batch: C::Batch,
    restore_batch: C::Batch,
    scratch: Scratch,
    /// The records of the current batch, by task.
    shares: Vec<(TaskId, Vec<usize>)>,
    metrics: LaneMetrics,
    status: Arc<LaneStatus>,
    /// Whether it is reported as a member of its group.
    is_joined: bool,
    restoring: bool,
    /// Whether the last slices of restores have read something: then the next ones follow at once.
    loading: bool,
    /// The edition of the catalog that the member subscribes to.
    edition: u64,
    /// The number of recreated topics for which the tasks were already sent to check.
    rechecked: u64,
    /// The catalog's count of topics that grew, when last checked.
    growths: u64,
    flushed_at: Duration,
    /// The tasks whose stores are still to be flushed in this round.
    to_flush: Vec<TaskId>,
    /// The task whose restore is next: the others have had their slice.
    restore_next: TaskId,
    gauged_at: Duration,
    /// Whether, at the last report, each of its tasks had committed all records that it knew of, or had stopped.
    is_at_rest: bool,
    /// Keeps the waker alive that the context refers to.
    _waker: Waker,
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
        // In this order: a topic that appears in between leads to another subscription.
        let edition = context.topics.edition();
        let topics = context.topics.names();
        let transactional_id = context.topology.transactional_id(random, index);
        let rechecked = context.recreated.load(Ordering::Relaxed);
        let now = context.clock.monotonic();
        // Created at once, so that missing rights show up here and not with the first record.
        let mut transactor = Transactor::new(transactional_id.clone(), random, context.ids.clone());
        transactor.prepare(&cluster)?;
        // Last, so that a lane that cannot write does not keep making the group rebalance.
        let member = cluster.member(&context.topology.group(), &topics)?;
        let waker = member.waker();
        context.wakers.add(&waker);
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
            sink: context.sink.as_ref().map(|sink| OpenSink::of(&context, sink.as_ref())),
            calling: context.provider.as_ref().and_then(|provider| Calling::new(&context, provider.as_ref(), random)),
            orders: context.provider.as_ref().map(|_| Orders::new(&context.topology.control())),
            looked_at: now,
            ended_at: now,
            commit_began_at: None,
            tidying: false,
            batch: C::Batch::default(),
            restore_batch: C::Batch::default(),
            shares: Vec::new(),
            status,
            is_joined: false,
            restoring: false,
            loading: false,
            edition,
            rechecked,
            growths: 0,
            flushed_at: now,
            to_flush: Vec::new(),
            restore_next: 0,
            gauged_at: Duration::ZERO,
            is_at_rest: false,
            _waker: waker,
            context,
        })
    }

    /// Does whatever there is to do; waits a moment for records if there is nothing.
    pub fn step(&mut self) -> Result<(), cluster::Error> {
        let (wait, records_max) = (self.wait(), self.records_max());
        let polled = self.member.poll(&mut self.batch, records_max, wait);
        if records_max == 0 && matches!(polled, Ok(None)) {
            self.context.clock.wait(wait, &AtomicBool::new(false));
        }
        match polled {
            Ok(None) => {}
            Ok(Some(event)) => self.on_event(event)?,
            Err(error) => self.on_poll_error(error)?,
        }
        self.follow_catalog()?;
        self.recheck();
        self.stop_rescaled();
        match (self.batch.is_empty(), self.calls()) {
            (true, _) => {}
            (false, false) => self.process_batch(),
            (false, true) => self.take_in(),
        }
        let awaits = self.batch.is_empty() && self.awaits_more();
        if awaits {
            self.transactor.serve();
        }
        let drained = self.batch.is_empty() && !awaits;
        self.restore_slices()?;
        self.step_isolated();
        self.attend_to_calls();
        self.obey();
        // What waits for no transaction need not wait for this one's commit.
        self.send_calls();
        let is_due = !drained && !self.calls() && self.is_due();
        if drained || is_due {
            self.pass_markers();
        }
        if drained || is_due || self.calls() {
            self.ended_at = self.context.clock.monotonic();
            self.tidy();
            self.sweep();
            if self.calls() {
                self.commit_and_go_on()?;
            } else if is_due || !self.awaits_more() {
                self.commit();
            }
        }
        self.heed();
        self.go_on_with_calls();
        self.housekeeping();
        Ok(())
    }

    /// Finishes the transaction, flushes the stores and leaves the group.
    pub fn leave(mut self) -> Result<(), cluster::Error> {
        self.commit();
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        self.drain(&ids);
        // A task that has panicked meanwhile is another.
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        self.hand_over(ids.clone());
        for id in ids {
            self.release(id);
        }
        self.member.leave()
    }

    /// Whether the transaction is to end, and what is done then is due, though records keep coming: also where a
    /// transaction ends with its batch, or because it is full.
    fn is_due(&self) -> bool {
        let since = self.context.clock.monotonic().saturating_sub(self.ended_at);
        self.transactor.is_due(&self.context) || since >= Duration::from_millis(self.context.commit.interval_ms)
    }

    /// Whether the open transaction goes on though nothing is left to do: the last commit has only just begun, or records
    /// are on their way. Otherwise a trickle would be committed record by record, which costs brokers as much each time,
    /// and a lane that is faster than its broker would commit each response. One that calls a provider, or has a sink,
    /// does commit each batch; and a task that is to stop waits for nothing else.
    fn awaits_more(&self) -> bool {
        let may_go_on = !self.calls() && self.sink.is_none() && self.transactor.stopping().is_empty();
        self.transactor.is_open() && may_go_on && (self.has_just_committed() || self.member.has_more())
    }

    /// Whether the lane last began to commit so lately that a drained input does not end a transaction yet.
    fn has_just_committed(&self) -> bool {
        let spacing = Duration::from_millis(self.context.commit.spacing_ms);
        self.commit_began_at.is_some_and(|began| self.context.clock.monotonic().saturating_sub(began) < spacing)
    }

    fn wait(&self) -> Duration {
        if self.loading {
            return Duration::ZERO;
        }
        if self.transactor.is_open() {
            return if self.awaits_more() { MORE_WAIT } else { Duration::ZERO };
        }
        let alone = |task: &Task<C>| matches!(task.phase, Phase::Queued { .. } | Phase::Isolated(_));
        let busy = self.restoring || self.tasks.values().any(alone);
        if busy { BUSY_WAIT } else { self.wait_for_calls() }
    }

    /// How long a lane without work waits. Records, events of the group, the end of the run and changes of topics end the
    /// wait; everything else that becomes due is taken into account here. A lane that has not committed all records that
    /// it knows of, or does not know the end of its input, looks often.
    fn rest(&self) -> Duration {
        let sweeps = || self.tasks.values().any(|task| sweep::is_due(&self.context, task, None));
        if !self.is_at_rest || self.tidying || !self.to_flush.is_empty() || sweeps() {
            return SOON_WAIT;
        }
        let looks_at = self.orders.as_ref().map_or(Duration::MAX, Orders::look_at);
        let due = looks_at.min(self.gauged_at + GAUGE_INTERVAL);
        rest_until(due, self.context.clock.monotonic())
    }

    /// How many records are worth reading now.
    fn records_max(&self) -> usize {
        let records_max = self.context.limits.poll_records_max;
        let calling = self.calling.as_ref().zip(self.context.topology.calls());
        calling.map_or(records_max, |(calling, terms)| calling.reads_max(terms, records_max))
    }

    fn tasks_in(&self, phase: impl Fn(&Phase<C>) -> bool) -> Vec<TaskId> {
        self.tasks.iter().filter(|(_, task)| phase(&task.phase)).map(|(id, _)| *id).collect()
    }

    fn housekeeping(&mut self) {
        let now = self.context.clock.monotonic();
        if now.saturating_sub(self.gauged_at) >= GAUGE_INTERVAL {
            self.gauged_at = now;
            let wall_ms = self.context.clock.wall_ms();
            // Otherwise slow calls keep all tasks from reading.
            let reads = self.records_max() > 0;
            for task in self.tasks.values_mut() {
                let end = self.member.end(&task.input);
                // Of a partition that cannot be read at all, only its restore knows an end.
                let stuck_at = stuck_at(task, end.or(Some(task.input_end))).filter(|_| reads);
                let is_starved = self.context.held_up.note(&task.input, stuck_at, now);
                let heard_ago = self.member.end_heard_ago(&task.input);
                gauge(task, end, (wall_ms, heard_ago));
                task.note_failing(end, is_starved, now);
                task.record_log.log_if_due(&task.input, &self.context.topology.dead_letter, now);
                task.keyless.log_if_due(&task.input, now);
            }
            self.count_gated();
            if self.is_joined && !self.member.is_member() {
                self.set_joined(false);
            }
            if let Some(sink) = &mut self.sink
                && sink.count_waits(&self.tasks)
            {
                // Tasks that waited have left, or have stopped.
                sink.said.forget();
            }
        }
        self.report();
        self.look_at_rows(now);
        if now.saturating_sub(self.flushed_at) >= FLUSH_INTERVAL {
            self.flushed_at = now;
            self.to_flush = self.tasks_in(|phase| matches!(phase, Phase::Running));
        }
        // A transaction that waits for a slow disk would time out.
        while !self.to_flush.is_empty()
            && !self.transactor.is_open()
            && self.context.clock.monotonic().saturating_sub(now) < DISK_SLICE
        {
            self.flush_next();
        }
    }

    /// Flushes the store of the next task that is due, if it is still at work.
    fn flush_next(&mut self) {
        let Some(task) = self.to_flush.pop().and_then(|id| self.tasks.get_mut(&id)) else { return };
        if let (Phase::Running, Some(held)) = (&task.phase, &mut task.held)
            && let Err(error) = held.store.begin_flush()
        {
            tracing::warn!(task = %task.input, reason = %error, "store not flushed");
        }
    }

    /// Reports the tasks' states to the supervisor.
    fn report(&mut self) {
        let open = self.transactor.is_open();
        // Commands that were given before are carried out before a run ends.
        let told = self.orders.as_ref().map(|_| (self.context.commands.view(), self.context.clock.monotonic()));
        let may_be_told = |task: &Task<C>| {
            let (Some((view, now)), Some(window)) = (&told, &task.window) else { return false };
            window.heeding.may_be_told(view.as_ref(), task.committed.calls.control, *now)
        };
        let drained = |task: &Task<C>| {
            // The member's last known end may be from before the partition came back.
            let end = self.member.end(&task.input).map(|end| end.max(task.input_end));
            let is_at_rest = !open && matches!(task.phase, Phase::Running) && !may_be_told(task);
            is_at_rest && end.is_some_and(|end| task.committed.next >= end)
        };
        let count = |of: &dyn Fn(&Task<C>) -> bool| self.tasks.values().filter(|task| of(task)).count();
        let at_rest = |task: &Task<C>| {
            matches!(
                task.phase,
                Phase::Running | Phase::Gated | Phase::Queued { .. } | Phase::Isolated(_) | Phase::Failed
            )
        };
        let counts = Counts {
            tasks: self.tasks.len(),
            drained: count(&drained),
            failed: count(&|task| matches!(task.phase, Phase::Failed)),
            passing: count(&|task| matches!(task.phase, Phase::Failed) && task.may_pass),
            restoring: count(&|task| !at_rest(task)),
        };
        self.is_at_rest = counts.drained + counts.failed == counts.tasks;
        self.status.set(counts);
    }
}

/// The offset at which a task at work waits for records that exist and do not arrive.
fn stuck_at<C: Cluster>(task: &Task<C>, end: Option<i64>) -> Option<i64> {
    let next = task.committed.next;
    // What it has read and not settled waits for its calls.
    let is_waiting = task.window.as_ref().is_none_or(Window::is_empty);
    end.filter(|end| matches!(task.phase, Phase::Running) && is_waiting && *end > next).map(|_| next)
}

fn gauge<C: Cluster>(task: &mut Task<C>, end: Option<i64>, (wall_ms, heard_ago): (i64, Option<Duration>)) {
    if let Some(held) = &task.held {
        task.metrics.state(held.store.entries_estimate(), held.store.bytes());
    }
    let at_work = matches!(task.phase, Phase::Running | Phase::Gated | Phase::Queued { .. } | Phase::Isolated(_))
        || task.waits_for_sink.is_some();
    let Some(end) = end.filter(|_| at_work) else { return };
    let records = (end - task.committed.next).max(0);
    let heard_ms = heard_ago.map(|ago| wall_ms.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)));
    task.lag.publish(records, (wall_ms, heard_ms), &task.metrics);
}

/// How long a lane rests until something is due. Overdue work cannot be done at present, so the lane tries again soon.
fn rest_until(due: Duration, now: Duration) -> Duration {
    due.saturating_sub(now).clamp(SOON_WAIT, REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_rests_until_something_is_due_and_never_spins() {
        let [now, soon, late] = [10_000, 10_090, 60_000].map(Duration::from_millis);
        assert_eq!(rest_until(soon, now), soon - now);
        assert_eq!(rest_until(late, now), REST_MAX);
        // As if commands were to be looked for in a topic that cannot be seen.
        for overdue in [Duration::ZERO, now] {
            assert_eq!(rest_until(overdue, now), SOON_WAIT);
        }
    }
}
