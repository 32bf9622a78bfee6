//! Goal: while the registry or an instance is down, records whose schemas are not known wait; no record is lost or
//! forwarded twice.

use std::time::Duration;

use super::payments::{Payments, forwarded, job, records, values_of};
use crate::operator::{Operator, Options};
use crate::schema_registry::Server;
use crate::until::{DEADLINE, within};

/// Covers the registry's start, and the pauses between two requests, which grow to half a minute.
const RECOVERY: Duration = Duration::from_secs(150);

fn waiting(operator: &Operator) -> f64 {
    operator.metric("ratchet_awaits_schema", &[])
}

/// Waits until the instance reports that tasks wait: by the metric at once, by `/readyz` after ten seconds, and in the
/// log.
#[track_caller]
fn await_trouble(operator: &Operator, count: f64) {
    within(DEADLINE, "tasks to wait for a schema", || (waiting(operator) == count).then_some(()));
    let page = within(DEADLINE, "the instance to be unready", || {
        let (status, page) = operator.get("/readyz?verbose");
        (status == 503 && page.contains("schema")).then_some(page)
    });
    assert!(page.contains("waits: a record's schema is not known"), "{page}");
    operator.await_line(&["schema registry", "WARN"], DEADLINE);
}

fn survives_outages(theme: &str, options: &Options<'_>) {
    let payments = Payments::of("avro");
    let mut registry = Server::start();
    let job = payments.job(theme, &registry.url());
    let [first, second] = payments.register(&registry, &job.input);
    let values = payments.values([first, second]);
    // The registry is down when the job starts.
    registry.kill();
    job.send(records(0, &values[..3]));
    let mut operator = Operator::start_with(&job, "a", options);
    await_trouble(&operator, 1.0);
    assert_eq!(job.output().len(), 0);
    registry.restart();
    job.await_drained(RECOVERY);
    assert_eq!(values_of(job.output()), [values[0].clone(), values[1].clone()]);
    operator.await_ready(DEADLINE);
    assert_eq!(waiting(&operator), 0.0);
    // The registry goes down, and a record with a new schema arrives.
    registry.kill();
    job.send(records(0, &values[..1]));
    job.send(records(0, &values[3..]));
    await_trouble(&operator, 1.0);
    assert_eq!(job.committed(), [4], "earlier records are committed");
    assert_eq!(job.output().len(), 2);
    // A new instance knows no schema.
    operator.kill();
    let mut operator = Operator::start_with(&job, "a", options);
    await_trouble(&operator, 1.0);
    registry.restart();
    job.await_drained(RECOVERY);
    operator.await_ready(DEADLINE);
    operator.stop();
    assert_eq!(values_of(job.output()), forwarded(&values));
    assert_eq!(job.kafka.read_visible(&job.dead_letter()).into_values().flatten().count(), 0);
}

#[test]
fn nothing_is_lost_while_the_registry_is_down() {
    survives_outages("registry-down", &Options::default());
}

#[test]
fn nothing_is_lost_while_the_registry_is_down_with_librdkafka() {
    survives_outages("registry-down-rd", &Options { data_path: Some(("librdkafka", false)), ..Options::default() });
}

/// Its waiting tasks move to the other instance, and wait there.
#[test]
fn instance_that_is_killed_while_it_waits_leaves_its_tasks_to_another() {
    const PARTITIONS: i32 = 4;
    let payments = Payments::of("protobuf");
    let mut registry = Server::start();
    let mut job = job("registry-two", "protobuf", PARTITIONS, &registry.url());
    job.topology.push("partitioned_by_identity: true".to_owned());
    let values = payments.values(payments.register(&registry, &job.input));
    let mut killed = Operator::start(&job, "a");
    let mut left = Operator::start(&job, "b");
    killed.await_ready(DEADLINE);
    left.await_ready(DEADLINE);
    within(DEADLINE, "both to have partitions", || {
        (!killed.partitions().is_empty() && !left.partitions().is_empty()).then_some(())
    });
    for partition in 0..PARTITIONS {
        job.send(records(partition, &values[..3]));
    }
    job.await_drained(DEADLINE);
    registry.kill();
    for partition in 0..PARTITIONS {
        job.send(records(partition, &values[3..]));
    }
    within(DEADLINE, "both to wait", || (waiting(&killed) + waiting(&left) == f64::from(PARTITIONS)).then_some(()));
    killed.kill();
    await_trouble(&left, f64::from(PARTITIONS));
    registry.restart();
    job.await_drained(RECOVERY);
    left.await_ready(DEADLINE);
    left.stop();
    let output = job.kafka.read_visible(&job.output);
    for partition in 0..PARTITIONS {
        assert_eq!(values_of(output[&partition].clone()), forwarded(&values), "partition {partition}");
    }
}
