//! Tasks that wait before a record, with everything before it committed, while their lane continues with others.
//!
//! - The topology's gate does not answer, and `on_unavailable` is `hold`. Before a record is passed on, a gate is asked
//!   whether its identity was passed on elsewhere, for example by another topology.
//! - The record's schema is not known yet. It is being fetched, for as long as that takes.
//!
//! A task is the work of one input partition. A waiting task reads nothing; it continues at that record. In a topology
//! that calls a provider or a handler, the task's window waits for a schema (see `round`), not the task itself.

use std::time::Duration;

use crate::cluster::{self, Cluster, ErrorKind, Member};
use crate::engine::restore;
use crate::engine::share::TaskId;
use crate::engine::task::{HeldBy, Phase, Task};
use crate::schemas::Id;

use super::Lane;

/// How long a task may wait for a schema before its instance counts as not ready.
pub(super) const SCHEMA_PATIENCE: Duration = Duration::from_secs(10);

impl<C: Cluster> Lane<C> {
    /// Called when a task has stopped before a record that the gate has to be asked about: the task waits.
    pub(super) fn hold_for_gate(&mut self, id: TaskId) {
        self.hold(id, HeldBy::Gate);
        if let Some(task) = self.tasks.get(&id) {
            task.report.set_gated(true);
        }
        self.report_gate_wait();
    }

    /// Called when a task has stopped before a record whose schema is not known yet: the task waits.
    pub(super) fn hold_for_schema(&mut self, id: TaskId, schema: Id) {
        let since = self.context.clock.monotonic();
        self.hold(id, HeldBy::Schema { id: schema, since });
        if let Some(task) = self.tasks.get(&id) {
            tracing::debug!(task = %task.input, offset = task.committed.next, "the task waits for {schema}");
            task.report.awaits_schema(true, false);
        }
    }

    fn hold(&mut self, id: TaskId, by: HeldBy) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Err(error) = self.member.pause(&task.input) {
            tracing::debug!(task = %task.input, reason = %error.message, "the partition could not be paused");
        }
        task.sweep.reset();
        task.set_phase(Phase::Held(by));
        self.restores.pending = true;
    }

    /// Resumes a waiting task if the gate can be reached, or the schema is no longer pending.
    pub(super) fn resume_held(&mut self, id: TaskId, by: HeldBy) -> Result<(), cluster::Error> {
        let may_resume = match by {
            HeldBy::Gate => self.scratch.gate().is_none_or(|gate| gate.is_reachable(&self.context)),
            HeldBy::Schema { id: schema, since } => {
                let is_pending = self.context.topology.schemas.is_pending(&schema);
                let waited = self.context.clock.monotonic().saturating_sub(since);
                self.tasks[&id].report.awaits_schema(is_pending, is_pending && waited >= SCHEMA_PATIENCE);
                !is_pending
            }
        };
        if !may_resume {
            return Ok(());
        }
        let result = self.begin_work(id);
        self.report_gate_wait();
        match result {
            Err(error) if error.kind == ErrorKind::Fenced => Err(error),
            Err(error) => {
                let task = self.tasks.get_mut(&id).expect("listed by the caller");
                restore::set_back(&self.context, task, &error.into());
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Reports whether any of the lane's tasks waits for the gate.
    pub(super) fn report_gate_wait(&mut self) {
        let waits = self.tasks.values().any(|task: &Task<C>| matches!(task.phase, Phase::Held(HeldBy::Gate)));
        if let Some(gate) = self.scratch.gate() {
            gate.metrics.held(waits);
        }
    }
}
