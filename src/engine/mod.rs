//! The engine: lanes that judge records with [`crate::dedup`], keep state in [`crate::state`] and read and write
//! through [`crate::cluster`], exactly once.
//!
//! - [`run`] supervises: it checks the topics ([`preflight`]), starts the lanes and stops them; [`catalog`] holds the
//!   topics that are read, [`feeding`] decides which topics may be read
//! - [`mod@budget`] divides the memory, and [`limits`] bounds the work that is done at once
//! - [`lane`] is one thread's work, step by step; [`task`] one input partition's
//! - [`process`] takes a batch through a task; [`transact`] is its transaction, in which each task has a [`share`]:
//!   committed, it becomes the task's, aborted, it is dropped
//! - [`calling`] makes the calls of a lane whose records call a provider, with windows of records that are not settled
//! - [`gate`] asks a topology's gate, if there is one, before a record is forwarded
//! - [`control`] passes operators' commands to the tasks, which carry them out in their transactions
//! - [`restore`] is the only recovery, [`resume`] its decisions, [`hold`] its store and [`load`] its reading;
//!   [`claims`] record which owners may have written; [`isolate`] handles failing outputs, and `bisect` finds a refused
//!   record
//! - [`rebuild`] rewrites a lost changelog from the stores, while no instance is running
//! - [`audit`] explains dropped records; [`record_log`] logs dead letters and dropped conflicts, and [`keyless`]
//!   records without a key; [`sweep`] removes expired entries
//! - [`watch`] detects topics that are created, deleted or recreated, [`held_up`] tasks that are stuck behind an open
//!   transaction, `disks` disks that do not respond, `silence` brokers that do not respond, and [`changelog_loss`] a
//!   changelog that has lost records; [`long_work`] reports on long-running work
//! - [`panics`] are handled like any other failure; [`present`] decides whether a record is from the future
//!
//! **Failure**: a task that must not continue stops and is logged, while the others continue; a lane that cannot
//! continue is restarted after a pause, and given up if it keeps panicking; a topology that is refused is given up,
//! while the others continue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cluster::kafka::{DataPath, Kafka};
use crate::cluster::{self, Cluster, ErrorKind, MISSING_WAIT, embedded::Embedded};
use crate::config::{self, ClusterKind, Config};
use crate::effect;
use crate::effect::provider::Provider;
use crate::observe::{Health, Metrics};
use crate::postgres::steps::Database;
use crate::provider::handler::Function;
use crate::rendering;
use crate::state::{Memory, Registry, StateSlot, Survey};
use crate::topology::Topology;

pub mod audit;
mod bisect;
pub mod budget;
pub mod calling;
pub mod capacity;
pub mod catalog;
pub mod changelog_loss;
pub mod claims;
pub mod clock;
pub mod commitment;
pub mod context;
pub mod control;
pub mod crash;
mod disks;
mod error;
mod failing;
pub mod failure;
pub mod feeding;
pub mod former_rules;
pub mod gate;
pub mod held_up;
pub mod hold;
pub mod ids;
pub mod isolate;
mod judge;
pub mod keyless;
pub mod lag;
pub mod lane;
pub mod limits;
pub mod load;
pub mod long_work;
pub mod output;
pub mod panics;
pub mod preflight;
pub mod present;
pub mod process;
mod reach;
pub mod rebuild;
pub mod record_log;
pub mod redoing;
pub mod restore;
pub mod resume;
pub mod rows;
pub mod setback;
pub mod share;
mod silence;
pub mod sink_trouble;
pub mod status;
pub mod sweep;
pub mod task;
mod threads;
pub mod transact;
pub mod wakers;
pub mod watch;

use budget::Budget;
use catalog::Catalog;
use clock::{Clock, SystemClock};
use context::{Context, Proven, backoff};
use control::LatestBounds;
use disks::Disks;
use held_up::HeldUp;
use ids::Ids;
use lane::{Lane, LaneError};
use limits::Limits;
use panics::caught;
use preflight::unreached::described;
use preflight::{Admitted, Preflight};
use status::LaneStatus;
use threads::{SUPERVISE_INTERVAL, spawn};
use wakers::Wakers;

pub use error::Error;

/// How often an unknown topic is looked up again.
const MISSING_INTERVAL: Duration = Duration::from_millis(500);
/// A lane that has run for this long is restarted without a long pause.
const LANE_LASTED: Duration = Duration::from_secs(60);

/// The user's functions and the database of their transactions.
#[derive(Clone, Default)]
pub struct Handlers {
    /// The functions, by the names of the topologies that end in them.
    pub functions: BTreeMap<String, Function>,
    /// The database of steps' transactions; `None` if steps have no transactions.
    pub database: Option<Database>,
}

impl Handlers {
    /// The provider that the topology calls; `None` if it makes no calls.
    fn provider(&self, topology: &Topology) -> Result<Option<Arc<dyn Provider>>, effect::Error> {
        if topology.handler().is_none() {
            return rendering::provider(topology);
        }
        let Some(function) = self.functions.get(&topology.name) else {
            let message = "it ends in a handler, and this program has none for it: run it by a program of yours \
                           (`ratchet::Worker`)";
            return Err(effect::Error { kind: effect::ErrorKind::Permanent, message: message.to_owned() });
        };
        Ok(rendering::handler(topology, function.clone(), self.database.clone()))
    }
}

/// The input of a run.
pub struct Options {
    /// The worker's settings.
    pub config: Config,
    /// The topologies to run; they are independent of each other.
    pub topologies: Vec<Topology>,
    /// The handlers of the topologies that end in a handler.
    pub handlers: Handlers,
    /// Whether to end once all records of the inputs are committed.
    pub until_drained: bool,
    /// Set from outside to end the run: transactions are finished, groups left, stores flushed.
    pub stop: Arc<AtomicBool>,
    /// The metrics to update.
    pub metrics: Metrics,
    /// Where this instance's readiness is reported.
    pub health: Health,
}

/// Runs topologies until they are stopped or, on request, drained.
pub fn run(options: Options) -> Result<(), Error> {
    match &options.config.cluster {
        ClusterKind::Kafka => {
            let cluster = kafka(&options.config, options.topologies.len())?;
            run_on(&cluster, options)
        }
        ClusterKind::Embedded { dir, partitions } => {
            let cluster = Embedded::open(dir, *partitions)?;
            run_on(&cluster, options)
        }
    }
}

/// The Kafka cluster of the configuration, for this many topologies. Does not connect yet.
pub fn kafka(config: &Config, topologies: usize) -> Result<Kafka, cluster::Error> {
    let path = match config.data_path {
        config::DataPath::Auto => DataPath::Auto,
        config::DataPath::Wire => DataPath::Wire,
        config::DataPath::Librdkafka => DataPath::Librdkafka,
    };
    let (properties, queues) = (&config.kafka, budget(config, topologies).queues);
    Kafka::within(queues, path, &properties.for_admin(), &properties.for_consumer(), &properties.for_producer())
}

/// Checks that the configuration's cluster can be used: creates a client, which requests the list of topics.
///
/// # Errors
/// If the cluster cannot be reached or refuses the request.
pub fn probe(config: &Config, topologies: usize) -> Result<(), cluster::Error> {
    match config.cluster {
        ClusterKind::Kafka => kafka(config, topologies)?.list_topics().map(drop),
        ClusterKind::Embedded { .. } => Ok(()),
    }
}

/// How the memory is divided.
fn budget(config: &Config, topologies: usize) -> Budget {
    let lanes = config.lanes.max(1) * topologies;
    Budget::new(config.memory_bytes, config.unpacked_bytes, lanes)
}

/// What the topologies of a run share.
struct Shared {
    config: Config,
    budget: Budget,
    state_slot: Arc<StateSlot>,
    memory: Memory,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    health: Health,
}

/// A topology's sink, gate and provider.
type Drivers = (Option<Arc<dyn effect::Sink>>, Option<Arc<dyn effect::gate::Gate>>, Option<Arc<dyn Provider>>);

impl Shared {
    fn context(&self, topology: Topology, topics: Catalog, drivers: Drivers, overhead_bytes: u64) -> Context {
        let (sink, gate, provider) = drivers;
        let (commit, isolated_room) = self.budget.transaction_bounds(self.config.commit, overhead_bytes);
        Context {
            rules: topology.rules.clone(),
            rules_digest: topology.rules.digest(),
            topology,
            topics,
            topic_settings: self.config.topics,
            commit,
            isolated_room,
            state_slot: self.state_slot.clone(),
            memory: self.memory.clone(),
            registry: Registry::default(),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            recreated_count: AtomicU64::new(0),
            check_topics_now: AtomicBool::new(false),
            proven: Proven::default(),
            held_up: HeldUp::default(),
            ids: Ids::default(),
            limits: Limits::DEFAULT,
            sink,
            gate,
            provider,
            control_topic: LatestBounds::default(),
            wakers: Wakers::default(),
            clock: self.clock.clone(),
        }
    }

    /// Checks a topology against the cluster and opens its sink, its gate and its provider. Reports the brokers'
    /// abilities, unless that was done.
    fn admit<C: Cluster>(
        &self,
        cluster: &C,
        topology: Topology,
        handlers: &Handlers,
        stop: &AtomicBool,
        is_reported: &mut bool,
    ) -> Result<Context, Unadmitted> {
        let rules_digest = topology.rules.digest();
        let survey = Survey::of(&self.state_slot, &self.memory);
        let preflight = Preflight::new(cluster, &topology, &rules_digest, &self.config.topics, survey);
        let admitted = preflight_once_reached(&preflight, &topology, &self.config, (&*self.clock, stop), is_reported);
        let admitted = admitted.map_err(|error| {
            let is_stopped = error.kind != ErrorKind::Refused && stop.load(Ordering::Relaxed);
            let may_pass = error.may_pass();
            if is_stopped { Unadmitted::Stopped } else { Unadmitted::Refused { reason: error.message, may_pass } }
        })?;
        let sink = rendering::sink(&topology, self.config.tables_create);
        let drivers = sink.and_then(|sink| Ok((sink, rendering::gate(&topology)?, handlers.provider(&topology)?)));
        let drivers = drivers.map_err(|error| {
            let may_pass = error.kind == effect::ErrorKind::Transient;
            Unadmitted::Refused { reason: error.message, may_pass }
        })?;
        former_rules::save(&self.state_slot, &topology);
        // Only now it is known which client reads and writes records with these brokers.
        let overhead_bytes = cluster.record_overhead_bytes() as u64;
        let topics = Catalog::new(admitted.topics, BTreeMap::new());
        let context = self.context(topology, topics, drivers, overhead_bytes);
        if context.topology.input.named().is_empty() {
            self.metrics.refused_topics(&context.topology.name, 0);
        }
        admitted.refused.iter().for_each(|(topic, reason)| watch::refuse(&context, topic, reason));
        if context.topics.names().is_empty() {
            let input = context.topology.input.to_string();
            tracing::warn!(topology = context.topology.name, input, "no topic to read yet; waiting for one");
        }
        Ok(context)
    }
}

/// Why a topology is not run.
enum Unadmitted {
    /// The run was stopped before the topology was admitted: nothing has failed.
    Stopped,
    /// The topology is refused; `may_pass` says whether a later start may succeed without any change.
    Refused { reason: String, may_pass: bool },
}

/// Runs topologies on a cluster.
pub fn run_on<C: Cluster>(cluster: &C, options: Options) -> Result<(), Error> {
    let Options { config, topologies, handlers, until_drained, stop, metrics, health } = options;
    let state_slot = Arc::new(StateSlot::lock(&config.state_dir)?);
    tracing::info!(folder = %state_slot.path().display(), "stores are kept here");
    let budget = budget(&config, topologies.len());
    let memory = Memory::new(budget.stores_bytes);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    if let Some(contact) = cluster.contact() {
        silence::watch(&contact, &clock, &metrics, &health);
    }
    let shared = Shared { config, budget, state_slot, memory, clock, metrics, health };
    // This is done first, so that readiness waits for every topology.
    for topology in &topologies {
        let lanes = 0..shared.config.lanes.max(1);
        lanes.for_each(|lane| shared.health.lane_joined(&topology.name, lane, false));
    }
    let mut outcome = Ok(());
    let mut jobs = Vec::new();
    let mut is_reported = false;
    for topology in topologies {
        let name = topology.name.clone();
        let context = match shared.admit(cluster, topology, &handlers, &stop, &mut is_reported) {
            Ok(context) => context,
            Err(Unadmitted::Stopped) => break,
            Err(Unadmitted::Refused { reason, may_pass }) => {
                outcome = refused(outcome, (name, reason), may_pass);
                continue;
            }
        };
        let (job, started) = Job::start(cluster, Arc::new(context), shared.config.lanes, &stop);
        jobs.push(job);
        if let Err(error) = started {
            stop.store(true, Ordering::Relaxed);
            outcome = Error::and(outcome, Err(error));
            break;
        }
    }
    supervise(&jobs, until_drained, &stop, &shared.health, &*shared.clock);
    jobs.iter().for_each(|job| job.context.wakers.wake());
    jobs.into_iter().map(Job::end).fold(outcome, Error::and)
}

/// The outcome of a run in which this topology is refused, for this reason.
fn refused(outcome: Result<(), Error>, (name, reason): (String, String), may_pass: bool) -> Result<(), Error> {
    tracing::error!(topology = name, %reason, "topology refused");
    Error::and(outcome, Err(Error::Topology { name, reason, may_pass }))
}

/// The preflight, retried while the cluster cannot be reached. Reports the brokers' abilities, unless that was done.
fn preflight_once_reached<C: Cluster>(
    preflight: &Preflight<'_, C>,
    topology: &Topology,
    config: &Config,
    (clock, stop): (&dyn Clock, &AtomicBool),
    is_reported: &mut bool,
) -> Result<Admitted, cluster::Error> {
    let mut attempt = 0;
    let mut missed = None;
    loop {
        let reached = reach::reach(preflight.cluster(), config, clock, stop).map_err(|error| described(config, error));
        let admitted = reached.and_then(|abilities| {
            let news = abilities.filter(|_| !std::mem::replace(is_reported, true));
            news.iter().for_each(reach::report);
            preflight.begin()
        });
        match admitted {
            Err(error) if error.kind != ErrorKind::Refused && !stop.load(Ordering::Relaxed) => {
                tracing::warn!(topology = topology.name, reason = %error.message, "cannot start yet; trying again");
                clock.wait(backoff(attempt), stop);
                attempt += 1;
            }
            Err(error) if C::IS_SHARED && error.is_missing() && !stop.load(Ordering::Relaxed) => {
                let now = clock.monotonic();
                if missed.is_none() {
                    let name = &topology.name;
                    tracing::warn!(topology = name, reason = %error.message, "unknown topic; retrying for a while");
                }
                if now.saturating_sub(*missed.get_or_insert(now)) >= MISSING_WAIT {
                    return Err(error);
                }
                clock.wait(MISSING_INTERVAL, stop);
            }
            admitted => return admitted,
        }
    }
}

/// One topology's lanes.
struct Job {
    context: Arc<Context>,
    lanes: Vec<RunningLane>,
    /// The threads that watch topics and commands.
    watches: Vec<JoinHandle<()>>,
}

struct RunningLane {
    status: Arc<LaneStatus>,
    thread: JoinHandle<Result<(), LaneError>>,
}

impl Job {
    /// Starts as much as possible, with an error if not everything started: the system may be out of threads.
    fn start<C: Cluster>(
        cluster: &C,
        context: Arc<Context>,
        lanes: usize,
        stop: &Arc<AtomicBool>,
    ) -> (Self, Result<(), Error>) {
        let mut job = Self { context, lanes: Vec::new(), watches: Vec::new() };
        let started = (0..lanes.max(1)).try_for_each(|index| job.start_lane(cluster, index, stop));
        let started = started.and_then(|()| {
            let (watched, clients, ends) = (job.context.clone(), cluster.clone(), stop.clone());
            job.watches.push(spawn("watch".to_owned(), move || keep_watch(&clients, &watched, &ends))?);
            if job.context.topology.calls().is_some() {
                let (commanded, clients, ends) = (job.context.clone(), cluster.clone(), stop.clone());
                job.watches.push(spawn("control".to_owned(), move || control::run_watch(&clients, &commanded, &ends))?);
            }
            Ok(())
        });
        (job, started)
    }

    fn start_lane<C: Cluster>(&mut self, cluster: &C, index: usize, stop: &Arc<AtomicBool>) -> Result<(), Error> {
        let status = Arc::new(LaneStatus::default());
        let (context, cluster, stop, shared) = (self.context.clone(), cluster.clone(), stop.clone(), status.clone());
        let body = move || work(&context, &cluster, index, &shared, rand::random, &stop);
        self.lanes.push(RunningLane { status, thread: spawn(format!("lane-{index}"), body)? });
        Ok(())
    }

    /// Whether all records of the inputs are committed, or never will be.
    fn is_drained(&self) -> bool {
        let counts = self.lanes.iter().map(|lane| lane.status.counts());
        let (tasks, drained) =
            counts.fold((0, 0), |sum, counts| (sum.0 + counts.tasks, sum.1 + counts.drained + counts.failed));
        self.is_over() || (tasks >= self.context.topics.task_count() && drained == tasks)
    }

    fn is_over(&self) -> bool {
        self.lanes.iter().all(|lane| lane.thread.is_finished())
    }

    fn end(self) -> Result<(), Error> {
        let Self { context, lanes, watches } = self;
        let name = context.topology.name.clone();
        let mut outcome = Ok(());
        let (mut stopped, mut passing) = (0, 0);
        for lane in lanes {
            let ended = match lane.thread.join() {
                Ok(Ok(())) => Ok(()),
                Ok(Err(LaneError::Failure(error))) => {
                    let may_pass = error.may_pass();
                    Err(Error::Topology { name: name.clone(), reason: error.message, may_pass })
                }
                Ok(Err(LaneError::Panicked(_))) | Err(_) => Err(Error::Panicked { name: name.clone() }),
            };
            outcome = Error::and(outcome, ended);
            let counts = lane.status.counts();
            (stopped, passing) = (stopped + counts.failed, passing + counts.passing);
        }
        for watch in watches {
            if watch.join().is_ok() {
                continue;
            }
            outcome = Error::and(outcome, Err(Error::Panicked { name: name.clone() }));
        }
        let tasks_result = match (stopped, context.topics.refused_count()) {
            (0, 0) => Ok(()),
            (0, topics) => Err(Error::Topics { name, topics }),
            (tasks, _) => Err(Error::Tasks { name, tasks, refused: passing == 0 }),
        };
        Error::and(outcome, tasks_result)
    }
}

/// Waits until the run has to end, and signals that to the lanes; meanwhile reports disks that do not respond.
fn supervise(jobs: &[Job], until_drained: bool, stop: &AtomicBool, health: &Health, clock: &dyn Clock) {
    let mut disks = Disks::default();
    while !stop.load(Ordering::Relaxed) {
        disks.check(health, clock.monotonic());
        if jobs.iter().all(Job::is_over) || (until_drained && jobs.iter().all(Job::is_drained)) {
            stop.store(true, Ordering::Relaxed);
        }
        std::thread::park_timeout(SUPERVISE_INTERVAL);
    }
}

/// The watch's thread: restarts the watch after a panic, which leaves no inconsistent state behind.
pub fn keep_watch<C: Cluster>(cluster: &C, context: &Context, stop: &AtomicBool) {
    let mut attempt = 0;
    while let Err(panic) = caught(|| watch::watch(cluster, context, stop)) {
        context.health.watch_panicked(&context.topology.name, true);
        tracing::error!(topology = context.topology.name, reason = %panic, "the watch panicked; restarting it");
        context.clock.wait(backoff(attempt), stop);
        attempt += 1;
    }
}

/// A lane's thread: creates the lane, steps it, and restarts it where it cannot continue. `random` returns a new number
/// each time, which no other lane of any process uses.
pub fn work<C: Cluster>(
    context: &Arc<Context>,
    cluster: &C,
    index: usize,
    status: &Arc<LaneStatus>,
    random: impl Fn() -> u64,
    stop: &AtomicBool,
) -> Result<(), LaneError> {
    let (mut attempt, mut panics) = (0, 0);
    // A right that was granted before may be granted again.
    let mut has_joined = false;
    let topology = &context.topology.name;
    while !stop.load(Ordering::Relaxed) {
        let joined_at = context.clock.monotonic();
        let join = || {
            let joined = Lane::join(context.clone(), cluster.clone(), index, random(), status.clone());
            has_joined |= joined.is_ok();
            joined
        };
        let ended = lane::run(join, stop);
        context.health.lane_joined(topology, index, false);
        let Err(reason) = ended else { return Ok(()) };
        let lasted = context.clock.monotonic().saturating_sub(joined_at) > LANE_LASTED;
        (attempt, panics) = if lasted { (0, 0) } else { (attempt + 1, panics) };
        match &reason {
            LaneError::Failure(error) if error.kind == ErrorKind::Refused && !(error.is_denied() && has_joined) => {
                tracing::error!(topology, lane = index, %reason, "lane refused");
                status.retain_series(Vec::new());
                return Err(reason);
            }
            LaneError::Failure(_) => tracing::warn!(topology, lane = index, %reason, "lane restarts"),
            LaneError::Panicked(_) => {
                panics += 1;
                context.health.lane_panicked(topology, index);
                if panics >= context.limits.lane_panics_max || stop.load(Ordering::Relaxed) {
                    tracing::error!(topology, lane = index, %reason, panics, "lane given up");
                    status.set(status::Counts::default());
                    status.retain_series(Vec::new());
                    return Err(reason);
                }
                tracing::error!(topology, lane = index, %reason, panics, "lane restarts");
            }
        }
        context.clock.wait(backoff(attempt), stop);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
