//! A format's fixtures, and rooms in which the program continues from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ratchet::cluster::Message;
use ratchet::cluster::embedded::Embedded;
use ratchet::record::Headers;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The topologies of the fixtures, by name. `NAME.in` is read, `NAME.out` written, and `NAME.audit` has what was
/// dropped.
pub const TOPOLOGIES: [&str; 4] = ["changes", "hourly", "ids", "versions"];

/// The folder of all formats' fixtures.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The kinds of folders: of what a run has written, of what stands in control topics, and of HTTP requests.
pub const KINDS: [&str; 3] = ["format", "control", "request"];

/// The fixtures of all formats that were ever written.
pub fn all() -> Vec<Fixture> {
    of_kind(KINDS[0])
}

/// The same of control topics.
pub fn of_control() -> Vec<Fixture> {
    of_kind(KINDS[1])
}

/// The same of HTTP requests.
pub fn of_requests() -> Vec<Fixture> {
    of_kind(KINDS[2])
}

fn of_kind(kind: &str) -> Vec<Fixture> {
    let folders = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let mut found: Vec<(u32, Fixture)> = Vec::new();
    for path in folders {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let numbered = name.split_once('-').and_then(|(kind, number)| Some((kind, number.parse().ok()?)));
        let (of, number) = numbered.filter(|(of, _)| KINDS.contains(of)).unwrap_or_else(|| panic!("{name}?"));
        if of == kind {
            found.push((number, Fixture { path }));
        }
    }
    found.sort_by_key(|(number, _)| *number);
    assert!(!found.is_empty(), "{} has no {kind}", root().display());
    found.into_iter().map(|(_, fixture)| fixture).collect()
}

/// What the program wrote in one format.
pub struct Fixture {
    pub path: PathBuf,
}

impl Fixture {
    /// The format that today's program writes.
    pub fn latest() -> Fixture {
        all().pop().unwrap()
    }

    /// The lines of a file, each a JSON object.
    pub fn lines(&self, file: &str) -> Vec<Value> {
        let path = self.path.join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!lines.is_empty(), "{} is empty", path.display());
        lines
    }

    /// A room with a copy of the topics, and of the stores too if `with_stores`.
    pub fn room(&self, with_stores: bool) -> Room {
        let room = Room::new(&self.path.join("topologies"));
        copy(&self.path.join("topics"), &room.path("topics"));
        if with_stores {
            copy(&self.path.join("state"), &room.path("state"));
        }
        room
    }
}

/// A folder of topologies, topics and stores, in which the program runs.
pub struct Room {
    folder: TempDir,
}

/// A record's key and value; `None` for null.
pub type KeyValue = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub said: String,
}

impl Room {
    pub fn new(topologies: &Path) -> Room {
        let room = Room { folder: tempfile::tempdir().unwrap() };
        copy(topologies, &room.path("topologies"));
        room
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn cluster(&self) -> Embedded {
        Embedded::open(&self.path("topics"), 1).unwrap()
    }

    /// Appends records, each `{"topology", "timestamp", "key", "value"}`, to the topologies' inputs. Keys and values
    /// are texts or null.
    pub fn append(&self, records: &[Value]) {
        let cluster = self.cluster();
        for record in records {
            let topic = format!("{}.in", record["topology"].as_str().unwrap());
            let message = Message {
                topic: &topic,
                partition: 0,
                key: record["key"].as_str().map(str::as_bytes),
                value: record["value"].as_str().map(str::as_bytes),
                headers: Headers::default(),
                timestamp: record["timestamp"].as_i64(),
            };
            cluster.append(&topic, 0, &[message]).unwrap();
        }
    }

    /// Runs the program with all topologies until all is processed.
    pub fn drain(&self) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
        command.current_dir(self.folder.path()).args(["run", "topologies", "--until-drained"]);
        for setting in ["cluster=embedded", "embedded.dir=topics", "embedded.partitions=1", "state_dir=state"] {
            command.args(["--set", setting]);
        }
        for setting in ["topics.create=all", "lanes=1", "memory=256MiB", "http=off", "log.format=json"] {
            command.args(["--set", setting]);
        }
        // Variables with this prefix are settings; those of the tests must not reach the program.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        Ran { code: output.status.code(), said: String::from_utf8(output.stderr).unwrap() }
    }

    /// Keys and values of a topic.
    pub fn records(&self, topic: &str) -> Vec<KeyValue> {
        let records = self.cluster().read_all(topic, 0).unwrap_or_default();
        records.into_iter().map(|record| (record.key, record.value)).collect()
    }

    /// The verdicts on the input's records by offset, according to output and audit: `forwarded`, or `VERDICT REASON`.
    pub fn verdicts(&self, topology: &str) -> Vec<String> {
        let mut dropped = BTreeMap::new();
        for (_, value) in self.records(&format!("{topology}.audit")) {
            let explained: Value = serde_json::from_slice(&value.unwrap()).unwrap();
            let said = format!("{} {}", explained["verdict"].as_str().unwrap(), explained["reason"].as_str().unwrap());
            let twice = dropped.insert(explained["offset"].as_u64().unwrap() as usize, said);
            assert_eq!(twice, None, "{explained}");
        }
        let input = self.records(&format!("{topology}.in"));
        let output = self.records(&format!("{topology}.out"));
        let mut survivors = output.iter();
        let mut verdicts = Vec::new();
        for (offset, record) in input.iter().enumerate() {
            verdicts.push(dropped.remove(&offset).unwrap_or_else(|| {
                assert_eq!(survivors.next(), Some(record), "{topology}: the survivor {offset}");
                "forwarded".to_owned()
            }));
        }
        assert_eq!((survivors.next(), dropped.len()), (None, 0), "{topology}: records that the input does not explain");
        verdicts
    }

    /// The folder of a topology's store.
    pub fn store(&self, topology: &str) -> PathBuf {
        self.path("state").join("slot-0").join(topology).join(format!("{topology}.in-0"))
    }
}

impl Ran {
    #[track_caller]
    pub fn ended(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{}", self.said);
        self
    }

    /// Asserts that one event of the log has all of this.
    #[track_caller]
    pub fn said(self, words: &[&str]) -> Ran {
        let found = self.said.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line has {words:?} in\n{}", self.said);
        self
    }

    #[track_caller]
    pub fn never_said(self, word: &str) -> Ran {
        assert!(!self.said.contains(word), "{word:?} in\n{}", self.said);
        self
    }
}

/// Copies a folder and its contents.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap_or_else(|e| panic!("{}: {e}", from.display())) {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

pub fn hex(bytes: &[u8]) -> Value {
    json!(ratchet::format::hex(bytes))
}

pub fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
