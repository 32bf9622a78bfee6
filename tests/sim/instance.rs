//! An instance of the engine as it ships: one process with its lanes, on the simulated cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ratchet::cluster::{self, Kind};
use ratchet::config::{Commit, Create, Topics};
use ratchet::engine::catalog::Catalog;
use ratchet::engine::claims::Ids;
use ratchet::engine::context::{Context, Proven, backoff};
use ratchet::engine::held_up::HeldUp;
use ratchet::engine::lane::{self, Ended, Lane};
use ratchet::engine::panics::caught;
use ratchet::engine::preflight::{Admitted, Preflight};
use ratchet::engine::status::LaneStatus;
use ratchet::engine::watch::{self, Noticed, WATCH_INTERVAL};
use ratchet::observe::{Health, Metrics};
use ratchet::state::{Registry, Survey};
use ratchet::topology::Topology;

use crate::client::Sim;
use crate::judge::heard;
use crate::kafka::Time;
use crate::stores::Stores;
use crate::world::{Process, World};

/// How the topics that are missing are created.
const TOPIC_SETTINGS: Topics = Topics { create: Create::All, replication_factor: 3, min_insync_replicas: 2 };

/// What instances are made of.
#[derive(Clone)]
pub struct Plan {
    pub topology: Topology,
    pub lanes: usize,
    pub commit: Commit,
}

/// A running instance.
pub struct Instance {
    pub process: Process,
    /// Set to let it finish its work and leave.
    pub stop: Arc<AtomicBool>,
}

impl Instance {
    /// Starts one whose state is kept in `stores`.
    pub fn start(world: &World, plan: &Arc<Plan>, stores: &Stores) -> Self {
        let (process, stop) = (world.process(), Arc::new(AtomicBool::new(false)));
        let (own, plan, ends, stores) = (process.clone(), plan.clone(), stop.clone(), stores.clone());
        process.spawn(move || main(&own, &plan, &stores, &ends));
        Self { process, stop }
    }
}

/// What is looked at before lanes join; creates the topics that are missing.
pub fn admit(sim: &Sim, topology: &Topology, stores: &Stores) -> Result<Admitted, cluster::Error> {
    let rules_digest = topology.rules.digest();
    let survey = Survey::of(&stores.state_dir(), &stores.memory());
    let preflight = Preflight::new(sim, topology, &rules_digest, &TOPIC_SETTINGS, survey);
    preflight.reach()?;
    preflight.begin()
}

/// What the lanes of an instance share.
pub fn context(process: &Process, plan: &Plan, stores: &Stores, admitted: Admitted) -> Context {
    Context {
        rules: plan.topology.rules.clone(),
        rules_digest: plan.topology.rules.digest(),
        topology: plan.topology.clone(),
        topics: Catalog::new(admitted.topics, BTreeMap::new()),
        topic_settings: TOPIC_SETTINGS,
        commit: plan.commit,
        state_dir: Arc::new(stores.state_dir()),
        memory: stores.memory(),
        registry: Registry::default(),
        metrics: Metrics::new(),
        health: Health::new(),
        recreated: AtomicU64::new(0),
        look_now: AtomicBool::new(false),
        clock: Arc::new(process.clone()),
        held_up: HeldUp::default(),
        proven: Proven::default(),
        ids: Ids::default(),
    }
}

fn main(process: &Process, plan: &Plan, stores: &Stores, stop: &Arc<AtomicBool>) {
    let sim = Sim::new(process.clone());
    let mut attempt = 0;
    let admitted = loop {
        match admit(&sim, &plan.topology, stores) {
            Ok(admitted) => break admitted,
            Err(error) if error.kind == Kind::Refused || stop.load(Ordering::Relaxed) => {
                process.lock().note("refused", format_args!("{error}"));
                if error.kind == Kind::Refused {
                    heard::start_refused();
                }
                return;
            }
            Err(_) => process.sleep(backoff(attempt).as_micros() as Time),
        }
        attempt += 1;
    };
    let context = Arc::new(context(process, plan, stores, admitted));
    let (watched, asks, ends) = (context.clone(), sim.clone(), stop.clone());
    process.spawn(move || watch(&watched, &asks, &ends));
    for index in 0..plan.lanes {
        let (context, sim, stop) = (context.clone(), sim.clone(), stop.clone());
        process.spawn(move || work(&context, &sim, index, &stop));
    }
}

/// What looks at the topics, waiting by the world's time.
fn watch(context: &Context, sim: &Sim, stop: &AtomicBool) {
    let mut noticed = Noticed::default();
    loop {
        sim.process.sleep(WATCH_INTERVAL.as_micros() as Time);
        if stop.load(Ordering::Relaxed) || sim.process.is_dead() {
            return;
        }
        // As the engine's own watch: what panics there begins anew.
        if caught(|| watch::look(sim, context, &mut noticed)).is_err() {
            noticed = Noticed::default();
        }
    }
}

/// A lane's thread: `ratchet::engine`'s `work`, waiting by the world's time.
fn work(context: &Arc<Context>, sim: &Sim, index: usize, stop: &AtomicBool) {
    let process = &sim.process;
    let mut attempt = 0;
    while !stop.load(Ordering::Relaxed) && !process.is_dead() {
        let joined_at = process.now();
        let random = process.lock().random.next();
        let status = Arc::new(LaneStatus::default());
        let join = || Lane::join(context.clone(), sim.clone(), index, random, status);
        let Err(ended) = lane::live(join, stop) else { return };
        process.lock().note("lane ended", format_args!("{ended}"));
        match &ended {
            Ended::Trouble(error) if error.kind == Kind::Refused => return,
            Ended::Trouble(_) => {}
            Ended::Panicked(panic) => heard::lane_panicked(&panic.to_string()),
        }
        let lasted = process.now() - joined_at > 60 * crate::kafka::SECOND;
        attempt = if lasted { 0 } else { attempt + 1 };
        process.sleep(backoff(attempt).as_micros() as Time);
    }
}
