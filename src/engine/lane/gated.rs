//! Tasks that wait for their topology's gate: it does not answer, and `on_unavailable` is `hold`.
//!
//! A gate is asked, before a record is passed on, whether its identity was passed on elsewhere, for example by another
//! topology. A task is the work of one input partition.
//!
//! Such a task has committed everything before the first record that the gate has to be asked about. It reads nothing,
//! while its lane continues to poll; once the gate can be reached, the task continues at that record.

use crate::cluster::{self, Cluster, ErrorKind, Member};
use crate::engine::restore;
use crate::engine::share::TaskId;
use crate::engine::task::{Phase, Task};

use super::Lane;

impl<C: Cluster> Lane<C> {
    /// Called when a task has stopped before a record that the gate has to be asked about: the task waits.
    pub(super) fn hold_for_gate(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Err(error) = self.member.pause(&task.input) {
            tracing::debug!(task = %task.input, reason = %error.message, "the partition could not be paused");
        }
        task.sweep.reset();
        task.report.set_gated(true);
        task.set_phase(Phase::Gated);
        self.restores.pending = true;
        self.report_gate_wait();
    }

    /// Resumes a task that waits for the gate, if the gate can be reached.
    pub(super) fn resume_gated(&mut self, id: TaskId) -> Result<(), cluster::Error> {
        let is_reachable = self.scratch.gate().is_none_or(|gate| gate.is_reachable(&self.context));
        if !is_reachable {
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
        let waits = self.tasks.values().any(|task: &Task<C>| matches!(task.phase, Phase::Gated));
        if let Some(gate) = self.scratch.gate() {
            gate.metrics.held(waits);
        }
    }
}
