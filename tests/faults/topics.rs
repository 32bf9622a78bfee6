//! Goal: what the cleaner, retention and people do to the topics is either survived or refused with words that say what
//! to do; if refused, nothing wrong was forwarded.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::checker::{Records, check_output};
use crate::cluster::Fresh;
use crate::job::{Job, TRANSACTION_TIMEOUT};
use crate::load::things;
use crate::operator::Operator;
use crate::report::Report;
use crate::stage::{PARTITIONS, RECOVERY_MAX, Stage, assert_sound, keep};
use crate::until::DEADLINE;

const ROUNDS: usize = 4;
/// How often a refusal is repeated, each time with its own topics and group.
const REFUSALS: usize = 3;
/// How many things are known before.
const KNOWN: usize = 1_000;
/// What has not happened after this time is taken not to happen.
const LATER: Duration = Duration::from_secs(3);

/// The changelog is compacted all the time, in segments of a fraction of a second; identities expire after seconds, and
/// their tombstones are removed soon after. Stores are rebuilt from what is left.
pub fn cleaner(report: &mut Report) {
    const TINY: &[(&str, &str)] = &[
        ("cleanup.policy", "compact"),
        ("segment.ms", "200"),
        ("min.cleanable.dirty.ratio", "0.01"),
        // Longer than reading the changelog takes: a reader of a record has to see its tombstone, too.
        ("delete.retention.ms", "2000"),
    ];
    let mut job = Job::new("cleaner", PARTITIONS).with_retention(Duration::from_secs(5));
    job.compacted = true;
    job.kafka.create(&job.changelog(), PARTITIONS, TINY);
    let mut stage = Stage::set(job, 2);
    for round in 0..2 * ROUNDS {
        sleep(Duration::from_secs(2));
        let victim = round % 2;
        stage.kill(victim, round % 4 < 2);
        let since = Instant::now();
        stage.restart(victim);
        stage.recover(report, since, RECOVERY_MAX);
    }
    let changelog = stage.job.changelog();
    let kept: usize = stage.job.kafka.read_visible(&changelog).values().map(Vec::len).sum();
    let written: i64 = (0..PARTITIONS).map(|p| stage.job.kafka.bounds(&changelog, p).end).sum();
    println!("{}: {kept} of {written} changelog offsets are left", report.name);
    assert!((kept as i64) < written / 2, "the cleaner removed too little: {kept} of {written} are left");
    report.injected(2 * ROUNDS as u64);
    let found = stage.finish(report);
    assert!(found.swept > 0, "no tombstone was met: {found:?}");
}

/// The input's records are deleted as soon as they are processed.
pub fn short_input(report: &mut Report) {
    let mut stage = Stage::set(Job::new("short-input", PARTITIONS), 2);
    let mut kept = Records::new();
    for round in 0..2 * ROUNDS {
        sleep(Duration::from_secs(1));
        let committed = stage.committed();
        keep(&stage.job, &mut kept);
        for (partition, offset) in (0..).zip(committed) {
            stage.job.kafka.delete_records(&stage.job.input, partition, offset);
        }
        report.injected(1);
        if round % 2 == 1 {
            stage.kill(0, false);
            stage.restart(0);
        }
        stage.recover(report, Instant::now(), RECOVERY_MAX);
    }
    stage.finish_against(report, &mut kept);
}

/// A job of one partition at rest, and what it has processed.
fn drained(theme: &str) -> (Job, Operator, Records) {
    let job = Job::new(theme, 1);
    job.send(things(0, 0..KNOWN, 1).chain(things(0, 0..KNOWN / 2, 1)));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    operator.stop();
    let read = job.kafka.read(&job.input);
    (job, operator, read)
}

/// Starts an operator that has to refuse with these words, and then another; the output has to be right for what was
/// `read` before.
fn refuses(report: &mut Report, job: &Job, read: &Records, words: &[&str]) {
    let committed = job.committed();
    for _ in 0..2 {
        let mut operator = Operator::start(job, "a");
        operator.await_error(words);
        // Nor does it do later what it does not do at once.
        sleep(LATER);
        assert!(!operator.printed().contains("panicked"), "{}", operator.tail());
        // It may stay, for the sake of other partitions, or end as a run that is refused.
        if !operator.is_running() {
            let status = operator.await_exit(DEADLINE);
            assert_eq!(status.code(), Some(2), "{status}; {}", operator.tail());
        }
    }
    report.injected(1);
    assert_eq!(job.committed()[0], committed[0], "the offset was moved despite the refusal");
    judge(report, job, read);
    report.refused(words);
}

/// Has the judge compare the output with `input`, which holds exactly what was read.
pub fn judge(report: &mut Report, job: &Job, input: &Records) {
    let found = check_output(job, input);
    report.judged(&found);
}

/// Records are removed unread. The task refuses, and does what its words promise when they are obeyed.
pub fn unread_records_removed(report: &mut Report) {
    for _ in 0..report.rounds(REFUSALS) {
        let (job, _, mut read) = drained("unread");
        let next = job.committed()[0];
        job.send(things(0, KNOWN..KNOWN + 200, 1));
        job.kafka.delete_records(&job.input, 0, next + 100);
        refuses(report, &job, &read, &["no longer retained", "reset the group"]);
        job.kafka.group(&job.group()).set(&job.input, 0, next + 100, "");
        let mut operator = Operator::start(&job, "a");
        let since = Instant::now();
        job.await_drained(DEADLINE);
        report.recovered(since.elapsed());
        operator.stop();
        for (partition, left) in job.kafka.read(&job.input) {
            read.entry(partition).or_default().extend(left);
        }
        judge(report, &job, &read);
    }
}

/// The changelog loses its first records under load: the stores that hold them continue, and are right.
pub fn truncated_changelog(report: &mut Report) {
    let mut stage = Stage::set(Job::new("cut-changelog", PARTITIONS), 1);
    for _ in 0..ROUNDS {
        sleep(Duration::from_secs(1));
        let (kafka, changelog) = (&stage.job.kafka, stage.job.changelog());
        let cuts: Vec<i64> = (0..PARTITIONS).map(|p| kafka.bounds(&changelog, p).stable / 2).collect();
        kafka.delete_compacted_records(&changelog, &cuts);
        report.injected(1);
        stage.operators[0].stop();
        let since = Instant::now();
        stage.restart(0);
        stage.recover(report, since, RECOVERY_MAX);
    }
    report.assert_injected();
    stage.drain(report);
    let input = stage.job.kafka.read(&stage.job.input);
    judge(report, &stage.job, &input);
    stage.clear();
}

/// The same with the store lost: the removed records are remembered nowhere else.
pub fn truncated_changelog_without_a_store(report: &mut Report) {
    for _ in 0..report.rounds(REFUSALS) {
        let (job, mut operator, read) = drained("cut-and-wiped");
        job.kafka.delete_compacted_records(&job.changelog(), &[3]);
        operator.kill_and_wipe();
        job.send(things(0, 0..2 * KNOWN, 1));
        refuses(report, &job, &read, &["its first records were removed", "new name"]);
    }
}

pub fn deleted_changelog(report: &mut Report) {
    for _ in 0..report.rounds(REFUSALS) {
        let (job, mut operator, read) = drained("no-changelog");
        operator.kill_and_wipe();
        job.kafka.delete(&job.changelog());
        job.send(things(0, 0..2 * KNOWN, 1));
        refuses(report, &job, &read, &["changelog", "new name"]);
    }
}

/// With the same offsets as before, so that only its id gives it away.
pub fn recreated_input(report: &mut Report) {
    for _ in 0..report.rounds(REFUSALS) {
        let (job, _, read) = drained("new-input");
        let (offset, text) = job.kafka.committed(&job.group(), &job.input, 0).expect("it has committed");
        job.kafka.delete(&job.input);
        job.kafka.create(&job.input, 1, &[]);
        job.send(things(0, KNOWN..3 * KNOWN, 1));
        job.kafka.group(&job.group()).set(&job.input, 0, offset, &text);
        refuses(report, &job, &read, &["the input topic was recreated", "new name"]);
    }
}

/// Under a task at work, which must not continue.
fn recreated_at_work(report: &mut Report, theme: &str, topic: fn(&Job) -> String, settings: &[(&str, &str)]) {
    const WORDS: [&str; 2] = ["recreated", "new name"];
    for _ in 0..report.rounds(REFUSALS) {
        let job = Job::new(theme, 1);
        let mut operator = Operator::start(&job, "a");
        job.send(things(0, 0..KNOWN, 1));
        job.await_drained(DEADLINE);
        let read = job.kafka.read(&job.input);
        job.kafka.delete(&topic(&job));
        job.kafka.create(&topic(&job), 1, settings);
        let since = Instant::now();
        operator.await_error(&WORDS);
        report.recovered(since.elapsed());
        report.injected(1);
        job.send(things(0, KNOWN..2 * KNOWN, 1));
        sleep(LATER);
        assert_sound(&mut operator);
        judge(report, &job, &read);
        report.refused(&WORDS);
    }
}

pub fn input_recreated_at_work(report: &mut Report) {
    recreated_at_work(report, "input-at-work", |job| job.input.clone(), &[]);
}

pub fn changelog_recreated_at_work(report: &mut Report) {
    recreated_at_work(report, "changelog-at-work", Job::changelog, &[("cleanup.policy", "compact")]);
}

pub fn more_partitions(report: &mut Report) {
    for _ in 0..report.rounds(REFUSALS) {
        let (job, _, read) = drained("rescaled");
        job.kafka.add_partitions(&job.input, 2);
        job.kafka.add_partitions(&job.output, 2);
        job.send(things(0, 0..2 * KNOWN, 1));
        refuses(report, &job, &read, &["they must be equal", "new name"]);
    }
}

/// The task that was there before stops, and so does the new partition's, to which identities may have moved.
pub fn more_partitions_at_work(report: &mut Report) {
    const WORDS: [&str; 2] = ["had 1 partition and has 2", "new name"];
    for _ in 0..report.rounds(REFUSALS) {
        let mut job = Job::new("rescaled-at-work", 1);
        // How soon the client notices changes of a topic: by default, minutes.
        job.properties.insert("consumer.topic.metadata.refresh.interval.ms".to_owned(), "1000".to_owned());
        let mut operator = Operator::start(&job, "a");
        job.send(things(0, 0..KNOWN, 1));
        job.await_drained(DEADLINE);
        job.kafka.add_partitions(&job.output, 2);
        job.kafka.add_partitions(&job.input, 2);
        let since = Instant::now();
        operator.await_error(&WORDS);
        let task = format!("{}:0", job.input);
        operator.await_error(&[&task, WORDS[0], WORDS[1]]);
        report.recovered(since.elapsed());
        report.injected(1);
        let (committed, mut read) = (job.committed(), job.kafka.read(&job.input));
        job.send(things(0, KNOWN..2 * KNOWN, 1).chain(things(1, 0..KNOWN, 1)));
        sleep(LATER);
        assert_sound(&mut operator);
        assert_eq!(job.committed(), committed, "an offset was moved despite the refusal");
        // Nothing was read from the new partition, and nothing more from the other.
        read.insert(1, Vec::new());
        judge(report, &job, &read);
        report.refused(&WORDS);
    }
}

/// Does something to the group while it is empty; then the load has to continue where it was.
fn with_the_group(report: &mut Report, theme: &str, act: fn(&Stage), words: &str) {
    let mut stage = Stage::set(Job::new(theme, PARTITIONS), 2);
    for _ in 0..report.rounds(ROUNDS) {
        sleep(Duration::from_secs(1));
        stage.operators.iter_mut().for_each(Operator::stop);
        let before = stage.committed();
        act(&stage);
        report.injected(1);
        let since = Instant::now();
        stage.restart(0);
        stage.restart(1);
        stage.await_beyond(&before, RECOVERY_MAX);
        report.recovered(since.elapsed());
        assert_logged_for_each(&stage, words);
    }
    stage.finish(report);
}

/// Asserts that these words were logged for each partition, by any operator.
#[track_caller]
fn assert_logged_for_each(stage: &Stage, words: &str) {
    let lines = stage.operators.iter().flat_map(Operator::log).filter(|line| line.to_string().contains(words));
    let tasks: BTreeSet<String> = lines.map(|line| line["task"].to_string()).collect();
    assert_eq!(tasks.len(), PARTITIONS as usize, "{words:?} was logged for {tasks:?}: {}", stage.operators[0].tail());
}

pub fn group_deleted(report: &mut Report) {
    let act = |stage: &Stage| stage.job.kafka.delete_group(&stage.job.group());
    with_the_group(report, "no-group", act, "the group has no offset any more");
}

/// What was read before is read again, and nothing of it may come out: the judge would see it.
pub fn group_reset_to_earliest(report: &mut Report) {
    let act = |stage: &Stage| {
        let group = stage.job.kafka.group(&stage.job.group());
        (0..PARTITIONS).for_each(|p| group.set(&stage.job.input, p, 0, ""));
    };
    with_the_group(report, "earliest", act, "the group was reset");
}

/// What is skipped does not come out, later records do, and the reset is logged.
pub fn group_reset_to_latest(report: &mut Report) {
    let mut stage = Stage::set(Job::new("latest", PARTITIONS), 1);
    let mut skipped: Vec<Vec<std::ops::Range<i64>>> = vec![Vec::new(); PARTITIONS as usize];
    for _ in 0..ROUNDS {
        sleep(Duration::from_secs(1));
        stage.operators[0].stop();
        // Let records arrive that will be skipped.
        sleep(Duration::from_secs(1));
        let group = stage.job.kafka.group(&stage.job.group());
        for (partition, next) in (0..PARTITIONS).zip(stage.committed()) {
            let end = stage.job.kafka.bounds(&stage.job.input, partition).end;
            assert!(next < end, "nothing is skipped");
            skipped[partition as usize].push(next..end);
            group.set(&stage.job.input, partition, end, "");
        }
        report.injected(1);
        let since = Instant::now();
        stage.restart(0);
        stage.recover(report, since, RECOVERY_MAX);
        assert_logged_for_each(&stage, "the group was reset");
    }
    report.assert_injected();
    stage.drain(report);
    let mut input = stage.job.kafka.read(&stage.job.input);
    for (partition, records) in &mut input {
        let skipped = &skipped[*partition as usize];
        records.retain(|record| !skipped.iter().any(|range| range.contains(&record.offset)));
    }
    judge(report, &stage.job, &input);
    stage.clear();
}

/// The input is written in transactions; a third of them are aborted, a third stay open until they time out: aborted
/// records never come out, and open transactions are waited for.
pub fn transactional_input(report: &mut Report) {
    let stage = Stage::set(Job::new("aborted-input", PARTITIONS), 2);
    for round in 0..4 * ROUNDS {
        let writer = stage.job.kafka.transaction(&format!("{}-writer-{round}", stage.job.name), TRANSACTION_TIMEOUT);
        let records = (0..PARTITIONS).map(|p| {
            let id = format!("of-{round}");
            Fresh::new(p, &id, format!("{{\"id\":\"{id}\",\"version\":1}}")).at(crate::load::now_ms())
        });
        writer.send(&stage.job.input, records);
        report.injected(1);
        match round % 3 {
            0 => writer.commit(),
            1 => writer.abort(),
            _ => writer.die(),
        }
        stage.recover(report, Instant::now(), RECOVERY_MAX);
    }
    stage.finish(report);
}
