//! `ratchet run` on an embedded cluster: the whole program, from its first line to its last.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use ratchet::cluster::Message;
use ratchet::cluster::embedded::Embedded;
use ratchet::record::Headers;

use super::{PAYMENTS, Room};

/// The settings of a run on the room's embedded cluster.
pub const SETTINGS: &str = "--set cluster=embedded --set embedded.dir=topics --set state_dir=state --set topics.create=all \
                        --set lanes=1 --set memory=64MiB --set http=127.0.0.1:0";

/// How long any wait may take.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn order(version: u32) -> String {
    format!(r#"{{"order_id":7,"operation":"charge","version":{version}}}"#)
}

impl Room {
    /// A room whose cluster has orders of these versions in its input.
    fn with_orders(versions: &[u32]) -> Self {
        let room = Self::new();
        let cluster = Embedded::open(&room.path().join("topics"), 1).unwrap();
        for value in versions.iter().map(|&version| order(version)) {
            let message = Message {
                topic: "payments",
                partition: 0,
                key: None,
                value: Some(value.as_bytes()),
                headers: Headers::default(),
                timestamp: Some(1_000),
            };
            cluster.append("payments", 0, &[message]).unwrap();
        }
        room
    }

    fn output(&self) -> Vec<String> {
        let cluster = Embedded::open(&self.path().join("topics"), 1).unwrap();
        let records = cluster.read_all("payments.unique", 0).unwrap();
        records.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
    }
}

#[test]
fn drained_run_forwards_new_records_and_ends() {
    let room = Room::with_orders(&[1, 1, 3, 2, 4]);
    let run = format!("run payments.yaml --until-drained {SETTINGS}");
    room.run(&run).ended(0).wrote(&[]).said(&["starting", "topologies=\"payments\"", "stopped"]);
    assert_eq!(room.output(), [order(1), order(3), order(4)]);
    room.run(&run).ended(0);
    assert_eq!(room.output().len(), 3, "another run forwarded something");
}

#[test]
fn missing_input_fails_the_run() {
    let ran = Room::new().run(&format!("run payments.yaml {SETTINGS}")).ended(1).wrote(&[]);
    ran.said(&["input topic \"payments\" does not exist; no command but `ratchet demo` fills an embedded cluster"]);
}

#[test]
fn refused_topology_is_reported_once() {
    let room = Room::new();
    room.write("other.yaml", PAYMENTS.replace("payments", "other"));
    let ran = room.run(&format!("run payments.yaml other.yaml {SETTINGS}")).ended(1);
    for name in ["payments", "other"] {
        let lines = ran.stderr.lines().filter(|line| line.contains(&format!("input topic {name:?} does not exist")));
        assert_eq!(lines.count(), 1, "{}", ran.stderr);
    }
    // one for each topology, and the last line
    assert_eq!(ran.stderr.lines().filter(|line| line.contains("ERROR")).count(), 3, "{}", ran.stderr);
}

#[test]
fn refused_run_ends_with_an_error_line() {
    let room = Room::with_orders(&[1, 2]);
    room.write("other.yaml", PAYMENTS.replace("payments", "other"));
    // either nothing ran, or another topology ran to its end meanwhile
    for topologies in ["other.yaml", "other.yaml payments.yaml", "payments.yaml other.yaml"] {
        let ran = room.run(&format!("run {topologies} --until-drained {SETTINGS}")).ended(1);
        let last = ran.stderr.lines().last().unwrap();
        assert!(last.contains("ERROR") && last.contains("stopped"), "{topologies}: {}", ran.stderr);
        assert!(!ran.stderr.contains("INFO stopped"), "{}", ran.stderr);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = SETTINGS.replace("127.0.0.1:0", &taken.local_addr().unwrap().to_string());
    let ran = room.run(&format!("run payments.yaml {settings}")).ended(1);
    assert!(ran.stderr.lines().last().unwrap().contains("ERROR"), "{}", ran.stderr);
}

#[test]
fn http_server_uses_a_bounded_number_of_file_descriptors() {
    const BOUND: usize = 64;
    let room = Room::with_orders(&[1]);
    let mut job = Job::start(&room);
    job.wait_until(|job| job.ask("/readyz").contains("200 OK"));
    let fds = format!("/proc/{}/fd", job.process.0.id());
    let sockets = || {
        let links = std::fs::read_dir(&fds).unwrap().filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    let before = sockets();
    let mut silent = Vec::new();
    for _ in 0..5 * BOUND {
        let mut stream = TcpStream::connect(&job.address).unwrap();
        stream.write_all(b"GET /").unwrap();
        silent.push(stream);
        // well-behaved clients are served meanwhile
        if silent.len() % BOUND == 0 {
            assert!(job.ask("/livez").contains("200 OK"));
        }
    }
    job.wait_until(|_| sockets() <= before + BOUND);
    assert!(job.ask("/readyz").contains("200 OK"));
    job.end("TERM");
}

#[test]
fn running_job_serves_http_and_ends_cleanly_on_a_signal() {
    for signal in ["TERM", "INT"] {
        let room = Room::with_orders(&[1, 1, 2]);
        let mut job = Job::start(&room);
        job.wait_until(|job| job.ask("/readyz").contains("200 OK"));
        assert!(job.ask("/livez").contains("200 OK"));
        let forwarded =
            r#"ratchet_records_total{reason="first",topic="payments",topology="payments",verdict="forwarded"} 1"#;
        job.wait_until(|job| job.ask("/metrics").contains(forwarded));
        let log = job.end(signal);
        assert!(log.contains("stopping") && log.contains("stopped"), "{log}");
        assert_eq!(room.output(), [order(1), order(2)]);
    }
}

/// As `timeout` of coreutils does it: it signals the process, and then its group.
#[test]
fn two_signals_at_once_count_as_one() {
    let room = Room::with_orders(&[1]);
    let mut job = Job::start(&room);
    job.wait_until(|job| job.ask("/readyz").contains("200 OK"));
    // Both arrive before it runs again.
    job.process.signal("STOP");
    job.process.signal("INT");
    job.process.signal("TERM");
    let log = job.end("CONT");
    assert!(!log.contains("ending at once"), "{log}");
}

/// A process in the background; killed with its handle.
pub struct Started(pub Child);

impl Started {
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // it has ended already, unless the test failed
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The whole response to a request; empty if there is none yet.
pub fn ask(address: &str, path: &str) -> String {
    let mut response = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_to_string(&mut response).unwrap();
    }
    response
}

/// A job in the background.
struct Job {
    process: Started,
    log: BufReader<ChildStderr>,
    address: String,
}

impl Job {
    /// Starts a job and waits until it logs its address.
    fn start(room: &Room) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_ratchet"))
            .args(["run", "payments.yaml"])
            .args(SETTINGS.split_whitespace())
            .current_dir(room.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = Started(child.unwrap());
        let mut log = BufReader::new(process.0.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the job has ended");
            if let Some((_, address)) = line.trim_end().split_once("address=") {
                break address.to_owned();
            }
        };
        Self { process, log, address }
    }

    fn ask(&self, path: &str) -> String {
        ask(&self.address, path)
    }

    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "another process is waited for")]
    fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not within {WAIT_MAX:?}; {}", self.ask("/readyz?verbose"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal, waits for the end, which must be clean, and returns the rest of the log.
    fn end(&mut self, signal: &str) -> String {
        self.process.signal(signal);
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        assert_eq!(self.process.0.wait().unwrap().code(), Some(0), "{rest}");
        rest
    }
}
