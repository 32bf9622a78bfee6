//! One seed from beginning to end: what happens next is drawn from the seed alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratchet::topology::Topology;

use crate::coroutine::Strand;
use crate::instance::{Instance, Plan};
use crate::kafka::{MS, Partition, Place, SECOND, Settings, State, Time, Writer};
use crate::profile::{Profile, Upheaval};
use crate::random::Random;
use crate::stores::Stores;
use crate::world::World;
use crate::{check, input, mistakes};

mod upheaval;

use upheaval::Disk;

/// Faults come within this time; then all is calm.
const TROUBLE: Time = 8 * SECOND;
/// How long it may take afterwards until everything is read.
const RECOVERY: Time = 120 * SECOND;
/// How long it is watched where the state is lost.
const REFUSAL: Time = 20 * SECOND;
/// How often it is looked whether everything is read.
const LOOK: Time = 50 * MS;

/// What a seed has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What is wrong; nothing where all is right.
    pub wrong: Vec<String>,
    /// A hash over all that happened, and how much it was.
    pub trace: (u64, u64),
    /// How long it took in the world's time.
    pub took: Time,
    /// Which situations were reached, and how often.
    pub reached: BTreeMap<&'static str, u64>,
}

/// Something that happens to instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Crash(usize),
    Freeze(usize, Time),
    /// It leaves by itself, and comes back.
    Depart(usize),
    Start(usize),
    TransactionsMove(Time),
    GroupsMove(Time),
    Leaderless(i32, Time),
    /// The cleaner passes over a partition of the changelog, but for its last records.
    Compact(i32, u64),
    /// A wall clock is set, milliseconds from the right time.
    Clock(usize, i64),
    Disk(usize, Disk),
    /// All instances die.
    Stop,
    Upheaval(Upheaval),
    Calm,
}

/// One seed under way.
struct Run<'a> {
    world: World,
    plan: &'a Arc<Plan>,
    profile: Profile,
    /// What each instance's state is kept in, whatever process it is at the time.
    stores: Vec<Stores>,
    /// The tasks that are not done, in order of their numbers.
    strands: Vec<(usize, Strand)>,
    instances: Vec<Option<Instance>>,
    /// Copies that were made of instances' stores.
    copies: Vec<upheaval::Copies>,
    faults: Vec<(Time, Fault)>,
    sent: Vec<u64>,
    feed_at: Time,
    marker_at: Time,
    look_at: Time,
}

/// Runs a seed; `tell` prints what happens.
pub fn run(seed: u64, plan: &Arc<Plan>, profile: Profile, tell: bool) -> Outcome {
    let world = World::new(seed, profile.wire, tell);
    {
        let mut state = world.lock();
        let settings = Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20 };
        state.broker.topics.create(input::INPUT, profile.partitions, settings).expect("the cluster is empty");
    }
    let stores = (0..profile.instances).map(|_| Stores::of(seed, &mut world.lock().random)).collect();
    let mut run = Run {
        world,
        plan,
        profile,
        stores,
        strands: Vec::new(),
        instances: (0..profile.instances).map(|_| None).collect(),
        copies: vec![upheaval::Copies::default(); profile.instances],
        faults: Vec::new(),
        sent: vec![0; profile.partitions as usize],
        feed_at: 0,
        marker_at: Time::MAX,
        look_at: LOOK,
    };
    run.draw_faults();
    let wrong = run.drive(&plan.topology);
    let (trace, took, reached) = {
        let mut state = run.world.lock();
        (state.trace(), state.now(), std::mem::take(&mut state.reached))
    };
    run.end();
    Outcome { wrong, trace, took, reached }
}

impl Run<'_> {
    fn draw_faults(&mut self) {
        let Profile { instances, crashes, freezes, departures, moves, compactions, clocks, partitions, .. } =
            self.profile;
        let mut state = self.world.lock();
        let random = &mut state.random;
        let at = |random: &mut Random| random.between(300 * MS, TROUBLE - MS);
        for instance in 0..instances {
            self.faults.push((random.below(500 * MS), Fault::Start(instance)));
        }
        let some = |random: &mut Random| random.below(instances as u64) as usize;
        for _ in 0..crashes {
            let (when, who) = (at(random), some(random));
            self.faults.push((when, Fault::Crash(who)));
            self.faults.push((when + random.below(3 * SECOND), Fault::Start(who)));
        }
        for _ in 0..freezes {
            self.faults.push((at(random), Fault::Freeze(some(random), random.between(50 * MS, 6 * SECOND))));
        }
        for _ in 0..departures {
            let (when, who) = (at(random), some(random));
            self.faults.push((when, Fault::Depart(who)));
            self.faults.push((when + random.between(SECOND, 3 * SECOND), Fault::Start(who)));
        }
        for _ in 0..moves {
            let length = random.between(20 * MS, 3 * SECOND);
            let fault = match random.below(3) {
                0 => Fault::TransactionsMove(length),
                1 => Fault::GroupsMove(length),
                _ => Fault::Leaderless(random.below(partitions as u64) as i32, length),
            };
            self.faults.push((at(random), fault));
        }
        for _ in 0..compactions {
            let (partition, rest) = (random.below(partitions as u64) as i32, random.below(8));
            self.faults.push((at(random), Fault::Compact(partition, rest)));
        }
        for _ in 0..clocks {
            const MINUTE: i64 = 60_000;
            let offset = [-20 * MINUTE, 20 * MINUTE, 2 * 24 * 60 * MINUTE][random.below(3) as usize];
            self.faults.push((at(random), Fault::Clock(some(random), offset)));
        }
        upheaval::draw(self.profile, random, &mut self.faults);
        self.faults.push((if self.profile.is_troubled() { TROUBLE } else { SECOND }, Fault::Calm));
        if crashes + departures + self.profile.disks > 0 {
            (0..instances).for_each(|instance| self.faults.push((TROUBLE + 4 * SECOND, Fault::Start(instance))));
        }
        self.faults.sort_by_key(|fault| std::cmp::Reverse(*fault));
    }

    /// Until everything is read, or the time is over.
    fn drive(&mut self, topology: &Topology) -> Vec<String> {
        loop {
            self.begin_tasks();
            let (at, what) = self.next();
            self.world.lock().broker.now = at;
            let is_lost = self.profile.upheaval.is_some_and(Upheaval::is_loss);
            if at > TROUBLE + if is_lost { REFUSAL } else { RECOVERY } {
                let mut wrong = Vec::new();
                if is_lost {
                    self.world.lock().reach("what is lost with the changelog was refused");
                } else {
                    wrong.push("not everything was read in time".to_owned());
                }
                wrong.extend(check::judge(&self.world.lock().broker, &topology.rules, self.profile.partitions));
                return wrong;
            }
            match what {
                What::Task(task) => self.resume(task),
                What::Tick => self.world.lock().broker.tick(),
                What::Marker => self.write_marker(),
                What::Later => {
                    let mut state = self.world.lock();
                    let (_, (what, request)) = state.later.pop_first().expect("looked at");
                    state.note("late request", format_args!("{what}"));
                    if what == "end commit" || what == "end abort" {
                        state.reach("the end of a transaction came late");
                    }
                    request(&mut state.broker);
                }
                What::Fault => {
                    let (_, fault) = self.faults.pop().expect("looked at");
                    self.inflict(fault);
                }
                What::Feed => self.feed(),
                What::Look => {
                    self.look_at = at + LOOK;
                    let fed = self.feed_at == Time::MAX && self.faults.is_empty();
                    if fed && check::is_drained(&self.world.lock().broker, self.profile.partitions) {
                        return check::judge(&self.world.lock().broker, &topology.rules, self.profile.partitions);
                    }
                }
            }
        }
    }

    fn begin_tasks(&mut self) {
        let begun = std::mem::take(&mut self.world.lock().begun);
        for (task, body) in begun {
            self.strands.push((task, Strand::new(body)));
        }
    }

    /// What comes next, and when.
    fn next(&mut self) -> (Time, What) {
        let mut state = self.world.lock();
        let now = state.now();
        if state.broker.coordinator.has_markers() {
            if self.marker_at == Time::MAX {
                self.marker_at = now + marker_pause(&mut state.random);
            }
        } else {
            self.marker_at = Time::MAX;
        }
        let mut first = (self.look_at, What::Look);
        let mut offer = |at: Time, what: What| {
            if at < first.0 {
                first = (at, what);
            }
        };
        for (at, (task, _)) in self.strands.iter().enumerate() {
            let of = &state.tasks[*task];
            offer(of.wake.max(state.processes[of.process].frozen_until), What::Task(at));
        }
        offer(state.broker.next_tick().unwrap_or(Time::MAX), What::Tick);
        offer(self.marker_at, What::Marker);
        offer(state.later.keys().next().map_or(Time::MAX, |(at, _)| *at), What::Later);
        offer(self.faults.last().map_or(Time::MAX, |(at, _)| *at), What::Fault);
        offer(self.feed_at, What::Feed);
        (first.0.max(now), first.1)
    }

    fn resume(&mut self, at: usize) {
        let (task, strand) = &mut self.strands[at];
        {
            let mut state = self.world.lock();
            state.running = *task;
            state.tasks[*task].wake = Time::MAX;
        }
        if mistakes::during(|| strand.resume()) {
            self.strands.remove(at);
        }
    }

    fn write_marker(&mut self) {
        let mut state = self.world.lock();
        let markers = state.broker.markers();
        let marker = &markers[state.random.below(markers.len() as u64) as usize];
        let written = state.broker.write_marker(marker);
        state.note("marker", format_args!("{marker:?} {written}"));
        self.marker_at = state.now() + marker_pause(&mut state.random);
    }

    fn feed(&mut self) {
        let mut state = self.world.lock();
        let now = state.now();
        for _ in 0..state.random.between(1, 12) {
            let partition = state.random.below(self.profile.partitions as u64) as usize;
            let record =
                input::record(self.profile.input, &mut state.random, partition as i32, self.sent[partition], now);
            self.sent[partition] += 1;
            // One producer for each transaction, which ends at once: committed, or now and then aborted.
            let ends = self.profile.transactional.then(|| state.random.below(4));
            let log = state.broker.topics.log_mut(&Partition::new(input::INPUT, partition as i32));
            let log = log.expect("the input stays");
            match ends {
                Some(0) | Some(1) => {
                    let producer = input::FIRST_PRODUCER + log.end();
                    let writer = Writer { producer, epoch: 0, sequence: 0 };
                    log.append_transactional(writer, &[record]).expect("the producer is new");
                    log.append_marker(producer, 0, ends == Some(0), false).expect("its epoch is the first");
                }
                _ => drop(log.append([record])),
            }
        }
        let all = self.sent.iter().sum::<u64>() >= self.profile.records;
        self.feed_at = if all { Time::MAX } else { now + state.random.between(MS, 400 * MS) };
    }

    fn inflict(&mut self, fault: Fault) {
        self.world.lock().note("fault", format_args!("{fault:?}"));
        let now = self.world.lock().now();
        match fault {
            Fault::Crash(who) => self.kill(who),
            Fault::Start(who) => {
                if self.instances[who].as_ref().is_some_and(|instance| !instance.stop.load(Ordering::Relaxed)) {
                    return;
                }
                // What is still leaving is killed: a new process cannot have its folder before.
                self.kill(who);
                self.instances[who] = Some(Instance::start(&self.world, self.plan, &self.stores[who]));
            }
            Fault::Freeze(who, length) => {
                if let Some(instance) = &self.instances[who] {
                    self.world.lock().reach("an instance was frozen");
                    self.world.lock().processes[instance.process.number].frozen_until = now + length;
                }
            }
            Fault::Depart(who) => {
                if let Some(instance) = &self.instances[who] {
                    instance.stop.store(true, Ordering::Relaxed);
                }
            }
            Fault::TransactionsMove(length) => {
                self.world.lock().broker.take_away(Place::TransactionCoordinator, now + length)
            }
            Fault::GroupsMove(length) => self.world.lock().broker.take_away(Place::GroupCoordinator, now + length),
            Fault::Leaderless(partition, length) => {
                let place = Place::Leader(Partition::new(input::OUTPUT, partition));
                self.world.lock().broker.take_away(place, now + length);
            }
            Fault::Compact(partition, rest) => {
                let mut state = self.world.lock();
                let changelog = Partition::new(input::CHANGELOG, partition);
                let Some(retention) =
                    state.broker.topics.get(input::CHANGELOG).map(|topic| topic.settings.delete_retention)
                else {
                    return;
                };
                let log = state.broker.topics.log_mut(&changelog).expect("as many partitions as the input");
                log.compact(log.end() - rest as i64, now, retention);
            }
            Fault::Clock(who, offset) => {
                if let Some(instance) = &self.instances[who] {
                    self.world.lock().processes[instance.process.number].wall_offset_ms = offset;
                }
            }
            Fault::Disk(who, disk) => self.inflict_on_disk(who, disk),
            Fault::Stop => (0..self.instances.len()).for_each(|who| self.kill(who)),
            Fault::Upheaval(upheaval) => self.overturn(upheaval),
            Fault::Calm => self.calm_down(),
        }
    }

    /// Ends a process where it stands.
    fn kill(&mut self, who: usize) {
        let Some(instance) = self.instances[who].take() else { return };
        let number = instance.process.number;
        let tasks: Vec<usize> = {
            let mut state = self.world.lock();
            state.processes[number].is_dead = true;
            if state.broker.coordinator.count(State::Ongoing) > 0 {
                state.reach("killed while a transaction was open");
            }
            if state.broker.coordinator.count(State::PrepareCommit) > 0 {
                state.reach("killed while a commit's markers were being written");
            }
            let tasks: Vec<usize> =
                (0..state.tasks.len()).filter(|task| state.tasks[*task].process == number).collect();
            state.begun.retain(|(task, _)| !tasks.contains(task));
            self.stores[who].crash(&mut state);
            tasks
        };
        self.strands.retain(|(task, _)| !tasks.contains(task));
    }

    fn end(&mut self) {
        (0..self.instances.len()).for_each(|who| self.kill(who));
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum What {
    /// The task at that place among those that are not done.
    Task(usize),
    Tick,
    Marker,
    Later,
    Fault,
    Feed,
    Look,
}

/// How long after the former a marker is written: mostly at once.
fn marker_pause(random: &mut Random) -> Time {
    match random.below(100) {
        0..80 => random.between(50, 2 * MS),
        80..98 => random.between(2 * MS, 30 * MS),
        _ => random.between(30 * MS, 600 * MS),
    }
}
