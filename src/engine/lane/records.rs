//! A batch's way through a lane, and its transaction's to the commit.

use crate::cluster::{Cluster, Member, Producer, RecordBatch};
use crate::engine::claims::{self, Naming};
use crate::engine::panics::{AtHand, caught};
use crate::engine::process::{Portion, process};
use crate::engine::sweep;
use crate::engine::task::{Phase, Task, TaskId};
use crate::engine::trouble::Trouble;

use super::Lane;

impl<C: Cluster> Lane<C> {
    /// Sorts the batch by task and takes each task's records through it.
    pub(super) fn process_batch(&mut self) {
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

    pub(super) fn share_out(&mut self) {
        self.shares.iter_mut().for_each(|(_, indices)| indices.clear());
        let of_source: Vec<Option<usize>> = self
            .batch
            .partitions()
            .iter()
            .map(|partition| {
                let at_work = |task: &Task<C>| matches!(task.phase, Phase::Running) && !task.is_halted();
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
    pub(super) fn touch(&mut self, id: TaskId) -> Result<(), Trouble> {
        self.transactor.prepare(&self.cluster).map_err(Trouble::cluster)?;
        if claims::is_unclaimed(&self.tasks[&id], self.transactor.producer().id()) {
            self.claim(id)?;
        }
        self.transactor.touch(&self.context, id).map_err(Trouble::cluster)
    }

    /// Sees to it that the group names this lane's id before the id writes; all tasks at work at once. That is a
    /// transaction of its own, so the one that is open ends first.
    fn claim(&mut self, id: TaskId) -> Result<(), Trouble> {
        self.finish()?;
        let Self { context, tasks, transactor, member, metrics, .. } = self;
        let at_work = |task: &Task<C>| matches!(task.phase, Phase::Running);
        Naming { context, tasks, member, transactor, metrics }.claim(id, at_work).map_err(Trouble::cluster)
    }

    fn is_at_work(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(|task| matches!(task.phase, Phase::Running))
    }

    /// Takes a task's records through it: in one transaction, or in several where there is no room in one.
    fn process_share(&mut self, id: TaskId, indices: &[usize]) -> Result<(), Trouble> {
        let mut rest = indices;
        // A commit, also that before a claim, may stop the task or send it to its restore: it reads the rest again.
        while !rest.is_empty() && self.is_at_work(id) && !self.tasks[&id].is_halted() {
            if self.transactor.is_full(&self.context) {
                self.finish()?;
            } else {
                let done = self.process_part(id, rest)?;
                rest = &rest[done..];
            }
        }
        Ok(())
    }

    /// The first of the records, as many as the open transaction is certain to have room for, or some more; how many. There
    /// may be room for others then: what is dropped takes none.
    fn process_part(&mut self, id: TaskId, indices: &[usize]) -> Result<usize, Trouble> {
        self.touch(id)?;
        let Self { context, transactor, tasks, batch, scratch, .. } = self;
        let portion = Portion { batch, indices, room: transactor.room(context) };
        let (producer, task) = (transactor.producer(), tasks.get_mut(&id).expect("shares are of tasks at hand"));
        let processed = caught(|| process(context, id, task, &portion, producer, scratch));
        let added = processed.unwrap_or_else(|panic| Err(Trouble::panicked(id, scratch.at_hand(), panic)))?;
        self.transactor.add(added);
        let task = self.tasks.get_mut(&id).expect("processed above");
        if task.is_halted() {
            self.member.end(&task.input).into_iter().for_each(|end| task.present.reach(end));
            self.member.pause(&task.input).map_err(Trouble::cluster)?;
        }
        Ok(added.records)
    }

    /// Takes transaction markers and other gaps at the end of the input into the position, so that a committed
    /// offset never stands before something that retention will remove.
    pub(super) fn pass_markers(&mut self) {
        for id in self.tasks_in(|phase| matches!(phase, Phase::Running)) {
            if !self.is_at_work(id) {
                continue;
            }
            let task = &self.tasks[&id];
            let position = self.member.position(&task.input).unwrap_or(task.pending.next);
            if (position <= task.pending.next && !task.commit_start) || task.is_halted() {
                continue;
            }
            if let Err(trouble) = self.touch(id) {
                self.way_back(trouble);
                return self.restart_running(id);
            }
            let task = self.tasks.get_mut(&id).expect("looked at above");
            task.pending.next = position.max(task.pending.next);
            task.commit_start = false;
        }
    }

    pub(super) fn sweep(&mut self) {
        let due = self.tasks.iter().find(|(_, task)| sweep::is_due(&self.context, task)).map(|(id, _)| *id);
        let Some(id) = due else { return };
        let task = self.tasks.get_mut(&id).expect("found above");
        let swept = match caught(|| sweep::slice(&self.context, task)) {
            Ok(Ok(0)) => return,
            Ok(Ok(_)) => self.touch(id),
            Ok(Err(error)) => Err(Trouble::state(id, error)),
            Err(panic) => Err(Trouble::panicked(id, AtHand::Walk, panic)),
        };
        if let Err(trouble) = swept {
            self.way_back(trouble);
            self.restart_running(id);
        }
    }

    pub(super) fn commit(&mut self) {
        if let Err(trouble) = self.finish() {
            self.way_back(trouble);
        }
    }

    /// Commits what is open; the way back is the caller's.
    fn finish(&mut self) -> Result<(), Trouble> {
        if !self.transactor.is_open() {
            return Ok(());
        }
        let Self { context, transactor, tasks, member, metrics, .. } = self;
        transactor.seal(context, tasks)?;
        let troubles = transactor.commit(context, tasks, member, metrics)?;
        troubles.into_iter().for_each(|trouble| self.on_task_trouble(trouble));
        let stopped = self.tasks.values_mut().filter(|task| matches!(task.phase, Phase::Running));
        for task in stopped {
            if let Some(reason) = task.stop_at.take() {
                task.fail(&reason);
            }
        }
        for id in self.tasks_in(|phase| matches!(phase, Phase::Running)) {
            self.ask_time(id);
        }
        Ok(())
    }
}
