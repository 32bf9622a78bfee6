//! Whether this instance is ready: the basis of `/readyz`.
//!
//! Ready means: at least one lane was started, every lane has joined its group, some broker has answered lately, no
//! task is being restored for the first time since it was assigned, none waits for clocks or for a gate, none has
//! waited too long for a schema, none has failed for long without a commit or gets nothing of an input that goes on, no
//! topic that should be read was refused, every disk responds, and everything that panicked has restarted. The proxy of
//! HTTP requests has no lanes, and says its own conditions. A restore after an aborted transaction does not make an
//! instance unready: nobody else could do the work meanwhile.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::record::TopicPartition;

/// The health of this process. Cheap to clone; clones share everything.
#[derive(Clone, Default)]
pub struct Health {
    known: Arc<Mutex<Known>>,
}

/// Looks whether a condition holds, and says what was found.
type Probe = Arc<dyn Fn() -> (bool, Cow<'static, str>) + Send + Sync>;

#[derive(Default)]
struct Known {
    /// The state of each lane, by topology and number.
    lanes: BTreeMap<(String, usize), Lane>,
    tasks: BTreeMap<(String, TopicPartition), Task>,
    /// Input topics that should be read and were refused.
    refused: BTreeSet<(String, String)>,
    /// Topologies whose watch has panicked, and has not completed a round since.
    panicked: BTreeSet<String>,
    /// Whether a disk does not respond.
    disk_stalls: bool,
    /// What else has to be so, by name.
    conditions: BTreeMap<&'static str, (bool, Cow<'static, str>)>,
    /// The same, for those that time alone changes.
    probes: BTreeMap<&'static str, Probe>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Outside,
    Joined,
    Panicked,
}

#[derive(Clone, Copy, Default)]
struct Task {
    restored: bool,
    stopped: bool,
    /// It waits until clocks agree.
    clock_doubted: bool,
    /// It waits for its topology's gate.
    gated: bool,
    /// It has waited for a schema for too long.
    awaits_schema: bool,
    /// It gets no further: it has failed for a while without a commit, or nothing can be read.
    fails: bool,
    /// How many lanes hold it: two for a moment when it moves from one lane of this process to another.
    holders: usize,
}

/// One condition for the instance to be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is checked, such as `lane payments/0`.
    pub name: String,
    /// Whether the condition holds.
    pub ok: bool,
    /// What was found.
    pub detail: Cow<'static, str>,
}

impl Health {
    /// Nothing started yet: not ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all that is known: the next run of this process has other lanes and tasks.
    pub fn clear(&self) {
        *self.known() = Known::default();
    }

    /// Whether a lane is a member of its group. Every lane reports `false` when it starts, so that readiness
    /// waits for all of them.
    pub fn lane_joined(&self, topology: &str, lane: usize, joined: bool) {
        let state = if joined { Lane::Joined } else { Lane::Outside };
        self.known().lanes.insert((topology.to_owned(), lane), state);
    }

    /// A lane has panicked, and has not rejoined.
    pub fn lane_panicked(&self, topology: &str, lane: usize) {
        self.known().lanes.insert((topology.to_owned(), lane), Lane::Panicked);
    }

    /// Something else than lanes and tasks that has to be so, and what was found.
    pub fn condition(&self, name: &'static str, ok: bool, detail: impl Into<Cow<'static, str>>) {
        self.known().conditions.insert(name, (ok, detail.into()));
    }

    /// The same, looked at whenever somebody asks: for what time alone changes.
    pub fn probe(&self, name: &'static str, probe: impl Fn() -> (bool, Cow<'static, str>) + Send + Sync + 'static) {
        self.known().probes.insert(name, Arc::new(probe));
    }

    /// Whether a disk does not respond.
    pub fn disk_stalls(&self, stalls: bool) {
        self.known().disk_stalls = stalls;
    }

    /// A topology's watch has panicked, or has completed a round.
    pub fn watch_panicked(&self, topology: &str, panicked: bool) {
        let mut known = self.known();
        if panicked {
            known.panicked.insert(topology.to_owned());
        } else {
            known.panicked.remove(topology);
        }
    }

    /// A lane was assigned a task, which is not restored yet.
    pub fn task_assigned(&self, topology: &str, partition: &TopicPartition) {
        let mut known = self.known();
        let task = known.tasks.entry((topology.to_owned(), partition.clone())).or_default();
        task.holders += 1;
        task.restored = false;
        task.stopped = false;
        task.clock_doubted = false;
        task.gated = false;
        task.awaits_schema = false;
        task.fails = false;
    }

    /// Whether a task waits until this host's clock and Kafka's agree.
    pub fn clock_doubted(&self, topology: &str, partition: &TopicPartition, doubted: bool) {
        if let Some(task) = self.known().tasks.get_mut(&(topology.to_owned(), partition.clone())) {
            task.clock_doubted = doubted;
        }
    }

    /// Whether a task waits for its topology's gate.
    pub fn gated(&self, topology: &str, partition: &TopicPartition, gated: bool) {
        if let Some(task) = self.known().tasks.get_mut(&(topology.to_owned(), partition.clone())) {
            task.gated = gated;
        }
    }

    /// Whether a task has waited too long for a record's schema.
    pub fn awaits_schema(&self, topology: &str, partition: &TopicPartition, awaits: bool) {
        if let Some(task) = self.known().tasks.get_mut(&(topology.to_owned(), partition.clone())) {
            task.awaits_schema = awaits;
        }
    }

    /// Whether a task gets no further: it has failed for a while without a commit, or nothing can be read.
    pub fn task_fails(&self, topology: &str, partition: &TopicPartition, fails: bool) {
        if let Some(task) = self.known().tasks.get_mut(&(topology.to_owned(), partition.clone())) {
            task.fails = fails;
        }
    }

    /// A task was restored, at least once since it was assigned.
    pub fn task_restored(&self, topology: &str, partition: &TopicPartition) {
        if let Some(task) = self.known().tasks.get_mut(&(topology.to_owned(), partition.clone())) {
            task.restored = true;
        }
    }

    /// A task has stopped for good: somebody has to look at it.
    pub fn task_stopped(&self, topology: &str, partition: &TopicPartition) {
        if let Some(task) = self.known().tasks.get_mut(&(topology.to_owned(), partition.clone())) {
            task.stopped = true;
        }
    }

    /// Whether an input topic is refused and left alone.
    pub fn topic_refused(&self, topology: &str, topic: &str, refused: bool) {
        let name = (topology.to_owned(), topic.to_owned());
        let mut known = self.known();
        if refused {
            known.refused.insert(name);
        } else {
            known.refused.remove(&name);
        }
    }

    /// A lane has released a task, or lost it.
    pub fn task_released(&self, topology: &str, partition: &TopicPartition) {
        let mut known = self.known();
        let name = (topology.to_owned(), partition.clone());
        if let Some(task) = known.tasks.get_mut(&name) {
            task.holders = task.holders.saturating_sub(1);
            if task.holders == 0 {
                known.tasks.remove(&name);
            }
        }
    }

    /// All checks; the instance is ready if every one is ok.
    pub fn ready(&self) -> Vec<Check> {
        let known = self.known();
        let probes: Vec<(&'static str, Probe)> =
            known.probes.iter().map(|(name, probe)| (*name, Arc::clone(probe))).collect();
        if known.lanes.is_empty() && known.conditions.is_empty() {
            return vec![Check { name: "lanes".to_owned(), ok: false, detail: "none was started yet".into() }];
        }
        let lanes = known.lanes.iter().map(|((topology, lane), &state)| Check {
            name: format!("lane {topology}/{lane}"),
            ok: state == Lane::Joined,
            detail: match state {
                Lane::Joined => "joined",
                Lane::Outside => "has not joined",
                Lane::Panicked => "has panicked; the log says where",
            }
            .into(),
        });
        let tasks = known.tasks.iter().map(|((topology, partition), task)| Check {
            name: format!("task {topology}/{partition}"),
            ok: task.restored
                && !task.stopped
                && !task.clock_doubted
                && !task.gated
                && !task.awaits_schema
                && !task.fails,
            detail: match task {
                Task { stopped: true, .. } => "has stopped; the log says why",
                Task { clock_doubted: true, .. } => {
                    "waits: this host's clock or Kafka's is wrong; the log says by how much"
                }
                Task { gated: true, .. } => "waits: the gate does not answer; the log says why",
                Task { awaits_schema: true, .. } => {
                    "waits: a record's schema is not known, and has not been fetched yet; the log says why"
                }
                Task { fails: true, .. } => "gets no further; the log says why",
                Task { restored: true, .. } => "restored",
                Task { .. } => "is being restored for the first time",
            }
            .into(),
        });
        let refused = known.refused.iter().map(|(topology, topic)| Check {
            name: format!("topic {topology}/{topic}"),
            ok: false,
            detail: "was refused; the log says why".into(),
        });
        let panicked = known.panicked.iter().map(|topology| Check {
            name: format!("watch {topology}"),
            ok: false,
            detail: "has panicked; the log says where".into(),
        });
        let disk = known.disk_stalls.then(|| Check {
            name: "disk".to_owned(),
            ok: false,
            detail: "does not answer; the log says which".into(),
        });
        let conditions = known.conditions.iter().map(|(name, (ok, detail))| Check {
            name: (*name).to_owned(),
            ok: *ok,
            detail: detail.clone(),
        });
        let mut checks: Vec<Check> =
            lanes.chain(tasks).chain(refused).chain(panicked).chain(disk).chain(conditions).collect();
        drop(known);
        checks.extend(probes.into_iter().map(|(name, probe)| {
            let (ok, detail) = probe();
            Check { name: name.to_owned(), ok, detail }
        }));
        checks
    }

    /// A thread that panicked while it held the lock left at worst an outdated check, so poisoning is ignored.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(health: &Health) -> bool {
        health.ready().iter().all(|check| check.ok)
    }

    #[test]
    fn cleared_health_waits_for_the_lanes_of_the_next_run_alone() {
        let health = Health::new();
        health.lane_joined("former", 0, false);
        health.condition("store", false, "does not answer");
        health.clear();
        assert!(!is_ready(&health));
        health.lane_joined("payments", 0, true);
        assert!(is_ready(&health));
    }

    #[test]
    fn instance_without_lanes_is_not_ready() {
        assert!(!is_ready(&Health::new()));
    }

    #[test]
    fn conditions_count_without_lanes() {
        let health = Health::new();
        health.condition("store", false, "does not answer");
        assert!(!is_ready(&health));
        health.condition("store", true, "answers");
        assert!(is_ready(&health));
        assert_eq!(health.ready()[0].name, "store");
    }

    #[test]
    fn probe_is_looked_at_whenever_somebody_asks() {
        let (health, silent) = (Health::new(), Arc::new(Mutex::new(false)));
        health.lane_joined("payments", 0, true);
        let looked = Arc::clone(&silent);
        health.probe("brokers", move || match *looked.lock().unwrap() {
            true => (false, "none has answered for 30 s".into()),
            false => (true, "answer".into()),
        });
        assert!(is_ready(&health));
        *silent.lock().unwrap() = true;
        let failing: Vec<_> = health.ready().into_iter().filter(|check| !check.ok).collect();
        assert_eq!(
            (failing.len(), &*failing[0].name, &*failing[0].detail),
            (1, "brokers", "none has answered for 30 s")
        );
        *silent.lock().unwrap() = false;
        assert!(is_ready(&health));
    }

    #[test]
    fn every_lane_must_have_joined() {
        let health = Health::new();
        health.lane_joined("payments", 0, true);
        health.lane_joined("payments", 1, false);
        assert!(!is_ready(&health));
        health.lane_joined("payments", 1, true);
        assert!(is_ready(&health));
        health.lane_joined("payments", 0, false);
        assert!(!is_ready(&health));
    }

    #[test]
    fn task_that_waits_for_its_gate_is_not_ready() {
        let (health, partition) = (Health::new(), TopicPartition::new("in", 0));
        health.lane_joined("payments", 0, true);
        health.task_assigned("payments", &partition);
        health.task_restored("payments", &partition);
        assert!(is_ready(&health));
        health.gated("payments", &partition, true);
        assert_eq!(health.ready()[1].detail, "waits: the gate does not answer; the log says why");
        assert!(!is_ready(&health));
        health.gated("payments", &partition, false);
        assert!(is_ready(&health));
        // Another owner's gate may answer.
        health.gated("payments", &partition, true);
        health.task_assigned("payments", &partition);
        health.task_restored("payments", &partition);
        assert!(is_ready(&health));
    }

    #[test]
    fn task_that_fails_for_long_is_not_ready() {
        let (health, partition) = (Health::new(), TopicPartition::new("in", 0));
        health.lane_joined("payments", 0, true);
        health.task_assigned("payments", &partition);
        health.task_restored("payments", &partition);
        health.task_fails("payments", &partition, true);
        assert_eq!(health.ready()[1].detail, "gets no further; the log says why");
        assert!(!is_ready(&health));
        health.task_fails("payments", &partition, false);
        assert!(is_ready(&health));
    }

    #[test]
    fn panicked_lane_or_watch_is_not_ready_until_it_works_again() {
        let health = Health::new();
        health.lane_joined("payments", 0, true);
        health.lane_panicked("payments", 0);
        assert_eq!(health.ready()[0].detail, "has panicked; the log says where");
        health.lane_joined("payments", 0, true);
        assert!(is_ready(&health));
        health.watch_panicked("payments", true);
        assert!(!is_ready(&health));
        health.watch_panicked("payments", false);
        assert!(is_ready(&health));
    }

    #[test]
    fn stalled_disk_is_not_ready_until_it_responds() {
        let health = Health::new();
        health.lane_joined("payments", 0, true);
        health.disk_stalls(true);
        let failing: Vec<_> = health.ready().into_iter().filter(|check| !check.ok).collect();
        assert_eq!((failing.len(), failing[0].name.as_str()), (1, "disk"));
        health.disk_stalls(false);
        assert!(is_ready(&health));
    }

    #[test]
    fn only_the_first_restore_of_a_task_counts() {
        let health = Health::new();
        let partition = TopicPartition::new("in", 3);
        health.lane_joined("payments", 0, true);
        health.task_assigned("payments", &partition);
        assert!(!is_ready(&health));
        let failing: Vec<_> = health.ready().into_iter().filter(|check| !check.ok).collect();
        assert_eq!(failing[0].name, "task payments/in:3");
        health.task_restored("payments", &partition);
        assert!(is_ready(&health));
        health.task_released("payments", &partition);
        assert_eq!(health.ready().len(), 1);
    }

    #[test]
    fn stopped_task_is_distinguished_from_one_being_restored() {
        let health = Health::new();
        let partition = TopicPartition::new("in", 0);
        health.lane_joined("payments", 0, true);
        health.task_assigned("payments", &partition);
        health.task_restored("payments", &partition);
        health.task_stopped("payments", &partition);
        let failing: Vec<_> = health.ready().into_iter().filter(|check| !check.ok).collect();
        assert_eq!(failing[0].detail, "has stopped; the log says why");
        health.task_released("payments", &partition);
        assert!(is_ready(&health));
    }

    #[test]
    fn task_that_waits_for_a_clock_is_not_ready() {
        let health = Health::new();
        let partition = TopicPartition::new("in", 0);
        health.lane_joined("payments", 0, true);
        health.task_assigned("payments", &partition);
        health.task_restored("payments", &partition);
        health.clock_doubted("payments", &partition, true);
        let failing: Vec<_> = health.ready().into_iter().filter(|check| !check.ok).collect();
        assert!(failing[0].detail.contains("clock"), "{failing:?}");
        health.clock_doubted("payments", &partition, false);
        assert!(is_ready(&health));
    }

    #[test]
    fn task_that_moves_between_lanes_is_not_forgotten() {
        let health = Health::new();
        let partition = TopicPartition::new("in", 0);
        health.lane_joined("payments", 0, true);
        health.task_assigned("payments", &partition);
        health.task_restored("payments", &partition);
        health.task_assigned("payments", &partition);
        health.task_released("payments", &partition);
        assert!(!is_ready(&health), "the new holder has yet to restore it");
        health.task_restored("payments", &partition);
        assert!(is_ready(&health));
    }
}
