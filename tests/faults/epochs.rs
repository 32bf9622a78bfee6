//! Goal: a producer that has used up its epochs gets another id from its coordinator, and nothing is lost or repeated.
//!
//! In version 2 of transactions (KIP-890) each has an epoch of its own, of 16 bits.

use std::time::{Duration, Instant};

use crate::checker::check;
use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::{each_transaction_has_an_epoch, shared_broker};
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
    let mut ids: Vec<i64> = producers_of(&broker.data(), &job.output, 0).into_iter().map(|(id, _)| id).collect();
    assert!(ids.len() >= TRANSACTIONS, "a batch for each: {}", ids.len());
    ids.dedup();
    if each_transaction_has_an_epoch() {
        report.injected(ids.len() as u64 - 1);
    } else {
        // Nothing is used up; many transactions they are all the same.
        assert_eq!(ids.len(), 1, "{ids:?}");
        report.injected(TRANSACTIONS as u64);
    }
    report.assert_injected();
    report.judged(&check(&job, &[operator.state_dir()]));
}
