//! Goal: a task that works alone gives up in front of what cannot be read, as the others do.

use super::faulty::{Faults, Faulty};
use super::*;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";

#[test]
fn a_task_that_works_alone_gives_up_in_front_of_what_cannot_be_read() {
    let site = Site::new();
    site.send(INPUT, "a", &[1, 2, 3]);
    let faults = Faults { failing_output: Some(OUTPUT), unreadable: Some(INPUT), ..Faults::default() };
    let faults = Arc::new(faults);
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let stop = Arc::new(AtomicBool::new(false));
    let options = Options {
        config: site.config(),
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)],
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
    let tried = faults.read.load(Ordering::SeqCst);
    assert!(!stop.load(Ordering::Relaxed) || Instant::now() < deadline, "tried {tried} times, and still going on");
    let ended = run.join().unwrap();
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, .. })), "{ended:?}");
    assert_eq!(tried, 5);
    assert!(site.values(OUTPUT).is_empty());
}
