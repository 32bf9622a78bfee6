//! Goal: marks that were left for a transaction which came to nothing lose no record: the next owner goes on, since
//! they are its partition's own.

use std::thread::sleep;
use std::time::Duration;

use crate::gates::gated::{assert_each_once, counted, gated};
use crate::load::things;
use crate::operator::{Operator, Options};
use crate::redis_server::Server;

/// A kill is followed by the session timeout, the transaction timeout and a restore.
const RECOVERY: Duration = Duration::from_secs(90);

/// An operator dies or freezes at a point, and another takes over.
fn at(point: &str, frozen: bool) {
    let server = Server::start(&[]);
    let job = gated(if frozen { "frozen" } else { "dead" }, 2, &server, "");
    (0..2).for_each(|partition| job.send(things(partition, 0..2_000, 1)));
    let crash_at = if frozen { format!("{point}:freeze") } else { point.to_owned() };
    let mut first = Operator::start_with(&job, "a", &Options { crash_at: Some(&crash_at), ..Options::default() });
    if frozen {
        first.await_frozen()
    } else {
        first.await_crash()
    }
    let marks = server.marks(&job.name);
    assert!(marks > 0, "it has left marks");
    let committed = job.committed();
    let mut second = Operator::start(&job, "b");
    job.await_drained(RECOVERY);
    assert_each_once(&counted(job.output()), 2_000);
    assert_eq!(server.marks(&job.name), 2_000);
    let own = second.metric("ratchet_gate_answers_total", &["answer=\"own\""]);
    assert!(own > 0.0, "{marks} marks were there when {committed:?} was committed, and {own} were met");
    if frozen {
        first.thaw();
        sleep(Duration::from_secs(2));
        first.assert_running();
        assert_each_once(&counted(job.output()), 2_000);
        first.stop();
    }
    second.stop();
}

#[test]
fn instance_dies_between_marks_and_commit() {
    at("after_gate:1", false);
}

#[test]
fn instance_dies_when_everything_is_sent() {
    at("after_sends:1", false);
}

#[test]
fn transaction_of_a_frozen_instance_is_aborted() {
    at("after_gate:1", true);
}
