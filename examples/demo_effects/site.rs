//! Where a job of the demo runs: a folder with its topics, and `ratchet run` or another program as a child process.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, Message, NewTopic};
use ratchet::record::{Headers, TopicPartition};
use tempfile::TempDir;

use super::Outcome;

/// How long a step may take on a busy machine.
pub const STEP_TIME_MAX: Duration = Duration::from_secs(60);
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A topology, and what it runs with.
pub struct Job {
    pub name: &'static str,
    /// Its file's text.
    pub topology: &'static str,
    /// Its input.
    pub topic: &'static str,
    /// How many records end a transaction.
    pub batch: u64,
    /// The example that runs it; `None` for `ratchet run`.
    pub example: Option<&'static str>,
}

/// A folder with the topics, the stores, the topology and the configuration.
pub struct Site {
    folder: TempDir,
    job: &'static Job,
}

impl Site {
    pub fn make(job: &'static Job) -> Outcome<Site> {
        let folder = tempfile::Builder::new().prefix("ratchet-demo-effects-").tempdir()?;
        let site = Site { folder, job };
        fs::write(site.path("topology.yaml"), job.topology)?;
        let config = format!(
            "cluster: embedded\n\
             embedded: {{dir: {}, partitions: 1}}\n\
             state_dir: {}\n\
             commit: {{records: {}}}\n\
             http: 127.0.0.1:0\n\
             topics: {{create: all, replication_factor: 1, min_insync_replicas: 1}}\n\
             log: {{format: json, level: info}}\n",
            site.path("topics").display(),
            site.path("state").display(),
            job.batch,
        );
        fs::write(site.path("ratchet.yaml"), config)?;
        let (name, settings) = (job.topic, &[]);
        site.open()?.create_topic(&NewTopic { name, partition_count: 1, replication_factor: 1, settings })?;
        Ok(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn remove_state(&self) -> Outcome<()> {
        Ok(fs::remove_dir_all(self.path("state"))?)
    }

    /// The cluster, which only one process can have open.
    fn open(&self) -> Outcome<Embedded> {
        Ok(Embedded::open(&self.path("topics"), 1)?)
    }

    /// Appends records to the input, each a key and a value.
    pub fn append(&self, records: &[(String, String)]) -> Outcome<()> {
        let topic = self.job.topic;
        let messages = records.iter().map(|(key, value)| Message {
            topic,
            partition: 0,
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: Headers::default(),
            timestamp: None,
        });
        self.open()?.append(topic, 0, &messages.collect::<Vec<_>>())?;
        Ok(())
    }

    /// How far the group has come, as the topics have it.
    pub fn group_offset(&self) -> Outcome<i64> {
        let (group, input) = (format!("ratchet.{}", self.job.name), TopicPartition::new(self.job.topic, 0));
        let committed = self.open()?.committed(&group, &[input], Duration::ZERO)?;
        Ok(committed.first().and_then(Option::as_ref).map_or(0, |committed| committed.offset))
    }

    /// The keys and values of a topic; nothing if there is no such topic.
    pub fn records(&self, topic: &str) -> Outcome<Vec<(String, String)>> {
        let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap_or_default());
        let records = self.open()?.read_all(topic, 0).unwrap_or_default();
        records.into_iter().map(|record| Ok((text(record.key)?, text(record.value)?))).collect()
    }

    /// Starts the job's program; it dies where `crash_at` says.
    pub fn run(&self, crash_at: Option<&str>, arguments: &[&str], env: &[(&str, &str)]) -> Outcome<Operator> {
        let program = program(self.job.example)?;
        let log = File::options().create(true).append(true).open(self.path("log.jsonl"))?;
        let mut command = Command::new(&program);
        if self.job.example.is_none() {
            command.arg("run");
        }
        command.args(arguments).arg("--config").arg(self.path("ratchet.yaml")).arg(self.path("topology.yaml"));
        // Settings from the environment would override the demo's own, and proxies would be asked for its provider.
        let is_meant = |name: &str| name.starts_with("RATCHET_") || name.to_ascii_lowercase().ends_with("_proxy");
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_meant(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.envs(env.iter().copied());
        command.envs(crash_at.map(|point| ("RATCHET_CRASH_AT", point)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        Ok(Operator(child))
    }

    /// Keeps the log beyond the end of the demo.
    pub fn keep_log(&self) -> Outcome<PathBuf> {
        let kept = std::env::temp_dir().join(format!("ratchet-demo-effects-{}.jsonl", std::process::id()));
        fs::copy(self.path("log.jsonl"), &kept)?;
        Ok(kept)
    }
}

/// A program that `make demo-effects` has built: an example, this one's neighbour, or ratchet itself, whose folder holds
/// that of the examples.
fn program(example: Option<&str>) -> Outcome<PathBuf> {
    let this = std::env::current_exe()?;
    let examples = this.parent().ok_or("the demo is in no folder")?;
    let program = match example {
        Some(example) => examples.join(example),
        None => examples.with_file_name("ratchet"),
    };
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("{} is not built: run `make demo-effects`", program.display()).into()),
    }
}

/// A job's program at work; killed when dropped.
pub struct Operator(Child);

impl Operator {
    /// Asks it to stop (SIGTERM).
    pub fn stop(&self) {
        if let Ok(pid) = libc::pid_t::try_from(self.0.id()) {
            // SAFETY: `kill` takes plain numbers; the child was not waited for yet, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
    }

    pub fn is_running(&mut self) -> Outcome<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    /// Waits until it has ended by itself, or because it was asked to.
    pub fn end(&mut self, site: &Site) -> Outcome<()> {
        let status = self.status()?;
        if !status.success() {
            return Err(format!("the operator ended with {status}, see {}", site.keep_log()?.display()).into());
        }
        Ok(())
    }

    /// Waits until it was killed where that was planned.
    pub fn die(&mut self, site: &Site) -> Outcome<()> {
        let status = self.status()?;
        if status.signal() != Some(libc::SIGKILL) {
            return Err(format!("the operator ended with {status}, see {}", site.keep_log()?.display()).into());
        }
        Ok(())
    }

    fn status(&mut self) -> Outcome<ExitStatus> {
        let deadline = Instant::now() + STEP_TIME_MAX;
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None if Instant::now() > deadline => return Err("the operator does not end".into()),
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
