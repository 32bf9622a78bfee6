//! A lane's periodic work, independent of its records: gauges, flushes and reports. A task is the work of one input
//! partition; a task that calls a provider has a window, the records that it has read and not yet settled.

use std::time::Duration;

use crate::cluster::{Cluster, Member};
use crate::engine::status::Counts;
use crate::engine::task::{Phase, Task};

use super::reports::Flushes;
use super::{DISK_SLICE, Lane};

impl<C: Cluster> Lane<C> {
    /// Updates gauges, reports, checks the sink and flushes stores, as far as that is due.
    pub(super) fn housekeeping(&mut self) {
        let now = self.context.clock.monotonic();
        if now >= self.reports.next_gauge() {
            self.reports.gauged_at = now;
            self.gauge(now);
        }
        self.report();
        self.check_sink_state(now);
        self.flush(now);
    }

    /// Updates the gauges, and writes the log events that are due.
    fn gauge(&mut self, now: Duration) {
        let wall_ms = self.context.clock.wall_ms();
        // Otherwise slow calls keep all tasks from reading: no task is stuck.
        let can_read = self.records_max() > 0;
        for task in self.tasks.values_mut() {
            let end = self.member.end(&task.input);
            // For a partition that cannot be read at all, only its restore knows an end.
            let stuck_at = stuck_at(task, end.or(Some(task.topics.input_end))).filter(|_| can_read);
            let is_starved = self.context.held_up.record(&task.input, stuck_at, now);
            // How long ago the lane last heard from a broker that knows the end.
            let heard_ago = self.member.end_heard_ago(&task.input);
            gauge(task, end, (wall_ms, heard_ago));
            task.note_failing(end, is_starved, now);
            task.report.log_if_due(&self.context.topology.dead_letter, now);
        }
        self.report_gate_wait();
        if self.reports.is_joined && !self.member.is_member() {
            self.set_joined(false);
        }
        if let Some(sink) = self.destination.sink_mut()
            && sink.report_waits(&self.tasks)
        {
            // Tasks that waited have left, or have stopped.
            sink.logged_reasons.forget();
        }
    }

    /// Flushes stores, unless that would hold up a transaction: one that waits for a slow disk would time out.
    fn flush(&mut self, now: Duration) {
        if self.flushes.is_round_due(now) {
            let pending = self.tasks_in(|phase| matches!(phase, Phase::Running));
            self.flushes = Flushes { began_at: now, pending };
        }
        while self.flushes.has_pending()
            && !self.transactor.is_open()
            && self.context.clock.monotonic().saturating_sub(now) < DISK_SLICE
        {
            self.flush_next();
        }
    }

    /// Flushes the store of the next task that is due, if it is still at work.
    fn flush_next(&mut self) {
        let Some(task) = self.flushes.pending.pop().and_then(|id| self.tasks.get_mut(&id)) else { return };
        if let (Phase::Running, Some(held)) = (&task.phase, &mut task.state.store)
            && let Err(error) = held.store.begin_flush()
        {
            tracing::warn!(task = %task.input, reason = %error, "store not flushed");
        }
    }

    /// Reports the tasks' states to the supervisor.
    fn report(&mut self) {
        let is_open = self.transactor.is_open();
        // A run that ends once its input is drained waits for the operators' commands that were given before.
        let commands =
            self.destination.calls().map(|_| (self.context.control_topic.bounds(), self.context.clock.monotonic()));
        let awaits_commands = |task: &Task<C>| {
            let (Some((bounds, now)), Some(window)) = (&commands, task.destination.window()) else { return false };
            window.commands.may_have_more(bounds.as_ref(), task.committed.calls.control, *now)
        };
        let is_drained = |task: &Task<C>| {
            // The member's last known end may be older than the end that the task's restore found.
            let end = self.member.end(&task.input).map(|end| end.max(task.topics.input_end));
            let is_at_rest = !is_open && matches!(task.phase, Phase::Running) && !awaits_commands(task);
            is_at_rest && end.is_some_and(|end| task.committed.next >= end)
        };
        let count = |is_counted: &dyn Fn(&Task<C>) -> bool| self.tasks.values().filter(|task| is_counted(task)).count();
        let is_restored = |task: &Task<C>| {
            matches!(
                task.phase,
                Phase::Running | Phase::Held(_) | Phase::Queued { .. } | Phase::Isolated(_) | Phase::Failed
            )
        };
        let counts = Counts {
            tasks: self.tasks.len(),
            drained: count(&is_drained),
            failed: count(&|task| matches!(task.phase, Phase::Failed)),
            passing: count(&|task| matches!(task.phase, Phase::Failed) && task.trouble.may_pass),
            restoring: count(&|task| !is_restored(task)),
        };
        self.reports.is_at_rest = counts.drained + counts.failed == counts.tasks;
        self.reports.status.set(counts);
    }
}

/// The offset at which a task at work waits for records that exist but do not arrive; `None` if there are no such
/// records. `end` is the end of its input.
fn stuck_at<C: Cluster>(task: &Task<C>, end: Option<i64>) -> Option<i64> {
    let next = task.committed.next;
    // Otherwise the task waits for the calls of records that have arrived, or for the schema of such a record.
    let has_settled_all = task.destination.window().is_none_or(|window| window.is_empty() && !window.is_waiting());
    end.filter(|end| matches!(task.phase, Phase::Running) && has_settled_all && *end > next).map(|_| next)
}

fn gauge<C: Cluster>(task: &mut Task<C>, end: Option<i64>, (wall_ms, heard_ago): (i64, Option<Duration>)) {
    if let Some(held) = &task.state.store {
        task.report.metrics.state(held.store.entries_estimate(), held.store.bytes());
    }
    let is_at_work = matches!(task.phase, Phase::Running | Phase::Held(_) | Phase::Queued { .. } | Phase::Isolated(_))
        || task.destination.is_waiting();
    let Some(end) = end.filter(|_| is_at_work) else { return };
    let records = (end - task.committed.next).max(0);
    let heard_ms = heard_ago.map(|ago| wall_ms.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)));
    task.report.lag.publish(records, (wall_ms, heard_ms), &task.report.metrics);
}
