//! Goal: a long restore reports its progress, its rate and when it will be done: in the log, in the metrics, and on a
//! terminal.

use std::time::Duration;

use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::Broker;
use crate::load::things;
use crate::operator::{Operator, Options};
use crate::screen::Terminal;
use crate::until::{DEADLINE, within};

const IDS: usize = 16_000;
/// So slow that a changelog of this many entries takes longer than the log's first line about it.
const BYTES_PER_SECOND: u32 = 40_000;

#[test]
fn slow_restore_is_reported() {
    let broker = Broker::start();
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), "slow-restore");
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[]);
    // Small batches, so that the throttled broker lets them through evenly.
    job.properties.insert("producer.batch.size".to_owned(), "16384".to_owned());
    job.send(things(0, 0..IDS, 1));
    let mut first = Operator::start(&job, "first");
    job.await_drained(DEADLINE);
    first.stop();
    broker.throttle("ratchet", BYTES_PER_SECOND);

    let second = Operator::start(&job, "second");
    let line = second.await_line(&["still restoring the store"], DEADLINE);
    let of = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("no {name} in {line}"));
    let (done, remaining, rate) = (of("done"), of("remaining"), of("records_per_second"));
    assert!(done > 0 && remaining > 0 && done + remaining >= IDS as u64, "{line}");
    assert_eq!(line["task"], format!("{}:0", job.input));
    assert!(rate > 0 && of("ready_in_s").abs_diff(remaining / rate) <= 1, "{line}");
    let remaining = || second.metric("ratchet_restore_remaining_records", &[]);
    let seconds = || second.metric("ratchet_restore_remaining_seconds", &[]);
    let now = remaining();
    assert!(now > 0.0 && seconds() > 0.0 && seconds().is_finite(), "{:?}", second.metrics());
    assert!(second.metric("ratchet_restored_records_total", &[]) > 0.0);
    within(DEADLINE, "the remaining number to fall", || (remaining() < now).then_some(()));
    second.await_line(&["store restored"], Duration::from_secs(120));
    within(DEADLINE, "the remaining number to reach zero", || ((remaining(), seconds()) == (0.0, 0.0)).then_some(()));
    drop(second);

    let terminal = Terminal::open();
    job.worker.push("log: {format: text}".to_owned());
    let options = Options { terminal: Some(&terminal), ..Options::default() };
    let _third = Operator::start_with(&job, "third", &options);
    within(DEADLINE, "a bar with a rate and an estimate", || {
        let drawn = terminal.drawn();
        let bar = drawn.split(&['\r', '\n']).find(|line| line.contains("records to go, ") && line.contains(" left"))?;
        assert!(bar.contains(&job.name) && bar.contains("restoring 1 partition: ") && bar.contains("/s, "), "{bar:?}");
        Some(())
    });
}
