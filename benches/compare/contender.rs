//! The contenders, and how each is started, watched and stopped. Every contender is a separate process, so
//! that its resource usage is not mixed with the harness's.

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::broker::Broker;
use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::formats;
use crate::kafka;
use crate::spec::{Spec, Work};
use crate::usage::Usage;

/// How long a contender may take to end in good order.
const STOP_WAIT: Duration = Duration::from_secs(60);
/// How many lines of a log are shown after a failure.
const TAIL_LINES: usize = 25;
/// ratchet's memory for all its stores; the default would be half of the machine's.
pub const MEMORY: &str = "1GiB";
/// The same in bytes.
pub const MEMORY_BYTES: u64 = 1 << 30;
/// What ratchet may take in addition to `memory:`.
pub const CONSTANT_BYTES: u64 = 64 << 20;
/// ratchet's default number of lanes at most; on fewer cores, one per core.
const LANES_MAX: usize = 4;
/// Threads or processes of the peers, which have no default that depends on the machine.
const PEER_THREADS: usize = 2;
/// Lanes of the floors: with more, they take more CPU time and are no faster.
const FLOOR_LANES: usize = 1;
/// The longest transaction of each contender, unless a part says otherwise.
pub const COMMIT_MS: u64 = 100;

/// A program that reads the input, decides, and writes the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// A pass-through as most people write it.
    Plain,
    /// The fastest pass-through that can be written with librdkafka.
    Floor,
    /// The same, with a changelog record for each record.
    FloorChangelog,
    /// The same on ratchet's own client.
    Limit,
    /// The program as it comes, with its lanes on the wire.
    Ratchet,
    /// The same with `data_path: librdkafka`.
    RatchetLibrdkafka,
    /// Kafka Streams with RocksDB and a changelog.
    KafkaStreams,
    /// Quix Streams.
    Quix,
}

impl Contender {
    /// All of them.
    pub const ALL: [Contender; 8] = [
        Contender::Plain,
        Contender::Floor,
        Contender::FloorChangelog,
        Contender::Limit,
        Contender::Ratchet,
        Contender::RatchetLibrdkafka,
        Contender::KafkaStreams,
        Contender::Quix,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Plain => "plain",
            Contender::Floor => "floor",
            Contender::FloorChangelog => "floor-changelog",
            Contender::Limit => "limit",
            Contender::Ratchet => "ratchet",
            Contender::RatchetLibrdkafka => "ratchet-librdkafka",
            Contender::KafkaStreams => "kafka-streams",
            Contender::Quix => "quix",
        }
    }

    /// Whether it has to be built first, from what Maven or pip fetches.
    pub fn is_built(self) -> bool {
        matches!(self, Contender::KafkaStreams | Contender::Quix)
    }

    /// Whether it decides anything; the others pass all records on.
    pub fn decides(self) -> bool {
        self.is_ratchet() || matches!(self, Contender::KafkaStreams | Contender::Quix)
    }

    /// Whether it writes a changelog that the harness creates.
    pub fn writes_changelog(self) -> bool {
        matches!(self, Contender::FloorChangelog | Contender::Limit)
    }

    /// Whether it is the program.
    pub fn is_ratchet(self) -> bool {
        matches!(self, Contender::Ratchet | Contender::RatchetLibrdkafka)
    }

    /// Threads, lanes or processes that do an instance's work. For ratchet, its default.
    pub fn threads(self) -> usize {
        match self {
            Contender::Plain => 1,
            Contender::Floor | Contender::FloorChangelog => FLOOR_LANES,
            // As many as ratchet has.
            Contender::Limit | Contender::Ratchet | Contender::RatchetLibrdkafka => {
                thread::available_parallelism().map_or(1, usize::from).min(LANES_MAX)
            }
            Contender::KafkaStreams | Contender::Quix => PEER_THREADS,
        }
    }

    /// The group of a run with this name (lower-case letters, digits and dashes).
    pub fn group(self, name: &str) -> String {
        match self {
            Contender::Ratchet | Contender::RatchetLibrdkafka => format!("ratchet.{name}"),
            _ => name.to_owned(),
        }
    }

    /// The spec of a run with this name, which must be new on this broker. It reads `input`, writes
    /// `NAME-out` and keeps its state in its own folder inside `folder`.
    pub fn spec(self, broker: &Broker, folder: &Path, name: &str, work: Work, input: &str) -> Spec {
        Spec {
            brokers: broker.bootstrap().to_owned(),
            group: self.group(name),
            input: input.to_owned(),
            output: format!("{name}-out"),
            changelog: format!("{name}-log"),
            state_dir: folder.join(name),
            work,
            commit_ms: COMMIT_MS,
            threads: self.threads(),
            settings: match self {
                Contender::RatchetLibrdkafka => vec![("data_path".to_owned(), "librdkafka".to_owned())],
                _ => Vec::new(),
            },
            arguments: Vec::new(),
        }
    }

    /// Prepares the first run: builds the peers. Silent and quick if that is done.
    pub fn prepare(self) -> Outcome<()> {
        if !self.is_built() {
            return Ok(());
        }
        let done = peer(self, "build.sh").stdin(Stdio::null()).output().context("benches/peers/build.sh")?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
            fail!("{} cannot be built:\n{}", self.name(), tail(&said));
        }
        Ok(())
    }

    /// Starts it. Its log is in the state folder's parent, named like the state folder.
    pub fn start(self, spec: &Spec) -> Outcome<Running> {
        fs::create_dir_all(&spec.state_dir).context(spec.state_dir.display())?;
        let mut command = match self {
            Contender::Plain | Contender::Floor | Contender::FloorChangelog | Contender::Limit => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["work", self.name()]);
                command
            }
            Contender::Ratchet | Contender::RatchetLibrdkafka => ratchet(spec, |name| topology_text(name, spec))?,
            Contender::KafkaStreams | Contender::Quix => peer(self, "run.sh"),
        };
        if self == Contender::KafkaStreams {
            let settings: Vec<String> = spec.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
            command.env("PEER_PROPERTIES", settings.join(","));
            command.env("BENCH_SCHEMA", kafka::checkout().join("benches/debezium/envelope.avsc"));
        }
        command.envs(spec.environment());
        Running::start(self.name(), command, spec.state_dir.with_extension("log"))
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A script of the peers; `run.sh` becomes the peer.
fn peer(contender: Contender, script: &str) -> Command {
    let mut command = Command::new(kafka::checkout().join("benches/peers").join(script));
    command.arg(contender.name()).env("CARGO_TARGET_DIR", kafka::target_folder());
    command
}

/// The program with a topology, which `text` writes under its name, and a configuration in the state folder.
pub fn ratchet(spec: &Spec, text: impl FnOnce(&str) -> String) -> Outcome<Command> {
    let folder = &spec.state_dir;
    let Some(name) = spec.group.strip_prefix("ratchet.") else { fail!("{} is no group of ratchet's", spec.group) };
    let topology = folder.join("topology.yaml");
    fs::write(&topology, text(name)).context(topology.display())?;
    let config = folder.join("ratchet.yaml");
    let mut schemas = String::new();
    if spec.work == Work::Avro {
        let dir = folder.join("schemas");
        formats::write_schemas(&dir)?;
        schemas = format!("schemas: {{dir: {}}}\n", dir.display());
    }
    let text = format!(
        "cluster: kafka\nkafka: {{bootstrap.servers: \"{}\"}}\nstate_dir: {}\nmemory: {MEMORY}\n\
         lanes: {}\ncommit: {{interval: {}ms}}\nhttp: \"off\"\n\
         topics: {{create: internal, replication_factor: 1, min_insync_replicas: 1}}\n{schemas}",
        spec.brokers,
        folder.join("state").display(),
        spec.threads,
        spec.commit_ms,
    );
    fs::write(&config, text).context(config.display())?;
    let mut command = Command::new(program()?);
    command.arg("run").arg("--config").arg(&config);
    for (name, value) in &spec.settings {
        command.arg("--set").arg(format!("{name}={value}"));
    }
    command.args(&spec.arguments).arg(&topology);
    Ok(command)
}

/// The program, which `make bench` has built next to this one.
pub fn program() -> Outcome<PathBuf> {
    let program = env::current_exe()?.with_file_name("ratchet");
    if !program.exists() {
        fail!("{} is not there: build it with `make build`", program.display());
    }
    Ok(program)
}

/// ratchet's topology.
pub fn topology_text(name: &str, spec: &Spec) -> String {
    let (input, output) = (&spec.input, &spec.output);
    match spec.work {
        Work::Ids | Work::Numbers | Work::Large => format!(
            "name: {name}\ninput: {{topics: [{input}], value_format: json}}\nidentity: value.event_id\n\
             partitioned_by_identity: true\noutput: {{topic: {output}}}\n"
        ),
        Work::Versions => format!(
            "name: {name}\ninput: {{topics: [{input}], value_format: json}}\nidentity: value.account\n\
             version: {{of: value.version, as: integer}}\npartitioned_by_identity: true\noutput: {{topic: {output}}}\n"
        ),
        Work::Envelopes => {
            format!(
                "name: {name}\npreset: debezium-postgres@3\ninput: {{topics: [{input}]}}\noutput: {{topic: {output}}}\n"
            )
        }
        Work::Avro => formats::topology(name, input, output),
    }
}

/// A started contender. Dropping this kills it.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    log: PathBuf,
    started: Instant,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts a contender; what it says is appended to `log`.
    pub fn start(name: &str, mut command: Command, log: PathBuf) -> Outcome<Running> {
        let file = File::options().create(true).append(true).open(&log).context(log.display())?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let started = Instant::now();
        let child = kafka::spawn(command).context(name)?;
        Ok(Running { name: name.to_owned(), child, log, started, ended: None })
    }

    /// Its process; it may have children.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The time since its start.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The resources that it has used so far.
    pub fn usage(&self) -> Usage {
        Usage::of(self.pid())
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Fails, with the log's tail, if it has ended.
    pub fn check(&mut self) -> Outcome<()> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        match self.ended {
            Some(status) => Err(self.failure(&format!("ended by itself: {status}"))),
            None => Ok(()),
        }
    }

    /// A failure with this message and the log's tail. The first line is for the page, so it names no folders.
    pub fn failure(&self, what: &str) -> Failure {
        let text = fs::read(&self.log).unwrap_or_default();
        let tail = tail(&String::from_utf8_lossy(&text));
        Failure(format!("{} {what}\nits log, {}:\n{tail}", self.name, self.log.display()))
    }

    /// Asks it to end and waits; returns how long that took.
    pub fn stop(&mut self) -> Outcome<Duration> {
        self.check()?;
        let asked = Instant::now();
        kafka::signal(&self.child, libc::SIGTERM);
        while asked.elapsed() < STOP_WAIT {
            if let Some(status) = self.child.try_wait()? {
                self.ended = Some(status);
                if status.success() {
                    return Ok(asked.elapsed());
                }
                return Err(self.failure(&format!("was asked to end and did so with {status}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        Err(self.failure(&format!("did not end within {STOP_WAIT:?} and was killed")))
    }

    /// Kills it at once (SIGKILL).
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
