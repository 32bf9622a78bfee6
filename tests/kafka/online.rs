//! Goal: `ratchet check --online` reports what a real cluster's topics, settings and rights mean for a topology, all of
//! it at once, and changes nothing.

use std::time::Duration;

use crate::checked::check_online;
use crate::cluster::{Acl, Kafka, Resource};
use crate::job::Job;
use crate::kafka::shared_broker;
use crate::load::things;
use crate::operator::Operator;
use crate::until::DEADLINE;

/// The words about the brokers of any Apache Kafka, the same on both data paths.
const BROKERS: [&str; 4] = ["with transactions", "leader epochs", "creation of topics", "records are read and written"];

/// A job with an input of these settings; the output exists if settings for it are given.
fn job(theme: &str, input: &[(&str, &str)], output: Option<&[(&str, &str)]>) -> Job {
    let job = Job::on(Kafka::shared(), theme);
    job.kafka.create(&job.input, 2, input);
    if let Some(output) = output {
        job.kafka.create(&job.output, 2, output);
    }
    job
}

#[test]
fn runnable_topology_is_fine_and_nothing_is_created() {
    let job = job("online-fine", &[], Some(&[]));
    let whole = ["on the cluster: fine", &job.changelog(), "run creates it with 2 partitions", &job.dead_letter()];
    check_online(&job).says(0, &whole).says(0, &BROKERS).says_nothing_of("warning");
    assert_eq!((job.kafka.partitions(&job.changelog()), job.kafka.partitions(&job.dead_letter())), (None, None));
}

#[test]
fn all_reasons_to_refuse_are_reported_at_once() {
    let job = job("online-wrong", &[], None);
    job.kafka.create(&job.output, 1, &[("min.insync.replicas", "2")]);
    job.kafka.create(&job.changelog(), 3, &[("cleanup.policy", "delete")]);
    check_online(&job).says(
        2,
        &[
            "has 1 partition and its input",
            "has 1 replica and min.insync.replicas=2",
            "has 3 partitions and its input",
            "cleanup.policy=delete",
            "for 4 reasons",
        ],
    );
    let mut operator = Operator::start(&job, "a");
    operator.await_error(&["has 1 partition and", "takes no record", "has 3 partitions", "cleanup.policy=delete"]);
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(2));
}

#[test]
fn missing_topics_are_named() {
    let job = Job::on(Kafka::shared(), "online-missing");
    let output = format!("topic \"{}\" does not exist", job.output);
    check_online(&job).says(2, &["input topic", "does not exist", &output, "topics.create: all"]);
}

#[test]
fn input_retained_longer_than_remembered_is_a_warning_of_run_too() {
    let eight_days = (8 * 86_400_000_i64).to_string();
    let job = job("online-retention", &[("retention.ms", &eight_days)], Some(&[]))
        .with_retention(Duration::from_secs(7 * 86_400));
    let words = ["keeps its records 8d", "remembered 7d"];
    check_online(&job).says(0, &words);
    let mut operator = Operator::start(&job, "a");
    operator.await_line(&["\"warn\"", words[0], words[1]], DEADLINE);
    operator.stop();
}

#[test]
fn compacted_and_unlimited_inputs_are_kept_for_ever() {
    for (theme, settings) in
        [("online-compact", ("cleanup.policy", "compact")), ("online-unlimited", ("retention.ms", "-1"))]
    {
        let job = job(theme, &[settings], Some(&[])).with_retention(Duration::from_secs(86_400));
        check_online(&job).says(0, &["keeps its records for ever", "remembered 1d"]);
    }
}

#[test]
fn output_with_restrictive_settings_is_warned_about() {
    let stamping = job("online-stamps", &[], Some(&[("message.timestamp.type", "LogAppendTime")]));
    check_online(&stamping).says(0, &["stamps its records itself", "lose their timestamps"]);
    let narrow = [
        ("max.message.bytes", "1000"),
        ("message.timestamp.before.max.ms", "86400000"),
        ("message.timestamp.after.max.ms", "60000"),
    ];
    let narrow = job("online-narrow", &[], Some(&narrow));
    check_online(&narrow).says(0, &["takes batches of 1000 bytes", "older than 1d", "more than 1m ahead"]);
}

#[test]
fn too_few_replicas_are_warned_about() {
    let mut job = job("online-replicas", &[], Some(&[]));
    job.worker.push("topics: {create: internal, replication_factor: 3, min_insync_replicas: 2}".to_owned());
    // ratchet cannot create what it would: there is one broker.
    let what_to_write = "`topics: {replication_factor: 1, min_insync_replicas: 1}`";
    let words = ["cannot be created", &job.changelog(), &job.dead_letter(), what_to_write, "for 2 reasons"];
    check_online(&job).says(2, &words);
    let mut operator = Operator::start(&job, "a");
    operator.await_error(&["topology refused", "cannot be created", what_to_write]);
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(2));
    let errors = operator.log().into_iter().filter(|line| line["level"] == "ERROR");
    assert_eq!(errors.count(), 2, "one for the topology, and the last line: {}", operator.tail());
    assert_eq!(job.kafka.partitions(&job.changelog()), None, "nothing was created");
    job.kafka.create(&job.changelog(), 2, &[("cleanup.policy", "compact")]);
    job.kafka.create(&job.dead_letter(), 2, &[]);
    check_online(&job).says(0, &["has 1 replica and min.insync.replicas=1, the configuration says 3 and 2"]);
}

#[test]
fn topics_with_unclean_election_are_warned_about() {
    const UNCLEAN: (&str, &str) = ("unclean.leader.election.enable", "true");
    let mut job = job("online-unclean", &[UNCLEAN], Some(&[UNCLEAN]));
    job.kafka.create(&job.changelog(), 2, &[UNCLEAN, ("cleanup.policy", "compact")]);
    job.kafka.create(&job.dead_letter(), 2, &[UNCLEAN]);
    let may = |noun: &str, topic: &str| format!("{noun} topic \"{topic}\" may elect a leader that lacks records");
    let words = [
        may("input", &job.input),
        may("output", &job.output),
        may("changelog", &job.changelog()),
        may("dead letter", &job.dead_letter()),
    ];
    check_online(&job).says(0, &words.each_ref().map(String::as_str));
    let mut operator = Operator::start(&job, "a");
    for word in &words {
        operator.await_line(&["\"warn\"", &word.replace('"', "\\\"")], DEADLINE);
    }
    operator.stop();
    // Topics that ratchet creates may not, whatever the brokers' default.
    job.worker.push("topics: {create: all, replication_factor: 1, min_insync_replicas: 1}".to_owned());
    job.topology.push(format!("output: {{topic: {}.made}}", job.output));
    job.name = format!("{}-made", job.name);
    let mut operator = Operator::start(&job, "b");
    operator.await_ready(DEADLINE);
    operator.stop();
    for topic in [format!("{}.made", job.output), job.changelog(), job.dead_letter()] {
        assert_eq!(job.kafka.setting(&topic, UNCLEAN.0).as_deref(), Some("false"), "{topic}");
        assert!(job.kafka.is_set(&topic, UNCLEAN.0), "{topic} inherits it");
    }
}

#[test]
fn renamed_topology_is_refused_before_it_forwards_everything_again() {
    let mut job = job("online-renamed", &[], Some(&[]));
    job.send(things(0, 0..10, 1));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    operator.stop();
    let (former, output) = (job.name.clone(), format!("output topic \"{}\" holds records", job.output));
    job.name = format!("{former}-anew");
    let words = [&output, "starts afresh", "name a new output topic", "existing: append"];
    check_online(&job).says(2, &words);
    let mut operator = Operator::start(&job, "b");
    operator.await_error(&["holds records", "starts afresh", "existing: append"]);
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(2));
    assert_eq!((job.output().len(), job.kafka.partitions(&job.changelog())), (10, None), "something was started");
    job.topology.push(format!("output: {{topic: {}, existing: append}}", job.output));
    check_online(&job).says(0, &["on the cluster: fine"]);
    let mut operator = Operator::start(&job, "b");
    job.await_drained(DEADLINE);
    operator.stop();
    assert_eq!(job.output().len(), 20);
    job.topology.clear();
    check_online(&job).says(0, &["on the cluster: fine"]);
}

#[test]
fn offsets_of_other_rules_are_refused() {
    let mut job = job("online-rules", &[], Some(&[]));
    job.send(things(0, 0..10, 1));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    operator.stop();
    check_online(&job).says(0, &["on the cluster: fine"]);
    job.rules.identity = vec!["version", "id"];
    check_online(&job).says(2, &["committed under other rules", "a new name"]);
}

#[test]
fn missing_rights_are_reported_one_by_one() {
    let broker = shared_broker();
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), "online-rights");
    let (changelog, dead_letter) = (job.changelog(), job.dead_letter());
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[]);
    job.kafka.create(&changelog, 1, &[("cleanup.policy", "compact")]);
    job.kafka.create(&dead_letter, 1, &[]);
    for (name, value) in [
        ("bootstrap.servers", broker.sasl_bootstrap()),
        ("security.protocol", "SASL_SSL".to_owned()),
        ("sasl.mechanism", "SCRAM-SHA-256".to_owned()),
        ("sasl.username", "limited".to_owned()),
        ("sasl.password", "${env:KAFKA_PASSWORD}".to_owned()),
        ("ssl.ca.location", broker.ca_pem().to_str().expect("the target folder's name is text").to_owned()),
    ] {
        job.properties.insert(name.to_owned(), value);
    }
    let unseen = |topic: &str| format!("topic \"{topic}\" cannot be seen");
    let unseen = [&job.input, &job.output, &changelog, &dead_letter].map(|topic| unseen(topic));
    let mut words: Vec<&str> = unseen.iter().map(String::as_str).collect();
    words.push("not authorised to read as the group");
    check_online(&job).says(2, &words);

    let may = |resource: Resource, name: &str, prefixed: bool, operations: &[&str]| {
        let acl =
            |operation: &&str| Acl { resource, name: name.to_owned(), prefixed, operation: (*operation).to_owned() };
        job.kafka.allow("limited", &operations.iter().map(acl).collect::<Vec<_>>());
    };
    let topics = [job.name.clone(), format!("ratchet.{}.", job.name)];
    topics.iter().for_each(|prefix| may(Resource::Topic, prefix, true, &["Describe", "DescribeConfigs"]));
    // For a group that may not be seen, librdkafka looks for the coordinator until its timeout.
    check_online(&job).without_waiting().says(
        2,
        &[
            "not authorised to read input topic",
            "not authorised to write output topic",
            "not authorised to read changelog topic",
            "not authorised to write changelog topic",
            "not authorised to write dead letter topic",
            "not authorised to see the group",
            "not authorised to read as the group",
        ],
    );

    may(Resource::Topic, &job.input, false, &["Read"]);
    may(Resource::Topic, &changelog, false, &["Read", "Write"]);
    may(Resource::Topic, &job.output, false, &["Write"]);
    may(Resource::Topic, &dead_letter, false, &["Write"]);
    may(Resource::Group, &job.group(), false, &["Read"]);
    check_online(&job).says(0, &["on the cluster: fine", "transactional ids", "grant Write on them"]);
}
