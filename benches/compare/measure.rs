//! Measures one run of one contender, from the commit that completes a tenth to the last, as seen by the broker.
//!
//! Starting, joining and warming up do not count.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::broker::{Broker, Watch};
use crate::contender::{Contender, Running};
use crate::failure::{Outcome, fail};
use crate::generate::PARTITIONS;
use crate::part::Bench;
use crate::spec::Spec;
use crate::usage::Usage;

/// How often the committed offsets are queried.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// A contender that commits nothing for this long has stalled.
const STALL: Duration = Duration::from_secs(90);

/// This fraction of the work is for warming up: caches, and just-in-time compilers.
const WARM_UP: u64 = 10;

/// The figures of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Records per second.
    pub rate: f64,
    /// CPU time of the contender per record, in microseconds.
    pub cpu_us: f64,
    /// CPU time of the broker per record, in microseconds.
    pub broker_cpu_us: f64,
    /// CPU time per record of a server beside, in microseconds, where there is one.
    #[serde(default)]
    pub server_cpu_us: f64,
    /// The contender's peak resident memory.
    pub peak_mib: f64,
    /// Bytes that the contender wrote to disk per record.
    pub disk_bytes: f64,
    /// Bytes written into output, changelog and Kafka's own topics per record of the input.
    pub kafka_bytes: f64,
    /// From the start of the process to its first commit.
    pub start_seconds: f64,
}

/// What a run has to do.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The sum of the committed offsets before the run.
    pub from: u64,
    /// The same when it is done.
    pub to: u64,
    /// How many records have to come out.
    pub expected: u64,
}

/// Creates the output (and the changelog, if needed), runs the contender, checks its output's count.
/// The topics stay.
pub fn run(bench: &Bench, contender: Contender, spec: &Spec, task: Task, label: &str) -> Outcome<Sample> {
    if contender.writes_changelog() {
        bench.broker.create(&spec.changelog, PARTITIONS, &[("cleanup.policy", "compact")])?;
    }
    run_beside(bench, spec, task, label, None, || contender.start(spec))
}

/// The same with whatever `start` starts, and with a server beside, whose CPU time is measured too.
pub fn run_beside(
    bench: &Bench,
    spec: &Spec,
    task: Task,
    label: &str,
    server: Option<u32>,
    start: impl FnOnce() -> Outcome<Running>,
) -> Outcome<Sample> {
    let broker = &bench.broker;
    broker.create(&spec.output, PARTITIONS, &[])?;
    let watch = broker.watch(&spec.group, &spec.input, PARTITIONS)?;
    // Writes of earlier runs must not count.
    // SAFETY: a plain call.
    unsafe { libc::sync() };
    let before = broker.all_log_bytes();
    let mut running = start()?;
    let mut step = bench.progress.step(label, task.to - task.from);
    let mut sample = watched((broker, server), &watch, &mut running, task, |done| step.at(done))?;
    drop(step);
    running.stop()?;
    let records = (task.to - task.from) as f64;
    sample.kafka_bytes = grown(&before, &broker.all_log_bytes()) as f64 / records;
    let counted = broker.committed_records(&spec.output)?;
    if counted != task.expected {
        return Err(running.failure(&format!("wrote {counted} records where {} were right", task.expected)));
    }
    Ok(sample)
}

/// All figures at an instant.
struct Mark {
    at: Instant,
    done: u64,
    own: Usage,
    broker: Usage,
    server: Usage,
}

impl Mark {
    fn now(done: u64, running: &Running, (broker, server): (&Broker, Option<u32>)) -> Mark {
        let (at, server) = (Instant::now(), server.map(Usage::of).unwrap_or_default());
        Mark { at, done, own: running.usage(), broker: Usage::of(broker.pid()), server }
    }
}

fn watched(
    servers: (&Broker, Option<u32>),
    watch: &Watch,
    running: &mut Running,
    task: Task,
    mut tell: impl FnMut(u64),
) -> Outcome<Sample> {
    let (mut first, mut last, mut moved) = (None, task.from, Instant::now());
    let mut began: Option<Mark> = None;
    let warm = task.from + (task.to - task.from) / WARM_UP;
    loop {
        running.check()?;
        let done = watch.sum()?;
        if done > last {
            first.get_or_insert_with(|| running.age());
            (last, moved) = (done, Instant::now());
            tell(done - task.from);
        } else if moved.elapsed() > STALL {
            let left = task.to - last;
            return Err(running.failure(&format!("committed nothing for {STALL:?}, with {left} records left")));
        }
        if done >= task.to {
            let end = Mark::now(done, running, servers);
            let Some((start, age)) = began.zip(first) else {
                fail!("all was committed at once: too few records to measure")
            };
            return Ok(between(&start, &end, age));
        }
        if began.is_none() && done > task.from && done >= warm {
            began = Some(Mark::now(done, running, servers));
        }
        std::thread::sleep(ASK_EVERY);
    }
}

fn between(start: &Mark, end: &Mark, age: Duration) -> Sample {
    let records = (end.done - start.done) as f64;
    let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6 / records;
    Sample {
        rate: records / (end.at - start.at).as_secs_f64(),
        cpu_us: micros(end.own.cpu_since(&start.own)),
        broker_cpu_us: micros(end.broker.cpu_since(&start.broker)),
        server_cpu_us: micros(end.server.cpu_since(&start.server)),
        peak_mib: end.own.peak_bytes as f64 / f64::from(1 << 20),
        disk_bytes: end.own.written_since(&start.own) as f64 / records,
        kafka_bytes: 0.0,
        start_seconds: age.as_secs_f64(),
    }
}

/// How much logs have grown, summed over all topics.
fn grown(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    let old = |topic| before.get(topic).copied().unwrap_or(0);
    after.iter().map(|(topic, bytes)| bytes.saturating_sub(old(topic))).sum()
}
