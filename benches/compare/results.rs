//! A part's results, kept as JSON in a file, so that parts can be run separately and the page be rendered
//! from whatever exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::failure::{Context as _, Outcome};
use crate::kafka;

/// A part's results, and how they were obtained.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The part's name.
    pub part: String,
    /// When it ended, UTC.
    pub at: String,
    /// How long the part took.
    pub seconds: u64,
    /// The machine.
    pub machine: Machine,
    /// The versions of the software that took part.
    pub versions: BTreeMap<String, String>,
    /// Threads, lanes or processes of each contender.
    #[serde(default)]
    pub threads: BTreeMap<Contender, usize>,
    /// Whether it was a short run, whose figures say little.
    pub quick: bool,
    /// The part's settings.
    pub settings: BTreeMap<String, String>,
    /// Failures, as text.
    pub failures: Vec<String>,
    /// The part's own figures.
    pub data: serde_json::Value,
}

/// What a part returns.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Its own figures, serialised.
    pub data: serde_json::Value,
    /// Its settings: sizes, rounds.
    pub settings: BTreeMap<String, String>,
    /// Failures, after which the rest continued.
    pub failures: Vec<String>,
}

impl Findings {
    /// Findings with these figures.
    pub fn new(data: &impl Serialize) -> Outcome<Findings> {
        Ok(Findings { data: serde_json::to_value(data)?, ..Findings::default() })
    }

    /// Adds a setting.
    pub fn setting(mut self, name: &str, value: impl ToString) -> Findings {
        self.settings.insert(name.to_owned(), value.to_string());
        self
    }
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores that may be used.
    pub cores: usize,
    /// Memory.
    pub memory_mib: u64,
    /// Operating system and kernel.
    pub system: String,
}

impl Results {
    /// The part's figures.
    pub fn data<T: DeserializeOwned>(&self) -> Outcome<T> {
        serde_json::from_value(self.data.clone()).context(format_args!("the results of {}", self.part))
    }

    /// Writes them to the part's file.
    pub fn write(&self) -> Outcome<PathBuf> {
        let path = path(&self.part);
        fs::create_dir_all(folder())?;
        // An interrupted run must not replace a whole file by half of one.
        let fresh = path.with_extension("json.part");
        fs::write(&fresh, serde_json::to_string_pretty(self)?).context(fresh.display())?;
        fs::rename(&fresh, &path)?;
        Ok(path)
    }

    /// The results of a part's last run, if there was one.
    pub fn read(part: &str) -> Outcome<Option<Results>> {
        let path = path(part);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).context(path.display())?;
        serde_json::from_str(&text).map(Some).context(path.display())
    }
}

/// The folder of the results.
pub fn folder() -> PathBuf {
    kafka::target_folder().join("bench/results")
}

fn path(part: &str) -> PathBuf {
    folder().join(format!("{part}.json"))
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        let cpu = field("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let memory = field("/proc/meminfo", "MemTotal", ':').unwrap_or_default();
        let memory = memory.trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024;
        let system = field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory,
            system: format!("{}, Linux {}", system.trim_matches('"'), kernel.trim()),
        }
    }

    /// The system without the part of the kernel's release after the first `-`, which only means something to its
    /// builder.
    pub fn system_released(&self) -> &str {
        let kernel = self.system.rfind(' ').map_or(0, |space| space + 1);
        let end = self.system[kernel..].find('-').map_or(self.system.len(), |dash| kernel + dash);
        &self.system[..end]
    }
}

fn field(file: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let (_, value) = text.lines().filter_map(|line| line.split_once(separator)).find(|(n, _)| n.trim() == name)?;
    Some(value.trim().to_owned())
}

/// The versions of the software that takes part.
pub fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let commit = said(Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]));
    versions.insert("ratchet".into(), commit.trim().to_owned());
    versions.insert("librdkafka".into(), rdkafka::util::get_rdkafka_version().1);
    versions.insert("Apache Kafka".into(), crate::kafka::version().to_owned());
    versions.insert("Kafka Streams".into(), peer_version("kafka"));
    let quix = include_str!("../peers/quix/requirements.txt").split_whitespace();
    let quix = quix.filter_map(|word| word.strip_prefix("quixstreams==")).next().unwrap_or_default();
    versions.insert("Quix Streams".into(), quix.to_owned());
    let java = said(Command::new("java").arg("-version"));
    versions.insert("Java".into(), java.split('"').nth(1).unwrap_or_default().to_owned());
    versions
}

/// The version of a library of the Kafka Streams contender.
pub fn peer_version(library: &str) -> String {
    between(include_str!("../peers/kafka-streams/pom.xml"), &format!("<{library}.version>"), "<")
}

/// The version of a crate that this program is built with.
pub fn crate_version(name: &str) -> String {
    between(include_str!("../../Cargo.lock"), &format!("name = \"{name}\"\nversion = \""), "\"")
}

/// The text between the first `start` and the next `end`.
fn between(text: &str, start: &str, end: &str) -> String {
    text.split_once(start).and_then(|(_, rest)| rest.split_once(end)).map_or("", |(found, _)| found).to_owned()
}

fn said(command: &mut Command) -> String {
    let Ok(output) = command.output() else { return String::new() };
    String::from_utf8_lossy(if output.stdout.is_empty() { &output.stderr } else { &output.stdout }).into_owned()
}
