//! How fast a gate is; run by hand: `cargo test --release --test gates speed -- --ignored --nocapture`.
//!
//! - the driver alone: records asked about in portions, of which a part is known from elsewhere
//! - a topology with a gate, beside the same one without: a backlog is read, all of it new, or half of it known from another
//!   partition

use std::time::{Duration, Instant};

use ratchet::effect::gate::{Asked, Gate, Identity, Place, RowOf};
use ratchet::redis::Address;
use ratchet::redis::gate::{Redis, Settings};

use crate::gated::gated;
use crate::job::Job;
use crate::load::{now_ms, things};
use crate::operator::Operator;
use crate::redis::Server;

const RUN: Duration = Duration::from_secs(3);
const BACKLOG: usize = 300_000;

#[test]
#[ignore = "measures; needs a machine of its own"]
fn speed_of_the_driver() {
    for portion in [1, 10, 100, 1_000, 4_000] {
        let server = Server::start(&[]);
        let address = Address::read(&server.url("")).expect("a url");
        let gate = Redis::new(Settings { address, name: "speed".to_owned(), retention_ms: 600_000 });
        let mut session = gate.session();
        let (mut answers, mut count, start) = (Vec::new(), 0_i64, Instant::now());
        while start.elapsed() < RUN {
            // Every second portion asks for what the one before has brought, from another partition.
            let round = count / portion;
            let place = Place { topology: "speed", topic: "in", topic_id: [7; 16], partition: (round % 2) as i32 };
            let first = round / 2 * portion;
            let asked: Vec<Asked> = (first..first + portion).map(asked).collect();
            session.ask(&place, &asked, &mut answers).expect("it answers");
            count += portion;
        }
        println!("portions of {portion}: {:.0} records/s", count as f64 / start.elapsed().as_secs_f64());
    }
}

fn asked(number: i64) -> Asked {
    let identity = number.to_be_bytes();
    Asked { identity: Identity::of([RowOf { identity: &identity, scope: None, version: None }]), offset: number }
}

/// Records/s of a job over what its input holds.
fn rate(job: &Job) -> f64 {
    let records: i64 = (0..job.partitions()).map(|partition| job.kafka.bounds(&job.input, partition).end).sum();
    let mut operator = Operator::start(job, "a");
    job.await_progress(&[0; 2], Duration::from_secs(60));
    let start = Instant::now();
    let before: i64 = job.committed().iter().sum();
    job.await_drained(Duration::from_secs(600));
    let took = start.elapsed().as_secs_f64();
    operator.stop();
    (records - before) as f64 / took
}

#[test]
#[ignore = "measures; needs a machine of its own"]
fn speed_of_a_topology() {
    let server = Server::start(&[]);
    let began = now_ms();
    for shared in [false, true] {
        for has_gate in [false, true] {
            let theme = format!("speed-{shared}-{has_gate}");
            let job = if has_gate { gated(&theme, 2, &server, "") } else { Job::new(&theme, 2) };
            for partition in 0..2 {
                let from = if shared { 0 } else { partition as usize * BACKLOG };
                for at in (from..from + BACKLOG).step_by(10_000) {
                    job.send(things(partition, at..at + 10_000, began));
                }
            }
            let (gate, what) = (if has_gate { "a" } else { "no" }, if shared { "half known" } else { "all new" });
            println!("{gate} gate, {what}: {:.0} records/s", rate(&job));
        }
    }
}
