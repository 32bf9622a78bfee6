//! An input that lies ready, and how fast a contender gets through it.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde::{Deserialize, Serialize};

use super::stage::{LOOK, Stage};
use crate::broker;
use crate::failure::{Context as _, Outcome, fail};
use crate::part::Bench;
use crate::usage::Usage;

/// How long the last records may take to be acknowledged.
const FLUSH_WAIT: Duration = Duration::from_secs(120);
/// Even the slowest contender manages so many records a second; else something is wrong.
const RATE_MIN: u64 = 2_000;
/// What a start may take, a restore included.
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
        // Writing to a vector does not fail.
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

/// What getting through an input took. Start-up is not in it: it begins with the first commit that is seen.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Drained {
    pub records_per_second: f64,
    /// CPU time for a record: the contender's, the broker's.
    pub cpu_us: f64,
    pub broker_us: f64,
    pub peak_bytes: u64,
}

/// Lets the stage's contender get through `records` of its input, of which `done` were committed before, and stops
/// it in good order.
pub fn drain(bench: &Bench, stage: &Stage<'_>, done: u64, records: u64) -> Outcome<Drained> {
    let mut live = stage.start()?;
    let watch = stage.watch()?;
    let deadline = Instant::now() + START_WAIT + Duration::from_secs((records - done) / RATE_MIN);
    let mut step = bench.progress.step(format!("{} takes {}", stage.contender, stage.spec.input), records - done);
    let look = |live: &crate::contender::Running| (Instant::now(), live.usage(), Usage::of(bench.broker.pid()));
    let mut first = None;
    let (last, from) = loop {
        live.running.check()?;
        let sum = watch.sum()?;
        step.at(sum.saturating_sub(done));
        if first.is_none() && sum > done {
            first = Some((look(&live.running), sum));
        }
        if let Some((from, sum_before)) = first
            && sum >= records
        {
            break (look(&live.running), (from, sum_before));
        }
        if Instant::now() > deadline {
            return Err(live.running.failure(&format!("had committed {sum} of {records} records and took too long")));
        }
        std::thread::sleep(LOOK);
    };
    drop(step);
    live.running.stop()?;
    let ((began, usage_before, broker_before), sum_before) = from;
    let (ended, usage, broker) = last;
    // All in one commit: there is nothing between two moments to be measured.
    let counted = (records - sum_before).max(1) as f64;
    let per_record = |cpu: Duration| cpu.as_secs_f64() * 1e6 / counted;
    Ok(Drained {
        records_per_second: counted / (ended - began).as_secs_f64().max(0.001),
        cpu_us: per_record(usage.cpu_since(&usage_before)),
        broker_us: per_record(broker.cpu_since(&broker_before)),
        peak_bytes: usage.peak_bytes,
    })
}
