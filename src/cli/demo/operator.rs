//! The operator: `ratchet run` as a child process, watched from outside as any user would: by `/metrics`, by
//! its log, and by the signal that it ended with.
//!
//! It is stopped (SIGTERM) once it has counted as many records as there are. `/metrics` counts what is
//! committed, so nothing is lost by that, and the last count is exact, which it would not be if the child
//! exited on its own.

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

/// How often the child is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a response of `/metrics` may take.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(2);
/// A child that has counted nothing for this long has stalled.
const STALL_TIME_MAX: Duration = Duration::from_secs(60);
/// How many of the child's last lines an error shows.
const LINES_SHOWN: usize = 8;

/// One run of the job.
pub struct Job<'a> {
    /// Where it runs.
    pub site: &'a Site,
    /// How many records there are to process.
    pub expected: u64,
    /// The transaction in which to kill it, between sends and commit.
    pub fatal_transaction: Option<u64>,
}

/// Records by verdict, and the number of transactions that committed them.
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
    /// How long the slowest store took; they are rebuilt in parallel.
    pub took: Duration,
}

/// A run that has ended as it should.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// Its counts when they were last scraped.
    pub counts: Counts,
    pub restored: Restored,
    /// From start to end.
    pub took: Duration,
}

/// Why a run has failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot find this program's own file: {0}")]
    Itself(#[source] io::Error),
    #[error("cannot {what} {}: {source}", .path.display())]
    Start { what: &'static str, path: PathBuf, source: io::Error },
    #[error("the operator ended with {status} instead of {expected}; its last lines:\n{lines}")]
    Ended { status: ExitStatus, expected: &'static str, lines: String },
    #[error("the operator has processed nothing for {} s; its last lines:\n{lines}", STALL_TIME_MAX.as_secs())]
    Stalled { lines: String },
}

/// Runs the job. Tests replace the program by a stand-in.
pub trait Operator {
    /// Runs the job until everything is processed, or until it is killed as planned.
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
        // Settings from the environment would override the demo's own.
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
        Ok(Running { child, events, reading, log: LogSummary::default() })
    }
}

impl Operator for Program {
    fn run(&mut self, job: &Job<'_>, progress: &mut dyn FnMut(&Counts)) -> Result<Ended, Error> {
        let (started, mut running) = (now(), self.start(job)?);
        let (mut counts, mut counted_at, mut asked) = (Counts::default(), started, false);
        let status = loop {
            running.read_log();
            if let Some(scraped) = running.log.address.and_then(scrape) {
                if scraped != counts {
                    counted_at = now();
                }
                counts = scraped;
                progress(&counts);
            }
            if counts.total() >= job.expected && !asked {
                running.ask_to_stop();
                asked = true;
            }
            match running.child.try_wait() {
                Ok(Some(status)) => break status,
                // Cannot be waited for, which cannot happen: it is this process's own child.
                Err(_) => return Err(running.stalled()),
                Ok(None) if counted_at.elapsed() > STALL_TIME_MAX => return Err(running.stalled()),
                Ok(None) => pause(POLL_INTERVAL),
            }
        };
        let took = started.elapsed();
        running.read_rest_of_log();
        let (fits, expected) = match job.fatal_transaction {
            Some(_) => (status.signal() == Some(libc::SIGKILL), "by SIGKILL mid-transaction"),
            None => (status.success() && asked, "cleanly, with all records processed"),
        };
        if !fits {
            return Err(Error::Ended { status, expected, lines: running.log.last_lines() });
        }
        Ok(Ended { counts, restored: running.log.restored, took })
    }
}

/// The child and its log.
struct Running {
    child: Child,
    events: Receiver<String>,
    reading: Option<JoinHandle<()>>,
    log: LogSummary,
}

impl Running {
    fn read_log(&mut self) {
        while let Ok(line) = self.events.try_recv() {
            self.log.take(line);
        }
    }

    /// Reads the log to its end, after the child has ended.
    fn read_rest_of_log(&mut self) {
        if let Some(reading) = self.reading.take() {
            // A panic there only lost lines of the log.
            let _ = reading.join();
        }
        self.read_log();
    }

    fn ask_to_stop(&self) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: `kill` takes plain numbers; the child was not waited for yet, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
    }

    fn stalled(&mut self) -> Error {
        self.read_log();
        Error::Stalled { lines: self.log.last_lines() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The child must not outlive the demo. Both calls fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is needed of the log so far.
#[derive(Default)]
struct LogSummary {
    address: Option<SocketAddr>,
    restored: Restored,
    lines: Vec<String>,
}

/// The fields of a log line that are used here.
#[derive(Deserialize)]
struct Line {
    message: String,
    address: Option<SocketAddr>,
    #[serde(default)]
    records: u64,
    #[serde(default)]
    took_ms: u64,
}

impl LogSummary {
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

/// Copies the child's lines into its log, and passes them on.
fn follow(stderr: impl Read, mut log: File, lines: &mpsc::Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        // The demo continues if the log cannot be written.
        let _ = writeln!(log, "{line}");
        if lines.send(line).is_err() {
            break;
        }
    }
}

/// Fetches `/metrics`; `None` if there is no response, as when the child has ended.
fn scrape(address: SocketAddr) -> Option<Counts> {
    let mut stream = TcpStream::connect_timeout(&address, RESPONSE_TIME_MAX).ok()?;
    stream.set_read_timeout(Some(RESPONSE_TIME_MAX)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
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
    fn address_and_restored_records_are_read_from_the_log() {
        let mut log = LogSummary::default();
        log.take(r#"{"level":"INFO","message":"serving","address":"127.0.0.1:1234"}"#.into());
        log.take(r#"{"message":"store restored","task":"t:0","records":10,"took_ms":30}"#.into());
        log.take(r#"{"message":"store restored","task":"t:1","records":5,"took_ms":40}"#.into());
        log.take("not JSON".into());
        assert_eq!(log.address, Some(([127, 0, 0, 1], 1234).into()));
        assert_eq!(log.restored, Restored { records: 15, took: Duration::from_millis(40) });
        assert!(log.last_lines().ends_with("not JSON"));
        (0..20).for_each(|n| log.take(n.to_string()));
        assert_eq!(log.last_lines().lines().count(), LINES_SHOWN);
    }
}
