//! One run of the program on one broker.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::profiles::{Comes, Profile};

/// How many records the input has at first, and how many new ones are written before each start that comes after.
const RECORDS: usize = 100;
/// Within this time after its first word the program refuses what it cannot run on.
const REFUSED_MAX: Duration = Duration::from_secs(10);
/// How long a cell may take: longer than a task may fail before the instance is not ready, on a busy machine.
const CELL_MAX: Duration = Duration::from_secs(150);
/// For how long an instance that cannot work stays not ready.
const UNREADY_FOR: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// An instance's state in its folder.
const STATE: &str = "state";

/// A setting `data_path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPath {
    Auto,
    Librdkafka,
    Wire,
}

/// A profile and a data path.
pub struct Cell {
    pub profile: &'static Profile,
    pub path: DataPath,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, data_path {}", self.profile.name, self.setting())
    }
}

impl Cell {
    fn setting(&self) -> &'static str {
        match self.path {
            DataPath::Auto => "auto",
            DataPath::Librdkafka => "librdkafka",
            DataPath::Wire => "wire",
        }
    }

    fn comes(&self) -> Comes {
        let Profile { comes, by_librdkafka, on_wire, .. } = self.profile;
        match self.path {
            DataPath::Auto => *comes,
            DataPath::Librdkafka => by_librdkafka.unwrap_or(*comes),
            DataPath::Wire => on_wire.unwrap_or(*comes),
        }
    }

    /// Runs it. What was seen, or what is wrong.
    pub fn run(&self) -> Result<String, String> {
        let mut broker = Broker::start(self.profile);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut run = Run::start(folder.path(), &broker.addresses, self.setting());
        match self.comes() {
            Comes::Refused(words) => run.await_refusal(words),
            Comes::Forwarded(words) => {
                let first = run.await_committed(&mut broker, RECORDS)?;
                run.stop();
                run.said(words)?;
                drop(run);
                self.run_again(folder.path(), broker, first)
            }
            Comes::NotReady(words) => {
                run.await_unready(words)?;
                let committed = broker.committed();
                if committed > 0 { Err(format!("{committed} were committed")) } else { Ok("not ready".to_owned()) }
            }
        }
    }

    /// Starts the instance again, which has forwarded what there was: with its state, then without it, so that it restores
    /// the changelog. Each time it has to go on where the group has committed, and to know what it has forwarded.
    fn run_again(&self, folder: &Path, mut broker: Broker, first: Duration) -> Result<String, String> {
        let mut seen = format!("forwarded in {:.1} s", first.as_secs_f64());
        for (start, how) in ["again", "again without its state"].into_iter().enumerate() {
            if start == 1 {
                fs::remove_dir_all(folder.join(STATE)).expect("the state is there");
            }
            broker.more();
            let mut run = Run::start(folder, &broker.addresses, self.setting());
            let written = RECORDS + (start + 1) * (RECORDS + 1);
            let took = run.await_committed(&mut broker, written).map_err(|wrong| format!("{how}: {wrong}"))?;
            run.stop();
            write!(seen, ", {how} in {:.1} s", took.as_secs_f64()).expect("a text takes all");
        }
        check_forwarded(&broker.records(), 3 * RECORDS, self.profile.ahead != "0s")?;
        Ok(seen)
    }
}

/// So many records have to be there, in order, each once, but for the one in the middle of the first if that is of the
/// future.
fn check_forwarded(values: &str, count: usize, is_one_ahead: bool) -> Result<(), String> {
    let numbers = (0..count).filter(|number| !is_one_ahead || *number != RECORDS / 2);
    let expected: Vec<String> = numbers.map(|number| format!("{{\"id\":\"{number}\"}}")).collect();
    if values == expected.join(" ") { Ok(()) } else { Err(format!("the output holds: {values}")) }
}

/// A broker at work. Killed when dropped.
struct Broker {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    addresses: String,
    _folder: TempDir,
}

impl Broker {
    fn start(profile: &Profile) -> Self {
        let program = std::env::var("RATCHET_TEST_KFAKE").expect("`make brokers` builds the broker and names it");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pairs = |pairs: &[(i16, i16)]| {
            pairs.iter().map(|(key, number)| format!("{key}={number}")).collect::<Vec<_>>().join(",")
        };
        let mut command = Command::new(program);
        command.arg(format!("-data={}", folder.path().display()));
        command.arg(format!("-records={RECORDS}"));
        command.arg(format!("-ahead={}", profile.ahead));
        command.arg(format!("-most={}", pairs(profile.most)));
        command.arg(format!("-refuse={}", pairs(profile.refuse)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the broker starts");
        let commands = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut broker = Self { child, commands, answers, addresses: String::new(), _folder: folder };
        broker.addresses = broker.answer();
        broker
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "the broker has ended");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("the broker listens");
        self.answer()
    }

    /// What the group has committed, 0 for nothing.
    fn committed(&mut self) -> i64 {
        self.ask("committed ratchet.brokers").parse::<i64>().expect("a number").max(0)
    }

    /// Writes a record to the input that it has had before, and then new ones.
    fn more(&mut self) {
        assert_eq!(self.ask("more"), "done");
    }

    /// Ends it. What the output holds.
    fn records(mut self) -> String {
        self.ask("records")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `ratchet run`. Killed when dropped.
struct Run {
    child: Child,
    log: PathBuf,
    began: Instant,
}

impl Run {
    /// Starts it with its files in this folder.
    fn start(folder: &Path, addresses: &str, data_path: &str) -> Self {
        let (topology, config) = (folder.join("topology.yaml"), folder.join("config.yaml"));
        let lines = "name: brokers\nidentity: [value.id]\ninput: {topics: [in], value_format: json}\n\
                     output: {topic: out}\n";
        write(&topology, lines);
        let state = folder.join(STATE);
        let lines = format!(
            "cluster: kafka\nkafka:\n  bootstrap.servers: \"{addresses}\"\n  producer.transaction.timeout.ms: \"5000\"\n\
             state_dir: {}\nhttp: \"127.0.0.1:0\"\n\
             topics: {{create: internal, replication_factor: 1, min_insync_replicas: 1}}\n\
             log: {{format: json, level: info}}\nlanes: 1\ndata_path: {data_path}\n",
            state.display()
        );
        write(&config, &lines);
        let log = folder.join("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
        command.arg("run").arg("--config").arg(&config).arg(&topology).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(File::create(&log).expect("a file")).spawn().expect("the program starts");
        Self { child, log, began: Instant::now() }
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read(&self.log).expect("the log is there");
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    fn tail(&self) -> String {
        let lines = self.lines();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Whether the log has all of these words in one line.
    fn has_said(&self, words: &[&str]) -> bool {
        self.lines().iter().any(|line| words.iter().all(|words| line.contains(words)))
    }

    fn said(&self, words: &str) -> Result<(), String> {
        if self.has_said(&[words]) { Ok(()) } else { Err(format!("the log lacks {words:?}: {}", self.tail())) }
    }

    fn check_running(&mut self) -> Result<(), String> {
        match self.child.try_wait().expect("it is our child") {
            None => Ok(()),
            Some(status) => Err(format!("it ended by {status}: {}", self.tail())),
        }
    }

    /// Waits until its group has committed so much of the input; how long that took.
    fn await_committed(&mut self, broker: &mut Broker, count: usize) -> Result<Duration, String> {
        while broker.committed() != count as i64 {
            self.check_running()?;
            if self.began.elapsed() > CELL_MAX {
                return Err(format!("{} of {count} committed; {}", broker.committed(), self.tail()));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(self.began.elapsed())
    }

    /// Waits until the topology is refused with these words, by the program's own clock within the bound.
    fn await_refusal(&mut self, words: &[&str]) -> Result<String, String> {
        while self.check_running().is_ok() {
            if self.began.elapsed() > CELL_MAX {
                return Err(format!("it runs on: {}", self.tail()));
            }
            thread::sleep(LOOK_EVERY);
        }
        let all: Vec<&str> = ["topology refused"].into_iter().chain(words.iter().copied()).collect();
        if !self.has_said(&all) {
            return Err(format!("it does not say {all:?}: {}", self.tail()));
        }
        let lines = self.lines();
        let refused = lines.iter().find(|line| line.contains("topology refused"));
        let [first, last] = [lines.first(), refused].map(|line| milliseconds(line.expect("it was found")));
        let took = Duration::from_millis(last.saturating_sub(first));
        match took <= REFUSED_MAX {
            true => Ok(format!("refused in {:.1} s", took.as_secs_f64())),
            false => Err(format!("refused only after {took:?}")),
        }
    }

    /// Waits until it is not ready for good, though it works, and has named the reason.
    fn await_unready(&mut self, words: &[&str]) -> Result<(), String> {
        let mut since = None;
        loop {
            self.check_running()?;
            let is_ready = self.readiness() == Some(200);
            let has_named = !is_ready && self.has_said(words);
            let at = *since.get_or_insert_with(Instant::now);
            if !has_named {
                since = None;
            } else if at.elapsed() >= UNREADY_FOR && self.began.elapsed() >= CELL_MAX / 3 {
                return Ok(());
            }
            if self.began.elapsed() > CELL_MAX {
                return Err(format!("ready: {is_ready}, after {CELL_MAX:?}: {}", self.tail()));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The status of `/readyz`, once there is one.
    fn readiness(&self) -> Option<u16> {
        let line = self.lines().into_iter().find(|line| line.contains("/metrics") && line.contains("\"address\""))?;
        let line: Value = serde_json::from_str(&line).ok()?;
        let address = field(&line, "address")?;
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.set_read_timeout(Some(REFUSED_MAX)).ok()?;
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        response.split(' ').nth(1)?.parse().ok()
    }

    /// Ends it as a service manager does.
    fn stop(&mut self) {
        // SAFETY: a plain system call; the child was not waited for, so its number is its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let until = Instant::now() + CELL_MAX;
        while self.check_running().is_ok() && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("the folder is writable");
}

/// A field of a line of the log, wherever it stands.
fn field(line: &Value, name: &str) -> Option<String> {
    let found = line.get(name).or_else(|| line.get("fields")?.get(name))?;
    found.as_str().map(str::to_owned)
}

/// When a line of the log was written, in milliseconds of its day: a cell does not last over midnight twice.
fn milliseconds(line: &str) -> u64 {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    let text = field(&line, "timestamp").unwrap_or_else(|| panic!("no time in {line}"));
    let (_, time) = text.split_once('T').unwrap_or_else(|| panic!("no time in {text}"));
    let part = |range: std::ops::Range<usize>| time.get(range).and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
    ((part(0..2) * 60 + part(3..5)) * 60 + part(6..8)) * 1000 + part(9..12)
}
