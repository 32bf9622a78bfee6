//! Goal: an isolated task gives up on unreadable records like any other; few isolated tasks are active at once, and all
//! get their turn.

use super::faulty::{Faults, Faulty, IsolatedReaders};
use super::*;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";

#[test]
fn isolated_task_gives_up_on_an_unreadable_record() {
    let site = Site::new();
    site.send(INPUT, "a", &[1, 2, 3]);
    let faults = Faults { failing_output: Some(OUTPUT), unreadable: Some(INPUT), ..Faults::default() };
    let faults = Arc::new(faults);
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let stop = Arc::new(AtomicBool::new(false));
    let options = Options {
        config: site.config(),
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)],
        handlers: Default::default(),
        until_drained: true,
        stop: Arc::clone(&stop),
        metrics: Metrics::new(),
        health: Health::new(),
    };
    let run = std::thread::spawn(move || run_on(&faulty, options));
    let deadline = Instant::now() + WAIT_MAX;
    while !run.is_finished() {
        if Instant::now() >= deadline {
            stop.store(true, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let attempts = faults.read.load(Ordering::SeqCst);
    assert!(!stop.load(Ordering::Relaxed) || Instant::now() < deadline, "still running after {attempts} attempts");
    let ended = run.join().unwrap();
    // The replica of one broker may be damaged: another replica may lead the partition at the next start.
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, refused: false, .. })), "{ended:?}");
    assert_eq!(attempts, 5);
    assert!(site.values(OUTPUT).is_empty());
}

/// A run of one lane whose output is down, once all its tasks are isolated.
fn all_isolated(site: &Site, partition_count: i32, silent_below: i32) -> (Running, Arc<Faults>) {
    for topic in [INPUT, OUTPUT] {
        site.create(topic, partition_count, &[]);
    }
    for partition in 0..partition_count {
        let values = ["a", "b", "c"].map(|id| format!(r#"{{"id":"{id}","version":1}}"#));
        let messages = values.each_ref().map(|value| {
            let (value, headers) = (Some(value.as_bytes()), Headers::default());
            Message { topic: INPUT, partition, key: None, value, headers, timestamp: Some(1_000) }
        });
        site.cluster.append(INPUT, partition, &messages).unwrap();
    }
    let isolated_readers =
        IsolatedReaders { input: INPUT, silent_below: silent_below.into(), ..IsolatedReaders::default() };
    let faults = Faults { output: Some(OUTPUT), is_down: true.into(), isolated_readers, ..Faults::default() };
    let faults = Arc::new(faults);
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let (stop, health, metrics) = (Arc::new(AtomicBool::new(false)), Health::new(), Metrics::new());
    let mut config = site.config();
    config.lanes = 1;
    let options = Options {
        config,
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)],
        handlers: Default::default(),
        until_drained: false,
        stop: stop.clone(),
        metrics: metrics.clone(),
        health: health.clone(),
    };
    let thread = std::thread::spawn(move || run_on(&faulty, options));
    let retried_count = || faults.attempts.lock().unwrap().values().filter(|times| **times > 3).count();
    let are_all_tried = || faults.attempts.lock().unwrap().len() == partition_count as usize;
    await_condition("all to be tried in isolation", || {
        are_all_tried() && retried_count() + silent_below as usize >= partition_count as usize
    });
    (Running { stop, health, metrics, thread }, faults)
}

fn forwarded(site: &Site, partitions: std::ops::Range<i32>) -> Vec<usize> {
    partitions.map(|partition| site.cluster.read_all(OUTPUT, partition).unwrap().len()).collect()
}

#[test]
fn isolated_tasks_take_turns_and_all_finish() {
    let site = Site::new();
    let (running, faults) = all_isolated(&site, 40, 40);
    let all_are_isolated =
        |text: &str| text.lines().any(|line| line.contains("state=\"isolated\"") && line.ends_with(" 40"));
    await_condition("all to be called isolated", || all_are_isolated(&running.metrics.render()));
    faults.isolated_readers.silent_below.store(0, Ordering::SeqCst);
    // The lane first tried the three records together, then each isolated task retried in its turn.
    let with_two_turns = || faults.attempts.lock().unwrap().values().filter(|times| **times >= 9).count();
    await_condition("each to have two turns", || with_two_turns() == 40);
    assert_eq!(faults.isolated_readers.max.load(Ordering::SeqCst), 4);
    faults.is_down.store(false, Ordering::SeqCst);
    await_condition("all to be forwarded", || forwarded(&site, 0..40).iter().sum::<usize>() >= 120);
    await_condition("none to be isolated", || faults.isolated_readers.current.load(Ordering::SeqCst) == 0);
    running.end().unwrap();
    assert_eq!(forwarded(&site, 0..40), [3; 40]);
    assert!(faults.isolated_readers.max.load(Ordering::SeqCst) <= 4);
}

#[test]
fn idle_isolated_tasks_let_the_others_work() {
    let site = Site::new();
    let (running, faults) = all_isolated(&site, 12, 6);
    faults.is_down.store(false, Ordering::SeqCst);
    await_condition("the others to be forwarded", || forwarded(&site, 6..12) == [3; 6]);
    assert_eq!(forwarded(&site, 0..6), [0; 6]);
    faults.isolated_readers.silent_below.store(0, Ordering::SeqCst);
    await_condition("all to be forwarded", || forwarded(&site, 0..12) == [3; 12]);
    running.end().unwrap();
}
