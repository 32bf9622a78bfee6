//! An instance of the shipped engine: one process with its lanes, on the simulated cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ratchet::cluster::{self, Cluster, ErrorKind};
use ratchet::config::{Commit, Create, TopicSettings};
use ratchet::dedup::Bounds;
use ratchet::effect::Sink;
use ratchet::effect::gate::Gate;
use ratchet::engine::capacity::Capacity;
use ratchet::engine::catalog::Catalog;
use ratchet::engine::context::{Context, Proven, backoff};
use ratchet::engine::control::{self, LatestBounds};
use ratchet::engine::held_up::HeldUp;
use ratchet::engine::ids::Ids;
use ratchet::engine::limits::Limits;
use ratchet::engine::panics::caught;
use ratchet::engine::preflight::{Admitted, Preflight};
use ratchet::engine::wakers::Wakers;
use ratchet::engine::{self, keep_watch};
use ratchet::observe::{Health, Metrics};
use ratchet::state::{Registry, Survey};
use ratchet::topology::Topology;

use crate::client::Sim;
use crate::database::{Database, Kind};
use crate::gate::Simulated;
use crate::input::{CHANGELOG, Calls};
use crate::judge::{coverage, heard};
use crate::kafka::Time;
use crate::lies::{self, Liar, Lie};
use crate::provider;
use crate::stores::Stores;
use crate::world::{Process, World};

/// How missing topics are created.
const TOPIC_SETTINGS: TopicSettings =
    TopicSettings { create: Create::All, replication_factor: 3, min_insync_replicas: 2 };

/// The settings of an instance.
#[derive(Clone)]
pub struct Plan {
    pub topology: Topology,
    pub lanes: usize,
    pub commit: Commit,
    pub limits: Limits,
    /// How its sink decides, if it ends in one.
    pub sink: Option<Kind>,
    /// What it has agreed on with its provider, if it calls one, and who calls.
    pub provider: Option<Calls>,
}

/// A running instance.
pub struct Instance {
    pub process: Process,
    /// Set to let it finish its work and leave.
    pub stop: Arc<AtomicBool>,
}

impl Instance {
    /// Starts an instance whose state is kept in `stores`.
    pub fn start(world: &World, plan: &Arc<Plan>, stores: &Stores) -> Self {
        let (process, stop) = (world.process(), Arc::new(AtomicBool::new(false)));
        let (own, plan, ends, stores) = (process.clone(), plan.clone(), stop.clone(), stores.clone());
        process.spawn(move || main(&own, &plan, &stores, &ends));
        Self { process, stop }
    }
}

/// The checks before lanes join; creates missing topics.
pub fn admit<C: Cluster>(cluster: &C, topology: &Topology, stores: &Stores) -> Result<Admitted, cluster::Error> {
    let rules_digest = topology.rules.digest();
    let survey = Survey::of(&stores.state_slot(), &stores.memory());
    let preflight = Preflight::new(cluster, topology, &rules_digest, &TOPIC_SETTINGS, survey);
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
        isolated_room: Capacity::of(plan.commit.records_max, plan.commit.bytes_max),
        state_slot: Arc::new(stores.state_slot()),
        memory: stores.memory(),
        registry: Registry::default(),
        metrics: Metrics::new(),
        health: Health::new(),
        recreated_count: AtomicU64::new(0),
        check_topics_now: AtomicBool::new(false),
        wakers: Wakers::default(),
        limits: limits(plan),
        sink: plan.sink.map(|kind| -> Arc<dyn Sink> { Arc::new(Database { process: process.clone(), kind }) }),
        gate: plan
            .topology
            .gate
            .as_ref()
            .map(|_| -> Arc<dyn Gate> { Arc::new(Simulated { process: process.clone() }) }),
        provider: plan.provider.map(|calls| provider::of(process, (calls.by, calls.agreed), CHANGELOG)),
        control_topic: LatestBounds::default(),
        clock: Arc::new(process.clone()),
        held_up: HeldUp::default(),
        proven: Proven::default(),
        ids: Ids::default(),
    }
}

fn limits(plan: &Plan) -> Limits {
    let mut kept = plan.limits.kept;
    if lies::is_told(Lie::RangesUnbounded) {
        kept.ranges_max = Bounds::DEFAULT.ranges_max;
    }
    if lies::is_told(Lie::ScopesUnbounded) {
        kept.scopes_max = Bounds::DEFAULT.scopes_max;
    }
    Limits { kept, ..plan.limits }
}

fn main(process: &Process, plan: &Plan, stores: &Stores, stop: &Arc<AtomicBool>) {
    let sim = Liar(Sim::new(process.clone()));
    let mut attempt = 0;
    let admitted = loop {
        match admit(&sim, &plan.topology, stores) {
            Ok(admitted) => break admitted,
            Err(error) if error.kind == ErrorKind::Refused || stop.load(Ordering::Relaxed) => {
                process.lock().note("refused", format_args!("{error}"));
                if error.kind == ErrorKind::Refused {
                    if error.message.contains("was committed under other rules") {
                        process.lock().reach(coverage::OTHER_RULES_REFUSED);
                    }
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
    process.spawn(move || keep_watch(&asks, &watched, &ends));
    if plan.provider.is_some() {
        let (commanded, asks, ends) = (context.clone(), sim.clone(), stop.clone());
        process.spawn(move || control::run_watch(&asks, &commanded, &ends));
    }
    let at_work = Arc::new(AtomicUsize::new(plan.lanes));
    for index in 0..plan.lanes {
        let (context, sim, stop, at_work) = (context.clone(), sim.clone(), stop.clone(), at_work.clone());
        process.spawn(move || {
            let random = || sim.0.process.lock().random.next();
            let ended = caught(|| engine::work(&context, &sim, index, &Arc::default(), random, &stop));
            sim.0.process.lock().note("lane over", format_args!("{ended:?}"));
            // Without lanes the process ends, and its supervisor starts another.
            if at_work.fetch_sub(1, Ordering::Relaxed) == 1 {
                stop.store(true, Ordering::Relaxed);
            }
        });
    }
}
