//! Goal: records that are broken, too large, decompression bombs or wrongly dated are set aside one by one, and the
//! others continue.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::checker::{Fate, Found};
use crate::cluster::{Fresh, Kafka, Stored};
use crate::hostile::{broken_records, noise, raw};
use crate::job::Job;
use crate::load::{now_ms, thing};
use crate::report::Report;
use crate::stage::{PARTITIONS, RECOVERY_MAX, Stage};
use crate::until::within;

const ROUNDS: usize = 4;
/// Nearly the largest value that Kafka's default lets a topic take.
const OUTPUT_BYTES_MAX: usize = 1_040_000;
/// A job without a memory limit has to stay below this, whatever it is sent here.
const MEMORY_MAX_BYTES: u64 = 1 << 30;

/// A job whose input has these settings.
fn job(theme: &str, input: &[(&str, &str)]) -> Job {
    let job = Job::on(Kafka::shared(), theme);
    job.kafka.create(&job.input, PARTITIONS, input);
    job.kafka.create(&job.output, PARTITIONS, &[]);
    job
}

/// Sends records into the load, again and again; everything has to make progress.
fn sent_among_others(report: &mut Report, mut stage: Stage, mut send: impl FnMut(&Job, usize) -> u64) -> Found {
    for round in 0..ROUNDS {
        sleep(Duration::from_millis(500));
        report.injected(send(&stage.job, round));
        stage.recover(report, Instant::now(), RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    let peak = stage.operators.iter().map(|operator| operator.memory_peak_bytes()).max().unwrap_or(0);
    println!("{}: at most {} MiB of memory", report.name, peak >> 20);
    assert!(peak < MEMORY_MAX_BYTES, "{}: {peak} bytes of memory", report.name);
    stage.finish(report)
}

/// Kafka itself rejects timestamps more than an hour ahead, unless configured otherwise.
const ANY_TIME: (&str, &str) = ("message.timestamp.after.max.ms", "9223372036854775807");

pub fn poison(report: &mut Report) {
    let stage = Stage::set(job("poison", &[ANY_TIME]), 2);
    let found = sent_among_others(report, stage, |job, round| {
        let broken =
            broken_records().into_iter().map(|record| Fresh { partition: round as i32 % PARTITIONS, ..record });
        let broken: Vec<_> = broken.collect();
        let count = broken.len() as u64;
        job.send(broken);
        count
    });
    assert!(found.dead_lettered() >= ROUNDS * broken_records().len(), "{found:?}");
    // The load has none of these.
    for reason in ["null_value", "identity_not_scalar", "identity_too_long", "version_malformed", "timestamp_in_future"]
    {
        assert!(found.count(Fate::DeadLettered(reason)) >= ROUNDS, "{reason}: {found:?}");
    }
}

fn too_large_for_the_output(record: &Stored) -> bool {
    record.value.as_ref().is_some_and(|value| value.len() > OUTPUT_BYTES_MAX)
}

/// Larger than the output takes, and larger than ratchet takes.
pub fn oversized(report: &mut Report) {
    let mut job = job("oversized", &[("max.message.bytes", "20000000")]);
    job.rules.unsendable = too_large_for_the_output;
    let stage = Stage::set(job, 2);
    let found = sent_among_others(report, stage, |job, round| {
        let partition = round as i32 % PARTITIONS;
        let large = |id: &str, bytes: usize| {
            let value = format!("{{\"id\":\"{id}-{round}\",\"version\":1,\"noise\":\"{}\"}}", noise(bytes));
            Fresh { partition, ..raw(value) }
        };
        // Above the limit by a quarter of a MiB; a dead letter may be a whole MiB larger.
        job.send([large("large", 2_000_000), large("huge", (16 << 20) + (256 << 10)), large("large", 3_000_000)]);
        3
    });
    assert_eq!(found.count(Fate::DeadLettered("unsendable")), 2 * ROUNDS, "{found:?}");
    assert_eq!(found.count(Fate::DeadLettered("record_too_large")), ROUNDS, "{found:?}");
}

/// What a bomb unpacks to.
const UNPACKED_BYTES: usize = 6_000_000;

/// Some kilobytes that unpack to megabytes, with each of Kafka's compressions.
pub fn decompression_bombs(report: &mut Report) {
    const CODECS: [&str; ROUNDS] = ["gzip", "zstd", "lz4", "snappy"];
    let mut job = job("bombs", &[]);
    job.rules.unsendable = too_large_for_the_output;
    let stage = Stage::set(job, 2);
    let found = sent_among_others(report, stage, |job, round| {
        let writer = job.kafka.writer_with(&[("compression.type", CODECS[round])]);
        for nth in 0..PARTITIONS {
            let zeros = "0".repeat(UNPACKED_BYTES);
            let value = format!("{{\"id\":\"bomb-{round}-{nth}\",\"version\":1,\"zeros\":\"{zeros}\"}}");
            writer.send(&job.input, &Fresh { partition: nth, ..raw(value) });
            // One a batch: the client bounds what a batch unpacks to.
            writer.flush();
        }
        PARTITIONS as u64
    });
    assert_eq!(found.count(Fate::DeadLettered("unsendable")), ROUNDS * PARTITIONS as usize, "{found:?}");
}

/// A batch that unpacks to more than the client takes: it cannot be read, and must not be skipped. Only its task stops,
/// with the record's place; once the limit is raised, it continues.
pub fn bomb_beyond_reading(report: &mut Report) {
    const BOMBS: usize = 4;
    const WORDS: [&str; 2] = ["cannot be read at offset", "raise"];
    let mut job = job("beyond", &[]);
    job.worker.push("unpacked: 20MiB".to_owned());
    job.rules.unsendable = too_large_for_the_output;
    let mut stage = Stage::set(job, 1);
    // All of it in one batch.
    let one_batch = [("batch.size", "400000000"), ("message.max.bytes", "400000000"), ("linger.ms", "3000")];
    let mut properties = vec![("compression.type", "zstd")];
    properties.extend(one_batch);
    let writer = stage.job.kafka.writer_with(&properties);
    for nth in 0..BOMBS {
        let value = format!("{{\"id\":\"beyond-{nth}\",\"version\":1,\"zeros\":\"{}\"}}", "0".repeat(UNPACKED_BYTES));
        writer.send(&stage.job.input, &raw(value));
    }
    writer.flush();
    let since = Instant::now();
    report.injected(1);
    stage.operators[0].await_error(&[WORDS[0], WORDS[1], &stage.job.input]);
    let before = stage.committed();
    within(RECOVERY_MAX, "the other partitions to continue", || {
        let mut others = stage.committed().into_iter().zip(&before).skip(1);
        others.all(|(now, before)| now > *before).then_some(())
    });
    report.recovered(since.elapsed());
    stage.end_load();
    for partition in 1..PARTITIONS {
        let end = stage.job.kafka.bounds(&stage.job.input, partition).end;
        within(RECOVERY_MAX, "the other partitions to be drained", || {
            (stage.committed()[partition as usize] >= end).then_some(())
        });
    }
    let committed = stage.committed();
    assert_eq!(committed[0], before[0], "it went past what it could not read");
    stage.operators[0].assert_running();
    stage.operators[0].terminate();
    stage.operators[0].await_exit(RECOVERY_MAX);
    // The advice in the error helps, and nothing was lost.
    stage.job.worker.retain(|line| !line.starts_with("unpacked:"));
    stage.restart(0);
    let found = stage.finish(report);
    assert_eq!(found.count(Fate::DeadLettered("unsendable")), BOMBS, "{found:?}");
    report.refused(&WORDS[..1]);
}

/// Senders with clocks hours behind or ahead, or some seconds ahead, and a retention of a minute: records from behind
/// are late, records from far ahead are not believed, and neither makes anything else expire.
pub fn clock_skew(report: &mut Report) {
    const DAY_MS: i64 = 86_400_000;
    let job = job("skew", &[ANY_TIME]).with_retention(Duration::from_secs(60));
    let mut stage = Stage::set(job, 2);
    for round in 0..ROUNDS {
        sleep(Duration::from_millis(500));
        // `future_max` is a tenth of the retention.
        for (nth, skew_ms) in
            [-DAY_MS, -3_600_000, -30_000, 3_000, 3_600_000, DAY_MS, 400 * DAY_MS].into_iter().enumerate()
        {
            let id = format!("skewed-{round}-{nth}");
            stage.job.send((0..PARTITIONS).map(|p| thing(p, &id, 1).at(now_ms() + skew_ms)));
            report.injected(PARTITIONS as u64);
        }
        stage.recover(report, Instant::now(), RECOVERY_MAX);
    }
    stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    let found = stage.finish(report);
    for reason in ["late", "timestamp_in_future"] {
        assert!(found.count(Fate::DeadLettered(reason)) >= 2 * ROUNDS, "{reason}: {found:?}");
    }
}
