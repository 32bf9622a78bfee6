//! Goal: what many topologies take of one process that has nothing to do is bounded, by topologies and by lanes
//! (`docs/limits.md`, "What topologies take").

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::Kafka;
use crate::job::Job;
use crate::load::things;
use crate::operator::{Operator, Options};
use crate::until::DEADLINE;

const TOPOLOGIES: usize = 10;
const LANES: usize = 4;
/// Every lane has taken over its partition and has committed a record, so that all its connections are open.
const SETTLE: Duration = Duration::from_secs(15);
/// How long it is watched.
const WATCHED: Duration = Duration::from_secs(10);

/// One each: the process's own, a topology's, a lane's.
struct Each {
    process: usize,
    topology: usize,
    lane: usize,
}

impl Each {
    const fn of_all(&self) -> usize {
        self.process + TOPOLOGIES * (self.topology + LANES * self.lane)
    }
}

/// A topology has a thread that watches its topics; a lane has its own and four of its member's.
const THREADS: Each = Each { process: 30, topology: 2, lane: 5 };
/// A lane has 15 pipes and sockets by which threads wake each other, and up to 9 connections: three of librdkafka's, three
/// for reading and three for writing. How many files its store has open depends on when the store flushes.
const DESCRIPTORS: Each = Each { process: 60, topology: 4, lane: 24 };
/// How often a lane at rest may wait in a second: for the answers to 20 fetches, 10 times for librdkafka, which sends a
/// heartbeat then and answers, and a few times because something of its own is due.
const WAITS_MAX: f64 = 60.0;
/// The share of a processor that a lane, with its member, may take: three times what it takes on a busy machine.
const OF_A_PROCESSOR_MAX: f64 = 0.03;

/// How often lanes have waited so far.
fn waits_of_lanes(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").filter_map(Result::ok);
    let lanes = tasks.filter(|task| {
        // A thread that ends meanwhile has no name any more.
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("lane-"))
    });
    let waits = lanes.map(|lane| {
        let status = fs::read_to_string(lane.path().join("status")).expect("a lane does not end");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("the kernel counts them")
    });
    waits.sum()
}

#[test]
fn idle_topologies_take_few_threads_files_and_little_processor_time() {
    let job = || {
        let mut job = Job::on(Kafka::shared(), "idle");
        job.worker.push(format!("lanes: {LANES}"));
        [&job.input, &job.output].iter().for_each(|topic| job.kafka.create(topic, LANES as i32, &[]));
        job
    };
    let jobs: Vec<Job> = (0..TOPOLOGIES).map(|_| job()).collect();
    let further = jobs[1..].iter().map(Job::write_topology).collect();
    let options = Options { further, data_path: Some(("auto", true)), ..Options::default() };
    let mut operator = Operator::start_with(&jobs[0], "a", &options);
    operator.await_ready(DEADLINE);
    for job in &jobs {
        job.send((0..LANES as i32).flat_map(|partition| things(partition, 0..1, 1)));
    }
    jobs.iter().for_each(|job| job.await_drained(DEADLINE));
    thread::sleep(SETTLE);

    let all = |what: &str| fs::read_dir(format!("/proc/{}/{what}", operator.pid())).expect("it runs").flatten();
    // One that was closed meanwhile is none any more.
    let opened = all("fd").filter_map(|one| fs::read_link(one.path()).ok());
    let (threads, descriptors) = (all("task").count(), opened.filter(|of| !of.is_absolute()).count());
    let (began, waited, spent) = (Instant::now(), waits_of_lanes(operator.pid()), operator.cpu_seconds());
    thread::sleep(WATCHED);
    let seconds = began.elapsed().as_secs_f64();
    let lanes = (TOPOLOGIES * LANES) as f64;
    let waits = (waits_of_lanes(operator.pid()) - waited) as f64 / lanes / seconds;
    let of_a_processor = (operator.cpu_seconds() - spent) / lanes / seconds;
    operator.stop();

    println!("{threads} threads, {descriptors} descriptors, a lane: {waits:.1} waits/s, {of_a_processor:.4} of a core");
    assert!(threads <= THREADS.of_all(), "{threads} threads, more than {}", THREADS.of_all());
    assert!(descriptors <= DESCRIPTORS.of_all(), "{descriptors} descriptors, more than {}", DESCRIPTORS.of_all());
    assert!(waits <= WAITS_MAX, "a lane waits {waits:.1} times a second");
    assert!(of_a_processor <= OF_A_PROCESSOR_MAX, "a lane takes {of_a_processor:.4} of a processor");
}
