//! Goal: a program outside of this workspace builds against the crate without its command line, and runs: its handler does
//! the work of an embedded cluster's records.
#![allow(clippy::disallowed_methods, reason = "the test starts programs and waits for them")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, Message, NewTopic, Reader, RecordBatch};
use ratchet::record::{Headers, TopicPartition};

const PROGRAM: &str = r#"
use ratchet::{Record, StepError, Steps, Worker};

async fn greet(record: &Record, steps: &mut Steps) -> Result<String, StepError> {
    let person: serde_json::Value = record.json()?;
    steps.call("greet", async |key| Ok(format!("hello {person} under {key}"))).await
}

fn main() -> Result<(), ratchet::Error> {
    Worker::new().config("ratchet.yaml").handler("people.yaml", greet).logs().until_drained().run()
}
"#;

const TOPOLOGY: &str = "
name: people
input: {topics: [people]}
identity: value.id
partitioned_by_identity: true
retention: 30d
sink: {handler: {honoured_for: 24h, result: {topic: greeted}}}
";

const CONFIG: &str = "
cluster: embedded
embedded: {dir: topics, partitions: 1}
state_dir: state
topics: {create: all, replication_factor: 1, min_insync_replicas: 1}
";

/// How the variables begin that a test has from cargo.
const OWN: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "OUT_DIR"];

/// The manifest of a program that depends on the crate, with this workspace's profile, so that nothing is compiled twice
/// but the crate itself, and that quickly.
fn manifest(workspace: &Path) -> String {
    let own = fs::read_to_string(workspace.join("Cargo.toml")).expect("the workspace has a manifest");
    let profile = &own[own.find("[profile.release]").expect("there is one profile")..];
    format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         ratchet = {{ path = {workspace:?}, default-features = false }}\nserde_json = \"1\"\n\n{profile}\n\
         [profile.release.package.ratchet]\nopt-level = 0\n"
    )
}

fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    test.ancestors().nth(3).expect("tests are in TARGET/release/deps").to_owned()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

#[test]
fn program_of_ten_lines_builds_against_the_crate_and_runs() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text).expect("the folder is writable");
    fs::create_dir(home.path().join("src")).expect("the folder is writable");
    write("Cargo.toml", &manifest(workspace));
    write("src/main.rs", PROGRAM);
    write("people.yaml", TOPOLOGY);
    write("ratchet.yaml", CONFIG);
    // The same versions.
    fs::copy(workspace.join("Cargo.lock"), home.path().join("Cargo.lock")).expect("the workspace has a lock file");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--offline", "--quiet"]).env("CARGO_TARGET_DIR", target());
    // What cargo tells this test of itself is in the way: dependencies whose build scripts ask for it would be built again,
    // here and by the next cargo.
    let is_own = |name: &OsString| OWN.iter().any(|own| name.as_encoded_bytes().starts_with(own.as_bytes()));
    for name in std::env::vars_os().map(|(name, _)| name).filter(is_own) {
        build.env_remove(name);
    }
    run(build.current_dir(home.path()));
    let topics = home.path().join("topics");
    send(&topics, &["{\"id\":1}", "{\"id\":2}", "{\"id\":1}"]);
    let program = target().join("release/outside");
    run(Command::new(&program).current_dir(home.path()));
    let greeted = greeted(&topics);
    assert!(greeted.len() == 2 && greeted[0].starts_with("hello {\"id\":1} under "), "{greeted:?}");
    fs::remove_file(program).expect("the target folder is writable");
}

/// Writes these values to the input.
fn send(topics: &Path, values: &[&str]) {
    let cluster = Embedded::open(topics, 1).expect("an embedded cluster");
    let input = NewTopic { name: "people", partition_count: 1, replication_factor: 1, settings: &[] };
    cluster.create_topic(&input).expect("a topic");
    let (topic, headers) = ("people", Headers::default());
    let (partition, key, timestamp) = (0, None, Some(1));
    let values = values.iter().map(|value| Some(value.as_bytes()));
    let messages: Vec<Message<'_>> =
        values.map(|value| Message { topic, partition, key, value, headers, timestamp }).collect();
    cluster.append(topic, 0, &messages).expect("records");
}

/// The values in the topic for results.
fn greeted(topics: &Path) -> Vec<String> {
    let cluster = Embedded::open(topics, 1).expect("an embedded cluster");
    let mut reader = cluster.reader(&TopicPartition::new("greeted", 0), 0).expect("the topic is there");
    let mut batch = Default::default();
    reader.read(&mut batch, 100, Duration::from_secs(5)).expect("records");
    (0..batch.len())
        .map(|at| String::from_utf8_lossy(batch.record(at).value.unwrap_or_default()).into_owned())
        .collect()
}
