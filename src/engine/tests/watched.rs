//! Goal: the watch checks as often as promised, even while leaders that it queries are down, and does not delay the end
//! of a run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use super::faulty::{Faults, Faulty, WatchHook};
use super::*;
use crate::record::TopicPartition;

const INPUT: &str = "orders";

/// A clock that advances only during waits.
#[derive(Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn forward(&self, length: Duration) {
        self.0.fetch_add(length.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn wall_ms(&self) -> i64 {
        self.monotonic().as_millis() as i64
    }

    fn wait(&self, length: Duration, stop: &AtomicBool) {
        if !stop.load(Ordering::Relaxed) {
            self.forward(length);
        }
    }
}

/// The context of a run of `topology`, which reads [`INPUT`].
pub fn context(site: &Site, topology: &Topology, clock: Arc<dyn Clock>) -> Context {
    let described = site.cluster.describe_topic_briefly(INPUT).unwrap().unwrap();
    let topic = catalog::InputTopic {
        input_id: described.id,
        changelog_id: site
            .cluster
            .describe_topic_briefly(&topology.changelog(INPUT))
            .unwrap()
            .map_or(described.id, |found| found.id),
        task_count: described.partition_count.unsigned_abs(),
        delete_retention_ms: 0,
        dead_letter_partitions: 1,
        audit_partitions: 1,
        result_partitions: 1,
    };
    let config = site.config();
    Context {
        rules: topology.rules.clone(),
        rules_digest: topology.rules.digest(),
        topology: topology.clone(),
        topics: Catalog::new([(Arc::from(INPUT), topic)].into(), BTreeMap::new()),
        topic_settings: config.topics,
        commit: config.commit,
        isolated_room: capacity::Capacity::of(1_000, 1 << 20),
        state_slot: Arc::new(StateSlot::lock(&config.state_dir).unwrap()),
        memory: Memory::new(config.memory_bytes),
        registry: Registry::default(),
        metrics: Metrics::new(),
        health: Health::new(),
        recreated_count: AtomicU64::new(0),
        check_topics_now: AtomicBool::new(false),
        wakers: Wakers::default(),
        proven: Proven::default(),
        held_up: HeldUp::default(),
        ids: Ids::default(),
        limits: Limits::DEFAULT,
        sink: None,
        gate: None,
        provider: None,
        control_topic: LatestBounds::default(),
        clock,
    }
}

/// Watches until `enough` returns true, which receives the start of each check, and the end of each lookup of a
/// transaction, which gets no response. Returns the starts of the checks, and the end.
fn watch_until(enough: impl Fn(&[Duration], &[Duration]) -> bool + Send + Sync + 'static) -> (Vec<Duration>, Duration) {
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    let clock = Arc::new(ManualClock::default());
    let topology = topology(Input::Topics(vec![INPUT.to_owned()]), "clean");
    let context = Arc::new(context(&site, &topology, clock.clone()));
    let stop = Arc::new(AtomicBool::new(false));
    let events = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let (recorded, stop_flag, at, shared) = (events.clone(), stop.clone(), clock.clone(), context.clone());
    let hook: WatchHook = Box::new(move |unanswered| {
        let (checks, lookups) = &mut *recorded.lock().unwrap();
        if let Some(wait) = unanswered {
            // The lookup takes all the permitted time, or a long time if that is unlimited.
            at.forward(wait.min(Duration::from_secs(7)));
            lookups.push(at.monotonic());
        } else {
            checks.push(at.monotonic());
            let tasks = (0..20).map(|partition| TopicPartition::new(INPUT, partition));
            tasks.for_each(|task| {
                shared.held_up.record(&task, Some(7), at.monotonic());
            });
        }
        if enough(checks, lookups) {
            stop_flag.store(true, Ordering::Relaxed);
        }
    });
    let faults = Arc::new(Faults { watch_hook: Some(hook), ..Faults::default() });
    keep_watch(&Faulty { inner: site.cluster.clone(), faults }, &context, &stop);
    let (checks, _) = std::mem::take(&mut *events.lock().unwrap());
    (checks, clock.monotonic())
}

#[test]
fn missing_leaders_do_not_delay_checks() {
    let (checks, _) = watch_until(|_, lookups| lookups.len() >= 30);
    let mut gaps = checks.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
    gaps.dedup();
    // Each checks the input and its changelog.
    let usual = [Duration::ZERO, watch::WATCH_INTERVAL];
    assert!(gaps.iter().all(|gap| usual.contains(gap)), "{gaps:?}");
}

#[test]
fn ending_run_waits_for_at_most_one_lookup() {
    for lookups_before in [1, 2, 5] {
        let (checks, ended) = watch_until(move |_, lookups| lookups.len() >= lookups_before);
        let last = *checks.last().unwrap();
        assert!(ended - last <= Duration::from_secs(1), "it continued for {:?}", ended - last);
    }
    // If the run is stopped during a check of the topics, there are no more queries.
    let (checks, ended) = watch_until(|checks, _| checks.iter().any(|at| *at >= Duration::from_secs(100)));
    assert_eq!(ended, *checks.last().unwrap());
}
