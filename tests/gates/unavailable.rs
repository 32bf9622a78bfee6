//! Goal: while a gate does not answer, records wait or go on unasked, as the topology says; nothing is lost, the instance
//! stays in its group, and it says what it waits for.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ratchet::effect::gate::{Gate, GateRecord, IDENTITY_BYTES, Identity, SourcePartition};
use ratchet::redis::Address;
use ratchet::redis::gate::{RedisGate, Settings};

use crate::gates::gated::{assert_each_once, counted, gated};
use crate::job::{Job, SESSION_TIMEOUT};
use crate::load::things;
use crate::operator::Operator;
use crate::redis_server::Server;
use crate::relay::{Line, Relay};
use crate::until::{DEADLINE, within};

/// Has an operator hold its records, for longer than a member of the group may be silent, and says how it looks then.
fn assert_holds(job: &Job, operator: &mut Operator, reason: &str) {
    operator.await_line(&["\"WARN\"", "the gate does not answer: records wait for it", reason], DEADLINE);
    let before = job.committed();
    let rebalances = operator.metric("ratchet_rebalances_total", &[]);
    sleep(SESSION_TIMEOUT * 2);
    operator.assert_running();
    assert_eq!(job.committed(), before, "nothing is passed over");
    let (status, body) = operator.get("/readyz?verbose");
    assert!(status == 503 && body.contains("the gate does not answer"), "{status}: {body}");
    assert_eq!(operator.metric("ratchet_gate_held", &[]), 1.0);
    assert_eq!(operator.metric("ratchet_rebalances_total", &[]), rebalances, "it stays in its group");
    assert_eq!(operator.metric("ratchet_dead_letters_total", &[]), 0.0);
}

/// The gate is down for a while under these two, and what was sent meanwhile comes out once.
fn outage(theme: &str, reason: &str, settings: &[&str], down: impl Fn(&mut Server), up: impl Fn(&mut Server)) {
    let mut server = Server::start(settings);
    let job = gated(theme, 2, &server, "");
    (0..2).for_each(|partition| job.send(things(partition, 0..100, 1)));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    down(&mut server);
    (0..2).for_each(|partition| job.send(things(partition, 100..300, 1)));
    assert_holds(&job, &mut operator, reason);
    up(&mut server);
    job.await_drained(DEADLINE);
    operator.await_line(&["the gate answers again"], DEADLINE);
    operator.await_ready(DEADLINE);
    assert_eq!(operator.metric("ratchet_gate_held", &[]), 0.0);
    assert_each_once(&counted(job.output()), 300);
    operator.stop();
}

#[test]
fn records_wait_for_a_server_that_is_down() {
    outage("down", "refused", &[], Server::kill, Server::restart);
}

#[test]
fn records_wait_for_a_server_that_is_frozen() {
    outage("slow", "does not answer in time", &[], |server| server.freeze(), |server| server.thaw());
}

#[test]
fn records_wait_for_a_server_that_is_full() {
    let full = |server: &mut Server| server.ask::<()>("CONFIG SET maxmemory 1");
    outage("full", "maxmemory", &[], full, |server| server.ask::<()>("CONFIG SET maxmemory 0"));
}

#[test]
fn records_wait_for_a_server_that_has_become_a_replica() {
    let demoted = |server: &mut Server| server.ask::<()>("REPLICAOF 127.0.0.1 1");
    outage("replica", "replica", &[], demoted, |server| server.ask::<()>("REPLICAOF NO ONE"));
}

#[test]
fn server_that_starts_again_empty_has_forgotten_everything() {
    let mut server = Server::start(&[]);
    let job = gated("empty", 2, &server, "");
    let mut operator = Operator::start(&job, "a");
    job.send(things(0, 0..100, 1));
    job.await_drained(DEADLINE);
    server.restart();
    // The connection that was there is gone: that is no reason to wait for long.
    job.send(things(0, 0..100, 1).chain(things(1, 0..100, 1)));
    job.await_drained(DEADLINE);
    let counts = counted(job.output());
    // That is no guarantee; and its own partition remembers everything.
    assert_eq!((counts.len(), counts.values().sum::<usize>()), (100, 200), "{counts:?}");
    operator.stop();
}

#[test]
fn records_go_on_unasked_where_the_topology_says_so() {
    let mut server = Server::start(&[]);
    let job = gated("pass", 2, &server, ", on_unavailable: pass");
    (0..2).for_each(|partition| job.send(things(partition, 0..100, 1)));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    assert_each_once(&counted(job.output()), 100);
    server.kill();
    for round in 1..4_usize {
        job.send((0..2).flat_map(|partition| things(partition, round * 100..round * 100 + 100, 1)));
        job.await_drained(DEADLINE);
    }
    assert_eq!(operator.metric("ratchet_gate_unasked_total", &[]), 600.0);
    assert_eq!(operator.metric("ratchet_gate_held", &[]), 0.0);
    operator.await_ready(DEADLINE);
    let unasked: Vec<usize> = counted(job.output()).into_values().collect();
    assert_eq!((unasked.len(), unasked.iter().sum::<usize>()), (400, 100 + 600), "each comes out of both partitions");
    server.restart();
    within(DEADLINE, "the gate to be asked again", || {
        job.send(things(0, 1_000..1_001, 1));
        job.await_drained(DEADLINE);
        // What is sent again is known to the store.
        job.send((0..2).flat_map(|partition| things(partition, 1_001 + server.marks(&job.name)..1_100, 1)));
        job.await_drained(DEADLINE);
        (server.marks(&job.name) > 0).then_some(())
    });
    operator.await_line(&["the gate answers again"], DEADLINE);
    let warnings = operator.log().into_iter().filter(|line| line.to_string().contains("records go on unasked"));
    assert_eq!(warnings.count(), 1, "an outage is warned of once");
    operator.stop();
}

#[test]
fn frozen_server_holds_up_no_member_of_the_group_where_records_go_on_unasked() {
    let server = Server::start(&[]);
    let job = gated("pass-slow", 2, &server, ", on_unavailable: pass");
    let mut operator = Operator::start(&job, "a");
    job.send(things(0, 0..10, 1));
    job.await_drained(DEADLINE);
    server.freeze();
    let rebalances = operator.metric("ratchet_rebalances_total", &[]);
    for round in 1..9_usize {
        job.send((0..2).flat_map(|partition| things(partition, round * 10..round * 10 + 10, 1)));
        job.await_drained(DEADLINE);
        sleep(Duration::from_millis(500));
    }
    assert_eq!(operator.metric("ratchet_rebalances_total", &[]), rebalances);
    assert_eq!(operator.metric("ratchet_gate_unasked_total", &[]), 160.0);
    server.thaw();
    operator.stop();
}

/// A lane serves its group only between two calls.
#[test]
fn call_is_over_in_time_however_slowly_answers_come() {
    let server = Server::start(&[]);
    let relay = Relay::to(server.port.number());
    let address = Address::read(&format!("redis://127.0.0.1:{}", relay.port)).expect("an address");
    let mut session = RedisGate::new(Settings { address, name: "slow".to_owned(), retention_ms: 60_000 }).session();
    session.reach().expect("it is there");
    let asked: Vec<_> = (0..60)
        .map(|number| GateRecord { identity: Identity([number; IDENTITY_BYTES]), offset: number.into() })
        .collect();
    let place = SourcePartition { topology: "t", topic: "in", topic_id: [1; 16], partition: 0 };
    // An answer, `$-1\r\n`, each time: all of them take 6 s, and a call 2 s at most.
    relay.set(Line::Trickle(5, Duration::from_millis(100)));
    let (began, mut answers) = (Instant::now(), Vec::new());
    let late = session.ask(&place, &asked, &mut answers).expect_err("it takes too long");
    assert!(late.message.contains("does not answer in time"), "{late}");
    assert!((1..60).contains(&answers.len()), "the answers did not come one by one: {}", answers.len());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}
