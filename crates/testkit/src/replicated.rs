//! Three brokers with three replicas of everything, as in production.

use std::time::Duration;

use crate::cluster::Kafka;
use crate::job::Job;
use crate::until::within;

pub const REPLICAS: i32 = 3;
/// How long replicas may take to be in sync again.
const IN_SYNC_MAX: Duration = Duration::from_secs(180);

/// Settings of each broker. A broker that is silent for three seconds is fenced, and a replica that lags as long leaves
/// the ISR; leadership returns to the preferred replicas, so that every broker soon has its share of the work again.
///
/// Kafka's own logs have small segments, so that they are compacted early and a coordinator has them loaded at once.
/// Apache Kafka 4.1.0 has a defect there: if a partition of the offsets' log leaves a broker and returns while that
/// broker still loads it (seen with 20 MB, 2.4 s), the first load's end counts as the second one's, the second load
/// overwrites who has joined meanwhile, and the group never ends its rebalance.
pub const PROPERTIES: &[(&str, &str)] = &[
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.state.log.min.isr", "2"),
    ("offsets.topic.segment.bytes", "1048576"),
    ("transaction.state.log.segment.bytes", "1048576"),
    ("min.insync.replicas", "2"),
    ("unclean.leader.election.enable", "false"),
    ("broker.session.timeout.ms", "3000"),
    ("broker.heartbeat.interval.ms", "500"),
    ("replica.lag.time.max.ms", "3000"),
    ("auto.leader.rebalance.enable", "true"),
    ("leader.imbalance.check.interval.seconds", "3"),
    ("leader.imbalance.per.broker.percentage", "0"),
];

/// A job whose topics are replicated on all three.
pub fn job(bootstrap: &[String], theme: &str, partitions: i32) -> Job {
    let job = job_without_topics(bootstrap, theme);
    create(&job, &job.input, partitions);
    create(&job, &job.output, partitions);
    job
}

/// A job on the three brokers, without topics.
pub fn job_without_topics(bootstrap: &[String], theme: &str) -> Job {
    let mut job = Job::on(Kafka::at(&bootstrap.join(",")), theme);
    job.worker.push("topics: {create: internal, replication_factor: 3, min_insync_replicas: 2}".to_owned());
    job
}

/// Creates a topic that is replicated on all three.
pub fn create(job: &Job, topic: &str, partitions: i32) {
    job.kafka.create_replicated(topic, partitions, REPLICAS, &[("min.insync.replicas", "2")]);
}

/// Waits until every partition has its three replicas in sync: before that, losing another broker would mean losing
/// two.
pub fn await_in_sync(job: &Job) {
    within(IN_SYNC_MAX, "all replicas to be in sync", || job.kafka.is_in_sync().then_some(()));
}
