//! Goal: a run that finds no broker says so once in a while, in its own words, and ends at once when it is told to.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Room;
use super::job::Started;
use crate::until::{DEADLINE, within};

/// How soon a run ends that has nothing to finish.
const END_MAX: Duration = Duration::from_secs(5);

/// A run for a port that nobody listens on, which logs to `run.log`.
fn start(room: &Room) -> Started {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = free.local_addr().expect("it listens");
    drop(free);
    let log = std::fs::File::create(room.path().join("run.log")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_ratchet"))
        .args(["run", "payments.yaml", "--set", "http=off", "--set", &format!("kafka.bootstrap.servers={address}")])
        .current_dir(room.path())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    Started(child.unwrap())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "another process is timed")]
fn run_without_a_broker_ends_at_once_when_it_is_told_to() {
    for signal in ["TERM", "INT"] {
        let room = Room::new();
        let mut run = start(&room);
        let said = || std::fs::read_to_string(room.path().join("run.log")).unwrap();
        within(DEADLINE, "the run to miss the cluster", || said().contains("has not answered yet").then_some(()));
        let asked = Instant::now();
        run.signal(signal);
        let ended = run.0.wait().unwrap();
        let took = asked.elapsed();
        assert!(took < END_MAX, "it took {took:?}: {}", said());
        assert_eq!(ended.code(), Some(0), "{}", said());
        assert!(said().contains("stopped"), "{}", said());
    }
}

#[test]
fn run_without_a_broker_says_why_in_one_line_and_librdkafka_says_nothing() {
    let room = Room::new();
    let run = start(&room);
    let said = || std::fs::read_to_string(room.path().join("run.log")).unwrap();
    within(DEADLINE, "the run to say why", || said().contains("cannot start yet").then_some(()));
    run.signal("TERM");
    let said = said();
    let why = said.lines().find(|line| line.contains("cannot start yet")).unwrap();
    assert!(why.contains("Connection refused") && why.contains("does not answer"), "{why}");
    assert!(!said.contains("librdkafka") && !said.contains("FAIL"), "{said}");
}
