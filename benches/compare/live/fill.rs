//! A preloaded input, and how fast a contender processes it.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde::{Deserialize, Serialize};

use super::stage::{LOOK, Live, Stage};
use crate::broker;
use crate::failure::{Context as _, Outcome, fail};
use crate::part::Bench;
use crate::usage::Usage;

/// How long the last records may take to be acknowledged.
const FLUSH_WAIT: Duration = Duration::from_secs(120);
/// Even the slowest contender manages this many records per second, or something is wrong.
const RATE_MIN: u64 = 2_000;
/// How long a start may take, including a restore.
const START_WAIT: Duration = Duration::from_secs(120);

/// Writes events with these ids, each of about `value_bytes`, spread over the partitions.
pub fn fill(bench: &Bench, topic: &str, partitions: i32, ids: std::ops::Range<u64>, value_bytes: usize) -> Outcome<()> {
    let producer: BaseProducer = broker::client(bench.broker.bootstrap())
        .set("linger.ms", "20")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    let mut step = bench.progress.step(format!("filling {topic}"), ids.end - ids.start);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for id in ids.clone() {
        key.clear();
        value.clear();
        // writing to a vector never fails
        let _ = write!(key, "{:08}", id % 1_000_000);
        let _ = write!(value, "{{\"event_id\":{id},\"note\":\"");
        value.resize(value.len().max(value_bytes.saturating_sub(2)), b'x');
        value.extend_from_slice(b"\"}");
        let partition = (id % partitions as u64) as i32;
        let mut record = BaseRecord::to(topic).partition(partition).key(&key[..]).payload(&value[..]);
        while let Err((error, back)) = producer.send(record) {
            if !matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) {
                fail!("filling {topic}: {error}");
            }
            producer.poll(Duration::from_millis(10));
            record = back;
        }
        if id % 4096 == 0 {
            producer.poll(Duration::ZERO);
            step.at(id - ids.start);
        }
    }
    producer.flush(FLUSH_WAIT).context(format_args!("filling {topic}"))?;
    let written: i64 = bench.broker.ends(topic)?.iter().sum();
    if written as u64 != ids.end {
        fail!("{topic} holds {written} records, not {}", ids.end);
    }
    Ok(())
}

/// The figures of processing an input.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Drained {
    pub records_per_second: f64,
    /// CPU time per record: the contender's, the broker's.
    pub cpu_us: f64,
    pub broker_us: f64,
    pub peak_bytes: u64,
}

/// Runs the stage's contender until `records` of its input are committed, `done` of which were before, and stops it in
/// good order. The figures exclude start-up: they start with the first commit that is seen.
pub fn drain(bench: &Bench, stage: &Stage<'_>, done: u64, records: u64) -> Outcome<Drained> {
    let mut live = stage.start()?;
    let task = Task { done, records, deadline: Instant::now() + limit(records - done) };
    let (from, to) = task.watch(bench, stage, &mut live, None)?;
    live.running.stop()?;
    Ok(from.until(&to))
}

/// Starts the stage's contender on its empty input, then writes `records` of `value_bytes` as fast as possible and
/// waits until they are processed. The figures exclude start-up; they include the writer, which takes its share of the
/// cores.
pub fn keep_up(bench: &Bench, stage: &Stage<'_>, records: u64, value_bytes: usize) -> Outcome<Drained> {
    let mut live = stage.start()?;
    live.await_ready(stage.partitions, START_WAIT)?;
    let from = Look::at(bench, &live, 0);
    fill(bench, &stage.spec.input, stage.partitions, 0..records, value_bytes)?;
    let task = Task { done: 0, records, deadline: Instant::now() + limit(records) };
    let (from, to) = task.watch(bench, stage, &mut live, Some(from))?;
    live.running.stop()?;
    Ok(from.until(&to))
}

/// How long this many records may take, including a start.
fn limit(records: u64) -> Duration {
    START_WAIT + Duration::from_secs(records / RATE_MIN)
}

/// How many records were committed at a point in time.
struct Look {
    at: Instant,
    usage: Usage,
    broker: Usage,
    committed: u64,
}

impl Look {
    fn at(bench: &Bench, live: &Live, committed: u64) -> Look {
        Look { at: Instant::now(), usage: live.running.usage(), broker: Usage::of(bench.broker.pid()), committed }
    }

    fn until(&self, to: &Look) -> Drained {
        // All in one commit: there is nothing to measure between the two.
        let counted = (to.committed - self.committed).max(1) as f64;
        let per_record = |cpu: Duration| cpu.as_secs_f64() * 1e6 / counted;
        Drained {
            records_per_second: counted / (to.at - self.at).as_secs_f64().max(0.001),
            cpu_us: per_record(to.usage.cpu_since(&self.usage)),
            broker_us: per_record(to.broker.cpu_since(&self.broker)),
            peak_bytes: to.usage.peak_bytes,
        }
    }
}

/// How much has to be committed.
struct Task {
    done: u64,
    records: u64,
    deadline: Instant,
}

impl Task {
    /// Waits until everything is committed. Starts with `from`, or else with the first commit that is seen.
    fn watch(
        &self,
        bench: &Bench,
        stage: &Stage<'_>,
        live: &mut Live,
        mut from: Option<Look>,
    ) -> Outcome<(Look, Look)> {
        let watch = stage.watch()?;
        let label = format!("{} takes {}", stage.contender, stage.spec.input);
        let mut step = bench.progress.step(label, self.records - self.done);
        loop {
            live.running.check()?;
            let committed = watch.sum()?;
            step.at(committed.saturating_sub(self.done));
            match from {
                None if committed > self.done => from = Some(Look::at(bench, live, committed)),
                Some(from) if committed >= self.records => return Ok((from, Look::at(bench, live, committed))),
                _ => {}
            }
            if Instant::now() > self.deadline {
                let what = format!("had committed {committed} of {} records and took too long", self.records);
                return Err(live.running.failure(&what));
            }
            std::thread::sleep(LOOK);
        }
    }
}
