//! One seed from beginning to end: everything that happens next is drawn from the seed alone.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ratchet::dedup::Bounds;

use crate::coroutine::Strand;
use crate::cut::Cut;
use crate::database::Blow;
use crate::input;
use crate::instance::{Instance, Plan};
use crate::judge::{self, History, Ruling, coverage, heard};
use crate::kafka::{MS, Partition, SECOND, Settings, State, Time, Writer};
use crate::mistakes;
use crate::profile::{Profile, Upheaval};
use crate::random::Random;
use crate::stores::Stores;
use crate::world::World;

mod commanding;
mod inflict;
mod judging;
mod ledger;
mod misfortunes;
mod upheaval;
mod uproot;

use commanding::Meetings;
use ledger::Ledger;
use upheaval::Disk;

/// Faults happen within this time; then all is calm.
const TROUBLE: Time = 8 * SECOND;
/// Longest time that an input read from its end is idle at first: the group may be deleted meanwhile.
const IDLE: Time = 6 * SECOND;
/// How long reading everything may take afterwards.
const RECOVERY: Time = 80 * SECOND;
/// How long to keep running after a loss of state.
const REFUSAL: Time = 20 * SECOND;
/// The same where a record may stop its task.
const STOPPED: Time = 60 * SECOND;
/// How much of a record is shown in a trace.
const SHOWN_MAX: usize = 120;
/// How often to check whether everything is read.
const LOOK: Time = 50 * MS;

/// The result of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What is wrong; empty if nothing is.
    pub wrong: Vec<String>,
    /// A hash over everything that happened, and the number of events.
    pub trace: (u64, u64),
    /// How long it took, in simulated time.
    pub took: Time,
    /// How long reading everything took once all was calm and written; `None` if that was not done.
    pub recovery: Option<Time>,
    /// Situations reached, and how often.
    pub reached: BTreeMap<&'static str, u64>,
    /// What could be left out.
    pub choices: Choices,
}

/// The choices of a seed that can be left out: see [`Cut`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// How many misfortunes were drawn, played or not.
    pub misfortunes: u64,
    /// The numbers of the requests that had a fault.
    pub wire: Vec<u64>,
    pub instances: u64,
    /// How many records were to be written to the input.
    pub records: u64,
}

/// Something that happens to instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Crash(usize),
    /// A crash as soon as a commit of the instance was decided and its response has not arrived, or else at this time.
    CrashInCommit(usize, Time),
    Freeze(usize, Time),
    /// The instance leaves on its own, and comes back.
    Depart(usize),
    /// The same, but it returns as the other release.
    Replace(usize),
    /// The same, but it returns as the first release.
    Return(usize),
    Start(usize),
    TransactionsMove(Time),
    GroupsMove(Time),
    /// The same, and the group's offsets fall back to old ones.
    GroupsFallBack(Time),
    Leaderless(&'static str, i32, Time),
    /// The cleaner compacts a partition of the changelog, except its last records. Restores give the same result: the
    /// last record of each key stays, and a store that may have missed tombstones is rebuilt.
    Compact(i32, u64),
    /// A wall clock is set, in milliseconds from the right time, and set right when all is calm. No decision changes:
    /// if records seem to be from the future, Kafka's time shows that they are not.
    Clock(usize, i64),
    Disk(usize, Disk),
    /// The engine panics after this many of its calls. The only consequence is a retry.
    Panic(usize, u64),
    /// All instances die.
    Stop,
    Upheaval(Upheaval),
    /// Something happens to the database. What it loses is noticed, unless Kafka has lost nothing of it; everything else
    /// is waited for.
    Database(Blow),
    /// The provider is down for this time. No record goes to the dead letters for that.
    Outage(Time),
    /// Somebody commands the tasks something. It is carried out once, whatever else happens.
    Command(u64),
    /// The input loses records that were already read; nobody misses them.
    Trim,
    /// The cleaner compacts a partition of the input, except its last records, read or not: nobody reads any more what has
    /// vanished. What was called for it stays, and what was reserved is not waited for.
    Vanish(i32, u64),
    Calm,
}

/// One seed in progress.
struct Run<'a> {
    world: World,
    /// The topology's releases in order.
    plans: &'a [Arc<Plan>],
    /// Each instance's release, as an index.
    releases: Vec<usize>,
    profile: Profile,
    /// Each instance's storage, which outlives its processes.
    stores: Vec<Stores>,
    /// The unfinished tasks, in order of their numbers.
    strands: Vec<(usize, Strand)>,
    instances: Vec<Option<Instance>>,
    /// Copies of instances' stores.
    copies: Vec<upheaval::Copies>,
    faults: Vec<(Time, Fault)>,
    /// How many misfortunes there are, played or not.
    misfortunes: u64,
    ledger: Ledger,
    /// Draws the input.
    feeding: Random,
    sent: Vec<u64>,
    /// The partition and offset of the record that panics, once written.
    poison: Option<(i32, i64)>,
    feed_at: Time,
    /// Whether a coordinator brought back old group offsets.
    fell_back: bool,
    marker_at: Time,
    look_at: Time,
    /// The commands that are to be met by records.
    meetings: Meetings,
    /// What the judge needs besides the final state.
    history: History,
    /// What stores held when their processes ended.
    held: Vec<judge::stores::Held>,
    /// What each instance's stores held when its process started.
    started_with: Vec<Vec<judge::stores::Held>>,
    lives: Vec<judge::stores::Life>,
    /// Whether all stores were wiped after everything was read.
    wiped: bool,
    /// Since when all is calm and written, and how long it took from then on until everything was read.
    calm_since: Time,
    recovery: Option<Time>,
}

/// A world with the topics that exist before the instances.
fn begin(seed: u64, profile: &Profile, cut: &Cut, verbose: bool) -> World {
    let world = World::new(seed, profile.wire, verbose);
    let mut state = world.lock();
    state.broker.coordinator.protocol = profile.protocol;
    state.broker.names_latest_time = profile.names_latest_time;
    state.database.troubles = profile.database;
    state.provider.begin(profile.provider);
    // From a separate generator, so that other draws stay the same.
    state.gate.begin(profile.gate, &mut Random::new(seed ^ 0x6a7e));
    state.backlogged = profile.backlogged;
    state.troubled = cut.wire.clone();
    let settings = Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20, stamps: false };
    state.broker.topics.create(input::INPUT, profile.partitions, settings).expect("the cluster is empty");
    if profile.tombstones_go {
        // Created by an administrator; its tombstones are removed soon.
        let delete_retention = misfortunes::delete_retention(&mut state.random);
        let settings = Settings { compacted: true, delete_retention, ..settings };
        state.broker.topics.create(input::CHANGELOG, profile.partitions, settings).expect("it does not exist yet");
    }
    drop(state);
    world
}

/// Runs a seed, or part of it; `verbose` prints every event.
pub fn run(seed: u64, plans: &[Arc<Plan>], profile: Profile, cut: &Cut, verbose: bool) -> Outcome {
    // Drop what an earlier seed left behind as it ended.
    heard::take();
    let world = begin(seed, &profile, cut, verbose);
    let stores = (0..profile.instances).map(|_| Stores::of(seed, &mut world.lock().random)).collect();
    let mut run = Run {
        world,
        plans,
        releases: vec![0; profile.instances],
        profile,
        stores,
        strands: Vec::new(),
        instances: (0..profile.instances).map(|_| None).collect(),
        copies: vec![upheaval::Copies::default(); profile.instances],
        faults: Vec::new(),
        misfortunes: 0,
        ledger: Ledger::default(),
        feeding: Random::new(seed ^ 0xfeed),
        sent: vec![0; profile.partitions as usize],
        poison: None,
        feed_at: 0,
        fell_back: false,
        marker_at: Time::MAX,
        look_at: LOOK,
        meetings: Meetings::default(),
        history: History::new(judge::rules(profile.input), profile.partitions),
        held: Vec::new(),
        started_with: vec![Vec::new(); profile.instances],
        lives: Vec::new(),
        wiped: false,
        calm_since: 0,
        recovery: None,
    };
    run.history.tombstones_go = profile.tombstones_go;
    run.history.starts_latest = profile.latest;
    run.history.bounds = profile.limits.kept;
    if profile.latest {
        run.feed_at = run.feeding.below(IDLE);
    }
    run.draw_faults(cut);
    match catch_unwind(AssertUnwindSafe(|| run.drive())) {
        Ok(ruling) => run.conclude(ruling),
        Err(panicked) => run.panicked(panic_message(&*panicked)),
    }
}

/// The message of a panic.
pub fn panic_message(panicked: &(dyn Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().map(String::as_str).or(panicked.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}

impl Run<'_> {
    /// Draws everything that goes wrong, and keeps what `cut` wants played.
    fn draw_faults(&mut self, cut: &Cut) {
        let mut state = self.world.lock();
        self.faults = misfortunes::frame(&self.profile, &mut state.random);
        let drawn = misfortunes::draw(&self.profile, &mut state.random);
        drop(state);
        self.misfortunes = drawn.len() as u64;
        for (number, misfortune) in drawn.into_iter().enumerate().filter(|(number, _)| cut.faults.has(*number as u64)) {
            self.world.lock().note("misfortune", format_args!("{number}: {misfortune:?}"));
            self.faults.extend(misfortune);
        }
        self.faults.retain(|(_, fault)| fault.concerns(|who| cut.instances.has(who as u64)));
        self.faults.sort_by_key(|fault| std::cmp::Reverse(*fault));
        if !self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Upheaval(_))) {
            self.profile.upheaval = None;
        }
        self.profile.goes_back &=
            self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Database(blow) if blow.is_loss()));
        self.profile.records = cut.records.unwrap_or(self.profile.records).min(self.profile.records);
    }

    /// Runs until everything is read, or time is up.
    fn drive(&mut self) -> Ruling {
        loop {
            self.begin_tasks();
            let (at, what) = self.next();
            self.world.lock().broker.now = at;
            let is_lost = self.profile.upheaval.is_some_and(Upheaval::is_loss);
            let stops = self.poison.is_some() || self.history.bounds != Bounds::DEFAULT;
            let stops = stops || self.profile.goes_back;
            let stops = stops || self.profile.input.calls().is_some_and(|calls| calls.ends == input::Ends::Stops);
            let recovery = if stops { STOPPED } else { RECOVERY };
            let has_lost_tail =
                matches!(self.profile.upheaval, Some(Upheaval::ChangelogTailLost | Upheaval::ChangelogTailLostAtWork));
            // Functions take a transaction for each of their steps.
            let refusal = if self.profile.input.calls().is_some() { STOPPED } else { REFUSAL };
            if at > TROUBLE + if is_lost && !has_lost_tail { refusal } else { recovery } {
                if is_lost {
                    self.world.lock().reach(coverage::LOSS_REFUSED);
                }
                return self.judge();
            }
            match what {
                Event::Task(task) => {
                    self.resume(task);
                    self.meet();
                }
                Event::Tick => {
                    let mut state = self.world.lock();
                    let open = state.broker.coordinator.count(State::Ongoing);
                    state.broker.tick();
                    if state.broker.coordinator.count(State::Ongoing) < open {
                        state.reach(coverage::TIMED_OUT);
                    }
                }
                Event::Marker => self.write_marker(),
                Event::Net => mistakes::during(|| self.world.lock().serve()),
                Event::Later => {
                    let mut state = self.world.lock();
                    let (_, (what, request)) = state.later.pop_first().expect("checked before");
                    state.note("late request", format_args!("{what}"));
                    match what {
                        "end commit" | "end abort" => state.reach("the end of a transaction arrived late"),
                        "commit offsets" => state.reach(coverage::LATE_OFFSETS),
                        _ => {}
                    }
                    state.broker.late = true;
                    request(&mut state.broker);
                    state.broker.late = false;
                }
                Event::Fault => {
                    let (_, fault) = self.faults.pop().expect("checked before");
                    self.inflict(fault);
                }
                Event::Feed => self.feed(),
                Event::Look => {
                    self.look_at = at + LOOK;
                    let fed = self.feed_at == Time::MAX && self.faults.is_empty();
                    if !fed {
                        self.calm_since = at;
                    }
                    let is_read = self.look() && fed;
                    if is_read {
                        self.recovery.get_or_insert(at - self.calm_since);
                    }
                    if is_read && !self.ledger.has_grown() && !self.wipe() {
                        return self.judge();
                    }
                }
            }
        }
    }

    fn begin_tasks(&mut self) {
        let unstarted = std::mem::take(&mut self.world.lock().unstarted);
        for (task, body) in unstarted {
            self.strands.push((task, Strand::new(body)));
        }
    }

    /// The next event, and its time.
    fn next(&mut self) -> (Time, Event) {
        let mut state = self.world.lock();
        let now = state.now();
        if state.broker.coordinator.has_markers() {
            if self.marker_at == Time::MAX {
                self.marker_at = now + marker_pause(&mut state.random);
            }
        } else {
            self.marker_at = Time::MAX;
        }
        let mut first = (self.look_at, Event::Look);
        let mut offer = |at: Time, what: Event| {
            if at < first.0 {
                first = (at, what);
            }
        };
        for (at, (task, _)) in self.strands.iter().enumerate() {
            let of = &state.tasks[*task];
            offer(of.wake.max(state.processes[of.process].frozen_until), Event::Task(at));
        }
        offer(state.broker.next_tick().unwrap_or(Time::MAX), Event::Tick);
        offer(self.marker_at, Event::Marker);
        offer(state.links.next(now, state.broker.topics.is_touched), Event::Net);
        offer(state.later.keys().next().map_or(Time::MAX, |(at, _)| *at), Event::Later);
        offer(self.faults.last().map_or(Time::MAX, |(at, _)| *at), Event::Fault);
        offer(self.feed_at, Event::Feed);
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
        self.history.look(&state.broker);
    }

    fn feed(&mut self) {
        let mut state = self.world.lock();
        let now = state.now();
        let random = &mut self.feeding;
        for _ in 0..random.between(1, 12) {
            if self.sent.iter().sum::<u64>() >= self.profile.records {
                break;
            }
            let partition = random.below(self.profile.partitions as u64) as usize;
            let mut record = input::record(&self.profile, random, partition as i32, self.sent[partition], now);
            self.sent[partition] += 1;
            let is_half = self.sent.iter().sum::<u64>() == self.profile.records / 2;
            let is_poisoned = self.profile.poison && is_half && input::poison(&mut record);
            let text = String::from_utf8_lossy(record.value.as_deref().unwrap_or(b"null"));
            let end =
                state.broker.topics.log(&Partition::new(input::INPUT, partition as i32)).map_or(0, |log| log.end());
            let shown: String = text.chars().take(SHOWN_MAX).collect();
            state.note("written", format_args!("{partition}:{end} {shown}"));
            // One producer per transaction, which ends at once: committed, or sometimes aborted.
            let ends = self.profile.transactional.then(|| random.below(4));
            let log = state.broker.topics.log_mut(&Partition::new(input::INPUT, partition as i32));
            let log = log.expect("the input stays");
            if is_poisoned {
                self.poison = Some((partition as i32, log.end()));
                self.history.lose(partition as i32);
            }
            match ends {
                Some(0) | Some(1) => {
                    let producer = input::FIRST_PRODUCER + log.end();
                    let writer = Writer { producer, epoch: 0, sequence: 0 };
                    log.append_transactional(writer, &[record]).expect("the producer is new");
                    log.append_marker(producer, 0, ends == Some(0), false).expect("its epoch is the first");
                    if ends == Some(1) {
                        state.reach("a transaction of the input was aborted");
                    }
                }
                _ => drop(log.append([record])),
            }
        }
        let all = self.sent.iter().sum::<u64>() >= self.profile.records;
        self.feed_at = if all { Time::MAX } else { now + random.between(MS, 400 * MS) };
    }

    fn end(&mut self) {
        (0..self.instances.len()).for_each(|who| self.kill(who));
    }
}

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The unfinished task at this index.
    Task(usize),
    Tick,
    Marker,
    /// Something arrives at the brokers, or can be answered.
    Net,
    Later,
    Fault,
    Feed,
    Look,
}

/// How long after the previous marker the next one is written: mostly at once.
fn marker_pause(random: &mut Random) -> Time {
    match random.below(100) {
        0..80 => random.between(50, 2 * MS),
        80..98 => random.between(2 * MS, 30 * MS),
        _ => random.between(30 * MS, 600 * MS),
    }
}
