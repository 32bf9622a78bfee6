//! Goal: a lane whose group is unreachable is reported as not joined, and the lag of its former partitions remains
//! visible.

use super::faulty::{Faults, Faulty};
use super::*;

const INPUT: &str = "orders";

/// Starts two lanes, one of which owns the only partition. Also returns the switch that makes the group unreachable.
fn start(site: &Site) -> (Running, Arc<AtomicBool>) {
    let faults = Arc::new(Faults::default());
    let (stop, health, metrics) = (Arc::new(AtomicBool::new(false)), Health::new(), Metrics::new());
    let options = Options {
        config: site.config(),
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), "clean")],
        handlers: Default::default(),
        until_drained: false,
        stop: stop.clone(),
        metrics: metrics.clone(),
        health: health.clone(),
    };
    let (cluster, is_group_unreachable) =
        (Faulty { inner: site.cluster.clone(), faults: faults.clone() }, faults.is_group_unreachable.clone());
    let thread = std::thread::spawn(move || run_on(&cluster, options));
    let running = Running { stop, health, metrics, thread };
    await_condition("the lanes to be active", || {
        running.failing_checks().is_empty() && running.series_count("lag_records") == 1
    });
    (running, is_group_unreachable)
}

impl Running {
    /// The number of series of this metric.
    fn series_count(&self, name: &str) -> usize {
        let text = self.metrics.render();
        text.lines().filter(|line| line.starts_with(&format!("ratchet_{name}{{"))).count()
    }
}

#[test]
fn lane_that_lost_its_group_is_not_joined() {
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    let (running, is_group_unreachable) = start(&site);
    is_group_unreachable.store(true, Ordering::SeqCst);
    // This includes the lane that had no partition to lose.
    await_condition("both lanes to be reported", || running.failing_checks() == ["lane shop/0", "lane shop/1"]);
    is_group_unreachable.store(false, Ordering::SeqCst);
    await_condition("both to have joined again", || running.failing_checks().is_empty());
    running.end().unwrap();
}

#[test]
fn lag_of_a_lost_partition_stays_until_its_lane_has_joined_again() {
    let site = Site::new();
    site.send(INPUT, "a", &[1, 2]);
    let (running, is_group_unreachable) = start(&site);
    site.await_values("clean", 2);
    is_group_unreachable.store(true, Ordering::SeqCst);
    await_condition("the task to be lost", || running.metric("ratchet_tasks") == 0.0);
    let shown = ["lag_records", "lag_seconds", "lag_measured_timestamp_seconds", "last_commit_timestamp_seconds"];
    assert_eq!(shown.map(|name| running.series_count(name)), [1; 4]);
    assert_eq!(running.series_count("restore_remaining_records"), 0, "no restore is under way");
    is_group_unreachable.store(false, Ordering::SeqCst);
    await_condition("the task to be back", || running.metric("ratchet_tasks") == 1.0);
    site.send(INPUT, "a", &[3]);
    site.await_values("clean", 3);
    let metrics = running.metrics.clone();
    running.end().unwrap();
    assert!(!metrics.render().contains("ratchet_lag_records{"), "no series is kept after the run");
}
