//! Goal: what one partition, topic or topology has passed on comes out of no other that shares its gate, for as long as
//! the gate keeps it; and nothing else is dropped.

use crate::cluster::Kafka;
use crate::database::Database;
use crate::gates::gated::{assert_each_once, counted, gated};
use crate::job::Job;
use crate::load::{thing, things};
use crate::operator::Operator;
use crate::redis_server::Server;
use crate::until::{DEADLINE, within};

#[test]
fn partitions_of_a_topic_pass_each_version_of_a_thing_on_once() {
    let job = gated("partitions", 4, Server::shared(), "");
    (0..4).for_each(|partition| job.send(things(partition, 0..300, 1)));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 300);
    // Within a partition nothing changes; a newer version is something else.
    (0..4).for_each(|partition| job.send(things(partition, 0..300, 1).chain(things(partition, 100..300, 2))));
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 500);
    let dropped = |reason: &str| operator.metric("ratchet_records_total", &[&format!("reason=\"{reason}\"")]);
    assert_eq!(dropped("known_elsewhere"), f64::from(3 * 300 + 3 * 200));
    // The store remembers what the gate has dropped: it is not asked again.
    assert_eq!(dropped("version_equal"), f64::from(4 * 300));
    let answers = |answer: &str| operator.metric("ratchet_gate_answers_total", &[&format!("answer=\"{answer}\"")]);
    assert_eq!([answers("first"), answers("elsewhere")], [500.0, f64::from(3 * 500)]);
    assert_eq!(Server::shared().marks(&job.name), 500);
    operator.stop();
}

#[test]
fn topics_and_topologies_that_name_one_gate_share_it() {
    let more = ", name: shared-by-two";
    let mut one = gated("topology-one", 2, Server::shared(), more);
    let two = gated("topology-two", 1, Server::shared(), more);
    let apart = gated("topology-apart", 1, Server::shared(), "");
    // The first one reads two topics.
    let second = format!("{}.more", one.input);
    one.kafka.create(&second, 2, &[]);
    one.topology.push(format!("input: {{topics: [{}, {second}], value_format: json}}", one.input));
    one.send(things(0, 0..100, 1));
    one.kafka.send(&second, things(1, 50..150, 1));
    two.send(things(0, 100..200, 1));
    apart.send(things(0, 0..200, 1));
    let jobs = [&one, &two, &apart];
    let mut operators = jobs.map(|job| Operator::start(job, "a"));
    jobs.iter().for_each(|job| job.await_drained(DEADLINE));
    within(DEADLINE, "the second topic to be read", || {
        let (at, _) = one.kafka.committed(&one.group(), &second, 1)?;
        (at >= one.kafka.bounds(&second, 1).end).then_some(())
    });
    assert_each_once(&counted(one.output().into_iter().chain(two.output())), 200);
    assert_each_once(&counted(apart.output()), 200);
    operators.iter_mut().for_each(Operator::stop);
}

#[test]
fn identity_may_come_out_elsewhere_once_the_gate_has_forgotten_it() {
    let server = Server::start(&[]);
    let job = gated("forgotten", 2, &server, ", retention: 1s");
    let mut operator = Operator::start(&job, "a");
    job.send(things(0, 0..50, 1));
    job.await_drained(DEADLINE);
    within(DEADLINE, "the gate to forget", || (server.marks(&job.name) == 0).then_some(()));
    job.send(things(0, 0..50, 1).chain(things(1, 0..50, 1)));
    job.await_drained(DEADLINE);
    let counts = counted(job.output());
    // Its own partition remembers it; the other one has never seen it.
    assert_eq!((counts.len(), counts.values().sum::<usize>()), (50, 100), "{counts:?}");
    operator.stop();
}

#[test]
fn record_that_the_output_refuses_leaves_no_mark() {
    let job = Job::on(Kafka::shared(), "refused");
    job.kafka.create(&job.input, 2, &[]);
    job.kafka.create(&job.output, 2, &[("max.message.bytes", "2000")]);
    let job = crate::gates::gated::with_gate(job, &Server::shared().url(""), "");
    let huge = |partition: i32, id: &str| {
        let mut record = thing(partition, id, 1);
        record.value = Some(format!("{{\"id\":\"{id}\",\"version\":1,\"note\":\"{}\"}}", "x".repeat(4000)).into());
        record
    };
    let mut operator = Operator::start(&job, "a");
    job.send([thing(0, "before", 1), huge(0, "large"), thing(0, "after", 1)]);
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 2);
    assert_eq!(job.kafka.read(&job.dead_letter()).into_values().flatten().count(), 1);
    assert_eq!(Server::shared().marks(&job.name), 2, "the mark of what was refused is taken back");
    // The same thing in a form that the output takes, in this partition and in the other one.
    job.send([thing(1, "large", 1), thing(1, "before", 1)]);
    job.await_drained(DEADLINE);
    job.send([thing(0, "large", 1)]);
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 3);
    operator.stop();
}

#[test]
fn what_follows_a_refused_record_in_its_batch_is_asked_about_anew() {
    let mut job = gated("refused-at-once", 2, Server::shared(), "");
    // The client itself refuses what is larger, so that the rest of the batch goes on.
    job.properties.insert("producer.message.max.bytes".to_owned(), "2000".to_owned());
    job.topology.push("on_unsendable: drop".to_owned());
    let mut huge = thing(0, "large", 1);
    huge.value = Some(format!("{{\"id\":\"large\",\"version\":1,\"note\":\"{}\"}}", "x".repeat(4000)).into());
    job.send([thing(0, "before", 1), huge, thing(0, "large", 1), thing(0, "large", 1), thing(0, "after", 1)]);
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 3);
    assert_eq!(operator.metric("ratchet_records_total", &["reason=\"unsendable\""]), 1.0);
    job.send(["before", "large", "after"].map(|id| thing(1, id, 1)));
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 3);
    operator.stop();
}

#[test]
fn sink_of_postgres_has_a_gate_too() {
    let database = Database::with("create table applied (id text not null, version bigint not null)");
    let mut job = gated("sink", 3, Server::shared(), "");
    job.topology.push(format!(
        "sink:\n  postgres:\n    url: {}\n    statements:\n      - sql: insert into applied values ($1, $2)\n        \
         with: [value.id, value.version]",
        database.url
    ));
    (0..3).for_each(|partition| job.send(things(partition, 0..200, 1)));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    assert_eq!(database.value("select count(*) || ' ' || count(distinct id) from applied"), "200 200");
    operator.stop();
}

#[test]
fn drops_are_explained_in_the_audit_topic() {
    let mut job = gated("audited", 2, Server::shared(), "");
    let audit = format!("{}.audit", job.name);
    job.kafka.create(&audit, 1, &[]);
    job.topology.push(format!("audit: {{topic: {audit}}}"));
    job.send([thing(0, "one", 1)]);
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    job.send([thing(1, "one", 1)]);
    job.await_drained(DEADLINE);
    let all: Vec<_> = job.kafka.read_visible(&audit).into_values().flatten().collect();
    let [only] = &all[..] else { panic!("{} records in the audit topic", all.len()) };
    let text = String::from_utf8(only.value.clone().expect("a value")).expect("text");
    for part in [r#""verdict":"duplicate","reason":"known_elsewhere""#, r#""identity":["one"]"#, r#""partition":1"#] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    operator.stop();
}
