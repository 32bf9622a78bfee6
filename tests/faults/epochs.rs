//! Goal: a producer that has used up its epochs gets another id from its coordinator, and nothing is lost or repeated.
//!
//! In version 2 of transactions (KIP-890) each has an epoch of its own, of 16 bits.

use std::time::{Duration, Instant};

use crate::checker::check;
use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::{is_on_the_wire, shared_broker, version};
use crate::load::things;
use crate::operator::Operator;
use crate::report::Report;
use crate::segment::producers_of;

/// A few more than there are epochs.
const TRANSACTIONS: usize = i16::MAX as usize + 700;
/// How long they may take, on a busy machine: each waits for the broker several times.
const DONE_MAX: Duration = Duration::from_secs(600);

/// One record in each transaction.
pub fn used_up(report: &mut Report) {
    let broker = shared_broker();
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), "used-up");
    job.worker.push("commit: {records: 1}".to_owned());
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[]);
    job.send(things(0, 0..TRANSACTIONS, 1));
    let since = Instant::now();
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DONE_MAX);
    report.drained(since.elapsed());
    operator.stop();
    let producers = producers_of(&broker.data(), &job.output, 0);
    assert_eq!(producers.len(), TRANSACTIONS, "a batch for each");
    report.injected(producers.len() as u64);
    let mut ids: Vec<i64> = producers.iter().map(|(id, _)| *id).collect();
    ids.dedup();
    let major: u32 = version().split('.').next().and_then(|major| major.parse().ok()).expect("a number");
    let expected = if major >= 4 && is_on_the_wire() { 2 } else { 1 };
    assert_eq!(ids.len(), expected, "{ids:?}");
    report.judged(&check(&job, &[operator.state_dir()]));
}
