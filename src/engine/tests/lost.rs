//! Goal: a lane whose group is gone is seen to be outside of it, and what it had does not look as if it had no lag.

use super::faulty::{Faults, Faulty};
use super::*;

const INPUT: &str = "orders";

/// A run of two lanes, one of which has the only partition, and what takes the group away.
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
    let (cluster, is_out) = (Faulty { inner: site.cluster.clone(), faults: faults.clone() }, faults.is_out.clone());
    let thread = std::thread::spawn(move || run_on(&cluster, options));
    let running = Running { stop, health, metrics, thread };
    await_that("the lanes to be at work", || running.failing_checks().is_empty() && running.shows("lag_records") == 1);
    (running, is_out)
}

impl Running {
    /// How many series of this metric there are.
    fn shows(&self, name: &str) -> usize {
        let text = self.metrics.render();
        text.lines().filter(|line| line.starts_with(&format!("ratchet_{name}{{"))).count()
    }
}

#[test]
fn lane_that_lost_its_group_is_not_joined() {
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    let (running, is_out) = start(&site);
    is_out.store(true, Ordering::SeqCst);
    // Also the one that had no partition to lose.
    await_that("both to be outside", || running.failing_checks() == ["lane shop/0", "lane shop/1"]);
    is_out.store(false, Ordering::SeqCst);
    await_that("both to have joined again", || running.failing_checks().is_empty());
    running.end().unwrap();
}

#[test]
fn lag_of_a_lost_partition_stays_until_its_lane_has_joined_again() {
    let site = Site::new();
    site.send(INPUT, "a", &[1, 2]);
    let (running, is_out) = start(&site);
    site.await_values("clean", 2);
    is_out.store(true, Ordering::SeqCst);
    await_that("the task to be lost", || running.metric("ratchet_tasks") == 0.0);
    let shown = ["lag_records", "lag_seconds", "lag_measured_timestamp_seconds", "last_commit_timestamp_seconds"];
    assert_eq!(shown.map(|name| running.shows(name)), [1; 4]);
    assert_eq!(running.shows("restore_remaining_records"), 0, "no restore goes on");
    is_out.store(false, Ordering::SeqCst);
    await_that("the task to be back", || running.metric("ratchet_tasks") == 1.0);
    site.send(INPUT, "a", &[3]);
    site.await_values("clean", 3);
    let metrics = running.metrics.clone();
    running.end().unwrap();
    assert!(!metrics.render().contains("ratchet_lag_records{"), "nothing is kept beyond the run");
}
