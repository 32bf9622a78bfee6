//! The operator: `ratchet run`, as a child process that is watched from outside, as any operator of it
//! would: by `/metrics`, by its log, and by the signal that it ended with.
//!
//! It is told to end (SIGTERM) when it has counted as many records as there are. `/metrics` counts what is
//! committed, so nothing is lost by that, and the last count is exact, which the one before a child's own
//! end would not be.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;

use super::site::Site;
use super::{now, pause};

/// How often the child is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long an answer of `/metrics` may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// A child that has counted nothing for so long hangs.
const STILL_TIME_MAX: Duration = Duration::from_secs(60);
/// How many of the child's last lines an error shows.
const LINES_SHOWN: usize = 8;

/// One run of the job.
pub struct Job<'a> {
    /// Where.
    pub site: &'a Site,
    /// How many records there are to process.
    pub expected: u64,
    /// In which transaction it is to be killed, between its sends and its commit.
    pub fatal_transaction: Option<u64>,
}

/// Records by verdict, and the transactions that they were committed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub forwarded: u64,
    pub duplicate: u64,
    pub stale: u64,
    pub other: u64,
    pub transactions: u64,
}

impl Counts {
    pub fn total(&self) -> u64 {
        self.forwarded + self.duplicate + self.stale + self.other
    }

    /// The counts in Prometheus' text format.
    fn parse(metrics: &str) -> Self {
        let mut counts = Self::default();
        for line in metrics.lines() {
            let number = line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0) as u64;
            if line.starts_with("ratchet_transactions_total{") && label(line, "result") == Some("committed") {
                counts.transactions += number;
            }
            if !line.starts_with("ratchet_records_total{") {
                continue;
            }
            match label(line, "verdict") {
                Some("forwarded") => counts.forwarded += number,
                Some("duplicate") => counts.duplicate += number,
                Some("stale") => counts.stale += number,
                _ => counts.other += number,
            }
        }
        counts
    }
}

/// A label's value; no label here has quotes in it.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

/// What was read to rebuild stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Changelog records.
    pub records: u64,
    /// The longest that one store took; they are rebuilt side by side.
    pub took: Duration,
}

/// How a run has ended: as it was to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// What it had counted, as last heard.
    pub counts: Counts,
    pub restored: Restored,
    /// From its start to its end.
    pub took: Duration,
}

/// Why a run has ended otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot find this program's own file: {0}")]
    Itself(#[source] io::Error),
    #[error("cannot {what} {}: {source}", .path.display())]
    Start { what: &'static str, path: PathBuf, source: io::Error },
    #[error("the operator ended with {status} instead of {expected}; its last lines:\n{lines}")]
    Ended { status: ExitStatus, expected: &'static str, lines: String },
    #[error("the operator has processed nothing for {} s; its last lines:\n{lines}", STILL_TIME_MAX.as_secs())]
    Still { lines: String },
}

/// Who does the job. Another one than the program stands in for it in tests.
pub trait Operator {
    /// Runs the job until all is processed, or until it is killed as it is to be.
    fn run(&mut self, job: &Job<'_>, progress: &mut dyn FnMut(&Counts)) -> Result<Ended, Error>;
}

/// This program, as a child process.
pub struct Program {
    path: PathBuf,
}

impl Program {
    pub fn this() -> Result<Self, Error> {
        Ok(Self { path: std::env::current_exe().map_err(Error::Itself)? })
    }

    fn start(&self, job: &Job<'_>) -> Result<Running, Error> {
        let mut command = Command::new(&self.path);
        command.args(["run".as_ref(), "--config".as_ref(), job.site.config().as_os_str()]).arg(job.site.topology());
        // Settings from the environment would win over the demo's own.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RATCHET_")) {
            command.env_remove(name);
        }
        if let Some(count) = job.fatal_transaction {
            command.env("RATCHET_CRASH_AT", format!("after_sends:{count}"));
        }
        let log_path = job.site.log();
        let log = File::options().create(true).append(true).open(&log_path);
        let log = log.map_err(|source| Error::Start { what: "write", path: log_path, source })?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn();
        let mut child = child.map_err(|source| Error::Start { what: "start", path: self.path.clone(), source })?;
        let (sender, events) = mpsc::channel();
        let reading = child.stderr.take().map(|stderr| std::thread::spawn(move || follow(stderr, log, &sender)));
        Ok(Running { child, events, reading, told: Told::default() })
    }
}

impl Operator for Program {
    fn run(&mut self, job: &Job<'_>, progress: &mut dyn FnMut(&Counts)) -> Result<Ended, Error> {
        let (began, mut running) = (now(), self.start(job)?);
        let (mut counts, mut counted_at, mut asked) = (Counts::default(), began, false);
        let status = loop {
            running.hear();
            if let Some(heard) = running.told.address.and_then(scrape) {
                if heard != counts {
                    counted_at = now();
                }
                counts = heard;
                progress(&counts);
            }
            if counts.total() >= job.expected && !asked {
                running.ask_to_end();
                asked = true;
            }
            match running.child.try_wait() {
                Ok(Some(status)) => break status,
                // Not to be waited for any more, which cannot be: it is this process's own child.
                Err(_) => return Err(running.still()),
                Ok(None) if counted_at.elapsed() > STILL_TIME_MAX => return Err(running.still()),
                Ok(None) => pause(LOOK_INTERVAL),
            }
        };
        let took = began.elapsed();
        running.hear_all();
        let (fits, expected) = match job.fatal_transaction {
            Some(_) => (status.signal() == Some(libc::SIGKILL), "by SIGKILL in mid-transaction"),
            None => (status.success() && asked, "by itself, with all records processed"),
        };
        if !fits {
            return Err(Error::Ended { status, expected, lines: running.told.last_lines() });
        }
        Ok(Ended { counts, restored: running.told.restored, took })
    }
}

/// The child and what it has said.
struct Running {
    child: Child,
    events: Receiver<String>,
    reading: Option<JoinHandle<()>>,
    told: Told,
}

impl Running {
    fn hear(&mut self) {
        while let Ok(line) = self.events.try_recv() {
            self.told.take(line);
        }
    }

    /// Hears the rest, the child having ended.
    fn hear_all(&mut self) {
        if let Some(reading) = self.reading.take() {
            // A panic there has lost lines of the log, no more.
            let _ = reading.join();
        }
        self.hear();
    }

    fn ask_to_end(&self) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: `kill` takes plain numbers; the child is not waited for yet, so the id is its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
    }

    fn still(&mut self) -> Error {
        self.hear();
        Error::Still { lines: self.told.last_lines() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing of the demo outlives it. Both fail only where the child has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the log has said so far.
#[derive(Default)]
struct Told {
    address: Option<SocketAddr>,
    restored: Restored,
    lines: Vec<String>,
}

/// A line of the log, as far as it is of use here.
#[derive(Deserialize)]
struct Line {
    message: String,
    address: Option<SocketAddr>,
    #[serde(default)]
    records: u64,
    #[serde(default)]
    took_ms: u64,
}

impl Told {
    fn take(&mut self, text: String) {
        if let Ok(line) = serde_json::from_str::<Line>(&text) {
            self.address = self.address.or(line.address);
            if line.message == "store restored" {
                self.restored.records += line.records;
                self.restored.took = self.restored.took.max(Duration::from_millis(line.took_ms));
            }
        }
        if self.lines.len() == LINES_SHOWN {
            self.lines.remove(0);
        }
        self.lines.push(text);
    }

    fn last_lines(&self) -> String {
        self.lines.join("\n")
    }
}

/// Copies the child's lines into its log, and hands them on.
fn follow(stderr: impl Read, mut log: File, lines: &mpsc::Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        // A log that cannot be written is no reason to stop the story.
        let _ = writeln!(log, "{line}");
        if lines.send(line).is_err() {
            break;
        }
    }
}

/// Asks `/metrics`; `None` where nobody answers, which the child's end explains.
fn scrape(address: SocketAddr) -> Option<Counts> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIME_MAX).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| Counts::parse(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_by_verdict() {
        let metrics = "\
            # TYPE ratchet_records_total counter\n\
            ratchet_records_total{reason=\"first\",topic=\"t\",topology=\"o\",verdict=\"forwarded\"} 5\n\
            ratchet_records_total{reason=\"newer\",topic=\"t\",topology=\"o\",verdict=\"forwarded\"} 7\n\
            ratchet_records_total{reason=\"version_equal\",topic=\"t\",topology=\"o\",verdict=\"duplicate\"} 3\n\
            ratchet_records_total{reason=\"version_older\",topic=\"t\",topology=\"o\",verdict=\"stale\"} 2\n\
            ratchet_records_total{reason=\"null_value\",topic=\"t\",topology=\"o\",verdict=\"invalid\"} 1\n\
            ratchet_transactions_total{result=\"committed\",topology=\"o\"} 4\n\
            ratchet_transactions_total{result=\"aborted\",topology=\"o\"} 8\n\
            ratchet_state_entries{topology=\"o\"} 99\n";
        let counts = Counts::parse(metrics);
        assert_eq!(counts, Counts { forwarded: 12, duplicate: 3, stale: 2, other: 1, transactions: 4 });
        assert_eq!(counts.total(), 18);
    }

    #[test]
    fn the_log_tells_the_address_and_what_was_restored() {
        let mut told = Told::default();
        told.take(r#"{"level":"INFO","message":"serving","address":"127.0.0.1:1234"}"#.into());
        told.take(r#"{"message":"store restored","task":"t:0","records":10,"took_ms":30}"#.into());
        told.take(r#"{"message":"store restored","task":"t:1","records":5,"took_ms":40}"#.into());
        told.take("not JSON".into());
        assert_eq!(told.address, Some(([127, 0, 0, 1], 1234).into()));
        assert_eq!(told.restored, Restored { records: 15, took: Duration::from_millis(40) });
        assert!(told.last_lines().ends_with("not JSON"));
        (0..20).for_each(|n| told.take(n.to_string()));
        assert_eq!(told.last_lines().lines().count(), LINES_SHOWN);
    }
}
