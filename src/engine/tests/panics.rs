//! Goal: a panic leaves nothing behind: it leaks no memory of records, and is not attributed to another record.

use super::faulty::{Faults, Faulty};
use super::*;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";
const CHANGELOG: &str = "ratchet.shop.orders.changelog";

/// A running engine on a cluster with these faults.
fn start(site: &Site, faults: Faults) -> (Running, Arc<Faults>) {
    let faults = Arc::new(faults);
    let (stop, health, metrics) = (Arc::new(AtomicBool::new(false)), Health::new(), Metrics::new());
    let options = Options {
        config: site.config(),
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)],
        handlers: Default::default(),
        until_drained: false,
        stop: Arc::clone(&stop),
        metrics: metrics.clone(),
        health: health.clone(),
    };
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let thread = std::thread::spawn(move || run_on(&faulty, options));
    (Running { stop, health, metrics, thread }, faults)
}

/// A site with processed records and without a store.
fn without_store() -> Site {
    let site = Site::new();
    site.send(INPUT, "a", &[1, 2, 3]);
    site.drain(&topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)).unwrap();
    std::fs::remove_dir_all(site.config().state_dir).unwrap();
    site
}

/// Whether the only task has stopped for good.
fn has_stopped(running: &Running) -> bool {
    let health = running.health.ready();
    health.iter().any(|check| check.name == format!("task shop/{INPUT}:0") && check.detail.contains("stopped"))
}

#[test]
fn finished_restore_frees_the_records_that_it_has_read() {
    let site = without_store();
    let (running, faults) = start(&site, Faults::default());
    await_condition("the restore", || running.metric("ratchet_restored_records_total") > 0.0);
    await_condition("the records that it has read to be freed", || faults.held.load(Ordering::SeqCst) == 0);
    running.end().unwrap();
}

#[test]
fn panicking_restore_frees_the_records_that_it_has_read() {
    let site = without_store();
    let faults = Faults { panicking_reader: Some((CHANGELOG, 1)), ..Faults::default() };
    let (running, faults) = start(&site, faults);
    await_condition("the task to stop", || has_stopped(&running));
    assert_eq!(faults.read.load(Ordering::SeqCst), 3);
    assert_eq!(faults.held_before.load(Ordering::SeqCst), 0, "records were held while the task restored again");
    await_condition("the records that were read last to be freed", || faults.held.load(Ordering::SeqCst) == 0);
    assert!(matches!(running.end(), Err(Error::Tasks { tasks: 1, .. })));
}

#[test]
fn record_that_has_panicked_is_not_blamed_for_later_panics() {
    let site = Site::new();
    site.send(INPUT, "a", &[1, 2, 3]);
    // The output fails the task, which is then isolated; there the record panics, and afterwards every read.
    let faults = Faults {
        failing_output: Some(OUTPUT),
        panics_at_second_send: true,
        panicking_reader: Some((INPUT, 2)),
        ..Faults::default()
    };
    let (running, faults) = start(&site, faults);
    await_condition("the task to stop", || has_stopped(&running));
    assert_eq!(faults.sent.load(Ordering::SeqCst), 2);
    assert_eq!(faults.read.load(Ordering::SeqCst), 3, "with the panic at the record, three in a row");
    assert!(matches!(running.end(), Err(Error::Tasks { tasks: 1, .. })));
    assert!(site.values(OUTPUT).is_empty());
}
