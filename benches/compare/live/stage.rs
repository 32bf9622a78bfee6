//! A contender with its own topics, group and folders, which are removed afterwards, however the run ends.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::within;
use crate::broker::Watch;
use crate::contender::{Contender, Running};
use crate::failure::{Context as _, Outcome, fail};
use crate::part::Bench;
use crate::spec::{Spec, Work};

/// How often an awaited condition is checked.
pub const LOOK: Duration = Duration::from_millis(20);
/// How long to wait until the broker knows a new topic.
const CREATE_WAIT: Duration = Duration::from_secs(60);
/// How long a response of a contender's HTTP server may take.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// A place to run a contender. Dropping this removes its topics and folders.
pub struct Stage<'a> {
    bench: &'a Bench,
    pub contender: Contender,
    pub spec: Spec,
    pub partitions: i32,
    name: String,
}

impl<'a> Stage<'a> {
    /// A stage with an empty input and output with these settings.
    pub fn set(
        bench: &'a Bench,
        contender: Contender,
        work: Work,
        partitions: i32,
        topics: &[(&str, &str)],
    ) -> Outcome<Stage<'a>> {
        let mut stage = Stage::bare(bench, contender, work, partitions)?;
        stage.spec.input = format!("{}-in", stage.name);
        stage.create(&stage.spec.input, topics)?;
        stage.create_outputs(topics)?;
        Ok(stage)
    }

    /// A stage over an existing input, which stays.
    pub fn over(
        bench: &'a Bench,
        contender: Contender,
        work: Work,
        partitions: i32,
        input: &str,
    ) -> Outcome<Stage<'a>> {
        let mut stage = Stage::bare(bench, contender, work, partitions)?;
        input.clone_into(&mut stage.spec.input);
        stage.create_outputs(&[])?;
        Ok(stage)
    }

    fn bare(bench: &'a Bench, contender: Contender, work: Work, partitions: i32) -> Outcome<Stage<'a>> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        contender.prepare()?;
        let name = format!("live-{}-{contender}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut spec = contender.spec(&bench.broker, &bench.folder, &name, work, "");
        if contender == Contender::Ratchet {
            spec.settings = vec![("http".into(), "127.0.0.1:0".into()), ("log.format".into(), "json".into())];
        }
        Ok(Stage { bench, contender, spec, partitions, name })
    }

    fn create_outputs(&self, topics: &[(&str, &str)]) -> Outcome<()> {
        self.create(&self.spec.output, topics)?;
        if self.contender.writes_changelog() {
            self.create(&self.spec.changelog, &[("cleanup.policy", "compact")])?;
        }
        Ok(())
    }

    /// Creates a topic and waits until the broker knows all of it, since contenders expect it to exist.
    pub fn create(&self, topic: &str, settings: &[(&str, &str)]) -> Outcome<()> {
        let broker = &self.bench.broker;
        broker.create(topic, self.partitions, settings)?;
        within(CREATE_WAIT, LOOK, &format!("topic {topic} to be there"), || {
            Ok(broker.ends(topic).is_ok_and(|ends| ends.len() as i32 == self.partitions).then_some(()))
        })
    }

    /// Another instance's spec: the same job with its own state folder.
    pub fn instance(&self, label: &str) -> Spec {
        let mut spec = self.spec.clone();
        spec.state_dir = self.bench.folder.join(format!("{}-{label}", self.name));
        spec
    }

    /// Starts the contender.
    pub fn start(&self) -> Outcome<Live> {
        self.start_as(&self.spec)
    }

    /// Starts it with the spec of an instance.
    pub fn start_as(&self, spec: &Spec) -> Outcome<Live> {
        // Each start appends to the log.
        let log_from = fs::metadata(spec.state_dir.with_extension("log")).map_or(0, |file| file.len());
        Ok(Live { running: self.contender.start(spec)?, contender: self.contender, log_from, address: None })
    }

    /// Watches the contender's committed offsets.
    pub fn watch(&self) -> Outcome<Watch> {
        self.bench.broker.watch(&self.spec.group, &self.spec.input, self.partitions)
    }

    /// All topics of this run.
    pub fn topics(&self) -> Outcome<Vec<String>> {
        Ok(self.bench.broker.topics()?.into_iter().filter(|topic| self.owns(topic)).collect())
    }

    /// Whether a topic was created for this run: its name contains the run's as a whole.
    fn owns(&self, topic: &str) -> bool {
        topic.match_indices(&self.name).any(|(at, name)| {
            let next = topic[at + name.len()..].chars().next();
            next.is_none_or(|next| !next.is_ascii_alphanumeric())
        })
    }

    /// Waits until the group has committed `records` of the input, while the contenders run.
    pub fn await_committed(&self, live: &mut Live, records: u64, wait: Duration) -> Outcome<()> {
        let watch = self.watch()?;
        let deadline = Instant::now() + wait;
        loop {
            live.running.check()?;
            let sum = watch.sum()?;
            if sum >= records {
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = format!("had committed {sum} of {records} records after {wait:?}");
                return Err(live.running.failure(&what));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Compares the output's record count with the expected one.
    pub fn check_output(&self, expected: u64) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let found = self.bench.broker.committed_records(&self.spec.output)?;
            if found == expected {
                return Ok(());
            }
            // The last markers may still be in flight.
            if Instant::now() > deadline || found > expected {
                fail!("{} gave {found} records, not {expected}", self.contender);
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        let topics = self.topics().unwrap_or_default();
        if let Err(error) = self.bench.broker.delete(&topics.iter().map(String::as_str).collect::<Vec<_>>()) {
            self.bench.progress.say(format!("topics of {} stay: {error}", self.name));
        }
        // Instances' folders start with the same name; logs stay for inspection.
        for entry in fs::read_dir(&self.bench.folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() && self.owns(&entry.file_name().to_string_lossy()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// A running contender, and its log.
pub struct Live {
    pub running: Running,
    contender: Contender,
    log_from: u64,
    address: Option<String>,
}

impl Live {
    /// What it has logged since this start.
    pub fn said(&self) -> Outcome<String> {
        let mut bytes = Vec::new();
        let mut log = File::open(self.running.log())?;
        log.seek(SeekFrom::Start(self.log_from))?;
        log.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until it reports that everything it was assigned is restored and running; for ratchet and Kafka Streams.
    /// Returns how long after its start that was.
    pub fn await_ready(&mut self, partitions: i32, wait: Duration) -> Outcome<Duration> {
        loop {
            self.running.check()?;
            let age = self.running.age();
            if self.is_ready(partitions)? {
                return Ok(age);
            }
            if age > wait {
                return Err(self.running.failure(&format!("was not ready after {wait:?}")));
            }
            std::thread::sleep(LOOK / 2);
        }
    }

    fn is_ready(&mut self, partitions: i32) -> Outcome<bool> {
        if self.contender != Contender::Ratchet {
            return Ok(self.said()?.lines().any(|line| line == "ready"));
        }
        // A member without any partition yet is ready too.
        let is_whole = |metrics: &str| {
            let running = metrics.lines().filter(|line| line.starts_with("ratchet_tasks{"));
            let running = running.filter(|line| line.contains("state=\"running\""));
            let count: f64 = running.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
            count as i32 == partitions
        };
        let is_ok = |answer: &str| answer.split(' ').nth(1) == Some("200");
        Ok(self.get("/readyz")?.is_some_and(|answer| is_ok(&answer))
            && self.get("/metrics")?.is_some_and(|answer| is_whole(&answer)))
    }

    /// A response of ratchet's HTTP server, with its head; `None` while it does not listen.
    pub fn get(&mut self, path: &str) -> Outcome<Option<String>> {
        if self.address.is_none() {
            let said = self.said()?;
            let line = said.lines().find(|line| line.contains("serving /metrics"));
            self.address = line.and_then(address);
        }
        let Some(address) = &self.address else { return Ok(None) };
        let Ok(mut stream) = TcpStream::connect(address) else { return Ok(None) };
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        stream.set_write_timeout(Some(ANSWER_WAIT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").context(path)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context(path)?;
        Ok(Some(answer))
    }
}

/// The address in the log line that has it.
fn address(line: &str) -> Option<String> {
    let at = line.find("127.0.0.1:")?;
    let end = line[at..].find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit()).unwrap_or(line.len() - at);
    Some(line[at..at + end].to_owned())
}
