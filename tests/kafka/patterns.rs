//! Goal: all topics that a pattern matches are processed alike, whether they exist at the start, appear later or are
//! deleted; none of that delays or harms the others.

use std::time::{Duration, Instant};

use crate::checker::check;
use crate::cluster::Kafka;
use crate::job::Job;
use crate::load::{Feed, Load, Random, things};
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

/// A job for all topics `NAME.in.*` except those that end in `.tmp`; none exists yet.
fn job(theme: &str) -> Job {
    let mut job = Job::on(Kafka::shared(), theme);
    let name = job.name.clone();
    job.topology.push(format!(r"input: {{pattern: '^{name}\.in\.', exclude: ['\.tmp$'], value_format: json}}"));
    job.worker.push("topics: {create: all, replication_factor: 1, min_insync_replicas: 1}".to_owned());
    job.output = "'clean.{topic}'".to_owned();
    job
}

/// Creates the job's topic of this name.
fn create(job: &Job, name: &str, partitions: i32) -> String {
    let topic = format!("{}.in.{name}", job.name);
    job.kafka.create(&topic, partitions, &[]);
    topic
}

/// Calls `act` with the job reading only `topic`, and its output.
fn with<T>(job: &mut Job, topic: &str, act: impl FnOnce(&mut Job) -> T) -> T {
    let output = std::mem::replace(&mut job.output, format!("clean.{topic}"));
    let input = std::mem::replace(&mut job.input, topic.to_owned());
    let done = act(job);
    (job.input, job.output) = (input, output);
    done
}

/// Waits until the topic is processed.
#[track_caller]
fn await_drained(job: &mut Job, topic: &str) {
    with(job, topic, |job| {
        within(DEADLINE, &format!("{topic} to be taken up"), || job.kafka.partitions(&job.changelog()));
        job.await_drained(DEADLINE);
    });
}

#[test]
fn topic_created_during_a_run_is_deduplicated_across_kills() {
    let random = Random::seeded("new topics");
    let mut job = job("comes");
    let (first, excluded) = (create(&job, "first", 2), create(&job, "first.tmp", 1));
    job.kafka.send(&excluded, things(0, 0..10, 1));
    let mut operators = ["a", "b"].map(|label| Operator::start(&job, label));
    let feed = with(&mut job, &first, |job| Feed::start(job, Load::new(random.clone(), 2, 300), 300));
    // Which of the two gets the first topic is chance; in the end each has a part of it.
    operators.iter().for_each(|operator| drop(operator.await_line(&["task taken over"], DEADLINE)));
    let begun = Instant::now();
    let late = create(&job, "late", 2);
    let late_feed = with(&mut job, &late, |job| Feed::start(job, Load::new(random, 2, 300), 300));
    with(&mut job, &late, |job| {
        within(DEADLINE, "the new topic to be taken up", || job.kafka.partitions(&job.changelog()));
        job.await_progress(&[0; 2], DEADLINE);
    });
    println!("a new topic's first commit came after {:?}", begun.elapsed());
    // Killed with a transaction on the new topic open, where that can be had, and once more during the takeover.
    with(&mut job, &late, |job| Operator::freeze_one_in_transaction(&operators, job));
    operators.iter_mut().for_each(Operator::kill);
    operators[0] = Operator::start(&job, "a");
    let before = with(&mut job, &late, |job| job.committed());
    with(&mut job, &late, |job| job.await_progress(&before, DEADLINE));
    operators[0].kill_and_wipe();
    operators[0] = Operator::start(&job, "a");
    feed.stop();
    late_feed.stop();
    for topic in [&first, &late] {
        await_drained(&mut job, topic);
    }
    operators[0].stop();
    for topic in [&first, &late] {
        // Both topics share a dead letter topic; the checker tells the letters apart by topic.
        let found = with(&mut job, topic, |job| check(job, &[]));
        found.assert_each_fate();
    }
    assert_eq!(job.kafka.partitions(&format!("clean.{excluded}")), None, "an excluded topic was read");
}

#[test]
fn topics_keep_their_partitions_when_others_appear_and_vanish() {
    let mut job = job("stays");
    // Nobody dies, and a busy machine must not look as if somebody had.
    job.properties.insert("consumer.session.timeout.ms".to_owned(), "120000".to_owned());
    let stays = create(&job, "stays", 2);
    let mut operator = Operator::start(&job, "a");
    job.kafka.send(&stays, things(0, 0..100, 1));
    await_drained(&mut job, &stays);
    let goes = create(&job, "goes", 2);
    job.kafka.send(&goes, things(0, 0..100, 1).chain(things(0, 0..100, 1)));
    await_drained(&mut job, &goes);
    let of_stays = |operator: &Operator, words: &str| {
        let about = |line: &String| line.contains(words) && line.contains(&format!("{stays}:"));
        operator.log().iter().map(ToString::to_string).filter(about).count()
    };
    assert_eq!(of_stays(&operator, "partitions revoked"), 0, "a new topic took partitions away");
    assert_eq!(of_stays(&operator, "task starts afresh"), 2);
    assert_eq!(of_stays(&operator, "task resumes"), 0, "a store was restored meanwhile");
    job.kafka.delete(&goes);
    operator.await_line(&["the topic was deleted", &goes], DEADLINE);
    operator.await_line(&["partitions revoked", &goes], DEADLINE);
    job.kafka.send(&stays, things(0, 0..200, 1));
    await_drained(&mut job, &stays);
    assert_eq!(of_stays(&operator, "partitions revoked"), 0);
    operator.await_ready(DEADLINE);
    operator.stop();
    with(&mut job, &stays, |job| check(job, &[]));
}

#[test]
fn run_waits_for_a_first_topic_and_refuses_one_that_would_loop() {
    let mut job = job("waits");
    // Only once topics exist can be seen which of their outputs the pattern matches too.
    job.topology = vec![format!(r"input: {{pattern: '^{}\.in\.(?:[a-z]+|q[0-9])$', value_format: json}}", job.name)];
    job.output = "'{topic}7'".to_owned();
    let mut operator = Operator::start(&job, "a");
    operator.await_line(&["no topic to read yet"], DEADLINE);
    let feeding = create(&job, "q", 1);
    operator.await_error(&["topic refused", &feeding, "would read it again"]);
    let sound = create(&job, "sound", 1);
    job.kafka.send(&sound, things(0, 0..10, 1).chain(things(0, 0..10, 1)));
    let output = format!("{sound}7");
    within(DEADLINE, "the other topic to be processed", || {
        job.kafka.partitions(&output)?;
        (job.kafka.read_visible(&output)[&0].len() == 10).then_some(())
    });
    assert_eq!(job.kafka.partitions(&format!("{feeding}7")), None, "its output was created");
    assert_eq!(operator.get("/readyz").0, 503, "a refused topic should be shown");
    operator.terminate();
    assert_eq!(operator.await_exit(Duration::from_secs(25)).code(), Some(1), "a refused topic should fail the run");
}

#[test]
fn all_topics_of_a_pattern_are_drained() {
    let mut job = job("drains");
    let topics = ["x", "y", "z"].map(|name| create(&job, name, 2));
    for topic in &topics {
        job.kafka.send(topic, things(1, 0..50, 1).chain(things(1, 0..50, 1)));
    }
    let mut operator = Operator::start(&job, "a");
    for topic in &topics {
        await_drained(&mut job, topic);
    }
    operator.stop();
    for topic in &topics {
        let found = with(&mut job, topic, |job| check(job, &[]));
        assert_eq!(found.fates.values().sum::<usize>(), 100);
    }
}
