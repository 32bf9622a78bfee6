//! Goal: programs outside of this workspace build against its crates, and run: one whose handler does the work of an
//! embedded cluster's records, without the command line; and one that has only the layer for HTTP requests.
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

/// Has the layer in front of a service, with a store of its own.
const LAYER: &str = r#"
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use ratchet_http::http::request::{Answer, Error, Found, Reply, Reservation, StillHeld, Wanted};
use ratchet_http::http::{Body, Idempotency, Store};
use tower_layer::Layer;
use tower_service::Service;

/// Knows of no request.
struct Empty;

impl Store for Empty {
    fn reserve<'a>(&'a self, _: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async { Ok::<_, Error>(Found::Reserved { taken_over: false }) })
    }
    fn extend(&self, _: Reservation, _: Duration) -> Reply<'_, StillHeld> {
        Box::pin(async { Ok(StillHeld::Yes) })
    }
    fn complete<'a>(&'a self, _: Reservation, _: &'a Answer, _: Duration) -> Reply<'a, StillHeld> {
        Box::pin(async { Ok(StillHeld::Yes) })
    }
    fn release(&self, _: Reservation) -> Reply<'_, StillHeld> {
        Box::pin(async { Ok(StillHeld::Yes) })
    }
    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async { Ok(0) })
    }
    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

#[derive(Clone)]
struct Charge;

impl Service<http::Request<Body>> for Charge {
    type Response = http::Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        std::future::ready(Ok(http::Response::new(Full::from("charged"))))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut service = Idempotency::new(Empty).layer(Charge);
    let request = http::Request::post("/charges").header("Idempotency-Key", "k").body(Full::<Bytes>::default()).unwrap();
    let response = service.call(request).await.unwrap();
    println!("{}", String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()));
}
"#;

/// How the variables begin that a test has from cargo.
const OWN: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "OUT_DIR"];

/// The packages of this workspace that the program is made of.
const OWN_PACKAGES: [&str; 4] = ["ratchet", "ratchet-cluster", "ratchet-core", "ratchet-http"];

/// A program outside of this workspace, in a folder of its own.
struct Outside {
    name: &'static str,
    home: tempfile::TempDir,
}

impl Outside {
    /// Writes the program with its manifest. It has this workspace's profile, so that nothing is compiled twice but the
    /// crates themselves, and these quickly.
    fn new(name: &'static str, dependencies: &str, program: &str) -> Self {
        let outside = Self { name, home: tempfile::tempdir().expect("a folder") };
        let own = fs::read_to_string(workspace().join("Cargo.toml")).expect("the workspace has a manifest");
        let profile = &own[own.find("[profile.release]").expect("there is one profile")..];
        let quickly = OWN_PACKAGES.map(|package| format!("[profile.release.package.{package}]\nopt-level = 0\n"));
        fs::create_dir(outside.home.path().join("src")).expect("the folder is writable");
        outside.write(
            "Cargo.toml",
            &format!(
                "[package]\nname = {name:?}\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
                 [dependencies]\n{dependencies}\n{profile}\n{}",
                quickly.concat()
            ),
        );
        outside.write("src/main.rs", program);
        // The same versions.
        fs::copy(workspace().join("Cargo.lock"), outside.home.path().join("Cargo.lock")).expect("there is a lock file");
        outside
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.home.path().join(name), text).expect("the folder is writable");
    }

    fn cargo(&self, arguments: &[&str]) -> Output {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(arguments).env("CARGO_TARGET_DIR", target());
        // What cargo tells this test of itself is in the way: dependencies whose build scripts ask for it would be built
        // again, here and by the next cargo.
        let is_own = |name: &OsString| OWN.iter().any(|own| name.as_encoded_bytes().starts_with(own.as_bytes()));
        for name in std::env::vars_os().map(|(name, _)| name).filter(is_own) {
            cargo.env_remove(name);
        }
        run(cargo.current_dir(self.home.path()))
    }

    /// Builds the program, runs it, and removes it; what it has printed.
    fn build_and_run(&self) -> String {
        self.cargo(&["build", "--release", "--offline", "--quiet"]);
        let program = target().join("release").join(self.name);
        let output = run(Command::new(&program).current_dir(self.home.path()));
        fs::remove_file(program).expect("the target folder is writable");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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
    let dependencies =
        format!("ratchet = {{ path = {:?}, default-features = false }}\nserde_json = \"1\"\n", workspace());
    let outside = Outside::new("outside", &dependencies, PROGRAM);
    outside.write("people.yaml", TOPOLOGY);
    outside.write("ratchet.yaml", CONFIG);
    let topics = outside.home.path().join("topics");
    send(&topics, &["{\"id\":1}", "{\"id\":2}", "{\"id\":1}"]);
    outside.build_and_run();
    let greeted = greeted(&topics);
    assert!(greeted.len() == 2 && greeted[0].starts_with("hello {\"id\":1} under "), "{greeted:?}");
}

#[test]
fn program_with_the_layer_alone_needs_neither_rocksdb_nor_librdkafka() {
    let dependencies = format!(
        "ratchet-http = {{ path = {:?} }}\nbytes = \"1\"\nhttp = \"1\"\nhttp-body-util = \"0.1\"\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt\"] }}\ntower-layer = \"0.3\"\ntower-service = \"0.3\"\n",
        workspace().join("crates/http")
    );
    let outside = Outside::new("layered", &dependencies, LAYER);
    assert_eq!(outside.build_and_run(), "charged\n");
    let tree = outside.cargo(&["tree", "--offline", "--prefix", "none", "--edges", "normal,build"]);
    let tree = String::from_utf8(tree.stdout).expect("UTF-8");
    assert!(tree.contains("ratchet-core v"), "{tree}");
    let heavy = tree.lines().find(|line| ["rocksdb", "rdkafka"].iter().any(|name| line.contains(name)));
    assert_eq!(heavy, None);
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
