//! Faults as they happen.

use std::sync::atomic::Ordering;

use crate::database::Blow;
use crate::input;
use crate::instance::Instance;
use crate::judge;
use crate::judge::coverage::{self, faults};
use crate::judge::stores::{Held, Life};
use crate::kafka::{MS, Partition, Role, SECOND, Time};
use crate::profile::Release;

use super::{Fault, Run};

impl Run<'_> {
    #[expect(clippy::too_many_lines, reason = "one arm for each fault")]
    pub(super) fn inflict(&mut self, fault: Fault) {
        let now = self.world.lock().now();
        if let Fault::CrashInCommit(who, until) = fault
            && now < until
            && !self.has_unheard_commit(who)
        {
            // Checked again soon.
            self.faults.push((until.min(now + MS / 5), fault));
            return self.faults.sort_by_key(|fault| std::cmp::Reverse(*fault));
        }
        self.world.lock().note("fault", format_args!("{fault:?}"));
        match fault {
            Fault::Crash(who) | Fault::CrashInCommit(who, _) => self.crash(who),
            Fault::Start(who) => {
                if !self.is_leaving(who) {
                    return;
                }
                if self.profile.is_undisturbed() && self.is_at_work(who) {
                    self.faults.push((now + SECOND / 2, fault));
                    return self.faults.sort_by_key(|fault| std::cmp::Reverse(*fault));
                }
                // An instance that is still leaving is killed: a new process cannot get its folder before.
                self.kill(who);
                self.start(who);
            }
            Fault::Freeze(who, length) => {
                if let Some(instance) = &self.instances[who] {
                    self.world.lock().reach("an instance was frozen");
                    self.world.lock().processes[instance.process.number].frozen_until = now + length;
                }
            }
            Fault::Depart(who) => {
                if !self.is_leaving(who) {
                    self.world.lock().reach(faults::LEFT);
                }
                self.stop(who);
            }
            // Before anything was committed, other rules are as good as these.
            Fault::Replace(_) if self.profile.release == Some(Release::Rules) && !self.all_have_committed() => {}
            Fault::Replace(who) => {
                self.releases[who] = 1 - self.releases[who];
                self.world.lock().reach("an instance was replaced by one of another release");
                self.stop(who);
            }
            Fault::Return(who) if self.releases[who] == 0 => {}
            Fault::Return(who) => {
                self.releases[who] = 0;
                self.stop(who);
            }
            Fault::TransactionsMove(length) => {
                self.take_away(Role::TransactionCoordinator, length, faults::TRANSACTIONS_MOVED)
            }
            Fault::GroupsMove(length) => self.take_away(Role::GroupCoordinator, length, faults::GROUP_MOVED),
            Fault::GroupsFallBack(length) => {
                let mut state = self.world.lock();
                self.history.look(&state.broker);
                state.broker.take_away(Role::GroupCoordinator, now + length);
                if state.broker.groups.fall_back(input::GROUP) > 0 {
                    self.fell_back = true;
                    state.reach(faults::GROUP_FELL_BACK);
                }
            }
            Fault::Leaderless(topic, partition, length) => {
                let fault = if topic == input::CONTROL { faults::NO_CONTROL } else { faults::LEADERLESS };
                self.take_away(Role::Leader(Partition::new(topic, partition)), length, fault);
            }
            Fault::Compact(partition, rest) => {
                let mut state = self.world.lock();
                self.history.look(&state.broker);
                let changelog = Partition::new(input::CHANGELOG, partition);
                let Some(retention) =
                    state.broker.topics.get(input::CHANGELOG).map(|topic| topic.settings.delete_retention)
                else {
                    return;
                };
                let log = state.broker.topics.log_mut(&changelog).expect("as many partitions as the input");
                let cleaned = log.compact(log.end() - rest as i64, now, retention);
                if cleaned.superseded > 0 {
                    state.reach("the cleaner removed records of the changelog");
                }
                if cleaned.tombstones > 0 {
                    state.reach("the cleaner removed tombstones of the changelog");
                }
                self.history.cleaned(&state.broker);
            }
            Fault::Clock(who, offset) => {
                self.history.clock_set(offset);
                if let Some(instance) = &self.instances[who] {
                    self.world.lock().reach("a wall clock was set");
                    self.world.lock().processes[instance.process.number].wall_offset_ms = offset;
                }
            }
            Fault::Disk(who, disk) => self.inflict_on_disk(who, disk),
            Fault::Panic(who, calls) => {
                if let Some(instance) = &self.instances[who] {
                    self.world.lock().processes[instance.process.number].panics_after = Some(calls);
                }
            }
            Fault::Stop => (0..self.instances.len()).for_each(|who| self.kill(who)),
            Fault::Upheaval(upheaval) => self.overturn(upheaval),
            Fault::Database(blow) => self.strike(blow),
            Fault::Outage(length) => {
                let mut state = self.world.lock();
                state.reach(coverage::OUTAGE);
                let until = state.now() + length;
                state.provider.go_down(until);
            }
            Fault::Command(drawn) => self.command(drawn),
            Fault::Trim => self.trim(),
            Fault::Vanish(partition, rest) => self.vanish(partition, rest),
            Fault::Calm => self.calm_down(),
        }
    }

    /// Makes a role vacant for this time.
    fn take_away(&self, role: Role, length: Time, fault: &'static str) {
        let mut state = self.world.lock();
        state.reach(fault);
        let until = state.now() + length;
        state.broker.take_away(role, until);
    }

    /// Kills an instance's process, if it runs.
    fn crash(&mut self, who: usize) {
        if self.instances[who].is_some() {
            self.world.lock().reach(faults::KILLED);
        }
        self.kill(who);
    }

    /// Whether a commit of an instance was decided, and its response has not arrived.
    fn has_unheard_commit(&self, who: usize) -> bool {
        let Some(instance) = &self.instances[who] else { return false };
        self.world.lock().memory.has_decided(instance.process.number)
    }

    /// Whether an instance was asked to stop, or does not run.
    fn is_leaving(&self, who: usize) -> bool {
        self.instances[who].as_ref().is_none_or(|instance| instance.stop.load(Ordering::Relaxed))
    }

    /// Something happens to the database.
    fn strike(&self, blow: Blow) {
        let mut state = self.world.lock();
        state.reach(blow.name());
        let (now, pause) = (state.now(), state.random.between(MS, SECOND));
        state.database.strike(blow, now, pause);
    }

    /// Whether anything of an instance is still running.
    fn is_at_work(&self, who: usize) -> bool {
        let Some(instance) = &self.instances[who] else { return false };
        let state = self.world.lock();
        let is_its =
            |(task, _): &(usize, crate::coroutine::Strand)| state.tasks[*task].process == instance.process.number;
        self.strands.iter().any(is_its)
    }

    /// Asks an instance to stop.
    fn stop(&self, who: usize) {
        if let Some(instance) = &self.instances[who] {
            instance.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the group has committed offsets for every partition.
    fn all_have_committed(&self) -> bool {
        let state = self.world.lock();
        (0..self.profile.partitions).all(|number| {
            let committed = state.broker.groups.committed(input::GROUP, &Partition::new(input::INPUT, number), false);
            matches!(committed, Ok(Some(committed)) if !committed.metadata.is_empty())
        })
    }

    /// Starts a process with the current content of its stores.
    pub(super) fn start(&mut self, who: usize) {
        self.started_with[who] = self.read_stores(who);
        let release = self.releases[who];
        let instance = Instance::start(&self.world, &self.plans[release], &self.stores[who]);
        self.world.lock().processes[instance.process.number].release = release;
        self.instances[who] = Some(instance);
    }

    /// The content of the stores of a process that is not running.
    pub(super) fn read_stores(&self, who: usize) -> Vec<Held> {
        judge::stores::read(&self.stores[who], self.history.rules, self.profile.partitions)
    }

    /// Kills a process at once.
    pub(super) fn kill(&mut self, who: usize) {
        let Some(instance) = self.instances[who].take() else { return };
        let number = instance.process.number;
        let tasks: Vec<usize> = {
            let mut state = self.world.lock();
            state.processes[number].is_dead = true;
            state.killed(number);
            let tasks: Vec<usize> =
                (0..state.tasks.len()).filter(|task| state.tasks[*task].process == number).collect();
            state.unstarted.retain(|(task, _)| !tasks.contains(task));
            self.stores[who].crash(&mut state);
            tasks
        };
        self.strands.retain(|(task, _)| !tasks.contains(task));
        let (before, after) = (std::mem::take(&mut self.started_with[who]), self.read_stores(who));
        self.held.extend(after.iter().cloned());
        self.lives.push(Life { before, after });
    }
}
