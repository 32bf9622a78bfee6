//! Seeds of the writer: apps that write in transactions through the whole client, to brokers that speak bytes, while
//! links are cut at any byte, leaders and coordinators move, brokers go down, processes freeze, die, and have their ids
//! taken.
//!
//! - `profile`: what a seed is about; `app`: who uses a writer
//! - `judge`: whether what is in the logs is what the apps were told
//! - `tests`: thousands of seeds, and one for each deliberate mistake

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratchet_testkit::random::Random;

use self::app::{App, Fate, GROUP};
pub use self::profile::{Profile, Tally};
use super::client::brokers::Settings;
use super::cluster::Cluster;
use super::kafka::{Partition, Seat, Subscription};
use super::links::{Links, Weather};

pub mod app;
pub mod judge;
pub mod profile;
mod tests;

pub use tests::notice;

const MS: u64 = 1_000;
/// How many transactions of a writer may fail once all is calm: those under way then, and what was late.
const FAILURES_MAX: usize = 5;
const SECOND: u64 = 1_000 * MS;

/// A run.
pub struct World {
    pub cluster: Cluster,
    links: Links,
    pub apps: Vec<App>,
    pub profile: Profile,
    random: Random,
    now: u64,
    next_chaos: u64,
    next_scan: u64,
    thaws: Vec<(usize, u64)>,
    wakes: Vec<(i32, u64)>,
    base: Instant,
    settings: Arc<Settings>,
    pub zombies: usize,
    /// Why writers were lost that nobody had superseded.
    lost: Vec<String>,
    ids: usize,
    /// A violation that was seen under way.
    pub seen: Option<String>,
}

impl World {
    pub fn new(seed: u64, profile: Profile, base: Instant) -> Self {
        let mut cluster = Cluster::new(3, profile.protocol(), seed);
        cluster.create("out", 3, true);
        cluster.create("log", 2, true);
        cluster.broker.coordinator.set_epoch_max(profile.epoch_max);
        cluster.broker.coordinator.verifies = profile.verifies;
        cluster.broker.nodes.seats = [(1, 0), (2, 0)];
        cluster.manners.says_abortable = Some(profile.says_abortable);
        cluster.manners.moody_once_in = profile.moody_once_in;
        let weather = Weather {
            delay_max: 2 * MS,
            late_max: profile.late_max,
            refuse_once_in: 20,
            throttles_once_in: if seed.is_multiple_of(3) { 20 } else { 0 },
            ..Weather::FAIR
        };
        let settings = Settings {
            request_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_millis(500),
            ..Settings::default()
        };
        let mut world = Self {
            cluster,
            links: Links::new(base, weather, seed ^ 0xabc),
            apps: Vec::new(),
            profile,
            random: Random::new(seed ^ 0x123),
            now: 0,
            next_chaos: MS,
            next_scan: 0,
            thaws: Vec::new(),
            wakes: Vec::new(),
            base,
            settings: Arc::new(settings),
            zombies: 0,
            lost: Vec::new(),
            ids: 0,
            seen: None,
        };
        world.take_messages(world.profile.message_bytes_max);
        let membership = world.join();
        world.start(membership, "id-0");
        world
    }

    /// How large a batch may be from now on.
    fn take_messages(&mut self, bytes_max: usize) {
        for name in ["out", "log"] {
            let topic = self.cluster.broker.topics.get_mut(name).expect("it was created");
            topic.settings.message_bytes_max = bytes_max;
        }
    }

    /// A new member of the group, alone in it.
    fn join(&mut self) -> (String, i32) {
        let (groups, group) = (&mut self.cluster.broker.groups, GROUP.into());
        let times = (u64::MAX / 2, SECOND);
        let asked = groups.join(self.now, (&group, ""), Subscription::default(), times);
        let (_, member) = asked.expect_err("it is given an id first");
        groups.join(self.now, (&group, &*member), Subscription::default(), times).expect("with that id it may");
        let joined = groups.take_joined(GROUP, &member).expect("nobody else is there").expect("nobody else is there");
        groups.sync(self.now, (GROUP, &*member), joined.generation, Some(Vec::new())).expect("it leads");
        (member.to_string(), joined.generation)
    }

    fn time(&self) -> Instant {
        self.base + Duration::from_micros(self.now)
    }

    fn micros(&self, at: Instant) -> u64 {
        // Upwards, so that what is due then is.
        (at.saturating_duration_since(self.base).as_nanos() as u64).div_ceil(1_000)
    }

    fn start(&mut self, membership: (String, i32), id: &str) {
        let settings = (Arc::clone(&self.settings), Arc::new(self.profile.write.clone()));
        let seed = self.random.next();
        let mut app = App::new(self.apps.len(), id, settings, membership, seed, self.time());
        app.poisons = self.profile.poisons;
        app.next = self.now;
        self.apps.push(app);
    }

    /// The next transactional id: the same one, or another.
    fn next_id(&mut self) -> String {
        if !self.profile.same_id {
            self.ids += 1;
        }
        format!("id-{}", self.ids)
    }

    /// Runs to the end: trouble, then calm in which the last app commits some more, then silence.
    pub fn run(&mut self) {
        self.run_until(self.profile.trouble, |_| false);
        self.calm();
        let deadline = self.now + 120 * SECOND;
        let wanted = self.committed() + 3;
        self.run_until(deadline, |world| world.committed() >= wanted);
        if self.committed() < wanted {
            let last = self
                .apps
                .last()
                .map(|app| format!("{:?}", app.txs.iter().rev().take(3).map(|tx| &tx.why).collect::<Vec<_>>()));
            self.seen.get_or_insert(format!("no progress once all is calm: {last:?}"));
        }
        // One whose group goes on without it fails for ever.
        let heirs = self.apps.iter().filter(|app| !app.is_superseded);
        let failing = heirs.map(|app| app.failures).max().unwrap_or(0);
        if failing > FAILURES_MAX {
            self.seen.get_or_insert(format!("{failing} transactions of a writer have failed while all was calm"));
        }
        if self.profile.is_calm && !self.lost.is_empty() {
            self.seen.get_or_insert(format!("writers were lost although all was calm: {:?}", self.lost));
        }
        self.apps.iter_mut().for_each(|app| app.is_stopping = true);
        self.run_until(self.now + 60 * SECOND, |world| world.apps.iter().all(App::is_done));
        self.apps.iter_mut().for_each(App::die);
        // Late copies arrive, what is open times out, markers are written.
        self.run_until(self.now + 5 * SECOND + self.profile.transaction_timeout.as_micros() as u64 * 2, |_| false);
        for _ in 0..10_000 {
            if !self.write_marker(0) {
                break;
            }
        }
    }

    /// Writes one of the markers that wait, if there is a leader to write it to. Whether one was written.
    fn write_marker(&mut self, pick: usize) -> bool {
        let broker = &mut self.cluster.broker;
        let markers = broker.markers();
        markers.get(pick % markers.len().max(1)).is_some_and(|marker| broker.write_marker(marker))
    }

    /// How many commits the last app was told of.
    fn committed(&self) -> usize {
        self.apps.iter().map(|app| app.committed).sum()
    }

    fn calm(&mut self) {
        self.profile.cuts = 0;
        self.profile.moves = 0;
        self.profile.freezes = 0;
        self.profile.deaths = 0;
        self.cluster.manners.moody_once_in = 0;
        self.links.weather.refuse_once_in = 0;
        self.links.weather.throttles_once_in = 0;
        self.cluster.wake_all();
        self.wakes.clear();
        self.cluster.broker.gossip_all();
        self.take_messages(1 << 20);
        for app in &mut self.apps {
            app.poisons = false;
            app.failures = 0;
        }
        self.profile.poisons = false;
        self.thaws.iter_mut().for_each(|(_, at)| *at = self.now);
    }

    fn run_until(&mut self, end: u64, is_done: impl Fn(&Self) -> bool) {
        while self.now < end && !is_done(self) {
            let next = self.next_time().min(end);
            self.now = self.now.max(next);
            self.links.deliver_to_brokers(&mut self.cluster, self.now);
            self.chaos();
            for number in 0..self.apps.len() {
                self.drive(number);
            }
        }
    }

    fn next_time(&self) -> u64 {
        let frozen: Vec<usize> = self.apps.iter().filter(|app| app.is_frozen).map(|app| app.number).collect();
        let apps = self.apps.iter().filter(|app| !app.is_frozen && !app.is_done()).flat_map(|app| {
            let ticks = [app.brokers.next_tick(), app.writer.next_tick()];
            let ticks = ticks.into_iter().flatten().map(|at| self.micros(at));
            ticks.chain((app.next > self.now).then_some(app.next))
        });
        let next = apps.chain(self.links.next(&frozen, self.now)).chain([self.next_chaos]).min();
        next.unwrap_or(self.next_chaos).max(self.now + 1)
    }

    fn drive(&mut self, number: usize) {
        let (now, time) = (self.now, self.time());
        let Some(app) = self.apps.get_mut(number).filter(|app| !app.is_frozen) else { return };
        // A dead process is heard of no more; its links were cut.
        if app.is_gone() {
            return;
        }
        let mut lost = false;
        for _ in 0..20 {
            let heard = self.links.deliver_to_client(number, &mut app.brokers, now);
            app.brokers.tick(time);
            app.writer.drive(&mut app.brokers, time);
            lost |= app.step(now, time) == Fate::Lost;
            app.writer.drive(&mut app.brokers, time);
            app.brokers.tick(time);
            self.links.serve(number, &mut app.brokers, &self.cluster, now);
            if !heard {
                break;
            }
        }
        if app.writer.held_bytes() > self.profile.write.buffered_bytes_max + 4_000 {
            self.seen.get_or_insert(format!("{} bytes are held", app.writer.held_bytes()));
        }
        if lost {
            self.replace(number);
        }
    }

    /// A process whose writer is of no use opens another one, unless it was superseded.
    fn replace(&mut self, number: usize) {
        self.links.cut_client(number, self.now);
        let Some(app) = self.apps.get(number) else { return };
        if app.is_superseded || app.is_stopping {
            return;
        }
        self.lost.push(app.txs.last().map_or_else(|| "opening".to_owned(), |tx| tx.why.clone()));
        let membership = (app.member.clone(), app.generation);
        let id = self.next_id();
        self.start(membership, &id);
    }

    fn chaos(&mut self) {
        while self.next_scan <= self.now {
            self.cluster.broker.coordinator.abort_timed_out(self.now);
            self.next_scan = self.now + 50 * MS;
        }
        let now = self.now;
        for (number, _) in self.thaws.extract_if(.., |(_, at)| *at <= now) {
            if let Some(app) = self.apps.get_mut(number) {
                app.is_frozen = false;
            }
        }
        for (node, _) in self.wakes.extract_if(.., |(_, at)| *at <= now) {
            self.cluster.broker.nodes.node(node).is_up = true;
        }
        if now < self.next_chaos {
            return;
        }
        self.next_chaos = now + 1 + self.random.next() % (4 * MS);
        if self.random.once_in(2) {
            let pick = self.random.below(1_000);
            self.write_marker(pick);
        }
        let hits = |random: &mut Random, once_in: usize| once_in > 0 && random.once_in(once_in);
        if hits(&mut self.random, self.profile.cuts) {
            self.cut();
        }
        if hits(&mut self.random, self.profile.moves) {
            self.shift();
        }
        if hits(&mut self.random, self.profile.freezes) {
            self.freeze();
        }
        if hits(&mut self.random, self.profile.deaths) {
            self.kill();
        }
    }

    fn cut(&mut self) {
        let held = self.links.held();
        if let Some(end) = held.get(self.random.below(held.len().max(1))) {
            self.links.cut(*end, true, self.now);
        }
    }

    /// Something moves: a leader, a coordinator, a broker, or what is known of them.
    fn shift(&mut self) {
        let node = 1 + self.random.below(3);
        match self.random.below(6) {
            0 | 1 => {
                let partitions = self.cluster.broker.nodes.partitions();
                let partition: &Partition = self.random.pick(&partitions);
                let log = self.cluster.log(partition);
                let cut = (log.high() < log.end() && self.random.once_in(2)).then_some(log.high());
                let unaware = self.random.once_in(2);
                self.cluster.elect(partition, node, cut, unaware);
            }
            2 => self.cluster.broker.gossip(node),
            3 | 4 => {
                let seat = if self.random.once_in(2) { Seat::Transactions } else { Seat::Groups };
                let until = self.now + self.random.next() % (30 * MS);
                self.cluster.broker.nodes.seats[seat as usize] = (node, until);
            }
            _ => {
                self.cluster.broker.nodes.node(node).is_up = false;
                self.links.cut_node(node, self.now);
                self.wakes.push((node, self.now + self.random.next() % SECOND));
            }
        }
    }

    /// A process stands still, and wakes up later; now and then its group goes on without it.
    fn freeze(&mut self) {
        let Some(number) = self.living() else { return };
        let until = self.now + self.random.next() % (3 * SECOND);
        if let Some(app) = self.apps.get_mut(number) {
            app.is_frozen = true;
            self.thaws.push((number, until));
        }
        if self.random.once_in(2) {
            self.zombies += 1;
            self.supersede(number);
        }
    }

    /// The group gives its partitions to another process.
    fn supersede(&mut self, number: usize) {
        let Some(app) = self.apps.get_mut(number) else { return };
        app.is_superseded = true;
        let old = app.member.clone();
        self.cluster.broker.groups.leave(self.now, GROUP, &old).expect("it is the group's only member");
        let membership = self.join();
        let id = self.next_id();
        self.start(membership, &id);
    }

    fn kill(&mut self) {
        let Some(number) = self.living() else { return };
        if let Some(app) = self.apps.get_mut(number) {
            app.die();
        }
        self.links.cut_client(number, self.now);
        self.supersede(number);
    }

    /// The process that has the group's partitions.
    fn living(&self) -> Option<usize> {
        self.apps.iter().rposition(|app| !app.is_superseded && !app.is_done() && !app.is_frozen)
    }

    /// What happened.
    pub fn tally(&self) -> Tally {
        let verdicts =
            |wanted: app::Verdict| self.apps.iter().flat_map(|app| &app.txs).filter(|tx| tx.verdict == wanted).count();
        let code = |code: i16| self.cluster.manners.codes.get(&code).copied().unwrap_or(0);
        Tally {
            committed: verdicts(app::Verdict::Committed),
            aborted: verdicts(app::Verdict::Aborted),
            unknown: verdicts(app::Verdict::Unknown),
            unknown_committed: judge::unknown_committed(self),
            writers: self.apps.len(),
            cuts: self.links.cuts,
            late: self.links.late,
            timed_out: self.cluster.broker.coordinator.timed_out,
            zombies: self.zombies,
            duplicates_refused: code(46),
            splits: code(10),
            gaps: code(45),
            moved: code(6),
            throttles: self.links.throttles,
        }
    }
}

/// Runs a seed: what happened, and what was wrong.
pub fn run(seed: u64, profile: Profile, base: Instant) -> (Tally, Result<(), String>) {
    let mut world = World::new(seed, profile, base);
    world.run();
    let judged = judge::judge(&world);
    (world.tally(), judged)
}
